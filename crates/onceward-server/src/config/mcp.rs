//! `[mcp]`, its servers and their tools, as they are written. Their comments are the reference page.

use std::collections::BTreeMap;
use std::fmt;

use http::HeaderName;
use onceward::Policy;
use onceward::core::policy;
use onceward::core::recipe::{self, Recipe};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};

use super::file::Operation;
use super::words::Length;

/// The MCP gateway, which `onceward mcp` runs.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Mcp {
    /// How long an outcome of an outward tool answers equal calls after it was delivered, when no key, recipe or session says
    /// which call it is.
    #[schemars(extend("x-type" = "duration", "x-default" = "`\"60s\"`"))]
    pub(crate) echo: Option<Length>,
    /// The shortest time after which a client that does not announce it may have given up on a call. The answer to a longer call
    /// counts as not delivered for such a client.
    #[schemars(extend("x-type" = "duration", "x-default" = "`\"4s\"`"))]
    pub(crate) patience: Option<Length>,
    /// Whether a repeat's result says in a text block that it is one, and how to really do it again.
    #[schemars(extend("x-type" = "boolean", "x-default" = "`true`"))]
    pub(crate) notice: Option<bool>,
    /// One table for each server, by its name: `[mcp.server.mail]`.
    #[schemars(extend("x-type" = "tables", "x-default" = "none"))]
    pub(crate) server: BTreeMap<String, Server>,
}

/// A server whose tools are guarded.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Server {
    /// How it is started, when `onceward mcp` is not told: the program and its arguments.
    #[schemars(extend("x-type" = "list of strings", "x-default" = "what stands behind `--`"))]
    pub(crate) command: Option<Vec<String>>,
    /// Variables of its environment, besides those of the gateway.
    #[schemars(extend("x-type" = "table of strings", "x-default" = "none"))]
    pub(crate) env: BTreeMap<String, String>,
    /// Headers that tell callers of a server apart that is reached by HTTP: callers with different values never get each
    /// other's results. They count in addition to credentials such as `Authorization` and `X-Api-Key`, to headers whose names
    /// say for whom a call is, such as `Stripe-Account` and `X-Tenant-Id`, or to what `--tenant` says.
    #[schemars(extend("x-type" = "list of strings", "x-default" = "none"))]
    pub(crate) identity_headers: Vec<String>,
    /// Headers that do not tell callers apart although their names look like it, such as a cookie of a load balancer or the id
    /// of an agent's session. A header that looks like a credential and is in neither list is refused.
    #[schemars(extend("x-type" = "list of strings", "x-default" = "none"))]
    pub(crate) ignored_headers: Vec<String>,
    /// When an equal call of its tools is a repeat of the last one: `outward`, also for a while after the answer; `causal`, only
    /// until the answer was delivered.
    #[schemars(extend("x-type" = "`outward` or `causal`", "x-default" = "by each tool's name"))]
    pub(crate) repeats: Option<Repeats>,
    /// One table for each tool, by its name: `[mcp.server.mail.tool.send_email]`.
    #[schemars(extend("x-type" = "tables", "x-default" = "none"))]
    pub(crate) tool: BTreeMap<String, Tool>,
}

/// A tool. Everything that an operation has may stand here too.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Tool {
    /// Whether it is guarded. Decides over the tool's annotations and its name.
    #[schemars(extend("x-type" = "boolean", "x-default" = "unless it says that it only reads"))]
    pub(crate) guard: Option<bool>,
    /// When an equal call is a repeat of the last one, where no key or recipe says which call it is: `outward`, also for `echo`
    /// after the answer; `causal`, only until the answer was delivered.
    #[schemars(extend("x-type" = "`outward` or `causal`", "x-default" = "the server's `repeats`, or by its name"))]
    pub(crate) repeats: Option<Repeats>,
    /// The argument of the tool that takes an idempotency key. The gateway fills it with the same key on every attempt,
    /// written as the tool's schema wants it. Models do not see the argument, and what they write there does not count.
    /// `false` leaves all arguments to the model.
    #[schemars(extend("x-type" = "string or `false`", "x-default" = "the string argument that is spelled `idempotencykey`, with case and separators ignored, unless the recipe names it"))]
    pub(crate) key_argument: Option<KeyArgument>,
    /// Another tool of the same server that tells whether it happened, for `in_doubt = "probe"`.
    #[schemars(extend("x-type" = "table", "x-default" = "none"))]
    pub(crate) probe: Option<Probe>,
    #[serde(flatten)]
    pub(crate) operation: Operation,
}

/// When an equal call is a repeat of the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Repeats {
    /// Also for a while after the answer: the effect reaches other people.
    Outward,
    /// Only until the answer was delivered.
    Causal,
}

/// Which argument takes the key of a call.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub(crate) enum KeyArgument {
    Named(String),
    /// None: models fill all arguments.
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

