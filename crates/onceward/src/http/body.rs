//! Bodies: read whole with a limit, made whole, and streamed to one caller while they are kept.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body as _, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use tokio::sync::mpsc;

use onceward_core::hash::Digest;
use onceward_core::outcome;

/// Why a body broke off.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Error>;

/// How many frames wait for a slow reader; a frame is at most some tens of kilobytes.
const FRAMES_AHEAD: usize = 16;

/// A body that is there already.
pub fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// Why a body was not read.
#[derive(Debug)]
pub enum Unread {
    /// It is over the limit.
    TooLarge,
    /// It broke off.
    Broken(Error),
}

/// Reads a whole body, and the trailers behind it.
pub async fn whole<B>(body: B, limit: usize) -> Result<(Bytes, Option<HeaderMap>), Unread>
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

/// The end of a body that one side fills while the other reads.
pub struct Filling {
    frames: Option<mpsc::Sender<Result<Frame<Bytes>, Error>>>,
}

/// A body that is filled while it is read.
pub fn filled() -> (Filling, Body) {
    let (frames, mut waiting) = mpsc::channel(FRAMES_AHEAD);
    let stream = futures_util::stream::poll_fn(move |context| waiting.poll_recv(context));
    (Filling { frames: Some(frames) }, http_body_util::StreamBody::new(stream).boxed_unsync())
}

impl Filling {
    /// Passes a frame on. A reader that has gone away is no reason to stop.
    pub async fn put(&mut self, frame: Frame<Bytes>) {
        let Some(frames) = &self.frames else { return };
        if frames.send(Ok(frame)).await.is_err() {
            self.frames = None;
        }
    }

    /// Breaks the body off, so that its reader does not take it for whole.
    pub async fn break_off(self, error: Error) {
        if let Some(frames) = self.frames {
            let _ = frames.send(Err(error)).await;
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

    #[tokio::test]
    async fn a_body_over_the_limit_is_not_read() {
        assert!(matches!(whole(full(Bytes::from_static(b"12345")), 4).await, Err(Unread::TooLarge)));
        assert_eq!(whole(full(Bytes::from_static(b"12345")), 5).await.unwrap().0, "12345");
        let (mut filling, body) = filled();
        tokio::spawn(async move {
            for piece in ["12", "34", "56"] {
                filling.put(Frame::data(Bytes::from(piece))).await;
            }
        });
        assert!(matches!(whole(body, 5).await, Err(Unread::TooLarge)));
    }

    #[tokio::test]
    async fn pieces_come_together_and_a_broken_body_is_not_whole() {
        for broken in [false, true] {
            let (mut filling, body) = filled();
            tokio::spawn(async move {
                filling.put(Frame::data(Bytes::from("12"))).await;
                filling.put(Frame::data(Bytes::from("34"))).await;
                if broken {
                    filling.break_off("lost".into()).await;
                }
            });
            let read = whole(body, 100).await;
            assert_eq!(matches!(&read, Ok((bytes, _)) if bytes == "1234"), !broken, "{read:?}");
        }
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
