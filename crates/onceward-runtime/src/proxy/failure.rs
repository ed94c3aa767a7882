//! Classifies upstream failures: what a missing response proves about the request.

use std::error::Error as _;

use h2::Reason;
use hyper_util::client::legacy::Error;
use onceward::http::NoAnswer;
use onceward::plant::{Plant, planted};

/// A connection that could not be made proves that nothing was sent, and a refusal that nothing was done. Any other failure
/// proves nothing.
pub(super) fn classify(error: &Error) -> NoAnswer {
    let what = with_causes(error);
    if error.is_connect() || planted(Plant::LostIsNotSent) {
        NoAnswer::NotSent(what)
    } else if is_refused(error) {
        NoAnswer::Refused(what)
    } else {
        NoAnswer::Lost(what)
    }
}

/// Whether the upstream says in HTTP/2 that it did not process the request.
///
/// Only the error of this stream counts. A deeper error belongs to something else, for example to the client's stream that
/// the body comes from. A request that is queued while GOAWAY is being read could be an exception, because hyper then reports
/// the error of the connection, but a worker thread does both, one after the other.
fn is_refused(error: &Error) -> bool {
    let sent = error.source().and_then(|cause| cause.downcast_ref::<hyper::Error>());
    sent.and_then(|sent| sent.source()?.downcast_ref::<h2::Error>()).is_some_and(is_unprocessed)
}

/// Whether the error of a stream says that the server did not process its request (RFC 9113, 8.7): it refused the stream, or
/// it sent GOAWAY with an earlier stream as the last one that it may have processed. Streams up to the last one get the error
/// of the closed connection and not of GOAWAY.
pub(crate) fn is_unprocessed(stream: &h2::Error) -> bool {
    let refused = stream.is_reset() && stream.reason() == Some(Reason::REFUSED_STREAM);
    stream.is_remote() && (refused || stream.is_go_away())
}

/// An error with its causes, which say more than the error itself.
pub(super) fn with_causes(error: &Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
