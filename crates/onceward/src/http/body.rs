//! Bodies: read whole with a limit, made whole, and streamed to one caller while they are kept.

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

use super::problem::{Kind, Problem};
use super::room::Room;

/// Why a body broke off.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Error>;

/// How many frames wait for a slow reader; a frame is at most some tens of kilobytes.
const FRAMES_AHEAD: usize = 16;

/// When to come back to where there was no room: others are served in a moment.
const SOON: Duration = Duration::from_secs(1);

/// A body that is there already.
pub fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// A body that is there already, with what stands behind it.
pub fn ended(bytes: Bytes, trailers: Option<HeaderMap>) -> Body {
    let Some(trailers) = trailers else { return full(bytes) };
    let frames = [Ok(Frame::data(bytes)), Ok(Frame::trailers(trailers))];
    StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()
}

/// Why a body was not read.
#[derive(Debug)]
pub enum Unread {
    /// It is over the limit.
    TooLarge,
    /// There is no room for it at this moment.
    NoRoom,
    /// It broke off.
    Broken(Error),
}

/// Reads a whole body, and the trailers behind it.
pub async fn whole<B>(body: B, limit: usize) -> Result<(Bytes, Option<HeaderMap>), Unread>
where
    B: http_body::Body<Data = Bytes, Error: Into<Error>>,
{
    whole_if(body, limit, |_| true).await
}

