//! Lines from the client to the server and back, one thread each way: what is none of ours is written on by the thread that
//! read it.

use std::io::{self, BufRead, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use onceward::core::name::Tenant;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::super::gate::{Gate, Request, Way};
use super::super::list;
use super::super::message::{self, CALL, GARBLED, Id, Message, UNCLEAR};
use super::super::waiting::{Cancelled, Taker};
use super::room;
use super::wire::{Wire, place};
use crate::output;

/// The longest line. A server that takes more than this in one message has other limits.
const LONGEST: u64 = 256 * 1024 * 1024;

/// Up to this length a line of the server is read although nobody here waits for an answer: it may say that its tools have
/// changed.
const SHORT: usize = 4096;

/// What both threads share.
#[derive(Debug)]
pub(super) struct Relay {
    pub(super) gate: Arc<Gate>,
    pub(super) tenant: Tenant,
    pub(super) wire: Wire,
    pub(super) runtime: Handle,
    /// How many calls are under way.
    pub(super) busy: watch::Sender<usize>,
    /// Whether anybody reads what we write. Held while somebody writes.
    pub(super) client: Mutex<bool>,
}

impl Relay {
    /// Takes what the client says to the server, until there is no more.
    pub(super) fn hear_client(self: &Arc<Self>, from: impl Read) {
        lines(from, "client", |line| self.client_says(line));
    }

    /// Takes what the server says to the client, until there is no more.
    pub(super) fn hear_server(&self, from: impl Read) {
        lines(from, "server", |line| self.server_says(&line));
    }

    fn client_says(self: &Arc<Self>, line: Vec<u8>) {
        if message::is_several(&line) {
            let why = "a message has no carriage return in it: some servers would read two";
            return self.tell(&message::error(None, GARBLED, why));
        }
        match Message::read(&line) {
            Message::Request { id, written, method, members } if method == CALL => {
                if self.gate.way(&members) == Way::Pass {
                    return self.request(self.wire.waiting().expect_any(place(id)), &written, &line);
                }
                if !self.wire.waiting().expect_call(place(id.clone())) {
                    return self.tell(&taken(&written));
                }
                let tenant = self.tenant.clone();
                self.guard(Request { tenant, scope: String::new(), id, written, line, members });
            }
            Message::Request { id, written, method, .. } if method == "tools/list" => {
                self.request(self.wire.waiting().expect_list(place(id)), &written, &line);
            }
            Message::Request { id, written, .. } => {
                self.request(self.wire.waiting().expect_any(place(id)), &written, &line);
            }
            Message::Notification { method, members } if method == "notifications/cancelled" => {
                let parameters = members.object("params");
                if self.wire.waiting().cancel(parameters.as_ref(), "") == Cancelled::Pass {
                    self.wire.pass(&line);
                }
            }
            Message::Batch { ids, calls: true } => {
                let why = "calls of tools are not taken in batches; send them one by one";
                for id in &ids {
                    self.tell(&message::error(Some(id), UNCLEAR, why));
                }
                if ids.is_empty() {
                    self.tell(&message::error(None, UNCLEAR, why));
                }
            }
            Message::Unclear { id, why } => {
                let id = id.filter(|id| Id::read(id).is_some());
                self.tell(&message::error(id.as_deref(), UNCLEAR, why));
            }
            Message::Garbled => {
                self.tell(&message::error(None, GARBLED, "this line is no JSON, and was not passed on"))
            }
            Message::Notification { .. } | Message::Answer { .. } | Message::Batch { .. } | Message::Other => {
                self.wire.pass(&line);
            }
        }
    }

    /// Passes a request on whose id is its own.
    fn request(&self, is_new: bool, written: &RawValue, line: &[u8]) {
        if is_new { self.wire.pass(line) } else { self.tell(&taken(written)) }
    }

    fn guard(self: &Arc<Self>, request: Request) {
        let relay = Arc::clone(self);
        self.busy.send_modify(|busy| *busy += 1);
        self.runtime.spawn(async move {
            let answer = relay.gate.carry_out(&request, &Arc::new(relay.wire.clone())).await;
            let is_wanted = relay.wire.waiting().answered(&place(request.id));
            if let Some(line) = answer.filter(|_| is_wanted)
                && !relay.tell_at_once(&line)
            {
                let told = Arc::clone(&relay);
                let _ = spawn_blocking(move || told.tell(&line)).await;
            }
            relay.busy.send_modify(|busy| *busy -= 1);
        });
    }

    fn server_says(&self, line: &[u8]) {
        if self.wire.waiting().is_empty() && line.len() > SHORT {
            return self.tell(line);
        }
        match Message::heard(line) {
            Message::Answer { id, members } => match self.wire.waiting().take(&place(id), members, line) {
                Taker::Client => self.tell(line),
                Taker::List(members) => match list::edited(&members, &self.gate.tools) {
                    Some(edited) => self.tell(&message::ended(&edited)),
                    None => self.tell(line),
                },
                Taker::Taken => {}
            },
            Message::Notification { method, .. } if method == "notifications/tools/list_changed" => {
                self.gate.tools.is_whole(false);
                self.tell(line);
            }
            _ => self.tell(line),
        }
    }

    /// Writes a line to the client. One that is gone does not keep the server's answers from being kept.
    fn tell(&self, line: &[u8]) {
        write(&mut self.client.lock().unwrap_or_else(PoisonError::into_inner), line);
    }

    /// The same, if nobody has to be waited for: neither another who writes, nor the client.
    fn tell_at_once(&self, line: &[u8]) -> bool {
        let Ok(mut hears) = self.client.try_lock() else { return false };
        let has_room = room::is_there(io::stdout(), line);
        if has_room {
            write(&mut hears, line);
        }
        has_room
    }
}

fn write(hears: &mut bool, line: &[u8]) {
    *hears = *hears && output::write_out(line).is_ok();
}

/// Two requests of one id cannot be told apart.
fn taken(id: &RawValue) -> Vec<u8> {
    message::error(Some(id), UNCLEAR, "another request with this id is under way")
}

/// How long a pipe is left alone that is empty and says so instead of waiting.
const PAUSE: Duration = Duration::from_millis(5);

/// Reads lines to the end; the last one need not have one.
pub(in crate::mcp) fn lines(from: impl Read, who: &str, mut each: impl FnMut(Vec<u8>)) {
    let mut from = io::BufReader::with_capacity(64 * 1024, from);
    let mut line = Vec::new();
    loop {
        let left = LONGEST - line.len() as u64;
        match from.by_ref().take(left).read_until(b'\n', &mut line) {
            Ok(_) if line.len() as u64 == LONGEST => {
                output::say(&format!("a message of the {who} is over {LONGEST} bytes; nothing more is read."));
                return;
            }
            Ok(0) if line.is_empty() => return,
            Ok(length) => {
                each(std::mem::take(&mut line));
                if length == 0 {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(PAUSE),
            Err(_) => return,
        }
    }
}
