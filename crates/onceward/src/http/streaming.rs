//! Streams a response to the first client while recording it, and ends the claim when the response is complete. The last frame
//! is held back until the outcome is on disk, so that a client that has the whole response can rely on every repeat.

use std::time::Duration;

use bytes::Bytes;
use http::header::TRAILER;
use http::{HeaderMap, HeaderValue, Response, response};
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::time::Instant;

use onceward_core::outcome::{self, Verdict};

use super::body::{self, BodyRecorder, BodySender};
use super::profile::Profile;
use super::truncation::is_truncated;
use super::verdict::Ending;
use super::{grpc, stored_response};
use crate::error::Error;
use crate::ledger::{Guard, WriteResult};

/// How a response is streamed.
pub(super) struct StreamOptions {
    /// How many bytes of the body are kept.
    pub(super) limit: usize,
    /// The length that the upstream announced.
    pub(super) length: Option<u64>,
    /// The body ends when the connection closes, so that its end alone does not prove that it is complete.
    pub(super) close_delimited: bool,
    /// Until when the response is kept.
    pub(super) expires: Option<HeaderValue>,
    /// How long the upstream is still read after the client is gone.
    pub(super) unread_for: Duration,
    pub(super) result: ResultPlace,
}

/// Streams a response to the client and records it. The last frame is sent once the outcome is on disk.
pub(super) async fn stream<B>(
    guard: Guard,
    options: StreamOptions,
    head: response::Parts,
    body: B,
    mut sender: BodySender,
) where
    B: http_body::Body<Data = Bytes, Error: Into<body::Error> + Send> + Send + 'static,
{
    let StreamOptions { limit, length, close_delimited, expires, unread_for, result } = options;
    let mut recorder = BodyRecorder::new(limit);
    let mut trailers = None;
    let mut last = None;
    let mut deadline = None;
    let mut body = std::pin::pin!(body);
    loop {
        // Biased, so that an upstream that never pauses cannot postpone the deadline.
        let frame = tokio::select! {
            biased;
            () = sender.closed(), if deadline.is_none() => {
                deadline = Some(Instant::now() + unread_for);
                continue;
            }
            () = until(deadline) => Some(Err("the client is gone, and the response did not end in time".into())),
            frame = body.frame() => frame.map(|frame| frame.map_err(Into::into)),
        };
        let Some(frame) = frame else { break };
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => {
                recorder.record(&data);
                if length == Some(recorder.size()) {
                    last = Some(Frame::data(data));
                } else {
                    sender.send(Frame::data(data)).await;
                }
            }
            Ok(Err(frame)) => trailers = frame.into_trailers().ok(),
            Err(error) => {
                let error: body::Error = error;
                recorded(guard.doubt(Some(&format!("the response ended early: {error}"))).await);
                return sender.abort(error).await;
            }
        }
    }
    let kept = recorder.into_body();
    if let outcome::Body::Kept(bytes) = &kept
        && close_delimited
        && is_truncated(&head.headers, bytes)
    {
        let why = "the upstream closed the connection in the middle of the response";
        recorded(guard.doubt(Some(why)).await);
        return sender.abort(why.into()).await;
    }
    // The headers have been sent: whether the outcome was recorded can only be said in trailers.
    let recorded = settle(guard, &head, trailers.as_ref(), result, kept).await;
    let mut trailers = trailers.unwrap_or_default();
    recorded.add_headers(&mut trailers, expires.as_ref());
    let trailers = (!trailers.is_empty()).then_some(trailers);
    for frame in last.into_iter().chain(trailers.map(Frame::trailers)) {
        sender.send(frame).await;
    }
    sender.finish();
}

/// Resolves at the deadline, or never without one.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Where a response says whether the call succeeded.
#[derive(Clone, Copy)]
pub(super) enum ResultPlace {
    /// In the status; this is what it means.
    Status(Verdict),
    /// In the trailers, as in gRPC.
    Trailers(Profile),
}

/// What the record says once the response is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    /// The response is kept, and repeats get it.
    Kept,
    /// The claim ended as the response says, and the response is not kept: the claim was released, or is in doubt.
    Ended,
    /// The outcome could not be recorded: another owner holds the claim, or the store failed. The response is still valid.
    Failed,
}

impl Recorded {
    /// Adds the headers that tell the client about it.
    pub(super) fn add_headers(self, headers: &mut HeaderMap, expires: Option<&HeaderValue>) {
        match (self, expires) {
            (Self::Kept, Some(expires)) => {
                headers.insert(stored_response::EXPIRES, expires.clone());
            }
            (Self::Failed, _) => {
                headers.insert(stored_response::RECORDED, HeaderValue::from_static("false"));
            }
            (Self::Kept | Self::Ended, _) => {}
        }
    }
}

/// Ends the claim after a complete response, as its status or its trailers say.
pub(super) async fn settle(
    guard: Guard,
    head: &response::Parts,
    trailers: Option<&HeaderMap>,
    result: ResultPlace,
    body: outcome::Body,
) -> Recorded {
    let ending = match result {
        ResultPlace::Status(verdict) => Ending::Keep(verdict),
        // Without its trailers, a gRPC response says nothing.
        ResultPlace::Trailers(profile) => {
            trailers.and_then(|trailers| grpc::ending(profile, trailers)).unwrap_or(Ending::Doubt)
        }
    };
    match ending {
        Ending::Keep(verdict) => {
            let is_kept = matches!(body, outcome::Body::Kept(_));
            let recorded = recorded(guard.finish(stored_response::outcome(head, trailers, verdict, body)).await);
            // Done, but too large to be replayed.
            if recorded == Recorded::Kept && !is_kept { Recorded::Ended } else { recorded }
        }
        ending => end_unkept(guard, ending, "the gRPC status in the trailers says so").await,
    }
}

/// Ends the claim after a response that is not kept.
pub(super) async fn end_unkept(guard: Guard, ending: Ending, why: &str) -> Recorded {
    let ended = match ending {
        Ending::Release(after) => guard.release(after, Some(why)).await,
        Ending::Doubt | Ending::Keep(_) => guard.doubt(Some(why)).await,
    };
    match recorded(ended) {
        Recorded::Kept => Recorded::Ended,
        other => other,
    }
}

/// Whether the end of a claim was recorded. A failure is logged, and the client gets the response nevertheless.
pub(super) fn recorded(ended: Result<WriteResult, Error>) -> Recorded {
    match ended {
        Ok(WriteResult::Written) => Recorded::Kept,
        Ok(WriteResult::Stale) => {
            tracing::warn!(
                "an outcome was not recorded: another owner has taken over the claim. The outcome is in the audit trail"
            );
            Recorded::Failed
        }
        Err(error) => {
            tracing::error!(%error, "an outcome was not recorded");
            Recorded::Failed
        }
    }
}

/// Announces in the headers which trailers may follow the body.
pub(super) fn announce_trailers(headers: &mut HeaderMap) {
    headers.append(TRAILER, HeaderValue::from_static("idempotency-expires, idempotency-recorded"));
}

/// A copy of the head, which goes to the client before the outcome is made from it.
pub(super) fn clone_head(parts: &response::Parts) -> response::Parts {
    let (mut head, ()) = Response::new(()).into_parts();
    head.status = parts.status;
    head.headers = parts.headers.clone();
    head
}
