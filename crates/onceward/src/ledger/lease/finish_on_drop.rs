//! A future that runs to its end although its caller stops waiting for it. The end of a claim that is being written must be
//! written even when the caller goes away in the middle.
//!
//! While the caller waits, the future runs as part of the caller's task and costs nothing. Only when it is dropped
//! unfinished does a task of its own finish it. It must not need the runtime of the caller, which may go away too.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

pub(crate) struct FinishOnDrop<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    /// `None` when it has finished.
    future: Option<Pin<Box<F>>>,
    /// It is being polled. If this is still set on drop, it panicked, and must not be polled again.
    polling: bool,
    runtime: Handle,
}

impl<F> FinishOnDrop<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    /// A future that is finished on `runtime` if it is dropped before its end.
    pub(crate) fn new(runtime: &Handle, future: F) -> Self {
        Self { future: Some(Box::pin(future)), polling: false, runtime: runtime.clone() }
    }
}

impl<F> Future for FinishOnDrop<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let Some(future) = &mut this.future else { return Poll::Pending };
        this.polling = true;
        let polled = future.as_mut().poll(context);
        this.polling = false;
        if polled.is_ready() {
            this.future = None;
        }
        polled
    }
}

impl<F> Drop for FinishOnDrop<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    fn drop(&mut self) {
        if let Some(future) = self.future.take()
            && !self.polling
        {
            self.runtime.spawn(async move { drop(future.await) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_future_that_is_dropped_halfway_is_finished() {
        let (go, wait) = oneshot::channel::<()>();
        let (done, mut over) = oneshot::channel::<()>();
        let half = FinishOnDrop::new(&Handle::current(), async move {
            let _ = wait.await;
            let _ = done.send(());
        });
        assert!(tokio::time::timeout(Duration::from_millis(5), half).await.is_err(), "it waits");
        assert!(over.try_recv().is_err(), "it is not done yet");
        go.send(()).expect("it is still there");
        over.await.expect("it is done");
    }

    #[tokio::test]
    async fn a_future_that_is_awaited_gives_its_output() {
        assert_eq!(FinishOnDrop::new(&Handle::current(), async { 7 }).await, 7);
    }
}
