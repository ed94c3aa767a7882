//! Both pipes of a server, and who waits for which answer.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use tokio::task::spawn_blocking;

use super::super::link::{Answer, Link, NoAnswer};
use super::super::members::Members;
use super::super::message::{self, CALL, Id};
use super::super::waiting::{Place, Sent, Waiting};
use super::room;
use super::turns::{Turn, Turns};

/// The pipes. Cheap to clone.
#[derive(Clone, Debug)]
pub(in crate::mcp) struct Wire(Arc<Ends>);

#[derive(Debug)]
struct Ends {
    /// To the server; `None` when it is closed.
    server: Arc<Mutex<Option<File>>>,
    turns: Turns,
    waiting: Waiting,
    is_closed: watch::Sender<bool>,
    own: AtomicU64,
    /// Somebody gave up on an answer to one of ours, and it may come yet.
    is_owed: AtomicBool,
    /// What our own ids begin with: no client has thought of it.
    prefix: String,
}

impl Wire {
    pub(in crate::mcp) fn new(server: File, prefix: String) -> Self {
        Self(Arc::new(Ends {
            server: Arc::new(Mutex::new(Some(server))),
            turns: Turns::new(),
            waiting: Waiting::default(),
            is_closed: watch::Sender::new(false),
            own: AtomicU64::new(0),
            is_owed: AtomicBool::new(false),
            prefix,
        }))
    }

    /// Passes a line on to the server.
    pub(in crate::mcp) async fn pass(&self, line: Vec<u8>) {
        // A server that does not read any more is about to end, and that is noticed elsewhere.
        let _ = write(self.server().await, line).await;
    }

    /// A way for one request that keeps its place among the lines that come now.
    pub(in crate::mcp) fn in_turn(&self) -> InTurn {
        self.in_turn_with(0)
    }

    /// The same for somebody who holds that many bytes until it is written.
    pub(super) fn in_turn_with(&self, bytes: usize) -> InTurn {
        InTurn { wire: self.clone(), turn: std::sync::Mutex::new(Some(self.0.turns.next(bytes))) }
    }

    /// Waits until there is room for another line to wait.
    pub(super) async fn room(&self) {
        self.0.turns.room().await;
    }

    /// Whether a line has to wait for others before it.
    pub(in crate::mcp) fn has_others_before(&self) -> bool {
        !self.0.turns.are_over()
    }

    /// Whether a request of this id was one of ours.
    pub(in crate::mcp) fn is_ours(&self, id: &Id) -> bool {
        matches!(id, Id::Text(text) if text.starts_with(&self.0.prefix))
    }

    /// Whether answers to requests of ours may come that nobody waits for any more.
    pub(super) fn is_owed(&self) -> bool {
        self.0.is_owed.load(Ordering::Relaxed)
    }

    /// Who waits for what.
    pub(in crate::mcp) fn waiting(&self) -> &Waiting {
        &self.0.waiting
    }

    /// No more lines for the server. One that does not read keeps whoever writes to it, so nobody waits for that here.
    pub(in crate::mcp) fn close_server(&self) {
        let wire = self.clone();
        tokio::spawn(async move { drop(wire.server().await.take()) });
    }

    /// No more lines from the server: nobody who waits will get an answer. Gives back whose requests were none of ours.
    pub(in crate::mcp) fn close(&self) -> Vec<Id> {
        self.0.is_closed.send_replace(true);
        self.waiting().clear()
    }

    /// Passes a call on, unless it was cancelled before. The pipe is held meanwhile, so that nothing that refers to the
    /// call overtakes it.
    async fn pass_call(&self, id: &Id, line: Vec<u8>) -> Result<Sent, NoAnswer> {
        let server = self.server().await;
        let place = place(id.clone());
        let sent = self.waiting().send(&place)?;
        let needed = line.trim_ascii_end().len();
        match write(server, line).await {
            // What lacks its last brace cannot be read by anybody.
            Err(written) if written < needed => {
                self.waiting().not_sent(&place);
                Err(gone())
            }
            _ => Ok(sent),
        }
    }

