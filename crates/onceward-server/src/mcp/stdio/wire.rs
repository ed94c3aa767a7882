//! Both pipes of a server, and who waits for which answer.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::super::link::{Answer, Link, NoAnswer};
use super::super::members::Members;
use super::super::message::{self, Id};
use super::super::waiting::{Place, Sent, Waiting};
use super::room;

/// The pipes. Cheap to clone.
#[derive(Clone, Debug)]
pub(in crate::mcp) struct Wire(Arc<Ends>);

#[derive(Debug)]
struct Ends {
    /// To the server; `None` when it is closed.
    server: Mutex<Option<File>>,
    waiting: Waiting,
    is_closed: watch::Sender<bool>,
    own: AtomicU64,
    /// What our own ids begin with: no client has thought of it.
    prefix: String,
}

impl Wire {
    pub(in crate::mcp) fn new(server: File, prefix: String) -> Self {
        Self(Arc::new(Ends {
            server: Mutex::new(Some(server)),
            waiting: Waiting::default(),
            is_closed: watch::Sender::new(false),
            own: AtomicU64::new(0),
            prefix,
        }))
    }

    /// Passes a line on to the server.
    pub(in crate::mcp) fn pass(&self, line: &[u8]) {
        // A server that does not read any more is about to end, and that is noticed elsewhere.
        let _ = write(&mut self.server(), line);
    }

    /// Passes a line on if nobody has to be waited for: neither another who writes, nor the server.
    pub(in crate::mcp) fn pass_at_once(&self, line: &[u8]) -> bool {
        let Ok(mut server) = self.0.server.try_lock() else { return false };
        let has_room = server.as_ref().is_some_and(|server| room::is_there(server, line));
        has_room && write(&mut server, line).is_ok()
    }

    /// Whether a request of this id was one of ours.
    pub(in crate::mcp) fn is_ours(&self, id: &Id) -> bool {
        matches!(id, Id::Text(text) if text.starts_with(&self.0.prefix))
    }

    /// Who waits for what.
    pub(in crate::mcp) fn waiting(&self) -> &Waiting {
        &self.0.waiting
    }

    /// No more lines for the server. One that does not read keeps whoever writes to it, so nobody waits for that here.
    pub(in crate::mcp) fn close_server(&self) {
        let wire = self.clone();
        std::thread::spawn(move || drop(wire.server().take()));
    }

    /// No more lines from the server: nobody who waits will get an answer. Gives back whose requests were none of ours.
    pub(in crate::mcp) fn close(&self) -> Vec<Id> {
        self.0.is_closed.send_replace(true);
        self.waiting().clear()
    }

    /// Passes a call on if nobody has to be waited for: neither another who writes, nor the server.
    fn send_at_once(&self, id: &Id, line: &[u8]) -> Option<Result<Sent, NoAnswer>> {
        let mut server = self.0.server.try_lock().ok()?;
        let has_room = server.as_ref().is_some_and(|server| room::is_there(server, line));
        has_room.then(|| self.send_holding(&mut server, id, line))
    }

    /// Passes a call on, unless it was cancelled before. The pipe is held meanwhile, so that nothing that refers to the
    /// call overtakes it.
    fn send_holding(&self, server: &mut Option<File>, id: &Id, line: &[u8]) -> Result<Sent, NoAnswer> {
        let place = place(id.clone());
        let sent = self.waiting().send(&place)?;
        match write(server, line) {
            // What lacks its last brace cannot be read by anybody.
            Err(written) if written < line.trim_ascii_end().len() => {
                self.waiting().not_sent(&place);
                Err(gone())
            }
            _ => Ok(sent),
        }
    }

    fn server(&self) -> MutexGuard<'_, Option<File>> {
        self.0.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// There is one client.
pub(in crate::mcp) fn place(id: Id) -> Place {
    Place { client: String::new(), id }
}

impl Link for Wire {
    async fn send(&self, id: &Id, line: Vec<u8>) -> Result<Answer, NoAnswer> {
        let sent = match self.send_at_once(id, &line) {
            Some(sent) => sent,
            None => {
                let (wire, id) = (self.clone(), id.clone());
                let sent = spawn_blocking(move || wire.send_holding(&mut wire.server(), &id, &line)).await;
                sent.unwrap_or_else(|error| Err(NoAnswer::Lost(error.to_string())))
            }
        };
        sent?.answer().await
    }

    async fn ask(&self, method: &str, parameters: Members) -> Result<Members, NoAnswer> {
        let name = format!("{}{}", self.0.prefix, self.0.own.fetch_add(1, Ordering::Relaxed));
        let line = message::request(&name, method, &parameters);
        let place = place(Id::Text(name));
        let answer = self.waiting().expect_own(place.clone());
        let _expected = Expected { wire: self.clone(), place: place.clone() };
        // Closed before that, it would wait for ever.
        if *self.0.is_closed.subscribe().borrow() {
            self.waiting().forget(&place);
            return Err(gone());
        }
        let wire = self.clone();
        let _ = spawn_blocking(move || wire.pass(&line)).await;
        answer.await.map_err(|_| NoAnswer::Lost("the server ended before it answered".to_owned()))
    }
}

/// Somebody expects an answer, until this is dropped.
struct Expected {
    wire: Wire,
    place: Place,
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.wire.waiting().forget(&self.place);
    }
}

fn gone() -> NoAnswer {
    NoAnswer::NotSent("the server has ended".to_owned())
}

/// Writes all of it, or says how much was written.
fn write(to: &mut Option<File>, line: &[u8]) -> Result<(), usize> {
    let Some(to) = to else { return Err(0) };
    let mut written = 0;
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
