//! Bodies: reading a whole body within limits, building one, and streaming one to a client while it is recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body as _, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use tokio::sync::mpsc::{self, error::TrySendError};

use onceward_core::hash::Digest;
use onceward_core::outcome;

use super::body_memory::BodyMemory;
use super::problem::{Kind, Problem};

/// Why a body ended early.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The body of a response.
pub type Body = UnsyncBoxBody<Bytes, Error>;

/// How many frames are buffered for a slow reader. A frame has at most some tens of kilobytes.
const FRAMES_AHEAD: usize = 16;

/// `Retry-After` when the memory for bodies is used up: other requests free some within a moment.
const OVERLOAD_RETRY_AFTER: Duration = Duration::from_secs(1);

/// A body from bytes.
pub fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// A body from bytes, followed by trailers.
pub fn with_trailers(bytes: Bytes, trailers: Option<HeaderMap>) -> Body {
    let Some(trailers) = trailers else { return full(bytes) };
    let frames = [Ok(Frame::data(bytes)), Ok(Frame::trailers(trailers))];
    StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()
}

/// Why a body could not be read.
#[derive(Debug)]
pub enum ReadError {
    /// The body is over the size limit.
    TooLarge,
    /// The memory for bodies is used up at the moment.
    NoMemory,
    /// The body ended early.
    Broken(Error),
}

/// Reads a whole body and its trailers.
pub async fn read_all<B>(body: B, limit: usize) -> Result<(Bytes, Option<HeaderMap>), ReadError>
where
    B: http_body::Body<Data = Bytes, Error: Into<Error>>,
{
    read_all_while(body, limit, |_| true).await
}

