//! One answer out of several.

use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::super::list::{self, STATUS, cursor};
use super::super::members::Members;
use super::super::reply::Reply;
use super::hub::{Hub, Server};
use super::{BETWEEN, INTRODUCTION};
use crate::output;

/// How many pages of a list are asked of one server.
const PAGES: usize = 100;

/// What came of asking.
pub(super) enum Gathered {
    /// A result that was put together.
    Result(Members),
    /// The answer of the one server that has one.
    Answer(Members),
}

/// Asks all servers, or those that know. `None` when nobody knows such a method.
pub(super) async fn answer(hub: &Hub, method: &str, parameters: Members) -> Option<Gathered> {
    match method {
        "initialize" => Some(Gathered::Result(introduced(hub, &parameters).await)),
        "tools/list" => Some(Gathered::Result(listed(hub, method, "tools", &parameters).await)),
        "prompts/list" => Some(Gathered::Result(listed(hub, method, "prompts", &parameters).await)),
        "resources/list" => Some(Gathered::Result(listed(hub, method, "resources", &parameters).await)),
        "resources/templates/list" => {
            Some(Gathered::Result(listed(hub, method, "resourceTemplates", &parameters).await))
        }
        "tasks/list" => Some(Gathered::Result(listed(hub, method, "tasks", &parameters).await)),
        "logging/setLevel" => {
            join_all(hub.present().map(|server| server.ask(method, &parameters))).await;
            Some(Gathered::Result(Members::default()))
        }
        // A prompt says whose it is, and what else there is is asked of one after the other.
        _ => first(hub, method, parameters).await.map(Gathered::Answer),
    }
}

/// The first answer that is no error, or else the last error.
async fn first(hub: &Hub, method: &str, parameters: Members) -> Option<Members> {
    let mut last = None;
    for server in hub.present() {
        let mut parameters = parameters.clone();
        if let Some(mut reference) = parameters.object("ref")
            && let Some(name) = reference.text("name")
        {
            let Some(rest) = name.strip_prefix(&server.name).and_then(|rest| rest.strip_prefix(BETWEEN)) else {
                continue;
            };
            reference.set("name", &rest);
            parameters.set("ref", &reference);
        }
        match server.ask(method, &parameters).await {
            Some(answer) if answer.get("error").is_none() => return Some(answer),
            answer => last = answer.or(last),
        }
    }
    last
}

/// The lists of all servers, one after the other.
async fn listed(hub: &Hub, method: &str, name: &str, parameters: &Members) -> Members {
    let all = join_all(hub.present().map(|server| pages(server, method, name, parameters))).await;
    let mut items: Vec<_> = all.into_iter().flatten().collect();
    if name == "tools" {
        items.extend(list::own(STATUS[0]));
    }
    let mut result = Members::default();
    result.set(name, &items);
    result
}

async fn pages(server: &Server, method: &str, name: &str, parameters: &Members) -> Vec<Box<RawValue>> {
    let (mut items, mut parameters) = (Vec::new(), parameters.clone());
    parameters.remove("cursor");
    for _ in 0..PAGES {
        let answer = server.ask(method, &parameters).await;
        let Some(result) = answer.and_then(|answer| answer.object("result")) else { break };
        let page = match name {
            "tools" => list::learned(&result, &server.gate.tools).map(|tools| list::shown(tools, &server.gate.tools)),
            _ => result.get(name).and_then(|items| serde_json::from_str(items.get()).ok()),
        };
        let page: Vec<Box<RawValue>> = page.unwrap_or_default();
        let is_named = matches!(name, "tools" | "prompts");
        items.extend(page.into_iter().map(|item| if is_named { prefixed(server, item) } else { item }));
        match cursor(&result) {
            Some(next) => parameters.set("cursor", &next),
            None => break,
        }
    }
    items
}

/// A tool or prompt, under a name that says whose it is.
fn prefixed(server: &Server, item: Box<RawValue>) -> Box<RawValue> {
    let Some(mut members) = Members::read(item.get()) else { return item };
    let Some(name) = members.text("name") else { return item };
    members.set("name", &format!("{}{BETWEEN}{name}", server.name));
    to_raw_value(&members).unwrap_or(item)
}

/// All servers introduce themselves as one. Who does not is left out.
async fn introduced(hub: &Hub, parameters: &Members) -> Members {
    let asked = hub.present().map(async |server| {
        let answer = timeout(INTRODUCTION, server.ask("initialize", parameters)).await.ok().flatten();
        (server, answer.and_then(|answer| answer.object("result")))
    });
    let (mut version, mut capabilities) = (parameters.text("protocolVersion"), Map::new());
    let mut instructions = Vec::new();
    for (server, result) in join_all(asked).await {
        let Some(result) = result else {
            server.is_out.store(true, Ordering::Relaxed);
            output::say(&format!("{} did not introduce itself, and is left out.", server.name));
            continue;
        };
        // The oldest that anybody speaks: their names sort by date.
        version = match (version, result.text("protocolVersion")) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        let offered = result.get("capabilities").and_then(|offered| serde_json::from_str(offered.get()).ok());
        joined(&mut capabilities, offered.unwrap_or_default());
        instructions.extend(result.text("instructions").map(|text| format!("{}: {text}", server.name)));
    }
    let mut result = Members::default();
    result.set("protocolVersion", &version);
    result.set("capabilities", &capabilities);
    result.set("serverInfo", &json!({ "name": "onceward", "version": env!("CARGO_PKG_VERSION") }));
    if !instructions.is_empty() {
        result.set("instructions", &instructions.join("\n\n"));
    }
    result
}

/// What any of them can do.
fn joined(all: &mut Map<String, Value>, more: Map<String, Value>) {
    for (name, value) in more {
        match (all.get_mut(&name), value) {
            (Some(Value::Object(all)), Value::Object(more)) => joined(all, more),
            (Some(Value::Bool(all)), Value::Bool(more)) => *all |= more,
            (Some(_), _) => {}
            (None, value) => drop(all.insert(name, value)),
        }
    }
}

/// What several servers say of recent calls.
pub(super) fn statuses(texts: &[(String, String)]) -> Reply {
    let mut blocks = Vec::new();
    for (server, content) in texts {
        let content: Vec<Value> = serde_json::from_str(content).unwrap_or_default();
        for text in content.iter().filter_map(|block| block.get("text")?.as_str()) {
            blocks.push(json!({ "type": "text", "text": format!("{server}:\n{text}") }));
        }
    }
    let mut result = Members::default();
    result.set("content", &blocks);
    result.set("isError", &false);
    Reply::Result(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn together_they_can_do_what_any_of_them_can() {
        let mut all = Map::new();
        for one in [
            json!({ "tools": { "listChanged": false }, "logging": {} }),
            json!({ "tools": { "listChanged": true }, "resources": { "subscribe": true } }),
            json!({ "tools": {} }),
        ] {
            joined(&mut all, one.as_object().unwrap().clone());
        }
        let expected = json!({ "tools": { "listChanged": true }, "logging": {}, "resources": { "subscribe": true } });
        assert_eq!(Value::Object(all), expected);
    }
}
