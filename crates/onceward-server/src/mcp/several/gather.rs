//! One answer out of several.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::super::list::{self, STATUS, cursor};
use super::super::members::Members;
use super::super::reply::Reply;
use super::BETWEEN;
use super::era::{self, Between, Era, MODERN};
use super::hub::Hub;
use super::listen::Listen;
use super::server::{Met, Server, held};

/// How many pages of a list are asked of one server.
const PAGES: usize = 100;

/// How long a server may take to list what it has. One that takes longer is shown as it was the last time.
const LISTING: Duration = Duration::from_secs(10);

/// How long a server may take to say whether it knows what is asked of one after the other.
const ASKING: Duration = Duration::from_secs(30);

/// What a server can do that is the same in both ways of speaking.
const SHARED: [&str; 4] = ["tools", "prompts", "resources", "completions"];

/// What came of asking.
pub(super) enum Gathered {
    /// A result that was put together.
    Result(Members),
    /// The answer of the one server that has one.
    Answer(Members),
    /// This one is to be asked.
    Owner(Arc<Server>),
    /// Nobody knows such a method.
    Unknown,
    /// Nobody has answered in time.
    TooLate,
}

/// Asks all servers, or those that know.
pub(super) async fn answer(hub: &Arc<Hub>, method: &str, parameters: &Members) -> Gathered {
    let is_modern = hub.is_modern();
    let list = match method {
        "initialize" | "server/discover" => return Gathered::Result(introduced(hub, parameters).await),
        "tools/list" => "tools",
        "prompts/list" => "prompts",
        "resources/list" => "resources",
        "resources/templates/list" => "resourceTemplates",
        "tasks/list" if !is_modern => "tasks",
        "logging/setLevel" if !is_modern => {
            set_level(hub, parameters).await;
            return Gathered::Result(Members::default());
        }
        "ping" | "logging/setLevel" | "tasks/list" => return Gathered::Unknown,
        _ => return one(hub, method, parameters).await,
    };
    let mut result = listed(hub, method, list, parameters).await;
    if is_modern {
        era::complete(&mut result);
    }
    Gathered::Result(result)
}

/// What only one of them can answer.
async fn one(hub: &Arc<Hub>, method: &str, parameters: &Members) -> Gathered {
    if let Some(owner) = parameters.text("uri").and_then(|uri| hub.owner(&uri)) {
        return Gathered::Owner(owner);
    }
    // Who waits for the end of a task may wait for long, so it is asked for its state first.
    if parameters.get("taskId").is_some() && method != "tasks/get" {
        let mut asked = parameters.clone();
        asked.remove("inputResponses");
        for server in ordered(hub).await {
            let known = server.answer_to("tasks/get", &asked, ASKING).await;
            if known.is_some_and(|answer| answer.get("result").is_some()) {
                return Gathered::Owner(server);
            }
        }
    }
    first(hub, method, parameters).await
}

/// All servers, those that let us wait behind the others.
async fn ordered(hub: &Hub) -> Vec<Arc<Server>> {
    met(hub).await;
    let mut servers: Vec<_> = hub.present().cloned().collect();
    servers.sort_by_key(|server| server.is_late());
    servers
}

/// The first answer that is no error, or else the last error.
async fn first(hub: &Hub, method: &str, parameters: &Members) -> Gathered {
    let mut last = Gathered::Unknown;
    for server in ordered(hub).await {
        let mut parameters = parameters.clone();
        // A prompt says whose it is.
        if let Some(mut reference) = parameters.object("ref")
            && let Some(name) = reference.text("name")
        {
            let Some(rest) = name.strip_prefix(&server.name).and_then(|rest| rest.strip_prefix(BETWEEN)) else {
                continue;
            };
            reference.set("name", &rest);
            parameters.set("ref", &reference);
        }
        last = match (server.answer_to(method, &parameters, ASKING).await, last) {
            (Some(answer), _) if answer.get("error").is_none() => return Gathered::Answer(answer),
            (Some(answer), _) => Gathered::Answer(answer),
            (None, Gathered::Unknown) if server.is_late() => Gathered::TooLate,
            (None, last) => last,
        };
    }
    last
}

async fn set_level(hub: &Hub, parameters: &Members) {
    join_all(hub.present().map(async |server| {
        if let (Some(Met { era: Era::Modern, between, .. }), Some(level)) = (server.met(), parameters.get("level")) {
            held(between).set_level(level);
        } else {
            server.answer_to("logging/setLevel", parameters, LISTING).await;
        }
    }))
    .await;
}

/// The lists of all servers, one after the other.
async fn listed(hub: &Hub, method: &str, name: &'static str, parameters: &Members) -> Members {
    met(hub).await;
    let all = join_all(hub.present().map(async |server| {
        // Late once, it is shown as it was, until it says something again.
        let items = if server.is_late() { None } else { pages(server, method, name, parameters).await };
        if let Some(items) = &items {
            server.lists(name, items);
        }
        (server, items.unwrap_or_else(|| server.listed(name)))
    }))
    .await;
    if name == "resources" {
        let uri = |item: &RawValue| Members::read(item.get())?.text("uri");
        let listed = all.iter().flat_map(|(server, items)| items.iter().map(move |item| (uri(item), *server)));
        hub.learn(listed.filter_map(|(uri, server)| Some((uri?, Arc::clone(server)))));
    }
    let mut items: Vec<_> = all.into_iter().flat_map(|(_, items)| items).collect();
    if name == "tools" && hub.present().any(|server| server.gate.tools.guards_any()) {
        items.extend(list::own(STATUS[0]));
    }
    let mut result = Members::default();
    result.set(name, &items);
    result
}

