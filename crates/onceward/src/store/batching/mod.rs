//! The batching front of the stores that write in groups: callers put writes in, and one writer takes all that wait and commits
//! them together.
//!
//! - `queue`: the queue in front of a writer.
//! - `batch_wait`: how long a writer waits for a fuller batch.

mod batch_wait;
mod queue;

use std::thread::JoinHandle;

use tokio::sync::oneshot;

pub use batch_wait::{BatchWait, ThreadTime};
pub use queue::{Closed, Queue};

/// The synchronisation primitives of the queue; the schedule checker replaces them.
mod sync {
    pub(super) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
    pub(super) use tokio::sync::Notify;
}

/// Waits for threads without blocking the runtime.
pub(super) async fn join(threads: Vec<JoinHandle<()>>) {
    let (done, ended) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        for thread in threads {
            let _ = thread.join();
        }
        drop(done);
    });
    let _ = ended.await;
}
