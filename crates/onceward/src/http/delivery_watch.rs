//! Watches whether the connection takes a whole response body. A body that it did not take completely was not delivered.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;

use super::body::{Body, Error};

/// A body that calls `then` when the connection has taken all of it.
struct DeliveryWatch<F: FnOnce() + Send + Unpin> {
    body: Body,
    then: Option<F>,
    /// The connection has started to send the response: it then asks for the length or the end. A response that is dropped
    /// unsent is never asked.
    is_asked: AtomicBool,
    /// The rest of the frame that is being given out in pieces.
    rest: Bytes,
    /// How many bytes of the promised length have not been given out yet.
    left: Option<u64>,
    /// The last frame has been given out.
    is_last: bool,
}

/// The largest piece that is given out at once. With small pieces, a connection that takes the last one has sent everything
/// except what is in its buffers.
const MAX_PIECE: usize = 16 * 1024;

/// Wraps a body so that `then` is called once the connection has taken all of it, and never otherwise. `length` is the promised
/// `Content-Length`: a connection does not poll the body after that many bytes.
pub(super) fn on_delivered(body: Body, length: Option<u64>, then: impl FnOnce() + Send + Unpin + 'static) -> Body {
    let is_last = body.is_end_stream() || length == Some(0);
    let (rest, left) = (Bytes::new(), length);
    DeliveryWatch { body, then: Some(then), is_asked: AtomicBool::new(false), rest, left, is_last }.boxed_unsync()
}

impl<F: FnOnce() + Send + Unpin> DeliveryWatch<F> {
    /// The next piece of the current frame. The last byte of the body is a piece of its own, so that only a connection that has
    /// taken all earlier bytes asks for it.
    fn next_piece(&mut self) -> Option<Bytes> {
        let is_end = self.body.is_end_stream() || self.left == Some(self.rest.len() as u64);
        let length = match self.rest.len() {
            0 => return None,
            length if is_end && length > 1 => (length - 1).min(MAX_PIECE),
            length => length.min(MAX_PIECE),
        };
        let piece = self.rest.split_to(length);
        self.left = self.left.map(|left| left.saturating_sub(length as u64));
        self.is_last = self.rest.is_empty() && (self.body.is_end_stream() || self.left == Some(0));
        Some(piece)
    }
}

impl<F: FnOnce() + Send + Unpin> http_body::Body for DeliveryWatch<F> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if let Some(piece) = self.next_piece() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        match std::task::ready!(Pin::new(&mut self.body).poll_frame(context)) {
            None => {
                self.is_last = true;
                Poll::Ready(None)
            }
            Some(Err(error)) => {
                self.is_last = false;
                Poll::Ready(Some(Err(error)))
            }
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) if !data.is_empty() => {
                    self.rest = data;
                    Poll::Ready(self.next_piece().map(|piece| Ok(Frame::data(piece))))
                }
                Ok(data) => Poll::Ready(Some(Ok(Frame::data(data)))),
                // Nothing comes after trailers.
                Err(trailers) => {
                    self.is_last = true;
                    Poll::Ready(Some(Ok(trailers)))
                }
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_asked.store(true, Ordering::Relaxed);
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.is_asked.store(true, Ordering::Relaxed);
        let (mut hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

impl<F: FnOnce() + Send + Unpin> Drop for DeliveryWatch<F> {
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
        let flag = Arc::clone(&taken);
        (on_delivered(full(text.into()), Some(text.len() as u64), move || flag.store(true, Ordering::SeqCst)), taken)
    }

    #[tokio::test]
    async fn a_body_is_delivered_once_the_connection_has_taken_all_of_it() {
        for text in ["", "a response"] {
            let (body, taken) = watched(text);
            drop(body);
            assert!(!taken.load(Ordering::SeqCst), "{text:?}: dropped before its head was sent");
            let (body, taken) = watched(text);
            let _ = body.size_hint();
            assert_eq!(body.collect().await.unwrap().to_bytes(), text);
            assert!(taken.load(Ordering::SeqCst), "{text:?}");
        }
        let (body, taken) = watched("a response");
        let _ = body.size_hint();
        drop(body);
        assert!(!taken.load(Ordering::SeqCst), "dropped before its body was sent");
    }
}