/// All that a server lists; `None` when it took too long.
async fn pages(server: &Server, method: &str, name: &str, parameters: &Members) -> Option<Vec<Box<RawValue>>> {
    let (mut items, mut parameters) = (Vec::new(), parameters.clone());
    parameters.remove("cursor");
    let end = Instant::now() + LISTING;
    for _ in 0..PAGES {
        let answer = server.answer_to(method, &parameters, end.saturating_duration_since(Instant::now())).await;
        if answer.is_none() && server.is_late() {
            return None;
        }
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
    Some(items)
}

/// A tool or prompt, under a name that says whose it is.
fn prefixed(server: &Server, item: Box<RawValue>) -> Box<RawValue> {
    let Some(mut members) = Members::read(item.get()) else { return item };
    let Some(name) = members.text("name") else { return item };
    members.set("name", &format!("{}{BETWEEN}{name}", server.name));
    to_raw_value(&members).unwrap_or(item)
}

/// Those that have introduced themselves. The others are left out.
async fn met(hub: &Hub) -> Vec<(&Arc<Server>, &Met)> {
    let Some(client) = hub.client() else { return Vec::new() };
    let all = join_all(hub.present().map(async |server| Some((server, server.meet(client).await?)))).await;
    all.into_iter().flatten().collect()
}

/// All servers introduce themselves as one.
async fn introduced(hub: &Hub, parameters: &Members) -> Members {
    let (mut version, mut instructions) = (parameters.text("protocolVersion"), Vec::new());
    let met = met(hub).await;
    for (server, met) in &met {
        // The oldest that anybody speaks: their names sort by date.
        version = match (version, met.said.text("protocolVersion")) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        instructions.extend(met.said.text("instructions").map(|text| format!("{}: {text}", server.name)));
    }
    let (mut result, us) = (Members::default(), json!({ "name": "onceward", "version": env!("CARGO_PKG_VERSION") }));
    if hub.is_modern() {
        result.set("supportedVersions", &[MODERN]);
    } else {
        result.set("protocolVersion", &version);
        result.set("serverInfo", &us);
    }
    result.set("capabilities", &capabilities(&met));
    if !instructions.is_empty() {
        result.set("instructions", &instructions.join("\n\n"));
    }
    if hub.is_modern() {
        era::complete(&mut result);
        result.set("_meta", &json!({ "io.modelcontextprotocol/serverInfo": us }));
    }
    result
}

/// What all of them can do together.
fn capabilities(met: &[(&Arc<Server>, &Met)]) -> Map<String, Value> {
    let mut all = Map::new();
    for (_, met) in met {
        let offered = met.said.get("capabilities").and_then(|offered| serde_json::from_str(offered.get()).ok());
        joined(&mut all, understood(offered.unwrap_or_default(), &held(&met.between)));
    }
    // A server that was late has other tools once it is back.
    if let Some(Value::Object(tools)) = all.get_mut("tools") {
        tools.insert("listChanged".to_owned(), json!(true));
    }
    all
}

/// What of it a client can use that speaks in this or another way.
fn understood(mut offered: Map<String, Value>, between: &Between) -> Map<String, Value> {
    match between {
        Between::Same => {}
        Between::Bare => offered.retain(|name, _| SHARED.contains(&name.as_str())),
        Between::Enveloped(_) => {
            offered.retain(|name, _| SHARED.contains(&name.as_str()) || name == "logging");
            if let Some(Value::Object(resources)) = offered.get_mut("resources") {
                resources.remove("subscribe");
            }
        }
    }
    offered
}

/// What of what somebody wants to listen to can be had.
pub(super) async fn agreed(hub: &Hub, wants: &Members) -> Members {
    let offered = Value::Object(capabilities(&met(hub).await));
    let is_there = |pointer: &str| offered.pointer(pointer).is_some_and(|there| *there == Value::Bool(true));
    let mut agreed = Members::default();
    for name in wants.names() {
        let is_offered = match name {
            "toolsListChanged" => is_there("/tools/listChanged"),
            "promptsListChanged" => is_there("/prompts/listChanged"),
            "resourcesListChanged" => is_there("/resources/listChanged"),
            "resourceSubscriptions" => is_there("/resources/subscribe"),
            _ => true,
        };
        if let Some(value) = wants.get(name).filter(|_| is_offered) {
            agreed.set(name, &value);
        }
    }
    agreed
}

/// Watches resources of servers that are asked for that one by one, or does so no longer.
pub(super) fn watch(hub: &Arc<Hub>, listen: &Listen, method: &'static str) {
    let watching: Vec<_> = hub.present().filter(|server| matches!(server.between(), Between::Bare)).cloned().collect();
    for (server, uri) in watching.iter().flat_map(|server| listen.resources().into_iter().map(move |uri| (server, uri)))
    {
        let (server, mut parameters) = (Arc::clone(server), Members::default());
        parameters.set("uri", &uri);
        hub.start(async move {
            server.answer_to(method, &parameters, LISTING).await;
            None
        });
    }
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
