//! Lines from the client to the server and back. Both ways are tasks of one thread, which also carries the guarded calls: a
//! message that is passed on wakes nobody but us.

use std::io;
use std::sync::Arc;

use onceward::core::name::Tenant;
use onceward::core::plant::{Plant, planted};
use serde_json::value::RawValue;
use tokio::sync::{Mutex, watch};
use tokio::task::spawn_blocking;

use super::super::call::From;
use super::super::client::Client;
use super::super::delivery::{self, Answered};
use super::super::gate::{Gate, Request, Way, is_modern};
use super::super::link::Link;
use super::super::list;
use super::super::members::Members;
use super::super::message::{self, CALL, GARBLED, Id, Message, UNCLEAR};
use super::super::waiting::{Cancelled, Taker};
use super::attend::Started;
use super::lines::Lines;
use super::room;
use super::unread::all_is_read;
use super::wire::{Wire, place};
use crate::output;

/// Up to this length a line of the server is read although nobody here waits for an answer: it may say that its tools have
/// changed.
const SHORT: usize = 4096;

/// What is to be done with what somebody said.
enum Next {
    /// The server gets it.
    Pass(Vec<u8>),
    /// The client gets it.
    Tell(Vec<u8>),
    /// A request was cancelled; the server gets the line if it is to know.
    Cancelled(Id, Option<Vec<u8>>),
    Nothing,
}

/// What both ways share.
#[derive(Debug)]
pub(super) struct Relay {
    pub(super) gate: Arc<Gate>,
    pub(super) tenant: Tenant,
    pub(super) wire: Wire,
    /// How many calls are under way.
    pub(super) busy: watch::Sender<usize>,
    /// Whether anybody reads what we write. Held while somebody writes.
    pub(super) client: Arc<Mutex<bool>>,
    /// What is known of the client.
    pub(super) known: Arc<Client>,
    /// The name of this process among others of the same server.
    pub(super) connection: String,
}

impl Relay {
    /// Takes what the client says to the server, until there is no more.
    pub(super) async fn hear_client(self: &Arc<Self>, mut from: Lines) {
        loop {
            // A server that does not read, or a ledger that is stuck, keeps the client from saying more than we can hold.
            self.wire.room().await;
            let Some(line) = from.next().await else { return };
            self.known.spoke();
            let next = match self.client_says(line) {
                Next::Cancelled(id, line) => {
                    self.cancelled(&id).await;
                    line.map_or(Next::Nothing, Next::Pass)
                }
                next => next,
            };
            match next {
                Next::Pass(line) if self.wire.has_others_before() => {
                    let way = self.wire.in_turn_with(line.len());
                    self.start(async move { way.pass(line).await });
                }
                Next::Pass(line) => self.wire.pass(line).await,
                Next::Tell(line) => drop(self.tell(line).await),
                Next::Cancelled(..) | Next::Nothing => {}
            }
        }
    }

    /// The client does not want an answer, or no longer wanted it when it came.
    async fn cancelled(self: &Arc<Self>, id: &Id) {
        self.gate.equals.cancel(&delivery::Request { connection: self.connection.clone(), id: id.clone() });
        if self.known.cancelled(id).await {
            let relay = Arc::clone(self);
            self.start(async move { relay.known.remember(&relay.gate.books, &relay.tenant).await });
        }
    }

    /// The client says who it is.
    fn introduced(self: &Arc<Self>, parameters: Option<&Members>, discovers: bool) {
        self.known.introduce(&parameters.cloned().unwrap_or_default(), discovers);
        let relay = Arc::clone(self);
        tokio::spawn(async move { relay.known.recall(&relay.gate.books, &relay.tenant).await });
    }

    /// The client sends nothing more. It has ended in order if it has read everything that was written for it.
    pub(super) async fn client_ended(&self) {
        self.known.ends();
        self.known.ended(all_is_read(io::stdout()).await).await;
    }

    /// We are about to end: what the client has read of its last answers.
    pub(super) async fn judge_last(&self) {
        self.known.judge_last(all_is_read(io::stdout())).await;
    }

    /// Takes what the server says to the client, until there is no more.
    pub(super) async fn hear_server(&self, mut from: Lines) {
        while let Some(line) = from.next().await {
            if let Some(line) = self.server_says(line) {
                self.tell(line).await;
            }
        }
    }

