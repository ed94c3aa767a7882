//! Writes that go on although their caller is gone: a known end must reach the server, and a claim that is not used
//! must be given back.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The writes under way. Cheap to clone.
#[derive(Clone)]
pub(super) struct Background {
    runtime: Handle,
    running: Arc<watch::Sender<usize>>,
}

impl Background {
    pub(super) fn new(runtime: &Handle) -> Self {
        Self { runtime: runtime.clone(), running: Arc::new(watch::Sender::new(0)) }
    }

    /// Runs a future to its end, whether or not its caller waits for it.
    pub(super) fn run<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.running.send_modify(|count| *count += 1);
        let ended = EndOfTask { running: Arc::clone(&self.running) };
        self.runtime.spawn(async move {
            let _ended = ended;
            future.await
        })
    }

    /// Runs a future that its owner ends: nothing waits for it.
    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Waits until none is under way.
    pub(super) async fn idle(&self) {
        let _ = self.running.subscribe().wait_for(|count| *count == 0).await;
    }
}

/// Counts a task as ended when it is, however it ends.
struct EndOfTask {
    running: Arc<watch::Sender<usize>>,
}

impl Drop for EndOfTask {
    fn drop(&mut self) {
        self.running.send_modify(|count| *count -= 1);
    }
}
