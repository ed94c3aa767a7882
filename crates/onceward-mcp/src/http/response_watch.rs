//! Watches whether the connection has taken the response to a call. A response that was not taken was not delivered.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use onceward::http::Body;

/// The largest piece of a response that is handed to the connection at once.
const MAX_PIECE: usize = 16 * 1024;

type OnTaken = Box<dyn FnOnce() + Send>;

/// Which bytes are the response, and what to call once they are taken. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct ResponseWatch(Arc<Mutex<WatchState>>);

#[derive(Default)]
struct WatchState {
    expected: Option<(Bytes, OnTaken)>,
    /// The body was dropped: nothing more will be taken.
    is_gone: bool,
}

/// A body whose response bytes are watched.
struct WatchedBody {
    body: Body,
    watch: ResponseWatch,
    /// What is left of the response. It is handed out in pieces, so that a connection that has taken the last piece has sent all but
    /// what its buffers hold.
    rest: Bytes,
    then: Option<OnTaken>,
    /// The last piece was handed out; it counts as taken when the connection asks for more, or drops the body.
    taking: Option<OnTaken>,
}

impl ResponseWatch {
    /// Declares these bytes, compared by address, to be the response.
    pub(super) fn expect(&self, answer: Bytes, then: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        if !state.is_gone {
            state.expected = Some((answer, Box::new(then)));
        }
    }

    /// Wraps a body so that it is watched.
    pub(super) fn watch(&self, body: Body) -> Body {
        WatchedBody { body, watch: self.clone(), rest: Bytes::new(), then: None, taking: None }.boxed_unsync()
    }

    fn state(&self) -> MutexGuard<'_, WatchState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatchedBody {
    /// The next piece of the response: all but its last byte in pieces, and then that byte. An HTTP/2 connection asks for the last
    /// byte only when its client has room for the bytes before it.
    fn next_piece(&mut self) -> Option<Bytes> {
        let length = match self.rest.len() {
            0 => return None,
            1 => 1,
            length => (length - 1).min(MAX_PIECE),
        };
        let piece = self.rest.split_to(length);
        if self.rest.is_empty() {
            self.taking = self.then.take();
        }
        Some(piece)
    }

    fn taken(&mut self) {
        if let Some(then) = self.taking.take() {
            then();
        }
    }
}

impl http_body::Body for WatchedBody {
    type Data = <Body as http_body::Body>::Data;
    type Error = <Body as http_body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        self.taken();
        if let Some(piece) = self.next_piece() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        let Some(Ok(frame)) = frame else { return Poll::Ready(frame) };
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(other) => return Poll::Ready(Some(Ok(other))),
        };
        let mut state = self.watch.state();
        let is_answer = |(answer, _): &mut (Bytes, OnTaken)| same(answer, &data);
        let then = state.expected.take_if(is_answer).map(|(_, then)| then);
        drop(state);
        if then.is_none() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        (self.rest, self.then) = (data, then);
        Poll::Ready(self.next_piece().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        self.taken();
        let mut state = self.watch.state();
        state.is_gone = true;
        state.expected = None;
    }
}

fn same(one: &Bytes, other: &Bytes) -> bool {
    one.as_ptr() == other.as_ptr() && one.len() == other.len()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use onceward::http::body::full;

    use super::*;

    fn counted() -> (Arc<AtomicU32>, impl FnOnce() + Send + 'static) {
        let count = Arc::new(AtomicU32::new(0));
        let counting = Arc::clone(&count);
        (count, move || {
            counting.fetch_add(1, Ordering::SeqCst);
        })
    }

    #[tokio::test]
    async fn a_response_counts_once_it_was_taken() {
        let (count, then) = counted();
        let (watch, answer) = (ResponseWatch::default(), Bytes::from(vec![1, 2, 3]));
        let body = watch.watch(full(answer.clone()));
        watch.expect(answer, then);
        assert_eq!(body.collect().await.unwrap().to_bytes().len(), 3);
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_response_that_was_taken_in_part_does_not_count() {
        let (count, then) = counted();
        let (watch, answer) = (ResponseWatch::default(), Bytes::from(vec![7; 3 * MAX_PIECE]));
        let mut body = watch.watch(full(answer.clone()));
        watch.expect(answer, then);
        let mut taken = 0;
        while taken < 3 * MAX_PIECE - 1 {
            taken += body.frame().await.unwrap().unwrap().into_data().unwrap().len();
        }
        drop(body);
        assert_eq!((taken, count.load(Ordering::SeqCst)), (3 * MAX_PIECE - 1, 0));
    }

    #[tokio::test]
    async fn a_response_that_was_not_taken_does_not_count() {
        let (count, then) = counted();
        let (watch, answer) = (ResponseWatch::default(), Bytes::from(vec![1, 2, 3]));
        let body = watch.watch(full(answer.clone()));
        watch.expect(answer.clone(), then);
        drop(body);
        let (late, then) = counted();
        watch.expect(answer.clone(), then);
        let (other, then) = counted();
        let watch = ResponseWatch::default();
        let body = watch.watch(full(Bytes::from(vec![1, 2, 3])));
        watch.expect(answer, then);
        assert!(body.collect().await.is_ok());
        assert_eq!([count, late, other].map(|count| count.load(Ordering::SeqCst)), [0, 0, 0]);
    }
}
