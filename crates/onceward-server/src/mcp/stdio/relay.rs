//! Lines from the client to the server and back. Both ways are tasks of one thread, which also carries the guarded calls: a
//! message that is passed on wakes nobody but us.

use std::io;
use std::sync::Arc;

use onceward::core::name::Tenant;
use serde_json::value::RawValue;
use tokio::sync::{Mutex, watch};
use tokio::task::spawn_blocking;

use super::super::gate::{Gate, Request, Way};
use super::super::link::Link;
use super::super::list;
use super::super::message::{self, CALL, GARBLED, Id, Message, UNCLEAR};
use super::super::waiting::{Cancelled, Taker};
use super::attend::Started;
use super::lines::Lines;
use super::room;
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
}

impl Relay {
    /// Takes what the client says to the server, until there is no more.
    pub(super) async fn hear_client(self: &Arc<Self>, mut from: Lines) {
        loop {
            // A server that does not read, or a ledger that is stuck, keeps the client from saying more than we can hold.
            self.wire.room().await;
            let Some(line) = from.next().await else { return };
            match self.client_says(line) {
                Next::Pass(line) if self.wire.has_others_before() => {
                    let way = self.wire.in_turn_with(line.len());
                    self.start(async move { way.pass(line).await });
                }
                Next::Pass(line) => self.wire.pass(line).await,
                Next::Tell(line) => self.tell(line).await,
                Next::Nothing => {}
            }
        }
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
        match Message::read(&line) {
            Message::Request { id, written, method, members } if method == CALL => {
                if self.gate.way(&members) == Way::Pass {
                    return request(self.wire.waiting().expect_any(place(id)), &written, line);
                }
                if !self.wire.waiting().expect_call(place(id.clone())) {
                    return Next::Tell(taken(&written));
                }
                self.guard(Request::new(self.tenant.clone(), id, written, line, members));
                Next::Nothing
            }
            Message::Request { id, written, method, .. } if method == "tools/list" => {
                request(self.wire.waiting().expect_list(place(id)), &written, line)
            }
            Message::Request { id, written, .. } => request(self.wire.waiting().expect_any(place(id)), &written, line),
            Message::Notification { method, members } if method == "notifications/cancelled" => {
                let parameters = members.object("params");
                match self.wire.waiting().cancel(parameters.as_ref(), "") {
                    Cancelled::Pass => Next::Pass(line),
                    Cancelled::Keep => Next::Nothing,
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
            let is_wanted = relay.wire.waiting().answered(&place(request.id));
            if let Some(line) = answer.filter(|_| is_wanted) {
                relay.tell(line).await;
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

    /// Writes a line to the client. One that is gone does not keep the server's answers from being kept.
    async fn tell(&self, line: Vec<u8>) {
        let mut hears = Arc::clone(&self.client).lock_owned().await;
        if !*hears {
            return;
        }
        *hears = match room::write_at_once(io::stdout(), &line) {
            Ok(written) if written == line.len() => true,
            // Somebody else waits for a client that does not read now.
            Ok(written) => {
                spawn_blocking(move || output::write_out(&line[written..])).await.is_ok_and(|told| told.is_ok())
            }
            Err(_) => false,
        };
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
