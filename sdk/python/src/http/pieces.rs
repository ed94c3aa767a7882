//! Bodies whose pieces come from Python: that of the request, and that of the app's response.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use onceward::http::body::Error;
use pyo3::prelude::*;
use pyo3::types::PyBool;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use crate::runtime::{Completion, wait_in_loop};

/// How many pieces wait for their reader. A piece has at most some tens of kilobytes.
const PIECES_AHEAD: usize = 16;

/// A piece of a body.
pub(super) struct Piece {
    pub(super) data: Bytes,
    pub(super) is_last: bool,
    pub(super) trailers: Option<HeaderMap>,
}

impl Piece {
    pub(super) fn of(data: &[u8], more: bool) -> Self {
        Self { data: Bytes::copy_from_slice(data), is_last: !more, trailers: None }
    }
}

pub(super) type Sender = mpsc::Sender<Result<Piece, Error>>;

/// A body and its sending end. A body whose sender is dropped before the last piece is broken.
pub(super) fn channel() -> (Sender, Pieces) {
    let (sender, waiting) = mpsc::channel(PIECES_AHEAD);
    (sender, Pieces { waiting, left: None, trailers: None, is_ended: false, taken: None })
}

/// The reading end of a body.
pub(super) struct Pieces {
    waiting: mpsc::Receiver<Result<Piece, Error>>,
    /// How many bytes of the announced length are still to come.
    left: Option<u64>,
    trailers: Option<HeaderMap>,
    is_ended: bool,
    /// Completed when the last piece has been taken; dropped if the body is given up before.
    taken: Option<oneshot::Sender<()>>,
}

impl Pieces {
    /// The same body, and whether its last piece was taken.
    pub(super) fn watched(self) -> (Self, oneshot::Receiver<()>) {
        let (taken, is_taken) = oneshot::channel();
        (Self { taken: Some(taken), ..self }, is_taken)
    }

    pub(super) fn with_length(self, length: Option<u64>) -> Self {
        Self { left: length, ..self }
    }

    fn broken(&mut self, why: Error) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.is_ended = true;
        Poll::Ready(Some(Err(why)))
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.is_ended {
            return Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
        }
        let Piece { data, is_last, trailers } = match ready!(self.waiting.poll_recv(context)) {
            None => return self.broken("it ended before it was complete".into()),
            Some(Err(why)) => return self.broken(why),
            Some(Ok(piece)) => piece,
        };
        if let Some(left) = self.left {
            match left.checked_sub(data.len() as u64) {
                Some(left) if left == 0 || !is_last => self.left = Some(left),
                Some(_) => return self.broken("it is shorter than its Content-Length".into()),
                None => return self.broken("it is longer than its Content-Length".into()),
            }
        }
        if is_last {
            (self.is_ended, self.trailers) = (true, trailers);
            if let Some(taken) = self.taken.take() {
                // Without a receiver, the app has ended.
                let _ = taken.send(());
            }
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_ended && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Whether a piece was taken.
struct Taken(bool);

impl Completion for Taken {
    fn deliver(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(PyBool::new(py, self.0).to_owned().into_any().unbind())
    }
}

/// Sends a piece, and waits where the reader is slow. The result is whether the body is still read.
pub(super) fn push(
    py: Python<'_>,
    event_loop: &Bound<'_, PyAny>,
    sender: Sender,
    piece: Piece,
) -> PyResult<(bool, Py<PyAny>)> {
    match sender.try_send(Ok(piece)) {
        Ok(()) => Ok((true, Taken(true).deliver(py)?)),
        Err(TrySendError::Closed(_)) => Ok((true, Taken(false).deliver(py)?)),
        Err(TrySendError::Full(piece)) => {
            wait_in_loop(py, event_loop, async move { Taken(sender.send(piece).await.is_ok()) })
        }
    }
}
