//! Finds the configuration file, chooses the store, and merges the file with flags and environment.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onceward::core::policy;
use onceward::core::recipe::{self, Definition, Recipe, WindowDefinition};
use onceward::http::tenant::TenantNames;
use onceward::{Policy, StoreUrl};

use super::api::{Api, ApiSettings};
use super::check;
use super::error::Mistakes;
use super::file::{Limits, Operation};
use super::gateway::Gateway;
use super::inbox::{Inbox, InboxSettings};
use super::mcp::{Mcp, operation_prefix};
use super::route::Sink;
use super::secret::Secret;
use crate::exit::Fault;
use crate::output;

/// The file name, in the working directory.
const FILE: &str = "onceward.toml";

/// The largest `onceward.toml` in the working directory that is checked for a hint to the user.
const MAX_UNNAMED_FILE: u64 = 1024 * 1024;

/// The default store.
const STORE: &str = "onceward.db";

/// The file and the store that the command line or the environment name.
#[derive(Clone, Copy, Debug)]
pub struct ConfigSource<'a> {
    pub config: Option<&'a Path>,
    pub store: Option<&'a StoreUrl>,
}

/// The settings of this call.
#[derive(Debug)]
pub struct Settings {
    store: StoreUrl,
    /// The URLs of further stores, by name.
    stores: BTreeMap<String, StoreUrl>,
    operations: BTreeMap<String, Operation>,
    sinks: BTreeMap<String, Sink>,
    api: Option<Api>,
    inboxes: Vec<Inbox>,
    gateway: Option<Gateway>,
    mcp: Mcp,
    tenant_secret: Option<Secret>,
    limits: Limits,
    /// Whether a flag, the environment or the file names the store.
    is_named: bool,
    /// Relative paths in the file start here.
    folder: PathBuf,
}

impl Settings {
    /// Finds and reads the file. Flags and environment override it.
    pub fn load(source: ConfigSource<'_>) -> Result<Self, Fault> {
        let here = || Some(PathBuf::from(FILE)).filter(|path| path.exists());
        Self::read(source.config.map(Path::to_owned).or_else(here), source)
    }

    /// Reads only a file that is named explicitly. Agents start servers in folders whose content is not trusted, and the
    /// file decides which programs run, where results are kept, and what is not guarded.
    pub fn load_explicit(source: ConfigSource<'_>) -> Result<Self, Fault> {
        if source.config.is_none() && has_unused_settings() {
            output::say(&format!("ignoring {FILE} in this folder; if you trust it, add --config {FILE}."));
        }
        Self::read(source.config.map(Path::to_owned), source)
    }

