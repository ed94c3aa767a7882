//! What a tool does, as far as its name tells.

use super::members::Members;
use super::reads::{only_reads, words};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Reads,
    Query,
    Acts,
    Outward,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) effect: Effect,
    pub(super) steps: bool,
    pub(super) sets_state: bool,
    pub(super) ends: bool,
    pub(super) why: &'static str,
}

pub(super) fn of(name: &str, prefix: &[String]) -> Kind {
    let words = words(name);
    let words = words.strip_prefix(prefix).filter(|rest| !rest.is_empty()).unwrap_or(&words);
    let first = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
    let effect = if words == ["query"] || first(&["execute"]) {
        Effect::Query
    } else if only_reads(name) {
        Effect::Reads
    } else if first(&["send", "reply", "notify", "publish", "pay", "charge", "refund"]) || words == ["create", "issue"]
    {
        Effect::Outward
    } else {
        Effect::Acts
    };
    Kind {
        effect,
        steps: first(&["press", "type", "scroll", "click", "next", "pop", "undo", "roll"]),
        sets_state: first(&["connect", "login", "open", "navigate", "select", "use"]),
        ends: first(&["delete", "close", "cancel"]),
        why: "its name",
    }
}

pub(super) fn shared_prefix<'a>(_names: impl Iterator<Item = &'a str>) -> Vec<String> {
    Vec::new()
}

pub(super) fn is_plain_read(arguments: &Members) -> bool {
    let text = arguments.text("query").or_else(|| arguments.text("sql")).unwrap_or_default();
    text.trim_start().to_ascii_lowercase().starts_with("select") && !text.contains(';')
}
