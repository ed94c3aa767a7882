//! `[mcp]`, its servers and their tools. The doc comments here become the reference page.

use std::collections::BTreeMap;
use std::fmt;

use http::HeaderName;
use onceward::Policy;
use onceward::core::policy;
use onceward::core::recipe::{self, Recipe};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};

use super::file::Operation;
use super::values::{Length, StoreDown};

/// The MCP gateway, run by `onceward mcp`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Mcp {
    /// How long after delivery an equal call of an outward tool gets the same outcome, if no key, recipe or session identifies
    /// the call.
    #[schemars(extend("x-type" = "duration", "x-default" = "`\"60s\"`"))]
    pub echo: Option<Length>,
    /// The shortest time-out that a client may have if it does not announce one. For such a client, the result of a call that
    /// took longer counts as not delivered.
    #[schemars(extend("x-type" = "duration", "x-default" = "`\"4s\"`"))]
    pub patience: Option<Length>,
    /// Whether a replayed result contains a text block that says so and explains how to repeat the call on purpose.
    #[schemars(extend("x-type" = "boolean", "x-default" = "`true`"))]
    pub notice: Option<bool>,
    /// One table per server: `[mcp.server.mail]`.
    #[schemars(extend("x-type" = "tables", "x-default" = "none"))]
    pub server: BTreeMap<String, Server>,
}

/// An MCP server whose tools are guarded.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Server {
    /// The program and its arguments that start the server, if the command line does not name them.
    #[schemars(extend("x-type" = "list of strings", "x-default" = "the command after `--`"))]
    pub command: Option<Vec<String>>,
    /// Additional environment variables for the server.
    #[schemars(extend("x-type" = "table of strings", "x-default" = "none"))]
    pub env: BTreeMap<String, String>,
    /// Headers that distinguish the callers of a server that is reached over HTTP: callers with different values never get each
    /// other's results. They apply in addition to credentials such as `Authorization` and `X-Api-Key`, to headers that name an
    /// account, such as `Stripe-Account` and `X-Tenant-Id`, or to `--tenant`.
    #[schemars(extend("x-type" = "list of strings", "x-default" = "none"))]
    pub identity_headers: Vec<String>,
    /// Headers that look like credentials but do not distinguish callers, such as a load balancer's cookie or an agent's
    /// session id. A header that looks like a credential and is in neither list is refused.
    #[schemars(extend("x-type" = "list of strings", "x-default" = "none"))]
    pub ignored_headers: Vec<String>,
    /// When an equal call is a repeat: `outward`, until some time after the result was delivered; `causal`, only until the
    /// result is delivered.
    #[schemars(extend("x-type" = "`outward` or `causal`", "x-default" = "by each tool's name"))]
    pub repeats: Option<Repeats>,
    /// One table per tool: `[mcp.server.mail.tool.send_email]`.
    #[schemars(extend("x-type" = "tables", "x-default" = "none"))]
    pub tool: BTreeMap<String, Tool>,
}

/// A tool. It also accepts all settings of an operation but `store`: all tools of a gateway are in the gateway's own ledger.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Tool {
    /// Whether to guard the tool. Overrides the tool's annotations and its name.
    #[schemars(extend("x-type" = "boolean", "x-default" = "yes, unless the tool declares itself read-only"))]
    pub guard: Option<bool>,
    /// When the tool is called. `now`: while the model waits. `queue`: the gateway records the call and answers at once;
    /// `onceward courier` or `onceward serve`, started with the same file, calls the tool. Needs the `command` of the server,
    /// and a `store`. Equal calls are one entry until the retention ends.
    #[schemars(extend("x-type" = "`now` or `queue`", "x-default" = "`\"now\"`"))]
    pub deliver: Option<Deliver>,
    /// When an equal call is a repeat, if no key or recipe identifies the call: `outward`, until `echo` after the result was
    /// delivered; `causal`, only until the result is delivered.
    #[schemars(extend("x-type" = "`outward` or `causal`", "x-default" = "the server's `repeats`, or by its name"))]
    pub repeats: Option<Repeats>,
    /// The argument of the tool that takes an idempotency key. The gateway fills it with the same key on every attempt, in the
    /// form that the tool's schema requires. Models do not see the argument, and values from the model are ignored. `false`
    /// leaves all arguments to the model.
    #[schemars(extend("x-type" = "string or `false`", "x-default" = "the string argument that is spelled `idempotencykey`, with case and separators ignored, unless the recipe names it"))]
    pub key_argument: Option<KeyArgument>,
    /// Another tool of the same server that tells whether the effect happened, for `in_doubt = "probe"`.
    #[schemars(extend("x-type" = "table", "x-default" = "none"))]
    pub probe: Option<Probe>,
    #[serde(flatten)]
    pub operation: Operation,
}