    fn read(path: Option<PathBuf>, source: ConfigSource<'_>) -> Result<Self, Fault> {
        let file = match &path {
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| Fault::config(format!("cannot read {}: {error}", path.display())))?;
                check::read(&text).map_err(|problems| Mistakes::new(path, &text, problems))?
            }
            None => super::file::File::default(),
        };
        // A job that starts in another folder must not open a new, empty ledger.
        let resolved = |store: StoreUrl| match path.as_deref().and_then(Path::parent) {
            Some(folder) => store.within(folder),
            None => store,
        };
        let configured = file.store.map(resolved);
        let stores = file.stores.into_iter().map(|(name, named)| (name, resolved(named.url))).collect();
        let named = source.store.cloned().or(configured);
        let is_named = named.is_some();
        let store = named.unwrap_or_else(|| STORE.into());
        let folder = path.as_deref().and_then(Path::parent).map(Path::to_owned).unwrap_or_default();
        let settings = Self {
            store,
            stores,
            operations: file.operation,
            sinks: file.sink,
            api: file.api,
            inboxes: file.inbox,
            gateway: file.gateway,
            mcp: file.mcp,
            tenant_secret: file.tenant_secret,
            limits: file.limits,
            is_named,
            folder,
        };
        // With a flag, a command may be about one of the named stores.
        if source.store.is_none() {
            settings.check_places(&settings.store)?;
        }
        Ok(settings)
    }

    /// Refuses two names for one store: every record would be listed twice, and an operation would live in both. `default` is the
    /// store without a name.
    pub fn check_places(&self, default: &StoreUrl) -> Result<(), Fault> {
        let mut places =
            BTreeMap::from_iter(default.place().map(|place| (place, "the store at the top level".to_owned())));
        for (name, url) in &self.stores {
            let Some(place) = url.place() else { continue };
            if let Some(other) = places.insert(place, format!("stores.{name}")) {
                return Err(Fault::config(format!(
                    "stores.{name} and {other} are the same store, {url}; nothing was done.\n  Give each its own file, database \
                     or `prefix`, or remove one of them and the `store = \"{name}\"` of its operations. `--store` and \
                     ONCEWARD_STORE replace the store at the top level."
                )));
            }
        }
        Ok(())
    }

    /// The operations that live in the store with this name.
    pub fn operations_in(&self, store: &str) -> Vec<String> {
        let here = self.operations.iter().filter(|(_, operation)| operation.store.as_deref() == Some(store));
        here.map(|(name, _)| name.clone()).collect()
    }

    /// The name of the store that keeps an operation, if it has one.
    pub fn store_name_of(&self, operation: &str) -> Option<&str> {
        self.operations.get(operation)?.store.as_deref()
    }

    /// How to name tenants that are derived from credentials.
    pub fn tenant_names(&self) -> Result<TenantNames, Fault> {
        let Some(secret) = &self.tenant_secret else { return Ok(TenantNames::default()) };
        let wrong = |what: String| Fault::config(format!("tenant_secret: {what}"));
        // Checked like a token: a short secret can be guessed.
        secret.hashed(&self.folder).map_err(wrong)?;
        Ok(TenantNames::keyed(secret.text(&self.folder).map_err(wrong)?.as_bytes()))
    }

    /// The store, for a long-running process. It may be `memory:`.
    pub fn server_store(&self) -> &StoreUrl {
        &self.store
    }

    /// The further stores: names and URLs.
    pub fn named_stores(&self) -> impl Iterator<Item = (&str, &StoreUrl)> {
        self.stores.iter().map(|(name, url)| (name.as_str(), url))
    }

    /// The store that keeps an operation, for a command that ends at once.
    pub fn store_of(&self, operation: &str) -> Result<&StoreUrl, Fault> {
        let named = self.operations.get(operation).and_then(|operation| operation.store.as_ref());
        match named.and_then(|name| self.stores.get(name)) {
            Some(url) => Ok(url),
            None => self.store(),
        }
    }

    /// The stores that do not keep an operation, with their names.
    pub fn other_stores(&self, operation: &str) -> Vec<(String, StoreUrl)> {
        let home = self.operations.get(operation).and_then(|operation| operation.store.as_deref());
        let default = home.map(|_| ("default", &self.store));
        let named = self.named_stores().filter(|(name, _)| Some(*name) != home);
        default.into_iter().chain(named).map(|(name, url)| (name.to_owned(), url.clone())).collect()
    }

    /// Maximum number of records per tenant; `None` without a limit.
    pub fn records_per_tenant(&self) -> Option<u64> {
        self.limits.records_per_tenant
    }

    /// Every operation in the file.
    pub fn operations(&self) -> impl Iterator<Item = (&str, &Operation)> {
        self.operations.iter().map(|(name, operation)| (name.as_str(), operation))
    }

    /// The API to serve: from the file or the flag, or the default if the file configures no other server.
    pub fn api(&self, listen: Option<SocketAddr>) -> Result<Option<ApiSettings>, Fault> {
        if self.api.is_none() && listen.is_none() && self.gateway.is_some() && self.inboxes.is_empty() {
            return Ok(None);
        }
        let settings = self.api.clone().unwrap_or_default().settings(listen, &self.folder)?;
        let delivered = self.operations().filter_map(|(name, operation)| {
            let (sink, _) = self.sink_of(operation).filter(|(_, sink)| !sink.is_pulled())?;
            Some((name.to_owned(), sink.to_owned()))
        });
        let queued = self.queued_tools().map(|(server, operation, _)| (operation, mcp_sink(server)));
        Ok(Some(ApiSettings { sinks: delivered.chain(queued).collect(), ..settings }))
    }

    /// The store, for a command that ends at once. It must outlive the process.
    pub fn store(&self) -> Result<&StoreUrl, Fault> {
        if self.store.is_memory() {
            return Err(Fault::config(
                "memory: lasts only as long as one process, so no repeat would find the outcome; nothing was done.\n  \
                 Name a file with --store, ONCEWARD_STORE, or `store` in onceward.toml.",
            ));
        }
        Ok(&self.store)
    }

    /// The settings of an operation in the file; the defaults if the file does not name it.
    pub fn operation(&self, name: &str) -> Operation {
        self.operations.get(name).cloned().unwrap_or_default()
    }

    /// Every sink in the file.
    pub fn sinks(&self) -> impl Iterator<Item = (&str, &Sink)> {
        self.sinks.iter().map(|(name, sink)| (name.as_str(), sink))
    }

    /// The sink of an operation, with its name.
    pub fn sink_of(&self, operation: &Operation) -> Option<(&str, &Sink)> {
        let (name, sink) = self.sinks.get_key_value(operation.sink.as_deref()?)?;
        Some((name, sink))
    }

    /// The policy of an operation. What the settings of the operation leave open, its sink knows: how many attempts there are, and
    /// whether an attempt with an unknown outcome may be repeated because the downstream recognises its key.
    pub fn policy(&self, operation: &Operation) -> Policy {
        let mut policy = operation.policy();
        let Some((_, sink)) = self.sink_of(operation) else { return policy };
        policy.max_attempts = Some(sink.retry().max_attempts);
        if let Some(known_for) = sink.honours_key_for() {
            if operation.in_doubt.is_none() {
                policy.in_doubt = policy::InDoubt::Retry;
            }
            if operation.honours_key_for.is_none() {
                policy.honours_key_for = known_for;
            }
        }
        policy
    }

    /// The webhooks to receive, with their secrets.
    pub fn inboxes(&self) -> Result<Vec<InboxSettings>, Fault> {
        self.inboxes.iter().enumerate().map(|(number, inbox)| inbox.settings(number, &self.folder)).collect()
    }

    /// The gateway in the file.
    pub fn gateway(&self) -> Option<&Gateway> {
        self.gateway.as_ref()
    }

    /// The MCP gateway in the file.
    pub fn mcp(&self) -> &Mcp {
        &self.mcp
    }

    /// Checks every server and tool of the MCP gateway.
    pub fn check_mcp(&self) -> Result<(), Fault> {
        for (server, named) in &self.mcp.server {
            if let Some((field, what)) = named.mistake() {
                return Err(Fault::config(format!("mcp.server.{server}.{field}: {what}")));
            }
            for (tool, configured) in &named.tool {
                if let Some((field, what)) = configured.mistake() {
                    return Err(Fault::config(format!("mcp.server.{server}.tool.{tool}.{field}: {what}")));
                }
            }
        }
        Ok(())
    }

    /// The tools that a courier calls: the name of the server, the operation, and the tool.
    pub fn queued_tools(&self) -> impl Iterator<Item = (&str, String, &str)> {
        self.mcp.server.iter().flat_map(|(server, named)| {
            let prefix = operation_prefix(server, "");
            named.queued_tools().map(move |tool| (server.as_str(), format!("{prefix}{tool}"), tool))
        })
    }

    /// Checks what a gateway and a courier must have in common, so that queued calls are delivered: the store.
    pub fn check_queue(&self) -> Result<(), Fault> {
        for (server, operation, tool) in self.queued_tools() {
            let wrong = |what: &str| Err(Fault::config(format!("mcp.server.{server}.tool.{tool}.deliver: {what}")));
            if !self.is_named {
                return wrong(
                    "name the store, for example with `store = \"onceward.db\"` at the top of this file: the gateway queues calls \
                     there, and the courier looks for them there",
                );
            }
            if self.store.is_memory() {
                return wrong("a courier cannot see what another process queues in memory: name another store");
            }
            if self.store_name_of(&operation).is_some() {
                return wrong(&format!(
                    "the tool is queued in the store of the gateway: leave out operation.{operation:?}.store"
                ));
            }
            if self.operation(&operation).sink.is_some() {
                return wrong(&format!("the courier calls the tool itself: leave out operation.{operation:?}.sink"));
            }
            if self.sinks.contains_key(&mcp_sink(server)) {
                return wrong(&format!("the name of the sink {:?} is taken: rename that sink", mcp_sink(server)));
            }
        }
        Ok(())
    }

    /// Whether a flag, the environment or the file names the store.
    pub fn names_store(&self) -> bool {
        self.is_named
    }

    /// The ledger in the user's state folder, unless a store is named.
    pub fn user_ledger(&self) -> Option<PathBuf> {
        if self.is_named { None } else { Some(state_folder()?.join(STORE)) }
    }

    /// The folder of the file.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The store to pass with `--store` so that a command in this folder uses the same ledger; `None` for the default. A
    /// password is left for the reader to fill in, unless it is a reference.
    pub fn store_argument(&self) -> Option<String> {
        (self.store != STORE.into()).then(|| self.store.to_string())
    }
}

