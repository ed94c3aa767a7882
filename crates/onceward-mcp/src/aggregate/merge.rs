//! Merges the responses of several servers into one, or finds the server that can respond.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::super::list::{self, STATUS, cursor};
use super::super::members::Members;
use super::super::reply::Reply;
use super::protocol_version::{self, MODERN, ProtocolFamily, Translation};
use super::server::{Handshake, Server, locked};
use super::subscriptions::Subscription;
use super::{Aggregate, NAME_SEPARATOR};

/// How many pages of a list one server is asked for.
const MAX_PAGES: usize = 100;

/// How long a server may take to list what it has. After that, the gateway shows what it listed last.
const LIST_LIMIT: Duration = Duration::from_secs(10);

/// How long a server may take to respond to a request that the servers are asked one after the other.
const ASK_LIMIT: Duration = Duration::from_secs(30);

/// The capabilities that are the same in both families of the protocol.
const SHARED_CAPABILITIES: [&str; 4] = ["tools", "prompts", "resources", "completions"];

/// The response to a request that names no server.
pub(super) enum Merged {
    /// A merged result.
    Result(Members),
    /// The response of one server.
    Response(Members),
    /// The request is for this server.
    PassTo(Arc<Server>),
    /// No server knows the method.
    UnknownMethod,
    /// No server has answered in time.
    TimedOut,
}

/// Responds to a request that names no server.
pub(super) async fn respond(aggregate: &Aggregate, method: &str, parameters: &Members) -> Merged {
    let is_modern = aggregate.is_modern();
    let list = match method {
        "initialize" | "server/discover" => return Merged::Result(merged_handshake(aggregate, parameters).await),
        "tools/list" => "tools",
        "prompts/list" => "prompts",
        "resources/list" => "resources",
        "resources/templates/list" => "resourceTemplates",
        "tasks/list" if !is_modern => "tasks",
        "logging/setLevel" if !is_modern => {
            set_level(aggregate, parameters).await;
            return Merged::Result(Members::default());
        }
        "ping" | "logging/setLevel" | "tasks/list" => return Merged::UnknownMethod,
        _ => return one_server(aggregate, method, parameters).await,
    };
    let mut result = merged_list(aggregate, method, list, parameters).await;
    if is_modern {
        protocol_version::complete(&mut result);
    }
    Merged::Result(result)
}

/// Finds the one server that can respond.
async fn one_server(aggregate: &Aggregate, method: &str, parameters: &Members) -> Merged {
    if let Some(server) = parameters.text("uri").and_then(|uri| aggregate.server_of(&uri)) {
        return Merged::PassTo(server);
    }
    // A request for the end of a task may take long, so the servers are asked for its state first.
    if parameters.get("taskId").is_some() && method != "tasks/get" {
        let mut asked = parameters.clone();
        asked.remove("inputResponses");
        for server in late_ones_last(aggregate).await {
            let known = server.ask("tasks/get", &asked, ASK_LIMIT).await;
            if known.is_some_and(|response| response.get("result").is_some()) {
                return Merged::PassTo(server);
            }
        }
    }
    first(aggregate, method, parameters).await
}

/// All available servers; late ones come last.
async fn late_ones_last(aggregate: &Aggregate) -> Vec<Arc<Server>> {
    handshakes(aggregate).await;
    let mut servers: Vec<_> = aggregate.available().cloned().collect();
    servers.sort_by_key(|server| server.is_late());
    servers
}

/// The first response that is not an error, or else the last error.
async fn first(aggregate: &Aggregate, method: &str, parameters: &Members) -> Merged {
    let mut last = Merged::UnknownMethod;
    for server in late_ones_last(aggregate).await {
        let mut parameters = parameters.clone();
        // The name of a prompt says which server has it.
        if let Some(mut reference) = parameters.object("ref")
            && let Some(name) = reference.text("name")
        {
            let Some(rest) = name.strip_prefix(&server.name).and_then(|rest| rest.strip_prefix(NAME_SEPARATOR)) else {
                continue;
            };
            reference.set("name", &rest);
            parameters.set("ref", &reference);
        }
        last = match (server.ask(method, &parameters, ASK_LIMIT).await, last) {
            (Some(response), _) if response.get("error").is_none() => return Merged::Response(response),
            (Some(response), _) => Merged::Response(response),
            (None, Merged::UnknownMethod) if server.is_late() => Merged::TimedOut,
            (None, last) => last,
        };
    }
    last
}

