//! Both pipes of a server, and who waits for which answer.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::super::link::{Answer, Link, NoAnswer};
use super::super::members::Members;
use super::super::message::{self, Id};

/// How long a server may take to answer once its client has cancelled: many do not answer at all then.
const AFTER_CANCELLING: Duration = Duration::from_secs(10);

/// What a client waits for, as far as it matters here.
#[derive(Debug)]
enum Waiting {
    /// A list of tools.
    List,
    /// A call that is being decided on, or that was passed on.
    Call { answer: Option<oneshot::Sender<Answer>>, cancelled: watch::Sender<bool> },
    /// A request of our own.
    Own(oneshot::Sender<Members>),
}

/// Who gets an answer.
#[derive(Debug)]
pub(super) enum Taker {
    /// The client, as it is.
    Client,
    /// The client, after it was looked at.
    List,
    /// Somebody here.
    Taken,
}

/// What is to be done with a cancellation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cancelled {
    /// The server is to know.
    Pass,
    /// The server knows nothing of the call, or is to go on with it.
    Keep,
}

/// The pipes.
#[derive(Debug)]
pub(super) struct Wire {
    /// To the server; `None` when it is closed.
    server: Mutex<Option<File>>,
    waiting: Mutex<HashMap<Id, Waiting>>,
    is_closed: watch::Sender<bool>,
    own: AtomicU64,
    /// What our own ids begin with: no client has thought of it.
    prefix: String,
}

impl Wire {
    pub(super) fn new(server: File, prefix: String) -> Arc<Self> {
        Arc::new(Self {
            server: Mutex::new(Some(server)),
            waiting: Mutex::default(),
            is_closed: watch::Sender::new(false),
            own: AtomicU64::new(0),
            prefix,
        })
    }

    /// Passes a line on to the server.
    pub(super) fn pass(&self, line: &[u8]) {
        // A server that does not read any more is about to end, and that is noticed elsewhere.
        let _ = write(&mut lock(&self.server), line);
    }

    /// No more lines for the server.
    pub(super) fn close_server(&self) {
        lock(&self.server).take();
    }

    /// No more lines from the server: nobody who waits will get an answer.
    pub(super) fn close(&self) {
        self.is_closed.send_replace(true);
        lock(&self.waiting).clear();
    }

    /// A list is asked for.
    pub(super) fn expect_list(&self, id: Id) {
        lock(&self.waiting).entry(id).or_insert(Waiting::List);
    }

    /// A call is being decided on. `false` when another request has this id.
    pub(super) fn expect_call(&self, id: Id) -> bool {
        let mut waiting = lock(&self.waiting);
        if waiting.contains_key(&id) {
            return false;
        }
        waiting.insert(id, Waiting::Call { answer: None, cancelled: watch::Sender::new(false) });
        true
    }

    /// A call was answered by us. `false` when its client does not want to know any more.
    pub(super) fn answered(&self, id: &Id) -> bool {
        let mut waiting = lock(&self.waiting);
        match waiting.get(id) {
            Some(Waiting::Call { answer: None, cancelled }) => {
                let is_wanted = !*cancelled.borrow();
                waiting.remove(id);
                is_wanted
            }
            _ => true,
        }
    }

    /// A client gives up on a request.
    pub(super) fn cancel(&self, id: &Id, ran_out_of_time: bool) -> Cancelled {
        match lock(&self.waiting).get(id) {
            Some(Waiting::Call { answer: None, cancelled }) => {
                cancelled.send_replace(true);
                Cancelled::Keep
            }
            // Who only ran out of time comes back for the answer.
            Some(Waiting::Call { .. }) if ran_out_of_time => Cancelled::Keep,
            Some(Waiting::Call { cancelled, .. }) => {
                cancelled.send_replace(true);
                Cancelled::Pass
            }
            _ => Cancelled::Pass,
        }
    }

    /// Whether anybody here waits for anything.
    pub(super) fn is_idle(&self) -> bool {
        lock(&self.waiting).is_empty()
    }

