//! Threads that read, each with a connection of its own, so that looking never waits for writing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::fault::named;
use super::{Shared, schema};
use crate::store::Error;

/// Reads are short; two threads keep one slow list from holding up a look at one record.
const READERS: usize = 2;

/// How many reads may wait before callers are held back.
const QUEUE: usize = 1024;

type Job = Box<dyn FnOnce(&Connection, &Shared) + Send>;

#[derive(Debug)]
pub(super) struct Readers {
    queues: Mutex<Vec<mpsc::Sender<Job>>>,
    next: AtomicUsize,
    threads: Mutex<Vec<JoinHandle<()>>>,
    shared: Arc<Shared>,
}

impl Readers {
    pub(super) fn start(shared: &Arc<Shared>) -> Result<Self, Error> {
        let mut queues = Vec::with_capacity(READERS);
        let mut threads = Vec::with_capacity(READERS);
        for _ in 0..READERS {
            let (queue, mut jobs) = mpsc::channel::<Job>(QUEUE);
            let connection = schema::open_reader(shared)?;
            let shared = Arc::clone(shared);
            let read = move || {
                while let Some(job) = jobs.blocking_recv() {
                    job(&connection, &shared);
                }
            };
            let thread = std::thread::Builder::new().name("onceward-read".to_owned()).spawn(read);
            threads.push(thread.map_err(|error| Error::Other(error.to_string()))?);
            queues.push(queue);
        }
        Ok(Self {
            queues: Mutex::new(queues),
            next: AtomicUsize::new(0),
            threads: Mutex::new(threads),
            shared: Arc::clone(shared),
        })
    }

    pub(super) async fn read<A: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection, &Shared) -> rusqlite::Result<A> + Send + 'static,
    ) -> Result<A, Error> {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |connection, shared| {
            let _ = reply.send(query(connection, shared));
        });
        let queue = self.queue().ok_or(Error::Closed)?;
        queue.send(job).await.map_err(|_| Error::Closed)?;
        match answer.await {
            Ok(found) => found.map_err(|error| named(&self.shared.path, &error)),
            Err(_) => Err(Error::Closed),
        }
    }

    fn queue(&self) -> Option<mpsc::Sender<Job>> {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = self.next.fetch_add(1, Ordering::Relaxed).checked_rem(queues.len())?;
        queues.get(turn).cloned()
    }

    pub(super) async fn close(&self) {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        super::writer::join(threads).await;
    }
}
