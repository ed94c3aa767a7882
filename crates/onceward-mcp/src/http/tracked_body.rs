//! Counts responses in progress, so that the process does not end in the middle of one.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use onceward::http::Body;
use tokio::sync::watch;

/// The number of responses in progress.
#[derive(Clone, Debug)]
pub(super) struct InProgress(Arc<watch::Sender<usize>>);

/// Counts one response until this is dropped.
#[derive(Debug)]
pub(super) struct InProgressGuard(InProgress);

/// A body that counts as in progress until it was read.
struct TrackedBody {
    body: Body,
    _guard: InProgressGuard,
}

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

    /// Waits until no response is in progress.
    pub(super) async fn none(&self) {
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl InProgressGuard {
    /// Counts until the body was read or dropped.
    pub(super) fn until_read(self, body: Body) -> Body {
        TrackedBody { body, _guard: self }.boxed_unsync()
    }
}

impl Drop for InProgressGuard {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

impl http_body::Body for TrackedBody {
    type Data = <Body as http_body::Body>::Data;
    type Error = <Body as http_body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use onceward::http::body::full;

    use super::*;

    #[tokio::test]
    async fn a_response_is_in_progress_until_it_was_read() {
        let in_progress = InProgress::default();
        in_progress.none().await;
        let body = in_progress.enter().until_read(full("text".into()));
        assert_eq!((*in_progress.0.borrow(), http_body::Body::size_hint(&body).exact()), (1, Some(4)));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "text");
        in_progress.none().await;
    }
}