    /// An answer has come.
    pub(super) fn take(&self, id: &Id, members: Members, line: &[u8]) -> (Taker, Option<Members>) {
        let mut waiting = lock(&self.waiting);
        // One that was not passed on yet cannot have an answer.
        if matches!(waiting.get(id), Some(Waiting::Call { answer: None, .. })) {
            return (Taker::Client, Some(members));
        }
        match waiting.remove(id) {
            None => (Taker::Client, Some(members)),
            Some(Waiting::List) => (Taker::List, Some(members)),
            Some(Waiting::Own(taker)) => {
                let _ = taker.send(members);
                (Taker::Taken, None)
            }
            Some(Waiting::Call { answer, cancelled }) => {
                let answered = Answer { line: line.to_vec(), members, cancelled: *cancelled.borrow() };
                if let Some(taker) = answer {
                    let _ = taker.send(answered);
                }
                (Taker::Taken, None)
            }
        }
    }

    /// Passes a call on, unless it was cancelled before. The pipe is held meanwhile, so that nothing that refers to the
    /// call overtakes it.
    fn send_now(&self, id: &Id, line: &[u8]) -> Result<(oneshot::Receiver<Answer>, watch::Receiver<bool>), NoAnswer> {
        let mut server = lock(&self.server);
        let (taker, answer) = oneshot::channel();
        let cancelled = match lock(&self.waiting).get_mut(id) {
            Some(Waiting::Call { cancelled, .. }) if *cancelled.borrow() => return Err(NoAnswer::Cancelled),
            Some(Waiting::Call { answer, cancelled }) => {
                *answer = Some(taker);
                cancelled.subscribe()
            }
            _ => return Err(gone()),
        };
        match write(&mut server, line) {
            Ok(()) => Ok((answer, cancelled)),
            // A line that lacks more than its end cannot be read by anybody.
            Err(written) if written + 2 < line.len() => {
                if let Some(Waiting::Call { answer, .. }) = lock(&self.waiting).get_mut(id) {
                    *answer = None;
                }
                Err(gone())
            }
            Err(_) => Ok((answer, cancelled)),
        }
    }
}

impl Link for Arc<Wire> {
    async fn send(&self, id: &Id, line: Vec<u8>) -> Result<Answer, NoAnswer> {
        let (wire, name) = (Self::clone(self), id.clone());
        let sent = spawn_blocking(move || wire.send_now(&name, &line)).await;
        let (mut answer, mut cancelled) = sent.unwrap_or_else(|error| Err(NoAnswer::Lost(error.to_string())))?;
        let given_up = async {
            if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
                std::future::pending::<()>().await;
            }
            sleep(AFTER_CANCELLING).await;
        };
        tokio::select! {
            biased;
            answered = &mut answer => answered.map_err(|_| lost()),
            () = given_up => Err(NoAnswer::GaveUp(answer)),
        }
    }

    async fn ask(&self, method: &str, parameters: Members) -> Result<Members, NoAnswer> {
        let name = format!("{}{}", self.prefix, self.own.fetch_add(1, Ordering::Relaxed));
        let line = message::request(&name, method, &parameters);
        let (taker, answer) = oneshot::channel();
        let mut closed = self.is_closed.subscribe();
        lock(&self.waiting).insert(Id::Text(name.clone()), Waiting::Own(taker));
        // Closed before that, it would wait for ever.
        if *closed.borrow_and_update() {
            lock(&self.waiting).remove(&Id::Text(name));
            return Err(gone());
        }
        let wire = Self::clone(self);
        let _ = spawn_blocking(move || wire.pass(&line)).await;
        answer.await.map_err(|_| lost())
    }
}

fn gone() -> NoAnswer {
    NoAnswer::NotSent("the server has ended".to_owned())
}

fn lost() -> NoAnswer {
    NoAnswer::Lost("the server ended before it answered".to_owned())
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