    async fn server(&self) -> Pipe {
        Arc::clone(&self.0.server).lock_owned().await
    }
}

/// The way for one line, which comes behind those that came before it. Dropped, or once it is written, it lets the next one go.
#[derive(Debug)]
pub(in crate::mcp) struct InTurn {
    wire: Wire,
    turn: std::sync::Mutex<Option<Turn>>,
}

impl InTurn {
    fn taken(&self) -> Option<Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Passes a line on to the server when it has come.
    pub(in crate::mcp) async fn pass(self, line: Vec<u8>) {
        let turn = self.taken();
        if let Some(turn) = &turn {
            turn.come().await;
        }
        self.wire.pass(line).await;
    }
}

impl Link for InTurn {
    async fn send(&self, id: &Id, line: Vec<u8>) -> Result<Answer, NoAnswer> {
        let turn = self.taken();
        if let Some(turn) = &turn {
            turn.come().await;
        }
        let sent = self.wire.pass_call(id, line).await;
        drop(turn);
        sent?.answer().await
    }

    fn step_back(&self) {
        drop(self.taken());
    }

    async fn ask(&self, method: &str, parameters: Members) -> Result<Members, NoAnswer> {
        // Asking another tool may take long.
        if method == CALL {
            self.step_back();
        }
        self.wire.ask(method, parameters).await
    }
}

/// The way to the server, for who writes now.
type Pipe = OwnedMutexGuard<Option<File>>;

/// There is one client.
pub(in crate::mcp) fn place(id: Id) -> Place {
    Place { client: String::new(), id }
}

impl Wire {
    /// Makes a request of our own.
    pub(in crate::mcp) async fn ask(&self, method: &str, parameters: Members) -> Result<Members, NoAnswer> {
        let name = format!("{}{}", self.0.prefix, self.0.own.fetch_add(1, Ordering::Relaxed));
        let line = message::request(&name, method, &parameters);
        let place = place(Id::Text(name));
        let answer = self.waiting().expect_own(place.clone());
        let mut expected = Expected { wire: self.clone(), place: place.clone(), is_answered: false };
        // Closed before that, it would wait for ever.
        if *self.0.is_closed.subscribe().borrow() {
            self.waiting().forget(&place);
            return Err(gone());
        }
        self.pass(line).await;
        let answer = answer.await.map_err(|_| NoAnswer::Lost("the server ended before it answered".to_owned()));
        expected.is_answered = true;
        answer
    }
}

/// Somebody expects an answer, until this is dropped.
struct Expected {
    wire: Wire,
    place: Place,
    is_answered: bool,
}

impl Drop for Expected {
    fn drop(&mut self) {
        // Before it is forgotten, so that no answer comes in between.
        if !self.is_answered {
            self.wire.0.is_owed.store(true, Ordering::Relaxed);
        }
        self.wire.waiting().forget(&self.place);
    }
}

fn gone() -> NoAnswer {
    NoAnswer::NotSent("the server has ended".to_owned())
}

/// Writes all of it, or says how much was written: here what the server takes at once, and in a thread of its own what has to
/// wait for it.
async fn write(mut to: Pipe, line: Vec<u8>) -> Result<(), usize> {
    let Some(pipe) = &*to else { return Err(0) };
    let written = room::write_at_once(pipe, &line).map_err(|_| 0_usize)?;
    if written == line.len() {
        return Ok(());
    }
    spawn_blocking(move || write_waiting(&mut to, &line, written)).await.unwrap_or(Ok(()))
}

/// Writes the rest of it.
fn write_waiting(to: &mut Option<File>, line: &[u8], mut written: usize) -> Result<(), usize> {
    let Some(to) = to else { return Err(written) };
    while written < line.len() {
        match to.write(&line[written..]) {
            Ok(0) => return Err(written),
            Ok(length) => written += length,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return Err(written),
        }
    }
    Ok(())
}
