//! Words and limits that several requests share.

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoResponses, ToSchema};

use super::problem::Told;

/// The longest that begin waits for a running one: proxies in between give up soon after.
pub(super) const LONGEST_WAIT: u64 = 60_000;

/// The longest lease, in milliseconds: three days.
pub(super) const LONGEST_LEASE: u64 = 259_200_000;

/// The longest time before which nothing is tried again: a week.
pub(super) const LONGEST_NOT_BEFORE: u64 = 604_800_000;

/// How an intent stands.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code, reason = "it describes what `Status::as_str` gives")]
pub(crate) enum State {
    /// Waits for the courier.
    Queued,
    /// Somebody is doing the work.
    Running,
    /// Released: the next begin may try.
    Open,
    /// An attempt may have happened, and nobody has settled it.
    InDoubt,
    /// Finished.
    Done,
    /// Finished, and the outcome is no longer kept.
    Tombstone,
    /// Known not to have happened, and not tried any more.
    Dead,
}

/// What happens to an intent whose attempt may or may not have happened.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code, reason = "it describes what the library's own type gives")]
pub(crate) enum WhenInDoubt {
    /// Nothing runs until somebody settles it.
    Hold,
    /// It is tried again with the same downstream key, while the other side still knows that key.
    Retry,
    /// The other side is asked first.
    Probe,
}

/// A field that may be left out, but is not null when it is there.
pub(super) fn given<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// What every request can be told.
#[derive(IntoResponses)]
#[allow(dead_code, reason = "it describes what `Problem` answers")]
pub(super) enum Refused {
    /// No valid token
    #[response(status = 401, content_type = "application/problem+json")]
    NoToken(Told),
    /// The token does not allow this
    #[response(status = 403, content_type = "application/problem+json")]
    NotAllowed(Told),
    /// Without tokens, only localhost is answered
    #[response(status = 421, content_type = "application/problem+json")]
    WrongHost(Told),
    /// Something in the request is unknown, missing, or not what it has to be
    #[response(status = 422, content_type = "application/problem+json")]
    Invalid(Told),
    /// A fault of the server
    #[response(status = 500, content_type = "application/problem+json")]
    Internal(Told),
    /// The store cannot be used at this moment; ask again after `Retry-After`
    #[response(status = 503, content_type = "application/problem+json")]
    StoreDown(Told),
}

/// What a request with a body can be told besides.
#[derive(IntoResponses)]
#[allow(dead_code, reason = "it describes what `Problem` answers")]
pub(super) enum RefusedBody {
    /// The body is not JSON
    #[response(status = 400, content_type = "application/problem+json")]
    NotJson(Told),
    /// The body took too long
    #[response(status = 408, content_type = "application/problem+json")]
    TooSlow(Told),
    /// The body is over 1 MiB
    #[response(status = 413, content_type = "application/problem+json")]
    TooLarge(Told),
    /// The body is not said to be JSON
    #[response(status = 415, content_type = "application/problem+json")]
    NotJsonType(Told),
}
