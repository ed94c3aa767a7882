//! Which answers are still on their way, so that we do not end in the middle of them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use onceward::http::Body;
use tokio::sync::watch;

/// How many there are.
#[derive(Clone, Debug)]
pub(super) struct UnderWay(Arc<watch::Sender<usize>>);

/// One of them, until this is dropped.
#[derive(Debug)]
pub(super) struct One(UnderWay);

/// An answer that is one of them until it was read.
struct Read {
    body: Body,
    _one: One,
}

impl Default for UnderWay {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl UnderWay {
    pub(super) fn enter(&self) -> One {
        self.0.send_modify(|count| *count += 1);
        One(self.clone())
    }

    /// Waits until there is none.
    pub(super) async fn none(&self) {
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl One {
    /// It is under way until its answer was read, or nobody reads it any more.
    pub(super) fn until_read(self, body: Body) -> Body {
        Read { body, _one: self }.boxed_unsync()
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

impl http_body::Body for Read {
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
    async fn an_answer_is_under_way_until_it_was_read() {
        let under_way = UnderWay::default();
        under_way.none().await;
        let body = under_way.enter().until_read(full("text".into()));
        assert_eq!((*under_way.0.borrow(), http_body::Body::size_hint(&body).exact()), (1, Some(4)));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "text");
        under_way.none().await;
    }
}
