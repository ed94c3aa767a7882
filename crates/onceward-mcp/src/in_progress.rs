//! Counts work in progress, so that other work can wait until there is none.

use std::sync::Arc;

use tokio::sync::watch;

/// How much work is in progress. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct InProgress(Arc<watch::Sender<usize>>);

/// Counts as work in progress until it is dropped: also by a panic.
#[derive(Debug)]
pub(super) struct InProgressGuard(InProgress);

impl Default for InProgress {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl InProgress {
    pub(super) fn enter(&self) -> InProgressGuard {
        self.0.send_modify(|count| *count += 1);
        InProgressGuard(self.clone())
    }

    /// Waits until no work is in progress.
    pub(super) async fn none(&self) {
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for InProgressGuard {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_that_panics_is_no_longer_in_progress() {
        let in_progress = InProgress::default();
        in_progress.none().await;
        let guard = in_progress.enter();
        assert_eq!(*in_progress.0.borrow(), 1);
        let work = tokio::spawn(async move {
            let _guard = guard;
            panic!("on purpose");
        });
        assert!(work.await.is_err());
        in_progress.none().await;
    }
}