/// When an equal call is a repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Repeats {
    /// Until some time after the result was delivered: the effect reaches other people.
    Outward,
    /// Only until the result is delivered.
    Causal,
}

/// When a tool is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Deliver {
    /// While the model waits.
    Now,
    /// Later, by a courier.
    Queue,
}

/// The beginning of the operations of a server's tools. A slash in the server's name is escaped. `scope` distinguishes several
/// servers with one name.
pub fn operation_prefix(server: &str, scope: &str) -> String {
    format!("mcp:{}{scope}/", server.replace('%', "%25").replace('/', "%2F"))
}

/// The argument that takes the idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub enum KeyArgument {
    Named(String),
    /// None: the model fills all arguments.
    Off,
}

impl<'de> Deserialize<'de> for KeyArgument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = KeyArgument;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of an argument, or false")
            }

            fn visit_bool<E: de::Error>(self, fills: bool) -> Result<KeyArgument, E> {
                if fills { Err(E::custom("name the argument, or write false")) } else { Ok(KeyArgument::Off) }
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<KeyArgument, E> {
                if name.is_empty() {
                    return Err(E::custom("name the argument, or write false"));
                }
                Ok(KeyArgument::Named(name.to_owned()))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// A tool that checks whether another tool took effect.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Probe {
    /// The name of the tool.
    #[schemars(extend("x-type" = "string", "x-default" = "required"))]
    pub tool: String,
    /// Its arguments. A string that starts with `$/` is a JSON pointer into the arguments of the call in doubt.
    #[schemars(extend("x-type" = "table", "x-default" = "none"))]
    pub arguments: serde_json::Map<String, serde_json::Value>,
    /// A JSON pointer into its result. A value other than `null`, `false`, `0` or empty means that it happened. One of these
    /// values, or a list on the way that is too short, means that it did not. A result without this field leaves the doubt.
    #[schemars(extend("x-type" = "JSON pointer", "x-default" = "required"))]
    pub found: String,
    /// How long an effect may take to become visible. For this long after the doubt began, "not found" proves nothing: a call
    /// that was running when the gateway died may still take effect.
    #[schemars(extend("x-type" = "duration", "x-default" = "the tool's `max_runtime`"))]
    pub after: Option<Length>,
}

impl Server {
    /// The first mistake: its field and what is wrong.
    pub fn mistake(&self) -> Option<(&'static str, String)> {
        for (field, names) in [("identity_headers", &self.identity_headers), ("ignored_headers", &self.ignored_headers)]
        {
            if let Some(name) = names.iter().find(|name| HeaderName::try_from(name.as_str()).is_err()) {
                return Some((field, format!("`{name}` is not the name of a header")));
            }
        }
        if self.command.as_ref().is_none_or(Vec::is_empty)
            && let Some(tool) = self.queued_tools().next()
        {
            let what = format!(
                "the courier calls the queued tool {tool}, and starts the server itself: write the command here. A server that is \
                 reached over HTTP cannot have queued tools"
            );
            return Some(("command", what));
        }
        let is_both = |name: &&String| self.identity_headers.iter().any(|other| other.eq_ignore_ascii_case(name));
        let both = self.ignored_headers.iter().find(is_both)?;
        Some(("ignored_headers", format!("`{both}` is in identity_headers too")))
    }

    /// The names of the tools that a courier calls.
    pub fn queued_tools(&self) -> impl Iterator<Item = &str> {
        self.tool.iter().filter(|(_, tool)| tool.is_queued()).map(|(name, _)| name.as_str())
    }
}

impl Tool {
    /// Whether the file says that the tool is guarded: `guard`, or any setting that only makes sense for a guarded tool.
    pub fn guarded(&self) -> Option<bool> {
        let operation = &self.operation;
        let fills = matches!(self.key_argument, Some(KeyArgument::Named(_)));
        let is_meant = operation.key.is_some() || operation.tier.is_some() || fills || self.probe.is_some();
        self.guard.or_else(|| (is_meant || self.is_queued()).then_some(true))
    }

    /// Whether a courier calls it.
    pub fn is_queued(&self) -> bool {
        self.deliver == Some(Deliver::Queue)
    }

    /// Whether equal calls are repeats until the outcome is no longer kept, because the file says so.
    pub fn keeps_repeats(&self) -> bool {
        self.chooses_retention() || self.is_queued()
    }

    /// Whether the recipe names this argument or a field in it.
    pub fn recipe_names(&self, argument: &str) -> bool {
        let operation = &self.operation;
        let mut pointers = operation.key.iter().chain(&operation.match_fields).flatten();
        let first = format!("/{}", argument.replace('~', "~0").replace('/', "~1"));
        pointers
            .any(|pointer| pointer.strip_prefix(&first).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    }

    pub fn recipe(&self) -> Result<Option<Recipe>, recipe::Error> {
        self.operation.recipe()
    }

    /// The policy. A configured probe implies `in_doubt = "probe"`.
    pub fn policy(&self) -> Policy {
        let mut policy = self.operation.policy();
        if self.operation.in_doubt.is_none() && self.probe.is_some() {
            policy.in_doubt = policy::InDoubt::Probe;
        }
        policy.probes = self.probe.is_some();
        policy
    }

    /// Whether the file sets how long outcomes are kept.
    pub fn chooses_retention(&self) -> bool {
        self.operation.retention.is_some() || self.operation.dedup.is_some()
    }

    /// Whether the file sets what happens in doubt.
    pub fn chooses_in_doubt(&self) -> bool {
        self.operation.in_doubt.is_some() || self.operation.dedup.is_some() || self.probe.is_some()
    }

    /// Whether the file sets how long a repeat waits.
    pub fn chooses_wait(&self) -> bool {
        self.operation.wait.is_some()
    }

    /// The first mistake: its field and what is wrong.
    pub fn mistake(&self) -> Option<(&'static str, String)> {
        if let Err(error) = self.recipe() {
            return Some(("key", error.to_string()));
        }
        if self.operation.store.is_some() {
            let what = "all tools of a gateway are in its own ledger: start the gateway with --store URL".to_owned();
            return Some(("store", what));
        }
        if self.policy().effect == policy::Effect::Transactional {
            return Some(("effect", onceward::Invalid::Transactional.to_string()));
        }
        if let Some(KeyArgument::Named(name)) = &self.key_argument
            && self.recipe_names(name)
        {
            let what = "the gateway fills this argument, so `key` and `match` cannot name it".to_owned();
            return Some(("key_argument", what));
        }
        if self.is_queued()
            && let Some(mistake) = self.mistake_of_queued()
        {
            return Some(mistake);
        }
        let asks = self.policy().in_doubt == policy::InDoubt::Probe;
        match &self.probe {
            None if asks => Some((
                "probe",
                "in_doubt = \"probe\" needs a tool to ask: probe = { tool, arguments, found }".to_owned(),
            )),
            Some(probe) if probe.tool.is_empty() => Some(("probe.tool", "the name of a tool is required".to_owned())),
            Some(probe) if !probe.found.starts_with('/') => {
                Some(("probe.found", "a JSON pointer is required, such as \"/found\"".to_owned()))
            }
            _ => None,
        }
    }

    fn mistake_of_queued(&self) -> Option<(&'static str, String)> {
        if self.guard == Some(false) {
            return Some(("guard", "a queued tool is recorded in the ledger, so it cannot be unguarded".to_owned()));
        }
        if self.operation.store_down == Some(StoreDown::Open) {
            let what =
                "without the store nothing can be queued, so a queued tool is refused while it is down".to_owned();
            return Some(("store_down", what));
        }
        let what = "the courier calls the tool itself: leave `sink` out, or leave `deliver = \"queue\"` out".to_owned();
        self.operation.sink.as_ref().map(|_| ("sink", what))
    }
}
