//! A thread that reads, with a connection of its own, so that looking never waits for writing.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::fault::named;
use super::{Shared, schema};
use crate::store::Error;

/// How many reads may wait before callers are held back.
const QUEUE: usize = 1024;

type Job = Box<dyn FnOnce(&Connection, &Shared) + Send>;

#[derive(Debug)]
pub(super) struct Reader {
    queue: Mutex<Option<mpsc::Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    shared: Arc<Shared>,
}

impl Reader {
    /// Starts a thread of this name.
    pub(super) fn start(name: &str, shared: &Arc<Shared>) -> Result<Self, Error> {
        let (queue, mut jobs) = mpsc::channel::<Job>(QUEUE);
        let connection = schema::open_reader(shared)?;
        let read = {
            let shared = Arc::clone(shared);
            move || {
                while let Some(job) = jobs.blocking_recv() {
                    job(&connection, &shared);
                }
                schema::close(connection, &shared);
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(read);
        let thread = thread.map_err(|error| Error::Other(error.to_string()))?;
        Ok(Self { queue: Mutex::new(Some(queue)), thread: Mutex::new(Some(thread)), shared: Arc::clone(shared) })
    }

    pub(super) async fn read<A: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection, &Shared) -> rusqlite::Result<A> + Send + 'static,
    ) -> Result<A, Error> {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |connection, shared| {
            let _ = reply.send(query(connection, shared));
        });
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner).clone();
        queue.ok_or(Error::Closed)?.send(job).await.map_err(|_| Error::Closed)?;
        match answer.await {
            Ok(found) => found.map_err(|error| named(&self.shared.path, &error)),
            Err(_) => Err(Error::Closed),
        }
    }

    pub(super) async fn close(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        super::writer::join(thread.into_iter().collect()).await;
    }
}
