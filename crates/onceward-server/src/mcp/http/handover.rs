//! Sees when the connection has taken the answer to a call. What the connection has not taken was not delivered.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use onceward::http::Body;

/// The largest piece of an answer that is given out at once.
const PIECE: usize = 16 * 1024;

type Then = Box<dyn FnOnce() + Send>;

/// Which bytes are the answer, and what is to be done once they are taken. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Handover(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    expected: Option<(Bytes, Then)>,
    /// The body is gone: nothing more is taken.
    is_gone: bool,
}

/// A body that is watched.
struct Watched {
    body: Body,
    handover: Handover,
    /// What is left of the answer. It is given out in pieces, so that a connection that has taken the last of them has sent
    /// all but what its buffers hold.
    rest: Bytes,
    then: Option<Then>,
    /// The last piece is on its way; it is taken when the connection asks for more, or needs no more.
    taking: Option<Then>,
}

impl Handover {
    /// These bytes, in this very place of memory, are the answer.
    pub(super) fn expect(&self, answer: Bytes, then: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        if !state.is_gone {
            state.expected = Some((answer, Box::new(then)));
        }
    }

    /// The body, watched.
    pub(super) fn watch(&self, body: Body) -> Body {
        Watched { body, handover: self.clone(), rest: Bytes::new(), then: None, taking: None }.boxed_unsync()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    /// The next piece of the answer: all but its last byte in pieces, and then that byte. A connection under HTTP/2 asks for it
    /// only when its client has room for what comes before.
    fn next_piece(&mut self) -> Option<Bytes> {
        let length = match self.rest.len() {
            0 => return None,
            1 => 1,
            length => (length - 1).min(PIECE),
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

impl http_body::Body for Watched {
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
        let mut state = self.handover.state();
        let is_answer = |(answer, _): &mut (Bytes, Then)| same(answer, &data);
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

impl Drop for Watched {
    fn drop(&mut self) {
        self.taken();
        let mut state = self.handover.state();
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
    async fn an_answer_counts_once_it_was_taken() {
        let (count, then) = counted();
        let (handover, answer) = (Handover::default(), Bytes::from(vec![1, 2, 3]));
        let body = handover.watch(full(answer.clone()));
        handover.expect(answer, then);
        assert_eq!(body.collect().await.unwrap().to_bytes().len(), 3);
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn one_of_which_a_part_was_taken_does_not_count() {
        let (count, then) = counted();
        let (handover, answer) = (Handover::default(), Bytes::from(vec![7; 3 * PIECE]));
        let mut body = handover.watch(full(answer.clone()));
        handover.expect(answer, then);
        let mut taken = 0;
        while taken < 3 * PIECE - 1 {
            taken += body.frame().await.unwrap().unwrap().into_data().unwrap().len();
        }
        drop(body);
        assert_eq!((taken, count.load(Ordering::SeqCst)), (3 * PIECE - 1, 0));
    }

    #[tokio::test]
    async fn one_that_nobody_takes_does_not_count() {
        let (count, then) = counted();
        let (handover, answer) = (Handover::default(), Bytes::from(vec![1, 2, 3]));
        let body = handover.watch(full(answer.clone()));
        handover.expect(answer.clone(), then);
        drop(body);
        let (late, then) = counted();
        handover.expect(answer.clone(), then);
        let (other, then) = counted();
        let handover = Handover::default();
        let body = handover.watch(full(Bytes::from(vec![1, 2, 3])));
        handover.expect(answer, then);
        assert!(body.collect().await.is_ok());
        assert_eq!([count, late, other].map(|count| count.load(Ordering::SeqCst)), [0, 0, 0]);
    }
}
