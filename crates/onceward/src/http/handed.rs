//! Sees whether the connection has taken a whole body. What it has not taken was not delivered.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;

use super::body::{Body, Error};

/// A body that tells when the connection has taken all of it.
struct Handed<F: FnOnce() + Send + Unpin> {
    body: Body,
    then: Option<F>,
    /// Its head is on its way: a connection asks for the length then. A response that nobody takes is not asked.
    is_asked: AtomicBool,
    /// The last frame was given out.
    is_last: bool,
}

/// Calls `then` once the connection has taken all of the body, and never if it does not.
pub(super) fn handed(body: Body, then: impl FnOnce() + Send + Unpin + 'static) -> Body {
    let is_last = body.is_end_stream();
    Handed { body, then: Some(then), is_asked: AtomicBool::new(false), is_last }.boxed_unsync()
}

impl<F: FnOnce() + Send + Unpin> http_body::Body for Handed<F> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        self.is_last = match &frame {
            None => true,
            Some(Ok(_)) => self.body.is_end_stream(),
            Some(Err(_)) => false,
        };
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.is_asked.store(true, Ordering::Relaxed);
        self.body.size_hint()
    }
}

impl<F: FnOnce() + Send + Unpin> Drop for Handed<F> {
    fn drop(&mut self) {
        let is_taken = self.is_last && self.is_asked.load(Ordering::Relaxed);
        if let Some(then) = self.then.take().filter(|_| is_taken) {
            then();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::body::full;
    use super::*;

    fn watched(text: &'static str) -> (Body, Arc<AtomicBool>) {
        let taken = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&taken);
        (handed(full(text.into()), move || told.store(true, Ordering::SeqCst)), taken)
    }

    #[tokio::test]
    async fn a_body_is_delivered_once_the_connection_has_taken_all_of_it() {
        for text in ["", "an answer"] {
            let (body, taken) = watched(text);
            drop(body);
            assert!(!taken.load(Ordering::SeqCst), "{text:?}: dropped before its head was sent");
            let (body, taken) = watched(text);
            let _ = body.size_hint();
            assert_eq!(body.collect().await.unwrap().to_bytes(), text);
            assert!(taken.load(Ordering::SeqCst), "{text:?}");
        }
        let (body, taken) = watched("an answer");
        let _ = body.size_hint();
        drop(body);
        assert!(!taken.load(Ordering::SeqCst), "dropped before its body was sent");
    }
}
