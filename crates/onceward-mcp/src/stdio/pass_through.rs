//! The router for one server: every byte that is not the gateway's own passes unchanged.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::time::timeout;

use super::super::gate::{Handling, is_modern};
use super::super::list;
use super::super::members::Members;
use super::super::message::{self, CALL, INVALID_REQUEST, Id, Message};
use super::super::pending::{Cancellation, Recipient};
use super::client_session::ClientSession;
use super::connection::{ServerConnection, request_id};
use super::relay::{RECORD_LIMIT, Router, duplicate_id};

/// A line of the server up to this length is parsed although no request waits for a response: it may say that the tools have
/// changed.
const NOTIFICATION_BYTES: usize = 4096;

/// One client and one server.
#[derive(Debug)]
pub(super) struct PassThrough {
    pub(super) client: Arc<ClientSession>,
    pub(super) server: ServerConnection,
}

impl PassThrough {
    /// The first request that says who the client is introduces it.
    fn introduce(&self, method: &str, members: &Members) {
        let is_modern = is_modern(members);
        if is_modern || method == "initialize" {
            self.client.introduce(&members.object("params").unwrap_or_default(), is_modern);
        }
    }

    /// Passes a line on behind those that came before it.
    async fn pass_on(&self, line: Vec<u8>) {
        if self.server.has_lines_waiting() {
            let transport = self.server.in_order(line.len());
            self.client.start(async move { transport.pass(line).await });
        } else {
            self.server.write(line).await;
        }
    }

    /// Passes a request on if no other request has its id.
    async fn pass_request(&self, is_new: bool, written: &RawValue, line: Vec<u8>) {
        if is_new {
            self.pass_on(line).await;
        } else {
            self.client.write(duplicate_id(written)).await;
        }
    }

    async fn request(&self, id: Id, written: Box<RawValue>, method: &str, members: Members, line: Vec<u8>) {
        let (pending, name) = (self.server.pending(), request_id(id.clone()));
        match method {
            "tools/list" => return self.pass_request(pending.expect_list(name), &written, line).await,
            CALL if self.server.gate.handling(&members) == Handling::Guard => {}
            _ => return self.pass_request(pending.expect_any(name), &written, line).await,
        }
        if !pending.expect_call(name) {
            self.client.write(duplicate_id(&written)).await;
            return;
        }
        let transport = Arc::new(self.server.in_order(line.len()));
        let request = self.client.request(id, written, line.into(), members);
        let (client, server) = (Arc::clone(&self.client), self.server.clone());
        self.client.start(async move { client.carry_out(&server, &request, &transport, |line| line).await });
    }

    /// The line that the client gets of a line of the server, if any.
    fn for_client(&self, line: Vec<u8>) -> Option<Vec<u8>> {
        if self.server.expects_nothing() && line.len() > NOTIFICATION_BYTES {
            return Some(line);
        }
        match Message::read_lenient(&line) {
            Message::Response { id, members } => match self.server.take_response(id, members, &line) {
                Recipient::Client | Recipient::Unexpected => Some(line),
                Recipient::List(members) => match list::edited(&members, &self.server.gate.tools) {
                    Some(edited) => Some(message::to_line(&edited)),
                    None => Some(line),
                },
                Recipient::Taken => None,
            },
            Message::Notification { method, .. } if method == "notifications/tools/list_changed" => {
                self.server.gate.tools.set_complete(false);
                Some(line)
            }
            _ => Some(line),
        }
    }
}

impl Router for PassThrough {
    fn client(&self) -> &Arc<ClientSession> {
        &self.client
    }

    fn servers(&self) -> impl Iterator<Item = &ServerConnection> + Send {
        std::iter::once(&self.server)
    }

    /// A server that does not read, or a ledger that is stuck, keeps the client from sending more than can be held.
    async fn ready(&self) {
        self.server.room().await;
    }

    async fn client_message(self: &Arc<Self>, message: Message, line: Vec<u8>) {
        match message {
            Message::Request { id, written, method, members } => {
                if !self.client.known.is_introduced() {
                    self.introduce(&method, &members);
                }
                self.request(id, written, &method, members, line).await;
            }
            Message::Batch { ids, calls: true } => {
                let refuse = |id| {
                    message::error(id, INVALID_REQUEST, "tools cannot be called in a batch; send one call at a time")
                };
                let refused = match ids.is_empty() {
                    true => refuse(None),
                    false => ids.iter().flat_map(|id| refuse(Some(id))).collect(),
                };
                self.client.write(refused).await;
            }
            _ => self.pass_on(line).await,
        }
    }

    async fn server_line(&self, _number: usize, line: Vec<u8>) {
        if let Some(line) = self.for_client(line) {
            self.client.write(line).await;
        }
    }

    fn cancel(self: &Arc<Self>, parameters: Option<&Members>, _id: Option<&Id>) -> Vec<usize> {
        match self.server.pending().cancel(parameters, "") {
            Cancellation::Pass => vec![0],
            Cancellation::Keep => Vec::new(),
        }
    }

    async fn pass(&self, _number: usize, line: Vec<u8>) {
        self.pass_on(line).await;
    }

    /// A server that sends nothing more answers nothing more. The client sees the end, as it would without the gateway.
    async fn server_ended(&self, _number: usize) {
        self.server.close();
        let _ = timeout(RECORD_LIMIT, self.client.idle()).await;
        self.client.judge_last_responses().await;
        ClientSession::close_output();
    }
}
