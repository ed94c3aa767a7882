//! Why a webhook is refused. No message shows a secret, a signature or a part of the body, so that all of them may be logged.

use http::HeaderName;
use onceward::core::{duration, name};

use super::{MAX_BODY, MAX_HEADERS};

/// Why a webhook is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the request has more than {MAX_HEADERS} headers")]
    TooManyHeaders,
    #[error("the body has more than {MAX_BODY} bytes")]
    BodyTooLarge,
    #[error("the header {header} is missing; does this provider post to this path, and does it have a signing secret?")]
    MissingHeader { header: HeaderName },
    #[error("the header {header} occurs more than once")]
    RepeatedHeader { header: HeaderName },
    #[error("the header {header} is malformed: {what}")]
    Malformed { header: HeaderName, what: &'static str },
    #[error(
        "the signed time is {} in the past; the request was delayed or replayed, or a clock is wrong", duration::format(*.age)
    )]
    TooOld { age: std::time::Duration },
    #[error("the signed time is {} in the future; a clock is wrong", duration::format(*.ahead))]
    TooNew { ahead: std::time::Duration },
    #[error(
        "the signature does not match the body; is the secret the one of this endpoint, and does a proxy change the body?"
    )]
    WrongSignature,
    #[error("the signature is right, but the body is not JSON, so that the event cannot be identified")]
    NotJson,
    #[error("the signature is right, but the body has no usable text at {pointer}")]
    NoEventId { pointer: String },
    #[error("the signature is right, but the event cannot be identified: {0}")]
    BadEventId(#[from] name::Error),
}

impl Refused {
    /// A short name of the kind, for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::TooManyHeaders => "too_many_headers",
            Self::BodyTooLarge => "body_too_large",
            Self::MissingHeader { .. } => "missing_header",
            Self::RepeatedHeader { .. } => "repeated_header",
            Self::Malformed { .. } => "malformed_header",
            Self::TooOld { .. } => "too_old",
            Self::TooNew { .. } => "too_new",
            Self::WrongSignature => "wrong_signature",
            Self::NotJson => "bad_body",
            Self::NoEventId { .. } => "no_event_id",
            Self::BadEventId(_) => "bad_event_id",
        }
    }

    /// Whether the provider really sent this. An operator must then hear of it, since the event is lost otherwise.
    pub fn is_genuine(&self) -> bool {
        matches!(self, Self::NotJson | Self::NoEventId { .. } | Self::BadEventId(_))
    }
}
