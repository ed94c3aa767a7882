//! A future that does not end with whoever waits for it. The end of a claim that is being written must be written although
//! the caller goes away in the middle. Nothing in it may need the runtime of whoever polls: that may go away too.
//!
//! While somebody waits, it runs as a part of the waiting task and costs nothing. Only when it is dropped unfinished, a
//! task of its own carries it on.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

pub(crate) struct CarriedOn<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    /// `None` when it is over.
    future: Option<Pin<Box<F>>>,
    /// It is running right now; if that is seen afterwards, it panicked.
    running: bool,
    runtime: Handle,
}

impl<F> CarriedOn<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    pub(crate) fn new(runtime: &Handle, future: F) -> Self {
        Self { future: Some(Box::pin(future)), running: false, runtime: runtime.clone() }
    }
}

impl<F> Future for CarriedOn<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let Some(future) = &mut this.future else { return Poll::Pending };
        this.running = true;
        let polled = future.as_mut().poll(context);
        this.running = false;
        if polled.is_ready() {
            this.future = None;
        }
        polled
    }
}

impl<F> Drop for CarriedOn<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    fn drop(&mut self) {
        if let Some(future) = self.future.take()
            && !self.running
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
    async fn what_is_dropped_half_done_is_done_all_the_same() {
        let (go, wait) = oneshot::channel::<()>();
        let (done, mut over) = oneshot::channel::<()>();
        let half = CarriedOn::new(&Handle::current(), async move {
            let _ = wait.await;
            let _ = done.send(());
        });
        assert!(tokio::time::timeout(Duration::from_millis(5), half).await.is_err(), "it waits");
        assert!(over.try_recv().is_err(), "it is not done yet");
        go.send(()).expect("it is still there");
        over.await.expect("it is done");
    }

    #[tokio::test]
    async fn what_is_done_is_given() {
        assert_eq!(CarriedOn::new(&Handle::current(), async { 7 }).await, 7);
    }
}