async fn set_level(aggregate: &Aggregate, parameters: &Members) {
    join_all(aggregate.available().map(async |server| {
        let handshake = server.handshake_result().filter(|server| server.family == ProtocolFamily::Modern);
        if let (Some(handshake), Some(level)) = (handshake, parameters.get("level")) {
            locked(&handshake.translation).set_level(level);
        } else {
            server.ask("logging/setLevel", parameters, LIST_LIMIT).await;
        }
    }))
    .await;
}

/// The lists of all servers, one after the other.
async fn merged_list(aggregate: &Aggregate, method: &str, name: &'static str, parameters: &Members) -> Members {
    handshakes(aggregate).await;
    let all = join_all(aggregate.available().map(async |server| {
        // A late server is shown as it listed itself last, until it sends something.
        let items = if server.is_late() { None } else { pages(server, method, name, parameters).await };
        if let Some(items) = &items {
            server.keep_list(name, items);
        }
        (server, items.unwrap_or_else(|| server.last_list(name)))
    }))
    .await;
    if name == "resources" {
        let uri = |item: &RawValue| Members::read(item.get())?.text("uri");
        let listed = all.iter().flat_map(|(server, items)| items.iter().map(move |item| (uri(item), *server)));
        aggregate.learn_resources(listed.filter_map(|(uri, server)| Some((uri?, Arc::clone(server)))));
    }
    let mut items: Vec<_> = all.into_iter().flat_map(|(_, items)| items).collect();
    if name == "tools" && aggregate.available().any(|server| server.gate().tools.guards_any()) {
        items.extend(list::own_tool(STATUS[0]));
    }
    let mut result = Members::default();
    result.set(name, &items);
    result
}

