//! A thread that reads through its own connection, so that reads never wait for the writer.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::sqlite_error::store_error;
use super::{Shared, schema};
use crate::store::Error;

/// The most reads that may wait in the queue; further callers wait to enter it.
const QUEUE_LIMIT: usize = 1024;

type ReadJob = Box<dyn FnOnce(&Connection, &Shared) + Send>;

#[derive(Debug)]
pub(super) struct Reader {
    queue: Mutex<Option<mpsc::Sender<ReadJob>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    shared: Arc<Shared>,
}

impl Reader {
    /// Starts a thread with this name.
    pub(super) fn start(name: &str, shared: &Arc<Shared>) -> Result<Self, Error> {
        let (queue, mut jobs) = mpsc::channel::<ReadJob>(QUEUE_LIMIT);
        let connection = schema::open_reader(shared)?;
        let read = {
            let shared = Arc::clone(shared);
            move || {
                while let Some(job) = jobs.blocking_recv() {
                    job(&connection, &shared);
                }
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
        let (reply, result) = oneshot::channel();
        let job: ReadJob = Box::new(move |connection, shared| {
            let _ = reply.send(query(connection, shared));
        });
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner).clone();
        queue.ok_or(Error::Closed)?.send(job).await.map_err(|_| Error::Closed)?;
        match result.await {
            Ok(found) => found.map_err(|error| store_error(&self.shared.path, &error)),
            Err(_) => Err(Error::Closed),
        }
    }

    pub(super) async fn close(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        crate::store::batching::join(thread.into_iter().collect()).await;
    }
}
