//! Inspects a server: lists its tools, says which of them the gateway guards and why, and suggests a configuration.
//!
//! - `conversation`: starts the server and asks for its tools. `suggest`: the configuration. `overview`: every server in the
//!   configurations of clients.

pub(super) mod conversation;
mod overview;
mod suggest;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use onceward::core::policy::InDoubt;
use serde_json::value::RawValue;

use super::DEFAULT_ECHO;
use super::call::CallSettings;
use super::client::PATIENCE;
use super::kind::Effect;
use super::list::learned;
use super::members::Members;
use super::repeat_rule::{self, Rule};
use super::tools::{GuardReason, Tools};
use super::volatile_arguments;
use conversation::{ServerCommand, Stderr};
use onceward_runtime::config::{Server, Tool};
use onceward_runtime::exit::Fault;
pub use overview::{InspectedServer, Overview, ServerState, inspect_all};
use suggest::Suggestion;

/// The result of inspecting one server.
#[derive(Debug)]
pub struct Report {
    /// The protocol version that the server speaks.
    pub protocol: String,
    /// In the order in which the server lists them.
    pub tools: Vec<ToolReport>,
    /// How many lines on its stdout are not messages.
    pub junk: usize,
    /// Text for onceward.toml.
    pub configuration: String,
}

/// What a tool does, as the gateway treats it. Later variants do more harm when they happen twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ToolClass {
    Reads,
    Query,
    Acts,
    Outward,
}

impl ToolClass {
    pub fn text(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Query => "query",
            Self::Acts => "acts",
            Self::Outward => "outward",
        }
    }
}

/// What is known about one tool.
#[derive(Clone, Debug)]
pub struct ToolReport {
    pub name: String,
    pub class: ToolClass,
    /// Equal calls are steps that run one after the other.
    pub steps: bool,
    /// It sets state inside the server's process.
    pub sets_state: bool,
    /// After a call of it, an equal outward call runs again.
    pub ends: bool,
    pub guarded: bool,
    /// A courier calls it.
    pub queued: bool,
    pub why: &'static str,
    /// What the gateway does when the outcome of a call is unknown, and why; `None` for a tool that is not guarded.
    pub in_doubt: Option<(&'static str, String)>,
    /// The argument that the gateway fills with a key.
    pub fills: Option<String>,
    /// Why repeats of its calls may not be recognised.
    pub warnings: Vec<String>,
    pub suggestion: Option<Suggestion>,
}

/// Starts the server, asks for its tools, and stops it. Call it on the main thread, like every function that starts a process.
pub async fn inspect(name: &str, server: Server, command: &[OsString], patience: Duration) -> Result<Report, Fault> {
    let started = ServerCommand { command, env: &server.env, folder: None, label: "", stderr: Stderr::Shown };
    let answers = conversation::listed(&started, patience).await?;
    let rows = rows(&answers.pages, name, &server);
    let configuration = suggest::configuration(name, command, &rows);
    Ok(Report { protocol: answers.protocol, tools: rows, junk: answers.junk, configuration })
}

/// The tools of a page that have a name.
fn listed(page: &Members) -> Vec<Members> {
    let tools = page.get("tools").and_then(|tools| serde_json::from_str::<Vec<Box<RawValue>>>(tools.get()).ok());
    let tools = tools.unwrap_or_default().into_iter().filter_map(|tool| Members::read(tool.get()));
    tools.filter(|tool| tool.text("name").is_some()).collect()
}

/// The tools of all pages, as the gateway treats them.
fn rows(pages: &[Members], name: &str, server: &Server) -> Vec<ToolReport> {
    let tools = Tools::of(server.tool.clone(), server.repeats);
    for page in pages {
        learned(page, &tools);
    }
    pages.iter().flat_map(listed).map(|tool| row(&tool, name, &tools, &server.tool)).collect()
}

/// The class of a tool and the reason.
fn class(name: &str, tools: &Tools) -> (ToolClass, &'static str) {
    let (why, kind, rule) = (tools.guard_reason(name), tools.kind(name), repeat_rule::rule(name, tools));
    let named = match kind.effect {
        Effect::Reads => ToolClass::Reads,
        Effect::Query => ToolClass::Query,
        Effect::Acts => ToolClass::Acts,
        Effect::Outward => ToolClass::Outward,
    };
    match why {
        GuardReason::Named => (named, kind.why),
        GuardReason::Declared(true) => (ToolClass::Reads, why.text()),
        GuardReason::Configured(false) => (named, why.text()),
        _ if rule == Rule::Outward && named != ToolClass::Outward => (ToolClass::Outward, "the configuration says so"),
        _ if rule == Rule::Causal && named == ToolClass::Outward => (ToolClass::Acts, "the configuration says so"),
        GuardReason::MayAct => (named, kind.why),
        GuardReason::Declared(false) if named == ToolClass::Outward => (named, kind.why),
        GuardReason::Configured(true) | GuardReason::Declared(false) | GuardReason::Unlisted => {
            (named.max(ToolClass::Acts), why.text())
        }
    }
}

fn row(described: &Members, server: &str, tools: &Tools, configured: &BTreeMap<String, Tool>) -> ToolReport {
    let name = described.text("name").unwrap_or_default();
    let why = tools.guard_reason(&name);
    let guarded = why.is_guarded();
    let ((class, class_why), kind) = (class(&name, tools), tools.kind(&name));
    let names =
        described.object("inputSchema").map(|schema| volatile_arguments::in_schema(&schema)).unwrap_or_default();
    let changing = volatile_arguments::warning(&names).filter(|_| guarded && !tools.has_recipe(&name));
    let unfit = tools.key_slot(&name).and_then(|slot| tools.key_problem(&name, &slot));
    ToolReport {
        class,
        steps: guarded && kind.steps,
        sets_state: guarded && kind.sets_state,
        ends: guarded && kind.ends,
        guarded,
        queued: tools.is_queued(&name),
        why: class_why,
        in_doubt: guarded.then(|| in_doubt(&name, server, tools)),
        fills: tools.fills(&name).filter(|_| guarded).map(|(argument, _)| argument),
        warnings: unfit.into_iter().chain(changing).collect(),
        suggestion: (guarded && !configured.contains_key(&name)).then(|| Suggestion::of(&name, described)),
        name,
    }
}

/// What the gateway will do in doubt.
fn in_doubt(name: &str, server: &str, tools: &Tools) -> (&'static str, String) {
    let (session, echo, patience, deadline) = (None, DEFAULT_ECHO, PATIENCE, None);
    let settings =
        CallSettings { server: server.to_owned(), tool_prefix: String::new(), session, echo, patience, deadline };
    let configured = tools.configured(name);
    let says = if configured.is_some_and(Tool::chooses_in_doubt) {
        "the configuration says so"
    } else {
        "it declares idempotentHint: true"
    };
    match repeat_rule::policy(name, &settings, tools, repeat_rule::rule(name, tools), false).in_doubt {
        InDoubt::Hold => ("hold", String::new()),
        InDoubt::Tell => ("tell", "reports it once, then runs the same call".to_owned()),
        InDoubt::Retry => ("retry", says.to_owned()),
        InDoubt::Probe => {
            let probe = configured.and_then(|tool| tool.probe.as_ref()).map(|probe| probe.tool.as_str());
            ("probe", format!("asks {}", probe.unwrap_or_default()))
        }
    }
}