    fn client_says(self: &Arc<Self>, line: Vec<u8>) -> Next {
        if message::is_several(&line) {
            let why = "a message has no carriage return in it: some servers would read two";
            return Next::Tell(message::error(None, GARBLED, why));
        }
        let message = Message::read(&line);
        if let Message::Request { method, members, .. } = &message
            && !self.known.is_introduced()
        {
            match (method.as_str(), is_modern(members)) {
                ("initialize", false) => self.introduced(members.object("params").as_ref(), false),
                (_, true) => self.introduced(members.object("params").as_ref(), true),
                _ => {}
            }
        }
        match message {
            Message::Request { id, written, method, members } if method == CALL => {
                if self.gate.way(&members) == Way::Pass {
                    return request(self.wire.waiting().expect_any(place(id)), &written, line);
                }
                if !self.wire.waiting().expect_call(place(id.clone())) {
                    return Next::Tell(taken(&written));
                }
                let from = From { client: self.known.name().to_owned(), connection: self.connection.clone() };
                let request = Request::new(self.tenant.clone(), id, written, line.into(), members);
                self.guard(Request { from, announces: self.known.announces(), ..request });
                Next::Nothing
            }
            Message::Request { id, written, method, .. } if method == "tools/list" => {
                request(self.wire.waiting().expect_list(place(id)), &written, line)
            }
            Message::Request { id, written, .. } => request(self.wire.waiting().expect_any(place(id)), &written, line),
            Message::Notification { method, members } if method == "notifications/cancelled" => {
                let parameters = members.object("params");
                let passed = match self.wire.waiting().cancel(parameters.as_ref(), "") {
                    Cancelled::Pass => Some(line),
                    Cancelled::Keep => None,
                };
                match parameters.and_then(|parameters| parameters.get("requestId").and_then(Id::read)) {
                    Some(id) => Next::Cancelled(id, passed),
                    None => passed.map_or(Next::Nothing, Next::Pass),
                }
            }
            Message::Batch { ids, calls: true } => {
                let refused =
                    |id| message::error(id, UNCLEAR, "calls of tools are not taken in batches; send them one by one");
                if ids.is_empty() {
                    return Next::Tell(refused(None));
                }
                Next::Tell(ids.iter().flat_map(|id| refused(Some(id))).collect())
            }
            Message::Unclear { id, why } => {
                let id = id.filter(|id| Id::read(id).is_some());
                Next::Tell(message::error(id.as_deref(), UNCLEAR, why))
            }
            Message::Garbled => {
                Next::Tell(message::error(None, GARBLED, "this line is no JSON, and was not passed on"))
            }
            Message::Notification { .. } | Message::Answer { .. } | Message::Batch { .. } | Message::Other => {
                Next::Pass(line)
            }
        }
    }

    fn guard(self: &Arc<Self>, request: Request) {
        let (relay, way) = (Arc::clone(self), Arc::new(self.wire.in_turn_with(request.line.len())));
        self.start(async move {
            let answer = relay.gate.carry_out(&request, &way).await;
            // Also where it was not passed on.
            way.step_back();
            let is_wanted =
                relay.wire.waiting().answered(&place(request.id.clone())) || planted(Plant::CancelledCounts);
            let Some(Answered { line, receipt }) = answer.filter(|_| is_wanted) else { return };
            if let Some(receipt) = &receipt {
                receipt.open.writing();
            }
            let is_written = relay.tell(line).await;
            if let Some(receipt) = receipt.filter(|_| is_written) {
                relay.known.got(&request.id, receipt);
            }
        });
    }

    /// Something that is under way until it is done.
    fn start(&self, work: impl Future<Output = ()> + Send + 'static) {
        let started = Started::new(&self.busy);
        tokio::spawn(async move {
            let _started = started;
            work.await;
        });
    }

    /// What the client is to hear of it.
    fn server_says(&self, line: Vec<u8>) -> Option<Vec<u8>> {
        if self.wire.waiting().is_empty() && !self.wire.is_owed() && line.len() > SHORT {
            return Some(line);
        }
        match Message::heard(&line) {
            Message::Answer { id, members } => {
                // One of ours that comes too late is still nobody else's.
                let is_ours = self.wire.is_ours(&id);
                match self.wire.waiting().take(&place(id), members, &line) {
                    Taker::Client => (!is_ours).then_some(line),
                    Taker::List(members) => match list::edited(&members, &self.gate.tools) {
                        Some(edited) => Some(message::ended(&edited)),
                        None => Some(line),
                    },
                    Taker::Taken => None,
                }
            }
            Message::Notification { method, .. } if method == "notifications/tools/list_changed" => {
                self.gate.tools.is_whole(false);
                Some(line)
            }
            _ => Some(line),
        }
    }

    /// Writes a line to the client. One that is gone does not keep the server's answers from being kept. Whether all of it was
    /// written.
    async fn tell(&self, line: Vec<u8>) -> bool {
        let mut hears = Arc::clone(&self.client).lock_owned().await;
        if !*hears {
            return false;
        }
        *hears = match room::write_at_once(io::stdout(), &line) {
            Ok(written) if written == line.len() => true,
            // Somebody else waits for a client that does not read now.
            Ok(written) => {
                spawn_blocking(move || output::write_out(&line[written..])).await.is_ok_and(|told| told.is_ok())
            }
            Err(_) => false,
        };
        *hears
    }
}

/// Passes a request on whose id is its own.
fn request(is_new: bool, written: &RawValue, line: Vec<u8>) -> Next {
    if is_new { Next::Pass(line) } else { Next::Tell(taken(written)) }
}

/// Two requests of one id cannot be told apart.
fn taken(id: &RawValue) -> Vec<u8> {
    message::error(Some(id), UNCLEAR, "another request with this id is under way")
}
