//! Words and limits that several requests share.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Unexpected};
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

/// A whole number. `2.0` is one too: some languages write all numbers like that.
pub(super) fn whole<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<i64>,
{
    struct Visitor<T>(PhantomData<T>);

    impl<T: TryFrom<i64>> de::Visitor<'_> for Visitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a whole number that is not too large or too small")
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
            T::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
            match i64::try_from(number) {
                Ok(number) => self.visit_i64(number),
                Err(_) => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
            }
        }

        fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
            // Every whole number up to here is exactly one float.
            const EXACT: f64 = 9_007_199_254_740_992.0;
            if number.fract() == 0.0 && number.abs() <= EXACT {
                return self.visit_i64(number as i64);
            }
            Err(E::invalid_value(Unexpected::Float(number), &self))
        }
    }

    deserializer.deserialize_any(Visitor(PhantomData))
}

/// The same for a field that may be left out.
pub(super) fn given_whole<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<i64>,
{
    whole(deserializer).map(Some)
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
    /// The body is over 1 MiB, or the headers of an outcome are over 32 KiB
    #[response(status = 413, content_type = "application/problem+json")]
    TooLarge(Told),
    /// The body is not said to be JSON
    #[response(status = 415, content_type = "application/problem+json")]
    NotJsonType(Told),
}
