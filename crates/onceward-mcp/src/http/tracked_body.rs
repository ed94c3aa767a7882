//! A body that counts as work in progress until it was read, so that the process does not end in the middle of a response.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use onceward::http::Body;

use super::super::in_progress::InProgressGuard;

struct TrackedBody {
    body: Body,
    _guard: InProgressGuard,
}

/// Counts as in progress until the body was read or dropped.
pub(super) fn until_read(guard: InProgressGuard, body: Body) -> Body {
    TrackedBody { body, _guard: guard }.boxed_unsync()
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
    use futures_util::FutureExt;
    use onceward::http::body::full;

    use super::super::super::in_progress::InProgress;
    use super::*;

    #[tokio::test]
    async fn a_response_is_in_progress_until_it_was_read() {
        let in_progress = InProgress::default();
        let body = until_read(in_progress.enter(), full("text".into()));
        assert_eq!((in_progress.none().now_or_never(), http_body::Body::size_hint(&body).exact()), (None, Some(4)));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "text");
        in_progress.none().await;
    }
}