/// Reads a whole body and its trailers, as long as `has_room` agrees to each further piece.
async fn read_all_while<B>(
    body: B,
    limit: usize,
    mut has_room: impl FnMut(usize) -> bool,
) -> Result<(Bytes, Option<HeaderMap>), ReadError>
where
    B: http_body::Body<Data = Bytes, Error: Into<Error>>,
{
    let mut body = std::pin::pin!(body);
    if body.size_hint().lower() > limit as u64 {
        return Err(ReadError::TooLarge);
    }
    let (mut first, mut rest, mut trailers) = (Bytes::new(), BytesMut::new(), None);
    while let Some(frame) = body.frame().await {
        match frame.map_err(|error| ReadError::Broken(error.into()))?.into_data() {
            Ok(data) if first.len() + rest.len() + data.len() > limit => return Err(ReadError::TooLarge),
            Ok(data) if !has_room(data.len()) => return Err(ReadError::NoMemory),
            // Most bodies come in one piece, which then needs no copy.
            Ok(data) if first.is_empty() && rest.is_empty() => first = data,
            Ok(data) => {
                if rest.is_empty() {
                    rest.extend_from_slice(&first);
                    first = Bytes::new();
                }
                rest.extend_from_slice(&data);
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    Ok((if rest.is_empty() { first } else { rest.freeze() }, trailers))
}

/// Reads the body and the trailers of a guarded request, within limits of size and time.
pub async fn read_request<B>(body: B, limit: usize, time: Duration) -> Result<(Bytes, Option<HeaderMap>), Problem>
where
    B: http_body::Body<Data = Bytes, Error: Into<Error>>,
{
    within(time, limit, read_all(body, limit)).await
}

/// Like [`read_request`], within a memory budget that all requests share.
pub async fn read_request_within<B>(
    memory: &BodyMemory,
    body: B,
    limit: usize,
    time: Duration,
) -> Result<(Bytes, Option<HeaderMap>), Problem>
where
    B: http_body::Body<Data = Bytes, Error: Into<Error>>,
{
    let mut reservation = memory.reserve();
    let (bytes, trailers) = within(time, limit, read_all_while(body, limit, |bytes| reservation.grow(bytes))).await?;
    Ok((if bytes.is_empty() { bytes } else { reservation.hold_for(bytes) }, trailers))
}

async fn within<T>(
    time: Duration,
    limit: usize,
    read: impl Future<Output = Result<T, ReadError>>,
) -> Result<T, Problem> {
    match tokio::time::timeout(time, read).await {
        Ok(Ok(received)) => Ok(received),
        Ok(Err(ReadError::NoMemory)) => Err(Problem::new(Kind::Overloaded).later(OVERLOAD_RETRY_AFTER)),
        Ok(Err(ReadError::TooLarge)) => {
            let detail = format!("The body of a guarded request may have at most {limit} bytes on this route.");
            Err(Problem::because(Kind::BodyTooLarge, detail))
        }
        Ok(Err(ReadError::Broken(_))) => {
            Err(Problem::because(Kind::BadRequest, "The body ended before it was complete."))
        }
        Err(_) => Err(Problem::new(Kind::TooSlow)),
    }
}

/// The sending end of a body that is read while it is sent. Dropping it before [`BodySender::finish`] aborts the body.
pub struct BodySender {
    /// `None` once the reader is gone or has timed out.
    frames: Option<mpsc::Sender<Result<Frame<Bytes>, Error>>>,
    is_complete: Arc<AtomicBool>,
    timeout: Duration,
}

/// A body that is read while it is sent. A reader that takes nothing for as long as `timeout` is cut off.
pub fn channel(timeout: Duration) -> (BodySender, Body) {
    let (frames, mut waiting) = mpsc::channel(FRAMES_AHEAD);
    let is_complete = Arc::new(AtomicBool::new(false));
    let sender = BodySender { frames: Some(frames), is_complete: Arc::clone(&is_complete), timeout };
    let stream = futures_util::stream::poll_fn(move |context| {
        let frame = std::task::ready!(waiting.poll_recv(context));
        // The sender was dropped without a `finish`: a reader must not take the body for complete.
        let lost = frame.is_none() && !is_complete.swap(true, Ordering::SeqCst);
        Poll::Ready(if lost { Some(Err("the response ended before it was complete".into())) } else { frame })
    });
    (sender, StreamBody::new(stream).boxed_unsync())
}

impl BodySender {
    /// Sends a frame. Does nothing when the reader is gone or has timed out, so that the rest can still be recorded.
    pub async fn send(&mut self, frame: Frame<Bytes>) {
        self.push(Ok(frame)).await;
    }

    /// Resolves when the reader is gone.
    pub async fn closed(&self) {
        if let Some(frames) = &self.frames {
            frames.closed().await;
        }
    }

    /// Marks the body as complete. Has no effect for a reader that was cut off: it did not get everything.
    pub fn finish(self) {
        if self.frames.is_some() {
            self.is_complete.store(true, Ordering::SeqCst);
        }
    }

    /// Ends the body with an error, so that its reader does not take it for complete.
    pub async fn abort(mut self, error: Error) {
        self.push(Err(error)).await;
        self.finish();
    }

    async fn push(&mut self, frame: Result<Frame<Bytes>, Error>) {
        let Some(frames) = &self.frames else { return };
        let taken = match frames.try_send(frame) {
            Ok(()) => true,
            Err(TrySendError::Closed(_)) => false,
            Err(TrySendError::Full(frame)) => {
                matches!(tokio::time::timeout(self.timeout, frames.send(frame)).await, Ok(Ok(())))
            }
        };
        if !taken {
            self.frames = None;
        }
    }
}

/// Records a body while it is streamed: its bytes up to a limit, and beyond it only their digest and number.
pub struct BodyRecorder {
    limit: usize,
    kept: Option<BytesMut>,
    digest: onceward_core::hash::Hasher,
    size: u64,
}

impl BodyRecorder {
    /// An empty recorder that keeps at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, kept: Some(BytesMut::new()), digest: onceward_core::hash::Hasher::default(), size: 0 }
    }

    /// Records a further piece.
    pub fn record(&mut self, data: &[u8]) {
        self.size += data.len() as u64;
        self.digest.add(data);
        if self.size > self.limit as u64 {
            self.kept = None;
        }
        if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(data);
        }
    }

    /// How many bytes the body has so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The body of the outcome.
    pub fn into_body(self) -> outcome::Body {
        let digest: Digest = self.digest.digest();
        match self.kept {
            Some(kept) => outcome::Body::Kept(kept.freeze()),
            None => outcome::Body::TooLarge { size: self.size, digest },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn a_body_over_the_limit_is_refused() {
        assert!(matches!(read_all(full(Bytes::from_static(b"12345")), 4).await, Err(ReadError::TooLarge)));
        assert_eq!(read_all(full(Bytes::from_static(b"12345")), 5).await.unwrap().0, "12345");
        let (mut sender, body) = channel(TIMEOUT);
        tokio::spawn(async move {
            for piece in ["12", "34", "56"] {
                sender.send(Frame::data(Bytes::from(piece))).await;
            }
            sender.finish();
        });
        assert!(matches!(read_all(body, 5).await, Err(ReadError::TooLarge)));
    }

    #[tokio::test]
    async fn unfinished_bodies_share_one_memory_budget_and_give_it_back() {
        let memory = BodyMemory::new(10);
        let read = async |bytes: &'static [u8]| {
            let read = read_request_within(&memory, full(Bytes::from_static(bytes)), 100, TIMEOUT).await;
            read.map(|(bytes, _)| bytes).map_err(|problem| problem.kind)
        };
        let (mut sender, body) = channel(TIMEOUT);
        sender.send(Frame::data(Bytes::from("12345678"))).await;
        let unfinished = read_request_within(&memory, body, 100, 4 * TIMEOUT);
        let (unfinished, second) = tokio::join!(unfinished, async {
            tokio::time::sleep(TIMEOUT).await;
            (read(b"123").await, read(b"12").await.map(drop))
        });
        assert_eq!(unfinished.map_err(|problem| problem.kind), Err(Kind::TooSlow));
        assert_eq!(second, (Err(Kind::Overloaded), Ok(())));
        let whole = read(b"1234567890").await.unwrap();
        let part = whole.slice(..1);
        drop(whole);
        assert_eq!(read(b"1").await, Err(Kind::Overloaded), "a slice keeps the whole reservation");
        drop(part);
        assert_eq!(read(b"1").await.unwrap(), "1");
    }

    #[tokio::test]
    async fn a_body_that_was_aborted_or_dropped_is_not_read_as_complete() {
        for how in ["finished", "aborted", "dropped"] {
            let (mut sender, body) = channel(TIMEOUT);
            tokio::spawn(async move {
                sender.send(Frame::data(Bytes::from("12"))).await;
                sender.send(Frame::data(Bytes::from("34"))).await;
                match how {
                    "finished" => sender.finish(),
                    "aborted" => sender.abort("lost".into()).await,
                    _ => drop(sender),
                }
            });
            let read = read_all(body, 100).await;
            assert_eq!(matches!(&read, Ok((bytes, _)) if bytes == "1234"), how == "finished", "{how}: {read:?}");
        }
    }

    #[tokio::test]
    async fn a_reader_that_takes_nothing_is_cut_off_and_sees_an_error() {
        for aborted in [false, true] {
            let (mut sender, body) = channel(TIMEOUT);
            for _ in 0..FRAMES_AHEAD + 2 {
                sender.send(Frame::data(Bytes::from("12"))).await;
            }
            if aborted {
                sender.abort("lost".into()).await
            } else {
                sender.finish()
            }
            assert!(matches!(read_all(body, 1000).await, Err(ReadError::Broken(_))));
        }
    }

    #[tokio::test]
    async fn a_slow_reader_gets_the_whole_body() {
        let (mut sender, mut body) = channel(4 * TIMEOUT);
        let sending = tokio::spawn(async move {
            for _ in 0..FRAMES_AHEAD + 10 {
                sender.send(Frame::data(Bytes::from("12"))).await;
            }
            sender.finish();
        });
        for _ in 0..10 {
            tokio::time::sleep(TIMEOUT).await;
            body.frame().await.unwrap().unwrap();
        }
        assert_eq!(read_all(body, 1000).await.unwrap().0.len(), 2 * FRAMES_AHEAD);
        sending.await.unwrap();
    }

    #[test]
    fn a_body_over_the_limit_is_recorded_as_its_digest() {
        let mut recorder = BodyRecorder::new(4);
        recorder.record(b"123");
        recorder.record(b"45");
        let whole = outcome::Outcome::success("12345").within(4);
        assert_eq!(recorder.into_body(), whole.body);
        let mut recorder = BodyRecorder::new(4);
        recorder.record(b"1234");
        assert_eq!(recorder.into_body(), outcome::Body::Kept(Bytes::from("1234")));
    }
}
