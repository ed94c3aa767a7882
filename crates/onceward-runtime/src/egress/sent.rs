//! What is known about a request after it was tried. It decides whether the request may be sent again, so only proof counts:
//! whatever is not proven is [`Sent::Unknown`].

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::rules::Refusal;

/// The end of one request.
#[derive(Debug)]
pub enum Sent {
    /// Proven: no server processed any part of the request.
    NotSent(NotSent),
    /// The server answered. A redirect is an answer too.
    Answered(Response),
    /// The server may have processed the request.
    Unknown(Unknown),
}

/// Why no server processed the request, and why each of these is proof.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// Refused before anything was dialled.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Refused before anything was dialled, because it breaks a limit or a rule of HTTP.
    #[error("the request cannot be sent: {0}")]
    Invalid(&'static str),
    /// Waited for its turn, and was given to no connection.
    #[error("too many requests to this sink are in progress")]
    Busy,
    /// Its time was over while it waited for a connection.
    #[error("the time for the request was over before it could be sent")]
    Late,
    /// There is no address to dial.
    #[error("failed to resolve {host}: {why}")]
    Unresolved { host: String, why: String },
    /// Connections carry a request only once they are established, and TLS connections only once the handshake has ended:
    /// early data is off.
    #[error("failed to connect to {to}: {why}")]
    Unreachable { to: String, why: String },
    /// The connection ended while the request still waited in this process for its turn to be written.
    #[error("{to} closed the connection before the request was written")]
    Closed { to: String },
    /// The server said in HTTP/2 that it did not process the request (RFC 9113, 8.7).
    #[error("{to} refused the request unprocessed: {why}")]
    Unprocessed { to: String, why: String },
}

impl NotSent {
    /// Whether the same request would be refused again, at any time, until the configuration changes. Names can resolve to
    /// other addresses later, but a name that resolves to a refused one needs a person all the same.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Invalid(_))
    }
}

/// The answer of a server.
#[derive(Clone, PartialEq, Eq)]
pub struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// As it came: never decompressed.
    pub body: Bytes,
    /// Whether the body is longer than the limit and only its beginning is here.
    pub cut: bool,
    /// Whether only the end of the connection ended the body (HTTP/1, without a length), so that it may lack its end.
    pub unframed: bool,
}

/// Without headers and body, which may contain secrets.
impl fmt::Debug for Response {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = to.debug_struct("Response");
        shown
            .field("status", &self.status)
            .field("bytes", &self.body.len())
            .field("cut", &self.cut)
            .finish_non_exhaustive()
    }
}

/// Why there is no answer to a request that may have been processed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{to}: {why}")]
pub struct Unknown {
    pub to: String,
    pub why: Lost,
    /// The status, if the head of the answer arrived and its body did not.
    pub status: Option<StatusCode>,
}

/// How an answer was lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    #[error("timed out waiting for the answer")]
    TimedOut,
    #[error("the connection was lost before the answer arrived: {0}")]
    Connection(String),
    #[error("timed out reading the answer")]
    BodyTimedOut,
    #[error("the answer broke off: {0}")]
    Body(String),
    #[error("the server switched the protocol without a request to do so")]
    Switched,
}
