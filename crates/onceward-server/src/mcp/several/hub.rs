//! Where each message goes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use onceward::core::name::Tenant;
use onceward::core::policy::Policy;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::super::call::{Asked, From};
use super::super::client;
use super::super::delivery::Answered;
use super::super::gate::{Request, Way};
use super::super::link::Link;
use super::super::list::STATUS;
use super::super::members::Members;
use super::super::message::{self, CALL, GARBLED, Id, Message, UNCLEAR};
use super::super::reply::{Reply, unfit};
use super::super::status;
use super::super::stdio::{Started, place};
use super::super::tools::Tools;
use super::super::verdict::{self, Ending};
use super::super::waiting::{Place, Taker};
use super::era::{self, Between, Client, Era};
use super::gather::{self, Gathered};
use super::listen::{self, ACKNOWLEDGED, Listens};
use super::server::{Lane, Server, held};
use super::{BETWEEN, Busy};
use crate::output;

/// There is no such method.
const UNKNOWN: i32 = -32601;
/// The parameters name nothing that is here.
const NOWHERE: i32 = -32602;

/// The server is not there any more.
const CLOSED: i32 = -32000;
/// Nobody has answered in time.
const TOO_LATE: i32 = -32001;

/// What stands between a server's name and the id of a request of its own.
const OF: char = '#';

/// How many resources are remembered with their servers. Beyond that, all servers are asked.
const KNOWN: usize = 100_000;

/// All of them, and the client.
#[derive(Debug)]
pub(super) struct Hub {
    pub(super) servers: Vec<Arc<Server>>,
    pub(super) tenant: Tenant,
    pub(super) runtime: Handle,
    pub(super) busy: Busy,
    is_deaf: AtomicBool,
    /// Who the client is, once it has said so.
    client: OnceLock<Client>,
    pub(super) listens: Listens,
    /// What is known of the client.
    pub(super) known: Arc<client::Client>,
    /// The name of this process among others of the same servers.
    pub(super) connection: String,
    /// Which server has listed a resource.
    resources: Mutex<HashMap<String, Arc<Server>>>,
}

impl Hub {
    pub(super) fn new(servers: Vec<Server>, tenant: Tenant, runtime: Handle, connection: String) -> Self {
        let patience = servers.first().map_or(client::PATIENCE, |server| server.gate.naming.patience);
        Self {
            servers: servers.into_iter().map(Arc::new).collect(),
            tenant,
            runtime,
            busy: watch::Sender::new(0),
            is_deaf: AtomicBool::new(false),
            client: OnceLock::new(),
            listens: Listens::default(),
            known: Arc::new(client::Client::new(patience)),
            connection,
            resources: Mutex::default(),
        }
    }

    /// The servers that are there.
    pub(super) fn present(&self) -> impl Iterator<Item = &Arc<Server>> {
        self.servers.iter().filter(|server| !server.is_out())
    }

    pub(super) fn client(&self) -> Option<&Client> {
        self.client.get()
    }

    /// Whether the client speaks the generation without `initialize`.
    pub(super) fn is_modern(&self) -> bool {
        self.client().is_some_and(|client| client.era == Era::Modern)
    }

    /// The server that has listed a resource.
    pub(super) fn owner(&self, uri: &str) -> Option<Arc<Server>> {
        held(&self.resources).get(uri).filter(|server| !server.is_out()).cloned()
    }

    /// All resources that are listed, and whose they are. Where several list one, the first one has it.
    pub(super) fn learn(&self, listed: impl Iterator<Item = (String, Arc<Server>)>) {
        let mut known = HashMap::new();
        for (uri, server) in listed.take(KNOWN) {
            known.entry(uri).or_insert(server);
        }
        *held(&self.resources) = known;
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
        // Who listens goes on listening to the others.
        for id in server.end().into_iter().filter(|id| !self.listens.has(id)) {
            self.tell(&ended(id.written().as_deref(), server));
        }
    }

