//! Where each message goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use onceward::core::name::Tenant;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::super::call::Asked;
use super::super::gate::{Gate, Request, Way};
use super::super::link::Link;
use super::super::list::STATUS;
use super::super::members::Members;
use super::super::message::{self, CALL, GARBLED, Id, Message, UNCLEAR};
use super::super::reply::{Reply, unfit};
use super::super::status;
use super::super::stdio::{Wire, place};
use super::super::tools::Tools;
use super::super::waiting::{Cancelled, Taker};
use super::{ASKING, BETWEEN, Busy, gather};
use crate::output;

/// There is no such method.
const UNKNOWN: i32 = -32601;
/// The parameters name nothing that is here.
const NOWHERE: i32 = -32602;

/// The server is not there any more.
const CLOSED: i32 = -32000;

/// What stands between a server's name and the id of a request of its own.
const OF: char = '#';

/// One of the servers.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: String,
    pub(super) gate: Arc<Gate>,
    pub(super) wire: Wire,
    /// It did not introduce itself.
    pub(super) is_out: AtomicBool,
}

/// All of them, and the client.
#[derive(Debug)]
pub(super) struct Hub {
    servers: Vec<Server>,
    tenant: Tenant,
    runtime: Handle,
    pub(super) busy: Busy,
    is_deaf: AtomicBool,
}

impl Hub {
    pub(super) fn new(servers: Vec<Server>, tenant: Tenant, runtime: Handle) -> Self {
        Self { servers, tenant, runtime, busy: watch::Sender::new(0), is_deaf: AtomicBool::new(false) }
    }

    /// The servers that are there.
    pub(super) fn present(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter().filter(|server| !server.is_out.load(Ordering::Relaxed))
    }

    /// No more lines for any server.
    pub(super) fn close(&self) {
        for server in &self.servers {
            server.wire.close_server();
        }
    }

    /// A server says nothing more.
    pub(super) fn ended(&self, number: usize) {
        let server = &self.servers[number];
        server.is_out.store(true, Ordering::Relaxed);
        for id in server.wire.close() {
            self.tell(&ended(id.written().as_deref(), server));
        }
    }

    pub(super) fn client_says(self: &Arc<Self>, line: Vec<u8>) {
        if message::is_several(&line) {
            return self.tell(&message::error(None, GARBLED, "a message has no carriage return in it"));
        }
        match Message::read(&line) {
            Message::Request { id, written, method, members } => self.request(id, written, &method, members),
            Message::Notification { method, members } if method == "notifications/cancelled" => {
                self.cancelled(&members, &line);
            }
            Message::Notification { .. } => {
                for server in self.present() {
                    server.wire.pass_blocking(&line);
                }
            }
            Message::Answer { id, members } => self.answered(&id, members),
            Message::Batch { ids, .. } => {
                for id in &ids {
                    self.tell(&message::error(Some(id), UNCLEAR, "batches are not taken; send messages one by one"));
                }
            }
            Message::Unclear { id, why } => {
                let id = id.filter(|id| Id::read(id).is_some());
                self.tell(&message::error(id.as_deref(), UNCLEAR, why));
            }
            Message::Garbled => {
                self.tell(&message::error(None, GARBLED, "this line is no JSON, and was not passed on"))
            }
            Message::Other => {}
        }
    }

    pub(super) fn server_says(&self, number: usize, line: &[u8]) {
        let server = &self.servers[number];
        match Message::heard(line) {
            Message::Answer { id, members } => {
                if let Taker::Client | Taker::List(_) = server.wire.waiting().take(&place(id), members, line) {
                    self.tell(line);
                }
            }
            // Ids of different servers are the same.
            Message::Request { written, mut members, .. } => {
                members.set("id", &outside(&server.name, &written));
                self.tell(&message::ended(&members));
            }
            Message::Notification { method, mut members } if method == "notifications/cancelled" => {
                if let Some(mut parameters) = members.object("params")
                    && let Some(id) = parameters.get("requestId").map(|id| outside(&server.name, id))
                {
                    parameters.set("requestId", &id);
                    members.set("params", &parameters);
                }
                self.tell(&message::ended(&members));
            }
            Message::Notification { method, .. } => {
                if method == "notifications/tools/list_changed" {
                    server.gate.tools.is_whole(false);
                }
                self.tell(line);
            }
            _ => {}
        }
    }

