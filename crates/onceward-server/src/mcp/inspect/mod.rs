//! A look at a server: what its tools are, which of them the gateway guards and why, and a configuration to start from.
//!
//! - `talk`: the server's process, and what is said to it. `suggest`: the configuration. `all`: every server that the clients'
//!   configurations name.

mod all;
mod suggest;
mod talk;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use onceward::core::policy::InDoubt;
use serde_json::value::RawValue;

use super::ECHO;
use super::call::Naming;
use super::client::PATIENCE;
use super::kind::Effect;
use super::list::learned;
use super::members::Members;
use super::repeats::{self, Rule};
use super::tools::{Tools, Why};
use super::volatile;
use crate::config::{Server, Tool};
use crate::exit::Fault;
use crate::output;
pub(crate) use all::{Looked, Overview, State, look_at_all};
use suggest::Suggestion;
use talk::{Noise, Started};

/// What was found.
#[derive(Debug)]
pub(crate) struct Report {
    /// The generation of the protocol that was spoken.
    pub(crate) protocol: String,
    /// In the order in which the server lists them.
    pub(crate) tools: Vec<Row>,
    /// Lines on its output that are no messages.
    pub(crate) junk: usize,
    /// Text for onceward.toml.
    pub(crate) configuration: String,
}

/// What a tool does, as the gateway treats it: the later, the worse it is when it happens twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Reads,
    Query,
    Acts,
    Outward,
}

impl Class {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Query => "query",
            Self::Acts => "acts",
            Self::Outward => "outward",
        }
    }
}

/// A tool.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) class: Class,
    /// Equal calls are steps, which run one after the other.
    pub(crate) steps: bool,
    /// It sets state inside the server's process.
    pub(crate) sets_state: bool,
    /// Once it is done, the same outward call is meant again.
    pub(crate) ends: bool,
    pub(crate) guarded: bool,
    pub(crate) why: &'static str,
    /// What happens when nobody knows whether a call took effect, and why; nothing for one that is not guarded.
    pub(crate) in_doubt: Option<(&'static str, String)>,
    /// The argument that the gateway fills with a key.
    pub(crate) fills: Option<String>,
    /// What keeps repeats of its calls from being recognised.
    pub(crate) warnings: Vec<String>,
    pub(crate) suggestion: Option<Suggestion>,
}

/// Starts the server, asks it, and stops it. Must be called on the main thread, like everything that starts a process.
pub(crate) async fn look(
    name: &str,
    server: Server,
    command: &[OsString],
    patience: Duration,
) -> Result<Report, Fault> {
    let started = Started { command, env: &server.env, folder: None, label: "", noise: Noise::Shown };
    let heard = talk::listed(&started, patience).await?;
    let rows = rows(&heard.pages, name, &server);
    let configuration = suggest::configuration(name, command, &rows);
    Ok(Report { protocol: heard.protocol, tools: rows, junk: heard.junk, configuration })
}

/// The tools of a page that have a name.
fn listed(page: &Members) -> Vec<Members> {
    let tools = page.get("tools").and_then(|tools| serde_json::from_str::<Vec<Box<RawValue>>>(tools.get()).ok());
    let tools = tools.unwrap_or_default().into_iter().filter_map(|tool| Members::read(tool.get()));
    tools.filter(|tool| tool.text("name").is_some()).collect()
}

/// The tools of all pages, as the gateway treats them.
fn rows(pages: &[Members], name: &str, server: &Server) -> Vec<Row> {
    let tools = Tools::of(server.tool.clone(), server.repeats);
    for page in pages {
        learned(page, &tools);
    }
    pages.iter().flat_map(listed).map(|tool| row(&tool, name, &tools, &server.tool)).collect()
}

/// The class of a tool, and why.
fn class(name: &str, tools: &Tools) -> (Class, &'static str) {
    let (why, kind, rule) = (tools.why(name), tools.kind(name), repeats::rule(name, tools));
    let named = match kind.effect {
        Effect::Reads => Class::Reads,
        Effect::Query => Class::Query,
        Effect::Acts => Class::Acts,
        Effect::Outward => Class::Outward,
    };
    match why {
        Why::Named => (named, kind.why),
        Why::Declared(true) => (Class::Reads, why.text()),
        Why::Configured(false) => (named, why.text()),
        _ if rule == Rule::Outward && named != Class::Outward => (Class::Outward, "the configuration says so"),
        _ if rule == Rule::Causal && named == Class::Outward => (Class::Acts, "the configuration says so"),
        Why::MayAct => (named, kind.why),
        Why::Declared(false) if named == Class::Outward => (named, kind.why),
        Why::Configured(true) | Why::Declared(false) | Why::Unlisted => (named.max(Class::Acts), why.text()),
    }
}

fn row(described: &Members, server: &str, tools: &Tools, configured: &BTreeMap<String, Tool>) -> Row {
    let name = described.text("name").unwrap_or_default();
    let why = tools.why(&name);
    let guarded = why.is_guarded();
    let ((class, class_why), kind) = (class(&name, tools), tools.kind(&name));
    let names = described.object("inputSchema").map(|schema| volatile::in_schema(&schema)).unwrap_or_default();
    let changing = volatile::warning(&names).filter(|_| guarded && !tools.has_recipe(&name));
    let unfit = tools.slot(&name).and_then(|slot| tools.unfit_slot(&name, &slot));
    Row {
        class,
        steps: guarded && kind.steps,
        sets_state: guarded && kind.sets_state,
        ends: guarded && kind.ends,
        guarded,
        why: class_why,
        in_doubt: guarded.then(|| in_doubt(&name, server, tools)),
        fills: tools.fills(&name).filter(|_| guarded).map(|(argument, _)| argument),
        warnings: unfit.into_iter().chain(changing).collect(),
        suggestion: (guarded && !configured.contains_key(&name)).then(|| Suggestion::of(&name, described)),
        name,
    }
}

/// As the gateway will decide it.
fn in_doubt(name: &str, server: &str, tools: &Tools) -> (&'static str, String) {
    let (session, echo, patience, deadline) = (None, ECHO, PATIENCE, None);
    let naming = Naming { server: server.to_owned(), shown: String::new(), session, echo, patience, deadline };
    let configured = tools.configured(name);
    let says = if configured.is_some_and(Tool::chooses_in_doubt) {
        "the configuration says so"
    } else {
        "it declares idempotentHint: true"
    };
    match repeats::policy(name, &naming, tools, repeats::rule(name, tools), false).in_doubt {
        InDoubt::Hold => ("hold", String::new()),
        InDoubt::Tell => ("tell", "the caller is told once, then the same call runs".to_owned()),
        InDoubt::Retry => ("retry", says.to_owned()),
        InDoubt::Probe => {
            let probe = configured.and_then(|tool| tool.probe.as_ref()).map(|probe| probe.tool.as_str());
            ("probe", format!("asks {}", probe.unwrap_or_default()))
        }
    }
}

/// A text of somebody else's on one line, without anything that a terminal would obey or that changes how the rest is read:
/// signs that turn the direction of writing around, or are not seen.
pub(crate) fn plain(text: &str) -> String {
    let is_unseen = |sign: char| {
        matches!(sign,
            '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}')
    };
    output::tame(text).replace(is_unseen, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn what_is_not_seen_is_replaced() {
        assert_eq!(
            plain("get_\u{202e}liam\u{200b}\u{feff}\u{e0041}\n"),
            "get_\u{fffd}liam\u{fffd}\u{fffd}\u{fffd}\u{fffd}"
        );
        assert_eq!(plain("größe 大小"), "größe 大小");
    }
}