    pub(super) fn client_says(self: &Arc<Self>, line: Vec<u8>) {
        if message::is_several(&line) {
            return self.tell(&message::error(None, GARBLED, "a message has no carriage return in it"));
        }
        self.known.spoke();
        match Message::read(&line) {
            Message::Request { id, written, method, members } => self.request(id, written, &method, members),
            Message::Notification { method, members } if method == "notifications/cancelled" => {
                self.cancelled(&members, &line);
            }
            // The newest generation has no others.
            Message::Notification { .. } => {
                for server in self.present().filter(|server| matches!(server.between(), Between::Same)) {
                    server.tell(&line);
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
        if server.speaks() {
            // What it did not list in time may be had now.
            self.news("notifications/tools/list_changed", &message::told("notifications/tools/list_changed"));
        }
        match Message::heard(line) {
            Message::Answer { id, members } => {
                let put = server.between().to_client(&members);
                let written = put.as_ref().map(message::ended);
                let line = written.as_deref().unwrap_or(line);
                let (place, is_ours) = (place(id.clone()), server.wire.is_ours(&id));
                // Whoever judges it here has to see what the server said: work that goes on is not over because the client
                // cannot follow it.
                let judged = if is_ours || goes_on(&members) { members } else { put.unwrap_or(members) };
                if let Taker::Client | Taker::List(_) = server.wire.waiting().take(&place, judged, line)
                    // Too late for us, and nothing for the client; or one of several that end a client's listening.
                    && !is_ours
                    && !self.listens.has(&id)
                {
                    self.tell(line);
                }
            }
            Message::Request { written, method, members, .. } => self.asked(server, &written, &method, members),
            Message::Notification { method, members } => self.notified(server, &method, members, line),
            _ => {}
        }
    }

    /// A server asks the client something.
    fn asked(&self, server: &Server, written: &RawValue, method: &str, mut members: Members) {
        if self.is_modern() {
            // It was told so, and some look after their connection all the same.
            server.tell(&match method {
                "ping" => message::result(written, &json!({})),
                _ => message::error(Some(written), UNKNOWN, "the client cannot be asked in this way"),
            });
            return;
        }
        // Ids of different servers are the same.
        members.set("id", &outside(&server.name, written));
        self.tell(&message::ended(&members));
    }

    /// A server says something that wants no answer.
    fn notified(&self, server: &Server, method: &str, mut members: Members, line: &[u8]) {
        if method == "notifications/tools/list_changed" {
            server.gate.tools.is_whole(false);
        }
        match server.between() {
            // Whoever listens was told by us, and goes on listening to the others.
            _ if method == ACKNOWLEDGED => {}
            _ if method == "notifications/cancelled" && server.met().is_some_and(|met| met.era == Era::Modern) => {}
            Between::Bare if method == "notifications/progress" => self.tell(line),
            Between::Bare => self.news(method, &members),
            Between::Enveloped(_) => self.tell(&message::ended(&listen::for_everybody(&members))),
            Between::Same if method == "notifications/cancelled" => {
                if let Some(mut parameters) = members.object("params")
                    && let Some(id) = parameters.get("requestId").map(|id| outside(&server.name, id))
                {
                    parameters.set("requestId", &id);
                    members.set("params", &parameters);
                }
                self.tell(&message::ended(&members));
            }
            Between::Same => self.tell(line),
        }
    }

    /// Tells the client news that it has asked for, or wants in any case.
    fn news(&self, method: &str, members: &Members) {
        if self.is_modern() {
            for line in self.listens.told(method, members) {
                self.tell(&line);
            }
        } else if self.client().is_some() {
            self.tell(&message::ended(members));
        }
    }

    fn request(self: &Arc<Self>, id: Id, written: Box<RawValue>, method: &str, members: Members) {
        let is_taken = self.servers.iter().any(|server| server.wire.waiting().has(&place(id.clone())));
        if is_taken || self.listens.has(&id) {
            return self.tell(&taken(&written));
        }
        let parameters = members.object("params").unwrap_or_default();
        if let Some(error) = era::refusal(self.client().map(|client| client.era), method, &parameters) {
            return self.tell(&message::failure(&written, &error));
        }
        if let Some(era) = era::said(method, &parameters) {
            self.client.get_or_init(|| Client::new(era, &parameters));
            self.introduced(era, &parameters);
        }
        match method {
            "ping" if !self.is_modern() => self.tell(&message::result(&written, &json!({}))),
            CALL => self.call(id, written, members, &parameters),
            "prompts/get" => match self.find(&parameters) {
                Some((server, parameters)) => self.say(self.pass(server, id, &written, members, &parameters)),
                None => self.tell(&message::error(Some(&written), NOWHERE, "there is no such prompt")),
            },
            "subscriptions/listen" if self.is_modern() => self.listen(id, &written, members, &parameters),
            _ => {
                let (hub, method) = (Arc::clone(self), method.to_owned());
                self.start(async move {
                    Some(match gather::answer(&hub, &method, &parameters).await {
                        Gathered::Result(result) => message::result(&written, &result),
                        Gathered::Answer(answer) => message::readdressed(&answer, &written),
                        Gathered::Owner(server) => {
                            return hub.pass(&server, id, &written, members, &parameters);
                        }
                        Gathered::Unknown => message::error(Some(&written), UNKNOWN, "Method not found"),
                        Gathered::TooLate => message::error(Some(&written), TOO_LATE, "no server answered in time"),
                    })
                });
            }
        }
    }

    /// One request to listen is one to each server that knows such requests; the others tell their news in any case.
    fn listen(self: &Arc<Self>, id: Id, written: &RawValue, mut members: Members, parameters: &Members) {
        let listen = self.listens.enter(id.clone(), written, parameters);
        let (hub, mut parameters) = (Arc::clone(self), parameters.clone());
        self.start(async move {
            let agreed = gather::agreed(&hub, &listen.wants).await;
            let listen = hub.listens.agree(&id, agreed)?;
            parameters.set("notifications", &listen.wants);
            members.set("params", &parameters);
            let (told, begun) = (Arc::clone(&hub), listen.acknowledged());
            let _ = spawn_blocking(move || told.tell(&begun)).await;
            for server in hub.present().filter(|server| matches!(server.between(), Between::Same)) {
                // Where another request has this id meanwhile, what answers that would be taken for this.
                if server.wire.waiting().expect_any(place(id.clone())) {
                    server.pass(&members);
                }
            }
            gather::watch(&hub, &listen, "resources/subscribe");
            None
        });
    }

    fn call(self: &Arc<Self>, id: Id, written: Box<RawValue>, mut members: Members, parameters: &Members) {
        if parameters.text("name").is_some_and(|name| name == STATUS[0]) {
            let hub = Arc::clone(self);
            let request = Request::new(self.tenant.clone(), id, written, Bytes::new(), members);
            return self.start(async move { Some(hub.status(&request).await.line(&request)) });
        }
        let Some((server, parameters)) = self.find(parameters) else {
            let why = "there is no such tool, or it cannot be told which one is meant";
            return self.tell(&message::error(Some(&written), NOWHERE, why));
        };
        members.set("params", &parameters);
        if server.gate.way(&members) == Way::Pass {
            return self.say(self.pass(server, id, &written, members, &parameters));
        }
        let (hub, server) = (Arc::clone(self), Arc::clone(server));
        if !server.wire.waiting().expect_call(place(id.clone())) {
            return self.tell(&taken(&written));
        }
        let line = message::ended(&members);
        let from = From { client: self.known.name().to_owned(), connection: self.connection.clone() };
        let request = Request::new(self.tenant.clone(), id, written, line.into(), members);
        let request = Request { from, announces: self.known.announces(), ..request };
        // What is said on meeting it comes first.
        let lane = server.was_met().then(|| Lane::to(&server));
        let under_way = Started::new(&self.busy);
        self.runtime.spawn(async move {
            let _under_way = under_way;
            if let Some(client) = hub.client() {
                server.meet(client).await;
            }
            let lane = Arc::new(lane.unwrap_or_else(|| Lane::to(&server)));
            let answer = server.gate.carry_out(&request, &lane).await;
            lane.step_back();
            let is_wanted = server.wire.waiting().answered(&place(request.id.clone()));
            let Some(Answered { line, receipt }) = answer.filter(|_| is_wanted) else { return };
            // What it says to a repeat, it says as the server said it.
            let line = server.put_to_client(line);
            let _ = spawn_blocking(move || hub.give(&request.id, &line, receipt)).await;
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
    fn find(&self, parameters: &Members) -> Option<(&Arc<Server>, Members)> {
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

    /// Passes a request on that is none of ours, and whose answer is for the client; or says why not.
    fn pass(
        self: &Arc<Self>,
        server: &Arc<Server>,
        id: Id,
        written: &RawValue,
        mut members: Members,
        parameters: &Members,
    ) -> Option<Vec<u8>> {
        members.set("params", parameters);
        if server.is_out() {
            return Some(ended(Some(written), server));
        }
        let place = place(id);
        if !server.wire.waiting().expect_any(place.clone()) {
            return Some(taken(written));
        }
        if self.client().is_none() || server.was_met() {
            return passed(server, &place, written, &members);
        }
        let (hub, server) = (Arc::clone(self), Arc::clone(server));
        let written = written.to_owned();
        self.start(async move {
            if let Some(client) = hub.client() {
                server.meet(client).await;
            }
            // It may have been cancelled meanwhile, or the server has ended and the client knows.
            if !server.wire.waiting().has(&place) {
                return None;
            }
            if server.is_out() {
                server.wire.waiting().forget(&place);
                return Some(ended(Some(&written), &server));
            }
            passed(&server, &place, &written, &members)
        });
        None
    }

    /// The answer to a request of a server.
    fn answered(&self, id: &Id, mut members: Members) {
        let Id::Text(id) = id else { return };
        for server in &self.servers {
            let inside = id.strip_prefix(&server.name).and_then(|rest| rest.strip_prefix(OF));
            if let Some(Ok(inside)) = inside.map(|inside| RawValue::from_string(inside.to_owned())) {
                members.set("id", &inside);
                server.tell(&message::ended(&members));
                return;
            }
        }
    }

    pub(super) fn start(self: &Arc<Self>, work: impl Future<Output = Option<Vec<u8>>> + Send + 'static) {
        let hub = Arc::clone(self);
        let under_way = Started::new(&self.busy);
        self.runtime.spawn(async move {
            if let Some(line) = work.await {
                let _ = spawn_blocking(move || hub.tell(&line)).await;
            }
            drop(under_way);
        });
    }

    fn say(&self, line: Option<Vec<u8>>) {
        if let Some(line) = line {
            self.tell(&line);
        }
    }

    fn tell(&self, line: &[u8]) {
        self.tell_whole(line);
    }

    /// Whether all of it was written.
    pub(super) fn tell_whole(&self, line: &[u8]) -> bool {
        if !self.is_deaf.load(Ordering::Relaxed) && output::write_out(line).is_err() {
            self.is_deaf.store(true, Ordering::Relaxed);
        }
        !self.is_deaf.load(Ordering::Relaxed)
    }
}

/// Passes a request on that somebody waits for; or says why not.
fn passed(server: &Server, place: &Place, written: &RawValue, members: &Members) -> Option<Vec<u8>> {
    if server.pass(members) {
        return None;
    }
    server.wire.waiting().forget(place);
    Some(message::error(Some(written), CLOSED, &format!("the server {} does not read", server.name)))
}

/// Two requests of one id cannot be told apart.
fn taken(id: &RawValue) -> Vec<u8> {
    message::error(Some(id), UNCLEAR, "another request with this id is under way")
}

/// Whether the work of a call goes on as a task.
fn goes_on(answer: &Members) -> bool {
    matches!(verdict::of(answer, &Policy::default(), false), Ending::Task(_))
}

/// A server that is not there any more.
fn ended(id: Option<&RawValue>, server: &Server) -> Vec<u8> {
    message::error(id, CLOSED, &format!("the server {} has ended", server.name))
}

/// The id that a client sees of a server's own request.
fn outside(server: &str, id: &RawValue) -> String {
    format!("{server}{OF}{}", id.get())
}
