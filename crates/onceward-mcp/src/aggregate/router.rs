//! Where each message of the client and of the servers goes.

use std::sync::Arc;

use bytes::Bytes;
use onceward::core::policy::Policy;
use serde_json::json;
use serde_json::value::RawValue;

use super::super::call::ToolCall;
use super::super::gate::{Handling, Request};
use super::super::list::STATUS;
use super::super::members::Members;
use super::super::message::{self, CALL, INVALID_REQUEST, Id, Message, RequestId};
use super::super::pending::{Cancellation, Recipient};
use super::super::reply::{Reply, invalid_call};
use super::super::status;
use super::super::stdio::{ClientSession, Router, ServerConnection, duplicate_id, request_id};
use super::super::tool_name::without_prefix;
use super::super::tools::Tools;
use super::super::verdict::{self, Ending};
use super::merge::{self, Merged};
use super::protocol_version::{self, ClientIntroduction, ProtocolFamily, Translation};
use super::server::{Server, ServerTransport};
use super::subscriptions::{self, ACKNOWLEDGED};
use super::{Aggregate, NAME_SEPARATOR};

/// The codes of JSON-RPC for an unknown method and for parameters that name nothing known.
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;

/// The server has ended, or does not read.
const SERVER_GONE: i32 = -32000;
/// No server has answered in time.
const TIMED_OUT: i32 = -32001;

/// Separates a server's name from the id of a request that the server makes of the client.
const ID_SEPARATOR: char = '#';

const TOOLS_CHANGED: &str = "notifications/tools/list_changed";

impl Router for Aggregate {
    fn client(&self) -> &Arc<ClientSession> {
        &self.client
    }

    fn servers(&self) -> impl Iterator<Item = &ServerConnection> + Send {
        self.servers.iter().map(|server| &server.connection)
    }

    /// Messages are always taken: a server that does not read must not hold up the others. Lines for it are refused instead.
    async fn ready(&self) {}

    async fn client_message(self: &Arc<Self>, message: Message, line: Vec<u8>) {
        match message {
            Message::Request { id, written, method, members } => {
                if let Some(response) = self.request(id, written, &method, members) {
                    self.client.write(response).await;
                }
            }
            // The modern protocol has no other notifications.
            Message::Notification { .. } => {
                for server in self.available().filter(|server| matches!(server.translation(), Translation::None)) {
                    server.connection.queue(line.clone());
                }
            }
            Message::Response { id, members } => self.response_of_client(&id, members),
            Message::Batch { ids, .. } => {
                for id in &ids {
                    let why = "batches are not supported; send one message at a time";
                    self.client.write(message::error(Some(id), INVALID_REQUEST, why)).await;
                }
            }
            Message::Ambiguous { .. } | Message::NotJson | Message::Other => {}
        }
    }

    async fn server_line(&self, number: usize, line: Vec<u8>) {
        let server = &self.servers[number];
        if server.is_late_no_longer() {
            // Its tools can be listed now.
            self.notify(TOOLS_CHANGED, &message::notification(TOOLS_CHANGED)).await;
        }
        match Message::read_lenient(&line) {
            Message::Response { id, members } => {
                if let Some(line) = self.response_of_server(server, id, members, line) {
                    self.client.write(line).await;
                }
            }
            Message::Request { written, method, members, .. } => {
                self.request_of_server(server, &written, &method, members).await;
            }
            Message::Notification { method, members } => {
                self.notification_of_server(server, &method, members, line).await;
            }
            _ => {}
        }
    }

    fn cancel(self: &Arc<Self>, parameters: Option<&Members>, id: Option<&Id>) -> Vec<usize> {
        let Some(id) = id else { return Vec::new() };
        if let Some(subscription) = self.subscriptions.remove(id) {
            merge::watch_resources(self, &subscription, "resources/unsubscribe");
        }
        let id = request_id(id.clone());
        let is_told = |(_, server): &(usize, &Arc<Server>)| {
            let pending = server.connection.pending();
            pending.has(&id) && pending.cancel(parameters, "") == Cancellation::Pass
        };
        self.servers.iter().enumerate().filter(is_told).map(|(number, _)| number).collect()
    }

    async fn pass(&self, number: usize, line: Vec<u8>) {
        self.servers[number].connection.queue_always(line);
    }

    async fn server_ended(&self, number: usize) {
        let server = &self.servers[number];
        // A subscription goes on with the other servers.
        for id in server.end().into_iter().filter(|id| !self.subscriptions.has(id)) {
            self.client.write(has_ended(id.to_json().as_deref(), server)).await;
        }
    }
}