    fn request(self: &Arc<Self>, id: Id, written: Box<RawValue>, method: &str, members: Members) {
        if self.servers.iter().any(|server| server.wire.waiting().has(&place(id.clone()))) {
            return self.tell(&message::error(Some(&written), UNCLEAR, "another request with this id is under way"));
        }
        let parameters = members.object("params").unwrap_or_default();
        match method {
            "ping" => self.tell(&message::result(&written, &json!({}))),
            CALL => self.call(id, written, members, &parameters),
            "prompts/get" => match self.find(&parameters) {
                Some((server, _)) if server.is_out.load(Ordering::Relaxed) => self.tell(&ended(Some(&written), server)),
                Some((server, parameters)) => self.pass(server, id, members, &parameters),
                None => self.tell(&message::error(Some(&written), NOWHERE, "there is no such prompt")),
            },
            // Each era needs its own way of speaking, and every server here has to speak the same one.
            "server/discover" => self.tell(&message::error(Some(&written), UNKNOWN, "Method not found")),
            _ => {
                let (hub, method) = (Arc::clone(self), method.to_owned());
                self.start(async move {
                    Some(match gather::answer(&hub, &method, parameters).await {
                        Some(gather::Gathered::Result(result)) => message::result(&written, &result),
                        Some(gather::Gathered::Answer(answer)) => message::readdressed(&answer, &written),
                        None => message::error(Some(&written), UNKNOWN, "Method not found"),
                    })
                });
            }
        }
    }

    fn call(self: &Arc<Self>, id: Id, written: Box<RawValue>, mut members: Members, parameters: &Members) {
        if parameters.text("name").is_some_and(|name| name == STATUS[0]) {
            let hub = Arc::clone(self);
            let request =
                Request { tenant: self.tenant.clone(), scope: String::new(), id, written, line: Vec::new(), members };
            return self.start(async move { Some(hub.status(&request).await.line(&request)) });
        }
        let Some((server, parameters)) = self.find(parameters) else {
            let why = "there is no such tool, or it cannot be told which one is meant";
            return self.tell(&message::error(Some(&written), NOWHERE, why));
        };
        members.set("params", &parameters);
        let wire = server.wire.clone();
        if server.gate.way(&members) == Way::Pass {
            if server.is_out.load(Ordering::Relaxed) {
                return self.tell(&ended(Some(&written), server));
            }
            wire.waiting().expect_any(place(id));
            return wire.pass_blocking(&message::ended(&members));
        }
        wire.waiting().expect_call(place(id.clone()));
        let gate = Arc::clone(&server.gate);
        let line = message::ended(&members);
        let request = Request { tenant: self.tenant.clone(), scope: String::new(), id, written, line, members };
        self.start(async move {
            let answer = gate.carry_out(&request, &Arc::new(wire.clone())).await;
            let is_wanted = wire.waiting().answered(&place(request.id));
            answer.filter(|_| is_wanted)
        });
    }

