//! The thread that carries the log over into the file while the writer goes on.

use std::sync::Arc;

use rusqlite::Connection;

use super::fault::named;
use super::job::Job;
use super::queue::Queue;
use super::{Shared, schema};

/// Pages of log past which the writer pauses to start the log over: 64 MiB. Until then checkpoints stay off
/// its path altogether. Somebody who reads for long keeps the log from starting over: then it is tried again
/// after as many pages more, and not at every checkpoint.
const LONGEST_LOG: i64 = 16 * 1024;

/// Moves pages from the log into the file while the writer goes on.
pub(super) struct Carrier {
    pub(super) connection: Connection,
    pub(super) shared: Arc<Shared>,
}

impl Carrier {
    /// When the log has grown too long because the writer never rested, asks it to start over. It begins and ends with
    /// a checkpoint: a process that lives too shortly to write much would otherwise leave its part of the log, and
    /// that of one that was killed, to nobody.
    pub(super) fn run(&self, ticks: &std::sync::mpsc::Receiver<()>, start_over: &Queue<Job>) {
        let mut too_long = LONGEST_LOG;
        loop {
            match self.checkpoint() {
                Some(pages) if pages <= LONGEST_LOG => too_long = LONGEST_LOG,
                Some(pages) if pages > too_long => {
                    too_long = pages + LONGEST_LOG;
                    let (over, done) = std::sync::mpsc::channel();
                    start_over.push(Job::StartLogOver(over));
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

    /// Carries over what no reader needs any more, without waiting. The answer is the length of the log in pages.
    ///
    /// After a failed sync the system may have dropped pages that it had taken, and the next sync would say that all is
    /// well. SQLite would then start the log over, and what only the log still held would be gone. So nothing is
    /// carried over after a failure, and nothing is written either.
    fn checkpoint(&self) -> Option<i64> {
        if self.shared.poison.get().is_some() {
            return None;
        }
        let carried = schema::checkpoint(&self.connection).map_err(|error| named(&self.shared.path, &error));
        if let Err(error) = &carried {
            tracing::error!(%error, "the log could not be carried over into the file");
            self.shared.note(error);
        }
        carried.ok()
    }
}