impl Aggregate {
    /// The line that the client gets of a server's response, if any.
    fn response_of_server(&self, server: &Server, id: Id, members: Members, line: Vec<u8>) -> Option<Vec<u8>> {
        let translated = server.translation().to_client(&members);
        let line = translated.as_ref().map_or(line, message::to_line);
        // The gate has to see what the server said: work that goes on is not over because the client cannot follow it.
        let is_for_gate = server.connection.is_own_request(&id) || goes_on(&members);
        let judged = if is_for_gate { members } else { translated.unwrap_or(members) };
        // Several servers may end one subscription.
        let is_subscription = self.subscriptions.has(&id);
        match server.connection.take_response(id, judged, &line) {
            // It would be taken for the response of another server.
            Recipient::Unexpected => None,
            Recipient::Client | Recipient::List(_) if !is_subscription => Some(line),
            _ => None,
        }
    }

    /// A server makes a request of the client.
    async fn request_of_server(&self, server: &Server, written: &RawValue, method: &str, mut members: Members) {
        if self.is_modern() {
            // The server was told that it cannot ask, but some check their connection all the same.
            server.connection.queue(match method {
                "ping" => message::result(written, &json!({})),
                _ => message::error(Some(written), METHOD_NOT_FOUND, "servers cannot make requests of this client"),
            });
            return;
        }
        // Two servers may use the same id.
        members.set("id", &client_side_id(&server.name, written));
        self.client.write(message::to_line(&members)).await;
    }

    async fn notification_of_server(&self, server: &Server, method: &str, mut members: Members, line: Vec<u8>) {
        if method == TOOLS_CHANGED {
            server.gate().tools.set_complete(false);
        }
        let is_modern = server.handshake_result().is_some_and(|server| server.family == ProtocolFamily::Modern);
        let told = match server.translation() {
            // The gateway has acknowledged the subscription, and it goes on with the other servers.
            _ if method == ACKNOWLEDGED => return,
            _ if method == "notifications/cancelled" && is_modern => return,
            Translation::StripEnvelope if method == "notifications/progress" => line,
            Translation::StripEnvelope => return self.notify(method, &members).await,
            Translation::AddEnvelope(_) => message::to_line(&subscriptions::without_subscription(&members)),
            Translation::None if method == "notifications/cancelled" => {
                if let Some(mut parameters) = members.object("params")
                    && let Some(id) = parameters.get("requestId").map(|id| client_side_id(&server.name, id))
                {
                    parameters.set("requestId", &id);
                    members.set("params", &parameters);
                }
                message::to_line(&members)
            }
            Translation::None => line,
        };
        self.client.write(told).await;
    }

    /// Notifies the client: of the modern protocol if it has subscribed, or else in any case.
    async fn notify(&self, method: &str, members: &Members) {
        if self.is_modern() {
            for line in self.subscriptions.notifications(method, members) {
                self.client.write(line).await;
            }
        } else if self.introduction.get().is_some() {
            self.client.write(message::to_line(members)).await;
        }
    }

    /// Takes a request of the client. Returns the response, if the gateway can give one at once.
    fn request(self: &Arc<Self>, id: Id, written: Box<RawValue>, method: &str, members: Members) -> Option<Vec<u8>> {
        let name = request_id(id.clone());
        if self.subscriptions.has(&id) || self.servers().any(|server| server.pending().has(&name)) {
            return Some(duplicate_id(&written));
        }
        let parameters = members.object("params").unwrap_or_default();
        let family = self.introduction.get().map(|client| client.family);
        if let Some(error) = protocol_version::refusal(family, method, &parameters) {
            return Some(message::failure(&written, &error));
        }
        if let Some(family) = protocol_version::family_of(method, &parameters) {
            self.introduction.get_or_init(|| ClientIntroduction::new(family, &parameters));
            self.client.introduce(&parameters, family == ProtocolFamily::Modern);
        }
        match method {
            "ping" if !self.is_modern() => Some(message::result(&written, &json!({}))),
            CALL => self.call(id, written, members, &parameters),
            "prompts/get" => match self.find(&parameters) {
                Some((server, parameters)) => self.pass_request(server, id, &written, members, &parameters),
                None => Some(message::error(Some(&written), INVALID_PARAMS, "unknown prompt")),
            },
            "subscriptions/listen" if self.is_modern() => {
                self.subscribe(id, &written, members, &parameters);
                None
            }
            _ => {
                let (aggregate, method) = (Arc::clone(self), method.to_owned());
                self.respond_later(async move {
                    Some(match merge::respond(&aggregate, &method, &parameters).await {
                        Merged::Result(result) => message::result(&written, &result),
                        Merged::Response(response) => message::with_id(&response, &written),
                        Merged::PassTo(server) => {
                            return aggregate.pass_request(&server, id, &written, members, &parameters);
                        }
                        Merged::UnknownMethod => message::error(Some(&written), METHOD_NOT_FOUND, "Method not found"),
                        Merged::TimedOut => message::error(Some(&written), TIMED_OUT, "no server answered in time"),
                    })
                });
                None
            }
        }
    }