/// A tool that looks whether another one took effect.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Probe {
    /// Its name.
    #[schemars(extend("x-type" = "string", "x-default" = "needed"))]
    pub(crate) tool: String,
    /// Its arguments. A text that begins with `$/` is a JSON pointer into the arguments of the call in doubt.
    #[schemars(extend("x-type" = "table", "x-default" = "none"))]
    pub(crate) arguments: serde_json::Map<String, serde_json::Value>,
    /// A JSON pointer into its answer. If something is there that is not `null`, `false`, `0` or empty, it happened. If that
    /// is there, or a list on the way is too short, it did not. An answer without such a place says nothing.
    #[schemars(extend("x-type" = "JSON pointer", "x-default" = "needed"))]
    pub(crate) found: String,
    /// How long it may take until an effect shows: so long after the doubt began, nothing found says nothing. What was
    /// under way when the gateway died may act in that time.
    #[schemars(extend("x-type" = "duration", "x-default" = "the tool's `max_runtime`"))]
    pub(crate) after: Option<Length>,
}

impl Server {
    /// What is wrong with it, and where.
    pub(crate) fn mistake(&self) -> Option<(&'static str, String)> {
        for (field, names) in [("identity_headers", &self.identity_headers), ("ignored_headers", &self.ignored_headers)]
        {
            if let Some(name) = names.iter().find(|name| HeaderName::try_from(name.as_str()).is_err()) {
                return Some((field, format!("`{name}` is not the name of a header")));
            }
        }
        let is_both = |name: &&String| self.identity_headers.iter().any(|other| other.eq_ignore_ascii_case(name));
        let both = self.ignored_headers.iter().find(is_both)?;
        Some(("ignored_headers", format!("`{both}` is in identity_headers too")))
    }
}

impl Tool {
    /// Whether it is guarded, if the file says so: who names what makes the intent means it to be.
    pub(crate) fn guarded(&self) -> Option<bool> {
        let operation = &self.operation;
        let fills = matches!(self.key_argument, Some(KeyArgument::Named(_)));
        let is_meant = operation.key.is_some() || operation.tier.is_some() || fills || self.probe.is_some();
        self.guard.or_else(|| is_meant.then_some(true))
    }

    /// Whether the recipe names this argument, or something in it.
    pub(crate) fn recipe_names(&self, argument: &str) -> bool {
        let operation = &self.operation;
        let mut pointers = operation.key.iter().chain(&operation.match_fields).flatten();
        let first = format!("/{}", argument.replace('~', "~0").replace('/', "~1"));
        pointers
            .any(|pointer| pointer.strip_prefix(&first).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    }

    pub(crate) fn recipe(&self) -> Result<Option<Recipe>, recipe::Error> {
        self.operation.recipe()
    }

    /// Its policy. Who says how to look means to look.
    pub(crate) fn policy(&self) -> Policy {
        let mut policy = self.operation.policy();
        if self.operation.in_doubt.is_none() && self.probe.is_some() {
            policy.in_doubt = policy::InDoubt::Probe;
        }
        policy.probes = self.probe.is_some();
        policy
    }

    /// Whether the file says how long outcomes are kept.
    pub(crate) fn chooses_retention(&self) -> bool {
        self.operation.retention.is_some() || self.operation.dedup.is_some()
    }

    /// Whether the file says what happens in doubt.
    pub(crate) fn chooses_in_doubt(&self) -> bool {
        self.operation.in_doubt.is_some() || self.operation.dedup.is_some() || self.probe.is_some()
    }

    /// Whether the file says how long a repeat waits.
    pub(crate) fn chooses_wait(&self) -> bool {
        self.operation.wait.is_some()
    }

    /// What is wrong with it, and where.
    pub(crate) fn mistake(&self) -> Option<(&'static str, String)> {
        if let Err(error) = self.recipe() {
            return Some(("key", error.to_string()));
        }
        if self.policy().effect == policy::Effect::Transactional {
            return Some(("effect", onceward::Invalid::Transactional.to_string()));
        }
        if let Some(KeyArgument::Named(name)) = &self.key_argument
            && self.recipe_names(name)
        {
            let what = "the gateway fills this argument, so that `key` and `match` cannot name it".to_owned();
            return Some(("key_argument", what));
        }
        let asks = self.policy().in_doubt == policy::InDoubt::Probe;
        match &self.probe {
            None if asks => Some((
                "probe",
                "in_doubt = \"probe\" needs a tool to ask: probe = { tool, arguments, found }".to_owned(),
            )),
            Some(probe) if probe.tool.is_empty() => Some(("probe.tool", "the name of a tool is needed".to_owned())),
            Some(probe) if !probe.found.starts_with('/') => {
                Some(("probe.found", "a JSON pointer is needed, such as \"/found\"".to_owned()))
            }
            _ => None,
        }
    }
}