    /// What became of calls to any of them.
    async fn status(&self, request: &Request) -> Reply {
        let asked = match Asked::read(request, &Tools::default()) {
            Ok(asked) => asked,
            Err(why) => return unfit(&why.0),
        };
        if let Some(tool) = asked.arguments().text("tool") {
            let mut named = Members::default();
            named.set("name", &tool);
            if let Some((server, named)) = self.find(&named) {
                let mut arguments = asked.arguments().clone();
                arguments.set("tool", &named.text("name").unwrap_or_default());
                return match asked.about(STATUS[0], arguments, None, &server.gate.tools) {
                    Ok(asked) => status::answer(&server.gate, &asked).await,
                    Err(why) => unfit(&why.0),
                };
            }
        }
        let mut texts = Vec::new();
        for server in &self.servers {
            let Ok(asked) = asked.about(STATUS[0], Members::default(), None, &server.gate.tools) else { continue };
            if let Reply::Result(result) = status::answer(&server.gate, &asked).await {
                texts.extend(result.get("content").map(|content| (server.name.clone(), content.get().to_owned())));
            }
        }
        gather::statuses(&texts)
    }

    /// The server that a name belongs to, and the parameters as it knows them.
    fn find(&self, parameters: &Members) -> Option<(&Server, Members)> {
        let name = parameters.text("name")?;
        let ours = self.servers.iter().filter_map(|server| {
            let rest = name.strip_prefix(&server.name)?.strip_prefix(BETWEEN)?;
            Some((server, rest))
        });
        // The longest name wins: `a__b` before `a`.
        let (server, rest) = ours.max_by_key(|(server, _)| server.name.len())?;
        let mut parameters = parameters.clone();
        parameters.set("name", &rest);
        Some((server, parameters))
    }

    fn pass(&self, server: &Server, id: Id, mut members: Members, parameters: &Members) {
        members.set("params", parameters);
        server.wire.waiting().expect_any(place(id));
        server.wire.pass_blocking(&message::ended(&members));
    }

    fn cancelled(&self, members: &Members, line: &[u8]) {
        let parameters = members.object("params");
        let id = parameters.as_ref().and_then(|parameters| parameters.get("requestId")).and_then(Id::read);
        let Some(place) = id.map(place) else { return };
        for server in self.servers.iter().filter(|server| server.wire.waiting().has(&place)) {
            if server.wire.waiting().cancel(parameters.as_ref(), "") == Cancelled::Pass {
                server.wire.pass_blocking(line);
            }
        }
    }

    /// The answer to a request of a server.
    fn answered(&self, id: &Id, mut members: Members) {
        let Id::Text(id) = id else { return };
        for server in &self.servers {
            let inside = id.strip_prefix(&server.name).and_then(|rest| rest.strip_prefix(OF));
            if let Some(Ok(inside)) = inside.map(|inside| RawValue::from_string(inside.to_owned())) {
                members.set("id", &inside);
                return server.wire.pass_blocking(&message::ended(&members));
            }
        }
    }

    fn start(self: &Arc<Self>, work: impl Future<Output = Option<Vec<u8>>> + Send + 'static) {
        let hub = Arc::clone(self);
        self.busy.send_modify(|busy| *busy += 1);
        self.runtime.spawn(async move {
            if let Some(line) = work.await {
                let told = Arc::clone(&hub);
                let _ = spawn_blocking(move || told.tell(&line)).await;
            }
            hub.busy.send_modify(|busy| *busy -= 1);
        });
    }

    fn tell(&self, line: &[u8]) {
        if !self.is_deaf.load(Ordering::Relaxed) && output::write_out(line).is_err() {
            self.is_deaf.store(true, Ordering::Relaxed);
        }
    }
}

/// A server that is not there any more.
fn ended(id: Option<&RawValue>, server: &Server) -> Vec<u8> {
    message::error(id, CLOSED, &format!("the server {} has ended", server.name))
}

/// The id that a client sees of a server's own request.
fn outside(server: &str, id: &RawValue) -> String {
    format!("{server}{OF}{}", id.get())
}

impl Server {
    /// Asks it something on behalf of the client.
    pub(super) async fn ask(&self, method: &str, parameters: &Members) -> Option<Members> {
        timeout(ASKING, self.wire.ask(method, parameters.clone())).await.ok()?.ok()
    }
}