    /// Passes a subscription on to each server that knows subscriptions, under the same id. The others send notifications in
    /// any case.
    fn subscribe(self: &Arc<Self>, id: Id, written: &RawValue, mut members: Members, parameters: &Members) {
        let subscription = self.subscriptions.add(id.clone(), written, parameters);
        let (aggregate, mut parameters) = (Arc::clone(self), parameters.clone());
        self.client.start(async move {
            let wanted = merge::supported_notifications(&aggregate, &subscription.wanted).await;
            let Some(subscription) = aggregate.subscriptions.limit(&id, wanted) else { return };
            parameters.set("notifications", &subscription.wanted);
            members.set("params", &parameters);
            aggregate.client.write(subscription.acknowledged()).await;
            for server in aggregate.available().filter(|server| matches!(server.translation(), Translation::None)) {
                // If another request has this id meanwhile, its response would be taken for this one's.
                if server.connection.pending().expect_any(request_id(id.clone())) {
                    server.queue_request(&members);
                }
            }
            merge::watch_resources(&aggregate, &subscription, "resources/subscribe");
        });
    }

    fn call(
        self: &Arc<Self>,
        id: Id,
        written: Box<RawValue>,
        mut members: Members,
        parameters: &Members,
    ) -> Option<Vec<u8>> {
        if parameters.text("name").is_some_and(|name| name == STATUS[0]) {
            let aggregate = Arc::clone(self);
            let request = Request::new(self.client.tenant.clone(), id, written, Bytes::new(), members);
            self.respond_later(async move { Some(aggregate.status(&request).await.line(&request)) });
            return None;
        }
        let Some((server, parameters)) = self.find(parameters) else {
            return Some(message::error(Some(&written), INVALID_PARAMS, "unknown tool, or an ambiguous name"));
        };
        members.set("params", &parameters);
        if server.gate().handling(&members) == Handling::Pass {
            return self.pass_request(server, id, &written, members, &parameters);
        }
        if !server.connection.has_room() {
            return Some(does_not_read(&written, server));
        }
        if !server.connection.pending().expect_call(request_id(id.clone())) {
            return Some(duplicate_id(&written));
        }
        let line = message::to_line(&members);
        let bytes = line.len();
        let request = self.client.request(id, written, line.into(), members);
        // The messages of the handshake come before the call.
        let transport = server.handshake_done().then(|| ServerTransport::to(server, bytes));
        let reserved = transport.is_none().then(|| server.connection.reserve(bytes));
        let (aggregate, server) = (Arc::clone(self), Arc::clone(server));
        self.client.start(async move {
            if let Some(client) = aggregate.introduction.get() {
                server.handshake(client).await;
            }
            drop(reserved);
            let transport = Arc::new(transport.unwrap_or_else(|| ServerTransport::to(&server, bytes)));
            let to_client = |line| server.translate_response(line);
            aggregate.client.carry_out(&server.connection, &request, &transport, to_client).await;
        });
        None
    }

    /// The response of the gateway's own tool, about the calls to all servers.
    async fn status(&self, request: &Request) -> Reply {
        let asked = match ToolCall::read(request, &Tools::default()) {
            Ok(asked) => asked,
            Err(why) => return invalid_call(&why.0),
        };
        if let Some(tool) = asked.arguments().text("tool") {
            let find = |tool: &str| {
                let mut named = Members::default();
                named.set("name", &tool);
                self.find(&named)
            };
            if let Some((server, named)) = without_prefix(&tool).find_map(find) {
                let mut arguments = asked.arguments().clone();
                arguments.set("tool", &named.text("name").unwrap_or_default());
                return match asked.about(STATUS[0], arguments, None, &server.gate().tools) {
                    Ok(asked) => status::answer(server.gate(), &asked).await,
                    Err(why) => invalid_call(&why.0),
                };
            }
        }
        let mut texts = Vec::new();
        for server in &self.servers {
            let Ok(asked) = asked.about(STATUS[0], Members::default(), None, &server.gate().tools) else { continue };
            if let Reply::Result(result) = status::answer(server.gate(), &asked).await {
                texts.extend(result.get("content").map(|content| (server.name.clone(), content.get().to_owned())));
            }
        }
        merge::statuses(&texts)
    }

