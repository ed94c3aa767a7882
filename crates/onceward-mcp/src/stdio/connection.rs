//! One server's side of a relay: the pipe to it, the order of lines, and the requests that wait for a response.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use tokio::task::spawn_blocking;

use super::super::gate::Gate;
use super::super::members::Members;
use super::super::message::{self, CALL, Id, RequestId};
use super::super::pending::{PendingRequests, Recipient, SentCall};
use super::super::transport::{CallResponse, NoResponse, Transport};
use super::nonblocking_write::write_available;
use super::write_order::{WriteOrder, WriteTicket};

/// A server that was started. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ServerConnection {
    pub(crate) gate: Arc<Gate>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The pipe to the server; `None` when it is closed.
    input: Arc<Mutex<Option<File>>>,
    order: WriteOrder,
    pending: PendingRequests,
    is_closed: watch::Sender<bool>,
    /// How many requests the gateway has made itself.
    own_requests: AtomicU64,
    /// A request of the gateway was given up, and its response may come yet.
    is_owed: AtomicBool,
    /// The ids of the gateway's own requests begin with this. It is random, so clients do not use it.
    prefix: String,
}

/// The pipe to the server, for the task that writes now.
type Input = OwnedMutexGuard<Option<File>>;

/// A stdio gateway has one client, so the id alone names a request.
pub(crate) fn request_id(id: Id) -> RequestId {
    RequestId { connection: String::new(), id }
}

impl ServerConnection {
    pub(crate) fn new(gate: Arc<Gate>, input: File, prefix: String) -> Self {
        let shared = Shared {
            input: Arc::new(Mutex::new(Some(input))),
            order: WriteOrder::new(),
            pending: PendingRequests::default(),
            is_closed: watch::Sender::new(false),
            own_requests: AtomicU64::new(0),
            is_owed: AtomicBool::new(false),
            prefix,
        };
        Self { gate, shared: Arc::new(shared) }
    }

    /// Writes a line to the server now.
    pub(crate) async fn write(&self, line: Vec<u8>) {
        // A server that has stopped reading is about to end, and the relay notices that.
        let _ = write(self.input().await, line).await;
    }

    /// Writes a line behind those that came before it, without waiting for the server to read. Returns `false` when too much
    /// waits for it already.
    pub(crate) fn queue(&self, line: Vec<u8>) -> bool {
        if !self.has_room() {
            return false;
        }
        self.queue_always(line);
        true
    }

    /// Does the same for a line that must not be refused, however much waits: the server may wait for it, and its sender cannot be
    /// told.
    pub(crate) fn queue_always(&self, line: Vec<u8>) {
        let transport = self.in_order(line.len());
        tokio::spawn(transport.pass(line));
    }

    /// A transport for one line, behind those that came before it. Until it is written, it holds so many bytes.
    pub(crate) fn in_order(&self, bytes: usize) -> OrderedTransport {
        OrderedTransport { server: self.clone(), ticket: std::sync::Mutex::new(Some(self.shared.order.join(bytes))) }
    }

    /// Whether another line may wait for the server.
    pub(crate) fn has_room(&self) -> bool {
        self.shared.order.has_room()
    }

    /// Takes room for a line that waits for the handshake. What is returned holds it.
    pub(crate) fn reserve(&self, bytes: usize) -> impl Send + use<> {
        self.shared.order.reserve(bytes)
    }

    /// Waits until another line may wait for the server.
    pub(super) async fn room(&self) {
        self.shared.order.room().await;
    }

    /// Whether a line has to wait for others before it.
    pub(super) fn has_lines_waiting(&self) -> bool {
        !self.shared.order.is_empty()
    }

    /// Whether no request waits for a response, and no response to a request of the gateway may come late.
    pub(super) fn expects_nothing(&self) -> bool {
        self.pending().is_empty() && !self.shared.is_owed.load(Ordering::Relaxed)
    }

    /// Whether a request of this id was made by the gateway.
    pub(crate) fn is_own_request(&self, id: &Id) -> bool {
        matches!(id, Id::Text(text) if text.starts_with(&self.shared.prefix))
    }

    /// The requests that wait for a response.
    pub(crate) fn pending(&self) -> &PendingRequests {
        &self.shared.pending
    }

    /// Hands a response of the server to the request that waits for it.
    pub(crate) fn take_response(&self, id: Id, members: Members, line: &[u8]) -> Recipient {
        let is_own = self.is_own_request(&id);
        match self.pending().take(&request_id(id), members, line) {
            // A late response to a request of the gateway is not for the client.
            Recipient::Client | Recipient::Unexpected if is_own => Recipient::Taken,
            taker => taker,
        }
    }

    /// Closes the pipe to the server once the lines that wait for it are written. The caller does not wait for that: the server
    /// may not read.
    pub(super) fn close_input(&self) {
        let (server, last) = (self.clone(), self.in_order(0));
        tokio::spawn(async move {
            let ticket = last.take_ticket();
            if let Some(ticket) = &ticket {
                ticket.wait().await;
            }
            drop(server.input().await.take());
        });
    }