/// All pages of a server's list; `None` when it took too long.
async fn pages(server: &Server, method: &str, name: &str, parameters: &Members) -> Option<Vec<Box<RawValue>>> {
    let (mut items, mut parameters) = (Vec::new(), parameters.clone());
    parameters.remove("cursor");
    let end = Instant::now() + LIST_LIMIT;
    for _ in 0..MAX_PAGES {
        let response = server.ask(method, &parameters, end.saturating_duration_since(Instant::now())).await;
        if response.is_none() && server.is_late() {
            return None;
        }
        let Some(result) = response.and_then(|response| response.object("result")) else { break };
        let page = match name {
            "tools" => {
                list::learned(&result, &server.gate().tools).map(|tools| list::shown(tools, &server.gate().tools))
            }
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

/// A tool or prompt with the server's name in front of its own.
fn prefixed(server: &Server, item: Box<RawValue>) -> Box<RawValue> {
    let Some(mut members) = Members::read(item.get()) else { return item };
    let Some(name) = members.text("name") else { return item };
    members.set("name", &format!("{}{NAME_SEPARATOR}{name}", server.name));
    to_raw_value(&members).unwrap_or(item)
}

/// Makes the handshakes that are missing. Returns the servers that have answered; the others are left out.
async fn handshakes(aggregate: &Aggregate) -> Vec<(&Arc<Server>, &Handshake)> {
    let Some(client) = aggregate.introduction.get() else { return Vec::new() };
    let all = join_all(aggregate.available().map(async |server| Some((server, server.handshake(client).await?)))).await;
    all.into_iter().flatten().collect()
}

/// The response to `initialize` or `server/discover`, for all servers as one.
async fn merged_handshake(aggregate: &Aggregate, parameters: &Members) -> Members {
    let (mut version, mut instructions) = (parameters.text("protocolVersion"), Vec::new());
    let handshakes = handshakes(aggregate).await;
    for (server, handshake) in &handshakes {
        // The oldest version of all: their names sort by date.
        version = match (version, handshake.result.text("protocolVersion")) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        instructions.extend(handshake.result.text("instructions").map(|text| format!("{}: {text}", server.name)));
    }
    let (mut result, gateway) =
        (Members::default(), json!({ "name": "onceward", "version": env!("CARGO_PKG_VERSION") }));
    if aggregate.is_modern() {
        result.set("supportedVersions", &[MODERN]);
    } else {
        result.set("protocolVersion", &version);
        result.set("serverInfo", &gateway);
    }
    result.set("capabilities", &capabilities(&handshakes));
    if !instructions.is_empty() {
        result.set("instructions", &instructions.join("\n\n"));
    }
    if aggregate.is_modern() {
        protocol_version::complete(&mut result);
        result.set("_meta", &json!({ "io.modelcontextprotocol/serverInfo": gateway }));
    }
    result
}

/// The capabilities of all servers together.
fn capabilities(handshakes: &[(&Arc<Server>, &Handshake)]) -> Map<String, Value> {
    let mut all = Map::new();
    for (_, server) in handshakes {
        let offered = server.result.get("capabilities").and_then(|offered| serde_json::from_str(offered.get()).ok());
        merge_capabilities(&mut all, usable(offered.unwrap_or_default(), &locked(&server.translation)));
    }
    // A server that was late has other tools once it responds again.
    if let Some(Value::Object(tools)) = all.get_mut("tools") {
        tools.insert("listChanged".to_owned(), json!(true));
    }
    all
}

/// The capabilities of a server that the client can use through this translation.
fn usable(mut offered: Map<String, Value>, translation: &Translation) -> Map<String, Value> {
    match translation {
        Translation::None => {}
        Translation::StripEnvelope => offered.retain(|name, _| SHARED_CAPABILITIES.contains(&name.as_str())),
        Translation::AddEnvelope(_) => {
            offered.retain(|name, _| SHARED_CAPABILITIES.contains(&name.as_str()) || name == "logging");
            if let Some(Value::Object(resources)) = offered.get_mut("resources") {
                resources.remove("subscribe");
            }
        }
    }
    offered
}

/// The wanted notifications that a server can send.
pub(super) async fn supported_notifications(aggregate: &Aggregate, wanted: &Members) -> Members {
    let offered = Value::Object(capabilities(&handshakes(aggregate).await));
    let is_offered = |pointer: &str| offered.pointer(pointer).is_some_and(|value| *value == Value::Bool(true));
    let mut supported = Members::default();
    for name in wanted.names() {
        let is_supported = match name {
            "toolsListChanged" => is_offered("/tools/listChanged"),
            "promptsListChanged" => is_offered("/prompts/listChanged"),
            "resourcesListChanged" => is_offered("/resources/listChanged"),
            "resourceSubscriptions" => is_offered("/resources/subscribe"),
            _ => true,
        };
        if let Some(value) = wanted.get(name).filter(|_| is_supported) {
            supported.set(name, &value);
        }
    }
    supported
}

/// Subscribes to resources, or ends that, at servers of the legacy protocol: they take one request for each resource.
pub(super) fn watch_resources(aggregate: &Aggregate, subscription: &Subscription, method: &'static str) {
    let watching: Vec<_> = aggregate
        .available()
        .filter(|server| matches!(server.translation(), Translation::StripEnvelope))
        .cloned()
        .collect();
    for (server, uri) in
        watching.iter().flat_map(|server| subscription.resources().into_iter().map(move |uri| (server, uri)))
    {
        let (server, mut parameters) = (Arc::clone(server), Members::default());
        parameters.set("uri", &uri);
        aggregate.client.start(async move {
            server.ask(method, &parameters, LIST_LIMIT).await;
        });
    }
}

/// Adds capabilities: together the servers can do what any of them can.
fn merge_capabilities(all: &mut Map<String, Value>, more: Map<String, Value>) {
    for (name, value) in more {
        match (all.get_mut(&name), value) {
            (Some(Value::Object(all)), Value::Object(more)) => merge_capabilities(all, more),
            (Some(Value::Bool(all)), Value::Bool(more)) => *all |= more,
            (Some(_), _) => {}
            (None, value) => drop(all.insert(name, value)),
        }
    }
}

/// Merges what the gateway's own tool says of the calls to several servers.
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
    fn together_the_servers_can_do_what_any_of_them_can() {
        let mut all = Map::new();
        for one in [
            json!({ "tools": { "listChanged": false }, "logging": {} }),
            json!({ "tools": { "listChanged": true }, "resources": { "subscribe": true } }),
            json!({ "tools": {} }),
        ] {
            merge_capabilities(&mut all, one.as_object().unwrap().clone());
        }
        let expected = json!({ "tools": { "listChanged": true }, "logging": {}, "resources": { "subscribe": true } });
        assert_eq!(Value::Object(all), expected);
    }
}
