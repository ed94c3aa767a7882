//! The checkpoint thread: copies the write-ahead log into the file while the writer continues.

use std::sync::Arc;

use rusqlite::Connection;

use super::sqlite_error::store_error;
use super::write_job::WriteJob;
use super::{Shared, schema};
use crate::store::batching::Queue;

/// Length of the log, in pages, past which the writer pauses to restart it: 64 MiB. Until then checkpoints do not touch the
/// writer. A long-running reader prevents a restart; then the next attempt comes after as many pages again, and not at every
/// checkpoint.
const MAX_LOG_PAGES: i64 = 16 * 1024;

/// Copies pages from the log into the file while the writer continues.
pub(super) struct Checkpointer {
    pub(super) connection: Connection,
    pub(super) shared: Arc<Shared>,
}

impl Checkpointer {
    /// Runs until the sender of `ticks` is dropped. When the log has grown too long because the writer was never idle, asks
    /// the writer to restart it. Begins and ends with a checkpoint: otherwise the log of short-lived processes, and of
    /// processes that were killed, would never be checkpointed.
    pub(super) fn run(&self, ticks: &std::sync::mpsc::Receiver<()>, writer: &Queue<WriteJob>) {
        let mut restart_past = MAX_LOG_PAGES;
        loop {
            match self.checkpoint() {
                Some(pages) if pages <= MAX_LOG_PAGES => restart_past = MAX_LOG_PAGES,
                Some(pages) if pages > restart_past => {
                    restart_past = pages + MAX_LOG_PAGES;
                    let (finished, done) = std::sync::mpsc::channel();
                    writer.push(WriteJob::RestartLog(finished));
                    let _ = done.recv();
                }
                _ => {}
            }
            if ticks.recv().is_err() {
                break;
            }
        }
        self.checkpoint();
    }

    /// Copies the pages that no reader needs any more, without waiting. Returns the length of the log in pages.
    ///
    /// After a failed sync the system may have dropped pages that were written, and the next sync would still succeed. SQLite
    /// would then restart the log and lose what only the log held. So there is no checkpoint and no write after a failure.
    fn checkpoint(&self) -> Option<i64> {
        if self.shared.poison.get().is_some() {
            return None;
        }
        let checkpointed = schema::checkpoint(&self.connection).map_err(|error| store_error(&self.shared.path, &error));
        if let Err(error) = &checkpointed {
            tracing::error!(%error, "the checkpoint of the write-ahead log failed");
            self.shared.note(error);
        }
        checkpointed.ok()
    }
}
