//! What it proves about a request that there is no answer to it.

use std::error::Error as _;

use h2::Reason;
use hyper_util::client::legacy::Error;
use onceward::core::plant::{Plant, planted};
use onceward::http::NoAnswer;

/// A connection that was not made proves that nothing was sent, and a refusal that nothing was done. Anything else proves
/// nothing.
pub(super) fn proves(error: &Error) -> NoAnswer {
    let what = told(error);
    if error.is_connect() || planted(Plant::LostIsNotSent) {
        NoAnswer::NotSent(what)
    } else if is_refused(error) {
        NoAnswer::Refused(what)
    } else {
        NoAnswer::Lost(what)
    }
}

/// Whether the other side says in HTTP/2 that it did not look at the request (RFC 9113, 8.7): it refused the stream, or it goes
/// away and names an earlier one as the last that it may have looked at.
///
/// Only the error of this very stream counts. One that lies deeper is of something else, as of the client's own stream, from
/// which a body comes. Streams that are not behind the last one get no error of a GOAWAY, but that of the connection's end.
/// A request that is queued in the very moment in which a GOAWAY is read could be an exception; on a lane there is no such
/// moment, because both are done on one thread.
fn is_refused(error: &Error) -> bool {
    let sent = error.source().and_then(|cause| cause.downcast_ref::<hyper::Error>());
    let stream = sent.and_then(|sent| sent.source()?.downcast_ref::<h2::Error>());
    stream.is_some_and(|stream| {
        let refused = stream.is_reset() && stream.reason() == Some(Reason::REFUSED_STREAM);
        stream.is_remote() && (refused || stream.is_go_away())
    })
}

/// An error with its causes, which say more than itself.
pub(super) fn told(error: &Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