/// The same, as long as there is room for what comes.
async fn whole_if<B>(
    body: B,
    limit: usize,
    mut has_room: impl FnMut(usize) -> bool,
) -> Result<(Bytes, Option<HeaderMap>), Unread>
where
    B: http_body::Body<Data = Bytes, Error: Into<Error>>,
{
    let mut body = std::pin::pin!(body);
    if body.size_hint().lower() > limit as u64 {
        return Err(Unread::TooLarge);
    }
    let (mut first, mut rest, mut trailers) = (Bytes::new(), BytesMut::new(), None);
    while let Some(frame) = body.frame().await {
        match frame.map_err(|error| Unread::Broken(error.into()))?.into_data() {
            Ok(data) if first.len() + rest.len() + data.len() > limit => return Err(Unread::TooLarge),
            Ok(data) if !has_room(data.len()) => return Err(Unread::NoRoom),
            // Most bodies come in one piece, which need not be copied.
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

/// Reads the body of a guarded request, and the trailers behind it: all of it, within limits of size and time.
pub async fn received<B>(body: B, limit: usize, time: Duration) -> Result<(Bytes, Option<HeaderMap>), Problem>
where
    B: http_body::Body<Data = Bytes, Error: Into<Error>>,
{
    within(time, limit, whole(body, limit)).await
}

/// The same, in a room that it shares with others.
pub async fn received_in<B>(
    room: &Room,
    body: B,
    limit: usize,
    time: Duration,
) -> Result<(Bytes, Option<HeaderMap>), Problem>
where
    B: http_body::Body<Data = Bytes, Error: Into<Error>>,
{
    let mut taken = room.taken();
    let (bytes, trailers) = within(time, limit, whole_if(body, limit, |bytes| taken.more(bytes))).await?;
    Ok((if bytes.is_empty() { bytes } else { taken.by(bytes) }, trailers))
}

async fn within<T>(time: Duration, limit: usize, read: impl Future<Output = Result<T, Unread>>) -> Result<T, Problem> {
    match tokio::time::timeout(time, read).await {
        Ok(Ok(received)) => Ok(received),
        Ok(Err(Unread::NoRoom)) => Err(Problem::new(Kind::Overloaded).later(SOON)),
        Ok(Err(Unread::TooLarge)) => {
            let detail = format!("A guarded request has at most {limit} bytes here.");
            Err(Problem::because(Kind::BodyTooLarge, detail))
        }
        Ok(Err(Unread::Broken(_))) => Err(Problem::because(Kind::BadRequest, "The body broke off.")),
        Err(_) => Err(Problem::new(Kind::TooSlow)),
    }
}

/// The end of a body that one side fills while the other reads. Whoever drops it before the end breaks the body off.
pub struct Filling {
    /// `None` once nobody reads any more.
    frames: Option<mpsc::Sender<Result<Frame<Bytes>, Error>>>,
    over: Arc<AtomicBool>,
    patience: Duration,
}

/// A body that is filled while it is read. A reader that takes nothing for as long as `patience` is cut off.
pub fn filled(patience: Duration) -> (Filling, Body) {
    let (frames, mut waiting) = mpsc::channel(FRAMES_AHEAD);
    let over = Arc::new(AtomicBool::new(false));
    let filling = Filling { frames: Some(frames), over: Arc::clone(&over), patience };
    let stream = futures_util::stream::poll_fn(move |context| {
        let frame = std::task::ready!(waiting.poll_recv(context));
        // Its filler is gone, and did not say that this was all: a reader must not take it for whole.
        let lost = frame.is_none() && !over.swap(true, Ordering::SeqCst);
        Poll::Ready(if lost { Some(Err("the answer broke off".into())) } else { frame })
    });
    (filling, StreamBody::new(stream).boxed_unsync())
}

impl Filling {
    /// Passes a frame on. A reader that has gone away, or is there and takes nothing, is no reason to stop.
    pub async fn put(&mut self, frame: Frame<Bytes>) {
        self.send(Ok(frame)).await;
    }

    /// Resolves when nobody reads any more.
    pub async fn unread(&self) {
        if let Some(frames) = &self.frames {
            frames.closed().await;
        }
    }

    /// That was all. Of a reader that was cut off it is not true.
    pub fn end(self) {
        if self.frames.is_some() {
            self.over.store(true, Ordering::SeqCst);
        }
    }

    /// Breaks the body off, so that its reader does not take it for whole.
    pub async fn break_off(mut self, error: Error) {
        self.send(Err(error)).await;
        self.end();
    }

    async fn send(&mut self, frame: Result<Frame<Bytes>, Error>) {
        let Some(frames) = &self.frames else { return };
        let taken = match frames.try_send(frame) {
            Ok(()) => true,
            Err(TrySendError::Closed(_)) => false,
            Err(TrySendError::Full(frame)) => {
                matches!(tokio::time::timeout(self.patience, frames.send(frame)).await, Ok(Ok(())))
            }
        };
        if !taken {
            self.frames = None;
        }
    }
}

/// What is kept of a body that goes by: its bytes up to a limit, and from there on only their digest and number.
pub struct Keeping {
    limit: usize,
    kept: Option<BytesMut>,
    digest: onceward_core::hash::Running,
    size: u64,
}

impl Keeping {
    /// Nothing yet.
    pub fn new(limit: usize) -> Self {
        Self { limit, kept: Some(BytesMut::new()), digest: onceward_core::hash::Running::default(), size: 0 }
    }

    /// A further piece.
    pub fn see(&mut self, data: &[u8]) {
        self.size += data.len() as u64;
        self.digest.add(data);
        if self.size > self.limit as u64 {
            self.kept = None;
        }
        if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(data);
        }
    }

    /// How much has gone by.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What is left of it.
    pub fn end(self) -> outcome::Body {
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

    const PATIENCE: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn a_body_over_the_limit_is_not_read() {
        assert!(matches!(whole(full(Bytes::from_static(b"12345")), 4).await, Err(Unread::TooLarge)));
        assert_eq!(whole(full(Bytes::from_static(b"12345")), 5).await.unwrap().0, "12345");
        let (mut filling, body) = filled(PATIENCE);
        tokio::spawn(async move {
            for piece in ["12", "34", "56"] {
                filling.put(Frame::data(Bytes::from(piece))).await;
            }
            filling.end();
        });
        assert!(matches!(whole(body, 5).await, Err(Unread::TooLarge)));
    }

    #[tokio::test]
    async fn bodies_that_are_not_finished_share_one_room_and_give_it_back() {
        let room = Room::of(10);
        let read = async |bytes: &'static [u8]| {
            let read = received_in(&room, full(Bytes::from_static(bytes)), 100, PATIENCE).await;
            read.map(|(bytes, _)| bytes).map_err(|problem| problem.kind)
        };
        let (mut filling, body) = filled(PATIENCE);
        filling.put(Frame::data(Bytes::from("12345678"))).await;
        let unfinished = received_in(&room, body, 100, 4 * PATIENCE);
        let (unfinished, second) = tokio::join!(unfinished, async {
            tokio::time::sleep(PATIENCE).await;
            (read(b"123").await, read(b"12").await.map(drop))
        });
        assert_eq!(unfinished.map_err(|problem| problem.kind), Err(Kind::TooSlow));
        assert_eq!(second, (Err(Kind::Overloaded), Ok(())));
        let whole = read(b"1234567890").await.unwrap();
        let part = whole.slice(..1);
        drop(whole);
        assert_eq!(read(b"1").await, Err(Kind::Overloaded), "a part keeps all of it");
        drop(part);
        assert_eq!(read(b"1").await.unwrap(), "1");
    }

    #[tokio::test]
    async fn pieces_come_together_and_a_broken_body_is_not_whole() {
        for how in ["ended", "broken", "dropped"] {
            let (mut filling, body) = filled(PATIENCE);
            tokio::spawn(async move {
                filling.put(Frame::data(Bytes::from("12"))).await;
                filling.put(Frame::data(Bytes::from("34"))).await;
                match how {
                    "ended" => filling.end(),
                    "broken" => filling.break_off("lost".into()).await,
                    _ => drop(filling),
                }
            });
            let read = whole(body, 100).await;
            assert_eq!(matches!(&read, Ok((bytes, _)) if bytes == "1234"), how == "ended", "{how}: {read:?}");
        }
    }

    #[tokio::test]
    async fn a_reader_that_takes_nothing_is_cut_off_and_does_not_take_what_it_has_for_whole() {
        for broken in [false, true] {
            let (mut filling, body) = filled(PATIENCE);
            for _ in 0..FRAMES_AHEAD + 2 {
                filling.put(Frame::data(Bytes::from("12"))).await;
            }
            if broken {
                filling.break_off("lost".into()).await
            } else {
                filling.end()
            }
            assert!(matches!(whole(body, 1000).await, Err(Unread::Broken(_))));
        }
    }

    #[tokio::test]
    async fn a_reader_that_is_slow_gets_all_of_it() {
        let (mut filling, mut body) = filled(4 * PATIENCE);
        let filler = tokio::spawn(async move {
            for _ in 0..FRAMES_AHEAD + 10 {
                filling.put(Frame::data(Bytes::from("12"))).await;
            }
            filling.end();
        });
        for _ in 0..10 {
            tokio::time::sleep(PATIENCE).await;
            body.frame().await.unwrap().unwrap();
        }
        assert_eq!(whole(body, 1000).await.unwrap().0.len(), 2 * FRAMES_AHEAD);
        filler.await.unwrap();
    }

    #[test]
    fn what_is_too_much_leaves_its_digest() {
        let mut keeping = Keeping::new(4);
        keeping.see(b"123");
        keeping.see(b"45");
        let whole = outcome::Outcome::success("12345").within(4);
        assert_eq!(keeping.end(), whole.body);
        let mut keeping = Keeping::new(4);
        keeping.see(b"1234");
        assert_eq!(keeping.end(), outcome::Body::Kept(Bytes::from("1234")));
    }
}
