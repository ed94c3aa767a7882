//! An answer on its way to the first client while it is kept: its end is held back until the outcome is on the disk. And
//! how a claim ends when the answer is there.

use std::time::Duration;

use bytes::Bytes;
use http::header::TRAILER;
use http::{HeaderMap, HeaderValue, Response, response};
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::time::Instant;

use onceward_core::outcome::{self, Verdict};

use super::body::{self, Filling, Keeping};
use super::cut_off::is_cut_off;
use super::profile::Profile;
use super::verdict::Ending;
use super::{grpc, kept};
use crate::error::Error;
use crate::ledger::{Guard, Reach};

/// How an answer is handed over.
pub(super) struct Handing {
    /// How much of it is kept.
    pub(super) limit: usize,
    /// Its length, if it said one.
    pub(super) length: Option<u64>,
    /// It ends with its connection, so that its end alone does not say that it is whole.
    pub(super) close_delimited: bool,
    /// Until when it is kept.
    pub(super) expires: Option<HeaderValue>,
    /// How long it is read to its end although nobody takes it any more.
    pub(super) unread: Duration,
    pub(super) told: Told,
}

/// Hands an answer over while keeping it. Its end is held back until it is on the disk.
pub(super) async fn stream<B>(guard: Guard, how: Handing, head: response::Parts, body: B, mut filling: Filling)
where
    B: http_body::Body<Data = Bytes, Error: Into<body::Error> + Send> + Send + 'static,
{
    let Handing { limit, length, close_delimited, expires, unread, told } = how;
    let mut keeping = Keeping::new(limit);
    let mut trailers = None;
    let mut last = None;
    let mut deadline = None;
    let mut body = std::pin::pin!(body);
    loop {
        // What never pauses must not keep the time from being up.
        let frame = tokio::select! {
            biased;
            () = filling.unread(), if deadline.is_none() => {
                deadline = Some(Instant::now() + unread);
                continue;
            }
            () = until(deadline) => Some(Err("nobody takes it any more, and it does not end".into())),
            frame = body.frame() => frame.map(|frame| frame.map_err(Into::into)),
        };
        let Some(frame) = frame else { break };
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => {
                keeping.see(&data);
                if length == Some(keeping.size()) {
                    last = Some(Frame::data(data));
                } else {
                    filling.put(Frame::data(data)).await;
                }
            }
            Ok(Err(frame)) => trailers = frame.into_trailers().ok(),
            Err(error) => {
                let error: body::Error = error;
                of(guard.doubt(Some(&format!("the answer broke off: {error}"))).await);
                return filling.break_off(error).await;
            }
        }
    }
    let kept = keeping.end();
    if let outcome::Body::Kept(bytes) = &kept
        && close_delimited
        && is_cut_off(&head.headers, bytes)
    {
        let why = "the answer ended with its connection, in the middle of its content";
        of(guard.doubt(Some(why)).await);
        return filling.break_off(why.into()).await;
    }
    // Its head has left: what became of it can only stand behind it.
    let recorded = settle(guard, &head, trailers.as_ref(), told, kept).await;
    let mut behind = trailers.unwrap_or_default();
    recorded.tell(&mut behind, expires.as_ref());
    let trailers = (!behind.is_empty()).then_some(behind);
    for frame in last.into_iter().chain(trailers.map(Frame::trailers)) {
        filling.put(frame).await;
    }
    filling.end();
}

/// Resolves at a moment, if there is one.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Where an answer says what happened.
#[derive(Clone, Copy)]
pub(super) enum Told {
    /// In its head.
    Ahead(Verdict),
    /// Behind its body, as gRPC does.
    Behind(Profile),
}

/// What is known about a record once its answer is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    /// Repeats get this answer.
    Kept,
    /// It ended as the answer says, and the answer is not kept: it released the claim, or left a doubt.
    Ended,
    /// The answer is true, but the record does not say so: somebody else holds the claim, or the store failed.
    No,
}

impl Recorded {
    /// What the client is told about it.
    pub(super) fn tell(self, headers: &mut HeaderMap, expires: Option<&HeaderValue>) {
        match (self, expires) {
            (Self::Kept, Some(expires)) => {
                headers.insert(kept::EXPIRES, expires.clone());
            }
            (Self::No, _) => {
                headers.insert(kept::RECORDED, HeaderValue::from_static("false"));
            }
            (Self::Kept | Self::Ended, _) => {}
        }
    }
}

/// The answer is there, all of it: what became of the effect is recorded.
pub(super) async fn settle(
    guard: Guard,
    head: &response::Parts,
    trailers: Option<&HeaderMap>,
    told: Told,
    body: outcome::Body,
) -> Recorded {
    let ending = match told {
        Told::Ahead(verdict) => Ending::Keep(verdict),
        // Without its end, an answer of gRPC says nothing.
        Told::Behind(profile) => trailers.and_then(|trailers| grpc::ending(profile, trailers)).unwrap_or(Ending::Doubt),
    };
    match ending {
        Ending::Keep(verdict) => {
            let is_kept = matches!(body, outcome::Body::Kept(_));
            let recorded = of(guard.finish(kept::outcome(head, trailers, verdict, body)).await);
            // Done, and too large to be repeated.
            if recorded == Recorded::Kept && !is_kept { Recorded::Ended } else { recorded }
        }
        ending => ended(guard, ending, "answered so in its trailers").await,
    }
}

/// An answer that is not kept.
pub(super) async fn ended(guard: Guard, ending: Ending, why: &str) -> Recorded {
    let ended = match ending {
        Ending::Release(after) => guard.release(after, Some(why)).await,
        Ending::Doubt | Ending::Keep(_) => guard.doubt(Some(why)).await,
    };
    match of(ended) {
        Recorded::Kept => Recorded::Ended,
        other => other,
    }
}

/// Whether an end was recorded. The answer is true although it was not, so it is handed over all the same.
pub(super) fn of(ended: Result<Reach, Error>) -> Recorded {
    match ended {
        Ok(Reach::Written) => Recorded::Kept,
        Ok(Reach::Stale) => {
            tracing::warn!(
                "an outcome was not recorded: the claim of its request was superseded; it is in the audit trail"
            );
            Recorded::No
        }
        Err(error) => {
            tracing::error!(%error, "an outcome was not recorded");
            Recorded::No
        }
    }
}

/// Says in a head what may stand behind the body.
pub(super) fn announce(headers: &mut HeaderMap) {
    headers.append(TRAILER, HeaderValue::from_static("idempotency-expires, idempotency-recorded"));
}

/// The head once more: it goes to the client before the outcome is made from it.
pub(super) fn clone(parts: &response::Parts) -> response::Parts {
    let (mut head, ()) = Response::new(()).into_parts();
    head.status = parts.status;
    head.headers = parts.headers.clone();
    head
}
