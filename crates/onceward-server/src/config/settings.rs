//! Which file, which store, and what an operation wants once file and flags are laid over each other.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onceward::Policy;
use onceward::core::policy;
use onceward::core::recipe::{self, Definition, Recipe, WindowDefinition};
use onceward::http::tenant::Names;

use super::api::{Api, ApiSettings};
use super::check;
use super::error::Mistakes;
use super::file::{Limits, Operation};
use super::gateway::Gateway;
use super::mcp::Mcp;
use super::secret::Secret;
use crate::exit::Fault;
use crate::output;

/// Looked for in the working directory.
const FILE: &str = "onceward.toml";

/// The largest file in the working directory that is looked at although nobody has named it.
const LARGEST: u64 = 1024 * 1024;

/// The store when nobody names one.
const STORE: &str = "onceward.db";

/// What command line and environment say about file and store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chosen<'a> {
    pub(crate) config: Option<&'a Path>,
    pub(crate) store: Option<&'a str>,
}

/// The settings of this call.
#[derive(Debug)]
pub(crate) struct Settings {
    store: String,
    operations: BTreeMap<String, Operation>,
    api: Option<Api>,
    gateway: Option<Gateway>,
    mcp: Mcp,
    tenant_secret: Option<Secret>,
    limits: Limits,
    /// Somebody has said where the store is.
    is_named: bool,
    /// Relative paths in the file start here.
    folder: PathBuf,
}

impl Settings {
    /// Finds and reads the file. Flags and environment outrank it.
    pub(crate) fn load(chosen: Chosen<'_>) -> Result<Self, Fault> {
        let here = || Some(PathBuf::from(FILE)).filter(|path| path.exists());
        Self::read(chosen.config.map(Path::to_owned).or_else(here), chosen)
    }

    /// Reads the file that was named, and no other: agents start servers in folders that somebody else has filled, and the
    /// file says which programs run, where results are kept, and what is not guarded.
    pub(crate) fn load_named(chosen: Chosen<'_>) -> Result<Self, Fault> {
        if chosen.config.is_none() && is_passed_over() {
            output::say(&format!("{FILE} in this folder is not used; if you trust it, add --config {FILE}."));
        }
        Self::read(chosen.config.map(Path::to_owned), chosen)
    }

    fn read(path: Option<PathBuf>, chosen: Chosen<'_>) -> Result<Self, Fault> {
        let file = match &path {
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| Fault::config(format!("{} cannot be read: {error}", path.display())))?;
                check::read(&text).map_err(|problems| Mistakes::new(path, &text, problems))?
            }
            None => super::file::File::default(),
        };
        let configured = file.store.map(|store| match path.as_deref().and_then(Path::parent) {
            Some(folder) => beside(folder, &store),
            None => store,
        });
        let named = chosen.store.map(str::to_owned).or(configured);
        let is_named = named.is_some();
        let store = named.unwrap_or_else(|| STORE.to_owned());
        let folder = path.as_deref().and_then(Path::parent).map(Path::to_owned).unwrap_or_default();
        Ok(Self {
            store,
            operations: file.operation,
            api: file.api,
            gateway: file.gateway,
            mcp: file.mcp,
            tenant_secret: file.tenant_secret,
            limits: file.limits,
            is_named,
            folder,
        })
    }

    /// How tenants that are made from credentials are named.
    pub(crate) fn tenant_names(&self) -> Result<Names, Fault> {
        let Some(secret) = &self.tenant_secret else { return Ok(Names::default()) };
        let wrong = |what: String| Fault::config(format!("tenant_secret: {what}"));
        // Checked like a token: a short one can be guessed.
        secret.hashed(&self.folder).map_err(wrong)?;
        Ok(Names::keyed(secret.text(&self.folder).map_err(wrong)?.as_bytes()))
    }

    /// The store, for a process that lives as long as its callers.
    pub(crate) fn store_of_server(&self) -> &str {
        &self.store
    }

    /// How many records a tenant may have; `None` for as many as it likes.
    pub(crate) fn records_per_tenant(&self) -> Option<u64> {
        self.limits.records_per_tenant
    }

    /// Every operation that the file names.
    pub(crate) fn operations(&self) -> impl Iterator<Item = (&str, &Operation)> {
        self.operations.iter().map(|(name, operation)| (name.as_str(), operation))
    }

    /// What is to be served as the API: what the file or the flag says; or the default, if the file names nothing else
    /// to be served.
    pub(crate) fn api(&self, listen: Option<SocketAddr>) -> Result<Option<ApiSettings>, Fault> {
        if self.api.is_none() && listen.is_none() && self.gateway.is_some() {
            return Ok(None);
        }
        self.api.clone().unwrap_or_default().settings(listen, &self.folder).map(Some)
    }

    /// The store, for a command that ends before the next one begins.
    pub(crate) fn store(&self) -> Result<&str, Fault> {
        if self.store == "memory:" {
            return Err(Fault::config(
                "memory: lasts only as long as one process, so that no repeat would find anything in it; nothing was done.\n  \
                 Name a file with --store, ONCEWARD_STORE, or `store` in onceward.toml.",
            ));
        }
        Ok(&self.store)
    }

    /// What the file says about an operation; nothing, if it does not name it.
    pub(crate) fn operation(&self, name: &str) -> Operation {
        self.operations.get(name).cloned().unwrap_or_default()
    }

    /// What the file says about the gateway.
    pub(crate) fn gateway(&self) -> Option<&Gateway> {
        self.gateway.as_ref()
    }

    /// What the file says about the MCP gateway.
    pub(crate) fn mcp(&self) -> &Mcp {
        &self.mcp
    }

    /// Whether a flag, the environment or the file says where the ledger is.
    pub(crate) fn names_store(&self) -> bool {
        self.is_named
    }

    /// The ledger in the user's own folder, unless another is named.
    pub(crate) fn own_ledger(&self) -> Option<PathBuf> {
        if self.is_named { None } else { Some(state_folder()?.join(STORE)) }
    }

    /// The folder of the file.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What a command that is typed here has to be told to find the same store.
    pub(crate) fn store_to_name(&self) -> Option<&str> {
        (self.store != STORE).then_some(&self.store)
    }
}