    /// The server sends nothing more: no request gets a response. Returns the ids of those that the gateway only passed on.
    pub(crate) fn close(&self) -> Vec<Id> {
        self.shared.is_closed.send_replace(true);
        self.pending().clear()
    }

    /// Makes a request of the gateway.
    pub(crate) async fn ask(&self, method: &str, parameters: Members) -> Result<Members, NoResponse> {
        let number = self.shared.own_requests.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}{number}", self.shared.prefix);
        let line = message::request(&name, method, &parameters);
        let id = request_id(Id::Text(name));
        let response = self.pending().expect_own(id.clone());
        let mut own = OwnRequest { server: self.clone(), id: id.clone(), is_answered: false };
        // If the connection was closed before the request was entered, it would wait for ever.
        if *self.shared.is_closed.subscribe().borrow() {
            self.pending().forget(&id);
            return Err(server_ended());
        }
        self.write(line).await;
        let response = response.await.map_err(|_| NoResponse::Lost("the server ended before it answered".to_owned()));
        own.is_answered = true;
        response
    }

    /// Passes a call on, unless it was cancelled before. The pipe is held meanwhile, so that nothing that refers to the
    /// call overtakes it.
    async fn write_call(&self, id: &Id, line: Vec<u8>) -> Result<SentCall, NoResponse> {
        let input = self.input().await;
        // A server that has closed its output may still read, but its response could not come.
        if *self.shared.is_closed.borrow() {
            return Err(server_ended());
        }
        let id = request_id(id.clone());
        let sent = self.pending().send(&id)?;
        let needed = line.trim_ascii_end().len();
        match write(input, line).await {
            // No server can parse a line that lacks its last brace.
            Err(written) if written < needed => {
                self.pending().not_sent(&id);
                Err(server_ended())
            }
            _ => Ok(sent),
        }
    }

    async fn input(&self) -> Input {
        Arc::clone(&self.shared.input).lock_owned().await
    }
}

/// The transport of one line, which keeps its place behind the lines that came before it. When it is dropped, or its line is
/// written, the next line goes.
#[derive(Debug)]
pub(crate) struct OrderedTransport {
    server: ServerConnection,
    ticket: std::sync::Mutex<Option<WriteTicket>>,
}

impl OrderedTransport {
    fn take_ticket(&self) -> Option<WriteTicket> {
        self.ticket.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Writes a line to the server when its turn has come.
    pub(super) async fn pass(self, line: Vec<u8>) {
        let ticket = self.take_ticket();
        if let Some(ticket) = &ticket {
            ticket.wait().await;
        }
        self.server.write(line).await;
    }
}

impl Transport for OrderedTransport {
    async fn send(&self, id: &Id, line: Vec<u8>) -> Result<CallResponse, NoResponse> {
        let ticket = self.take_ticket();
        if let Some(ticket) = &ticket {
            ticket.wait().await;
        }
        let sent = self.server.write_call(id, line).await;
        drop(ticket);
        sent?.answer().await
    }

    fn step_back(&self) {
        drop(self.take_ticket());
    }

    async fn ask(&self, method: &str, parameters: Members) -> Result<Members, NoResponse> {
        // Calling another tool may take long.
        if method == CALL {
            self.step_back();
        }
        self.server.ask(method, parameters).await
    }
}

/// A request of the gateway that waits for a response until this is dropped.
struct OwnRequest {
    server: ServerConnection,
    id: RequestId,
    is_answered: bool,
}

impl Drop for OwnRequest {
    fn drop(&mut self) {
        // Before the request is forgotten, so that no response comes in between.
        if !self.is_answered {
            self.server.shared.is_owed.store(true, Ordering::Relaxed);
        }
        self.server.pending().forget(&self.id);
    }
}

fn server_ended() -> NoResponse {
    NoResponse::NotSent("the server has ended".to_owned())
}

/// Writes all of the line, or returns how much was written. Writes here what the server takes at once; another thread waits for
/// the rest.
async fn write(mut input: Input, line: Vec<u8>) -> Result<(), usize> {
    let Some(pipe) = &*input else { return Err(0) };
    let written = write_available(pipe, &line).map_err(|_| 0_usize)?;
    if written == line.len() {
        return Ok(());
    }
    spawn_blocking(move || write_rest(&mut input, &line, written)).await.unwrap_or(Ok(()))
}

fn write_rest(input: &mut Option<File>, line: &[u8], mut written: usize) -> Result<(), usize> {
    let Some(pipe) = input else { return Err(written) };
    while written < line.len() {
        match pipe.write(&line[written..]) {
            Ok(0) => return Err(written),
            Ok(length) => written += length,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Err(written),
        }
    }
    Ok(())
}