    /// The server that a tool or prompt belongs to, and the parameters with the name that the server knows.
    fn find(&self, parameters: &Members) -> Option<(&Arc<Server>, Members)> {
        let name = parameters.text("name")?;
        let matching = self.servers.iter().filter_map(|server| {
            let rest = name.strip_prefix(&server.name)?.strip_prefix(NAME_SEPARATOR)?;
            Some((server, rest))
        });
        // The longest name wins: `a__b` before `a`.
        let (server, rest) = matching.max_by_key(|(server, _)| server.name.len())?;
        let mut parameters = parameters.clone();
        parameters.set("name", &rest);
        Some((server, parameters))
    }

    /// Passes a request on whose response goes to the client; or returns the error.
    fn pass_request(
        self: &Arc<Self>,
        server: &Arc<Server>,
        id: Id,
        written: &RawValue,
        mut members: Members,
        parameters: &Members,
    ) -> Option<Vec<u8>> {
        members.set("params", parameters);
        if !server.is_available() {
            return Some(has_ended(Some(written), server));
        }
        let id = request_id(id);
        if !server.connection.pending().expect_any(id.clone()) {
            return Some(duplicate_id(written));
        }
        if self.introduction.get().is_none() || server.handshake_done() {
            return queue_request(server, &id, written, &members);
        }
        if !server.connection.has_room() {
            server.connection.pending().forget(&id);
            return Some(does_not_read(written, server));
        }
        let reserved = server.connection.reserve(message::to_line(&members).len());
        let (aggregate, server) = (Arc::clone(self), Arc::clone(server));
        let written = written.to_owned();
        self.respond_later(async move {
            if let Some(client) = aggregate.introduction.get() {
                server.handshake(client).await;
            }
            drop(reserved);
            // It may have been cancelled meanwhile, or the server has ended and the client has been told.
            if !server.connection.pending().has(&id) {
                return None;
            }
            if !server.is_available() {
                server.connection.pending().forget(&id);
                return Some(has_ended(Some(&written), &server));
            }
            queue_request(&server, &id, &written, &members)
        });
        None
    }

    /// The client answers a request of a server.
    fn response_of_client(&self, id: &Id, mut members: Members) {
        let Id::Text(id) = id else { return };
        for server in &self.servers {
            let inside = id.strip_prefix(&server.name).and_then(|rest| rest.strip_prefix(ID_SEPARATOR));
            if let Some(Ok(inside)) = inside.map(|inside| RawValue::from_string(inside.to_owned())) {
                members.set("id", &inside);
                server.connection.queue_always(message::to_line(&members));
                return;
            }
        }
    }

    /// Writes a response once it is there.
    fn respond_later(self: &Arc<Self>, response: impl Future<Output = Option<Vec<u8>>> + Send + 'static) {
        let client = Arc::clone(&self.client);
        self.client.start(async move {
            if let Some(line) = response.await {
                client.write(line).await;
            }
        });
    }
}

/// Passes a request on that waits for a response; or returns the error.
fn queue_request(server: &Server, id: &RequestId, written: &RawValue, members: &Members) -> Option<Vec<u8>> {
    if server.queue_request(members) {
        return None;
    }
    server.connection.pending().forget(id);
    Some(does_not_read(written, server))
}

fn does_not_read(written: &RawValue, server: &Server) -> Vec<u8> {
    message::error(Some(written), SERVER_GONE, &format!("the server {} does not read; nothing was sent", server.name))
}

/// Whether the work of a call goes on as a task.
fn goes_on(response: &Members) -> bool {
    matches!(verdict::of(response, &Policy::default(), false), Ending::Task(_))
}

fn has_ended(id: Option<&RawValue>, server: &Server) -> Vec<u8> {
    message::error(id, SERVER_GONE, &format!("the server {} has ended", server.name))
}

/// The id that the client sees of a server's own request.
fn client_side_id(server: &str, id: &RawValue) -> String {
    format!("{server}{ID_SEPARATOR}{}", id.get())
}