/// Whether the file in the working directory has something to say to a server that it is not asked about.
fn is_passed_over() -> bool {
    let is_small = std::fs::metadata(FILE).is_ok_and(|file| file.is_file() && file.len() <= LARGEST);
    let text = if is_small { std::fs::read_to_string(FILE).ok() } else { None };
    let table = text.and_then(|text| text.parse::<toml::Table>().ok());
    table.is_some_and(|table| ["limits", "mcp", "operation"].iter().any(|name| table.contains_key(*name)))
}

/// The folder in which programs keep what outlives them, for this user.
fn state_folder() -> Option<PathBuf> {
    let named = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = named("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let state = state.or_else(|| Some(named("HOME")?.join(".local").join("state")))?;
    Some(state.join("onceward"))
}

/// A relative path in the file starts from the file's own folder: a job that is started elsewhere must not find
/// itself another, empty ledger.
fn beside(folder: &Path, store: &str) -> String {
    if store == "memory:" || store.contains("://") || folder.as_os_str().is_empty() {
        return store.to_owned();
    }
    folder.join(store.strip_prefix("file:").unwrap_or(store)).to_string_lossy().into_owned()
}

impl Operation {
    /// This, with whatever `over` says instead.
    pub(crate) fn overlaid(self, over: Self) -> Self {
        // Who names a tier or a retention wants that, and not the file's window for low stakes.
        let keeps_dedup = over.tier.is_none() && over.retention.is_none();
        Self {
            tier: over.tier.or(self.tier),
            key: over.key.or(self.key),
            match_fields: over.match_fields.or(self.match_fields),
            normalise: over.normalise.or(self.normalise),
            window: over.window.or(self.window),
            allow_volatile: over.allow_volatile.or(self.allow_volatile),
            max_runtime: over.max_runtime.or(self.max_runtime),
            deadline: over.deadline.or(self.deadline),
            in_doubt: over.in_doubt.or(self.in_doubt),
            on_error: over.on_error.or(self.on_error),
            effect: over.effect.or(self.effect),
            retention: over.retention.or(self.retention),
            dedup: over.dedup.or(self.dedup.filter(|_| keeps_dedup)),
            tombstone: over.tombstone.or(self.tombstone),
            store_down: over.store_down.or(self.store_down),
            wait: over.wait.or(self.wait),
            honours_key_for: over.honours_key_for.or(self.honours_key_for),
            keep_limit: over.keep_limit.or(self.keep_limit),
        }
    }

    /// The recipe, if the operation has one.
    pub(crate) fn recipe(&self) -> Result<Option<Recipe>, recipe::Error> {
        let Some(key) = self.key.clone() else { return Ok(None) };
        let window = self.window.clone().map(|window| WindowDefinition {
            of: window.of,
            every: window.every,
            zone: window.zone,
            allow_now: window.allow_now,
        });
        let definition = Definition {
            key,
            match_fields: self.match_fields.clone().unwrap_or_default(),
            normalise: self.normalise.clone().unwrap_or_default(),
            window,
            allow_volatile: self.allow_volatile.unwrap_or(false),
        };
        Recipe::new(definition).map(Some)
    }

    /// The policy: what is said here, and the tier's for the rest.
    pub(crate) fn policy(&self) -> Policy {
        let mut policy = match self.dedup {
            Some(dedup) => Policy::window(dedup.0),
            None => Policy { tier: self.tier.map(policy::Tier::from), ..Policy::default() },
        };
        let set = |field: &mut Duration, length: Option<super::Length>| {
            if let Some(length) = length {
                *field = length.0;
            }
        };
        set(&mut policy.max_runtime, self.max_runtime);
        set(&mut policy.wait, self.wait);
        set(&mut policy.honours_key_for, self.honours_key_for);
        policy.deadline = self.deadline.map(|length| length.0);
        policy.tombstone = self.tombstone.map(|length| length.0).or(policy.tombstone);
        policy.in_doubt = self.in_doubt.map_or(policy.in_doubt, Into::into);
        policy.on_error = self.on_error.map_or(policy.on_error, Into::into);
        policy.effect = self.effect.map_or(policy.effect, Into::into);
        policy.store_down = self.store_down.map_or(policy.store_down, Into::into);
        policy.keep_limit = self.keep_limit.map_or(policy.keep_limit, |size| size.0);
        policy.retention = self.retention.map(Into::into).or(policy.retention);
        policy
    }
}

#[cfg(test)]
mod tests {
    use super::super::words::{Dedup, InDoubt, Length, OnError, Retention, Tier};
    use super::*;

    #[test]
    fn for_ever_keeps_what_else_the_tier_means() {
        let operation =
            Operation { tier: Some(Tier::Payment), retention: Some(Retention::Forever), ..Operation::default() };
        let policy = operation.policy();
        assert_eq!(policy.terms().retention, None);
        assert!(policy.errors().tier_declared);
    }

    #[test]
    fn a_window_of_low_stakes_holds_the_key_and_leaves_nothing() {
        let window = Duration::from_secs(600);
        let operation = Operation { dedup: Some(Dedup(window)), ..Operation::default() };
        assert_eq!(operation.policy(), Policy::window(window));
        let held = Operation { in_doubt: Some(InDoubt::Hold), ..operation };
        assert_eq!(held.policy().in_doubt, policy::InDoubt::Hold);
        let payment = held.overlaid(Operation { tier: Some(Tier::Payment), ..Operation::default() });
        assert_eq!(payment.policy().terms(), Policy::of(policy::Tier::Payment).terms());
    }

    #[test]
    fn a_flag_outranks_the_file_and_the_file_outranks_the_tier() {
        let second = |count| Some(Length(Duration::from_secs(count)));
        let file = Operation {
            tier: Some(Tier::Payment),
            wait: second(1),
            on_error: Some(OnError::Keep),
            ..Operation::default()
        };
        let flags = Operation { wait: second(2), ..Operation::default() };
        let policy = file.overlaid(flags).policy();
        assert_eq!(policy.wait, Duration::from_secs(2));
        assert_eq!(policy.on_error, policy::OnError::Keep);
        assert_eq!(policy.tier, Some(policy::Tier::Payment));
    }

    #[test]
    fn a_store_in_the_file_is_beside_the_file() {
        let folder = Path::new("/etc/onceward");
        assert_eq!(beside(folder, "a.db"), "/etc/onceward/a.db");
        assert_eq!(beside(folder, "file:a.db"), "/etc/onceward/a.db");
        assert_eq!(beside(folder, "/var/a.db"), "/var/a.db");
        assert_eq!(beside(folder, "memory:"), "memory:");
        assert_eq!(beside(Path::new(""), "a.db"), "a.db");
    }
}