/// The name under which the courier calls the tools of a server: its breaker has this name.
pub fn mcp_sink(server: &str) -> String {
    format!("mcp:{server}")
}

/// Whether the file in the working directory has settings that an MCP gateway would use.
fn has_unused_settings() -> bool {
    let is_small = std::fs::metadata(FILE).is_ok_and(|file| file.is_file() && file.len() <= MAX_UNNAMED_FILE);
    let text = if is_small { std::fs::read_to_string(FILE).ok() } else { None };
    let table = text.and_then(|text| text.parse::<toml::Table>().ok());
    table.is_some_and(|table| ["limits", "mcp", "operation"].iter().any(|name| table.contains_key(*name)))
}

/// The folder for the state of this user's programs.
fn state_folder() -> Option<PathBuf> {
    let named = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = named("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let state = state.or_else(|| Some(named("HOME")?.join(".local").join("state")))?;
    Some(state.join("onceward"))
}

impl Operation {
    /// These settings, overridden by those of `over`.
    pub fn overlaid(self, over: Self) -> Self {
        // A tier or a retention that overrides the file also overrides the file's `dedup`.
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
            store: over.store.or(self.store),
            allow_best_effort: over.allow_best_effort.or(self.allow_best_effort),
            store_down: over.store_down.or(self.store_down),
            wait: over.wait.or(self.wait),
            honours_key_for: over.honours_key_for.or(self.honours_key_for),
            keep_limit: over.keep_limit.or(self.keep_limit),
            sink: over.sink.or(self.sink),
        }
    }

    /// The recipe, if the operation has one.
    pub fn recipe(&self) -> Result<Option<Recipe>, recipe::Error> {
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

    /// The policy: these settings, with the defaults of the tier.
    pub fn policy(&self) -> Policy {
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
        policy.allow_best_effort = self.allow_best_effort.unwrap_or(false);
        policy
    }
}

#[cfg(test)]
mod tests {
    use super::super::values::{Dedup, InDoubt, Length, OnError, Retention, Tier};
    use super::*;

    #[test]
    fn retention_forever_keeps_the_other_settings_of_the_tier() {
        let operation =
            Operation { tier: Some(Tier::Payment), retention: Some(Retention::Forever), ..Operation::default() };
        let policy = operation.policy();
        assert_eq!(policy.terms().retention, None);
        assert!(policy.errors().tier_declared);
    }

    #[test]
    fn dedup_holds_the_key_and_leaves_no_tombstone() {
        let window = Duration::from_secs(600);
        let operation = Operation { dedup: Some(Dedup(window)), ..Operation::default() };
        assert_eq!(operation.policy(), Policy::window(window));
        let held = Operation { in_doubt: Some(InDoubt::Hold), ..operation };
        assert_eq!(held.policy().in_doubt, policy::InDoubt::Hold);
        let payment = held.overlaid(Operation { tier: Some(Tier::Payment), ..Operation::default() });
        assert_eq!(payment.policy().terms(), Policy::of(policy::Tier::Payment).terms());
    }

    #[test]
    fn a_flag_overrides_the_file_and_the_file_overrides_the_tier() {
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
}
