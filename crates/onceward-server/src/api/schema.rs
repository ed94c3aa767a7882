//! Types, limits and responses that several requests share.

use std::fmt;
use std::marker::PhantomData;

use onceward::core::outbox;
use serde::de::{self, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoResponses, ToSchema};

use super::problem::ProblemDocument;

/// Upper bound of `wait_ms`: proxies usually time out soon after.
pub(super) const MAX_WAIT_MS: u64 = 60_000;

/// Upper bound of `lease_ms`: three days.
pub(super) const MAX_LEASE_MS: u64 = 259_200_000;

/// Upper bound of `not_before_ms`: a week.
pub(super) const MAX_NOT_BEFORE_MS: u64 = 604_800_000;

/// The state of an intent.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code, reason = "it describes the values of `Status::as_str`")]
pub enum IntentState {
    /// Waiting for the courier.
    Queued,
    /// An owner is doing the work.
    Running,
    /// Released: the next begin may try.
    Open,
    /// An attempt may have happened and has not been settled.
    InDoubt,
    /// Finished.
    Done,
    /// Finished; the outcome is no longer kept.
    Tombstone,
    /// Known not to have happened, and no longer tried.
    Dead,
}

/// Which entries go first.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Before everything else.
    High,
    /// In between.
    Normal,
    /// After everything else.
    Low,
}

impl From<Priority> for outbox::Priority {
    fn from(priority: Priority) -> Self {
        match priority {
            Priority::High => Self::High,
            Priority::Normal => Self::Normal,
            Priority::Low => Self::Low,
        }
    }
}

impl From<outbox::Priority> for Priority {
    fn from(priority: outbox::Priority) -> Self {
        match priority {
            outbox::Priority::High => Self::High,
            outbox::Priority::Normal => Self::Normal,
            outbox::Priority::Low => Self::Low,
        }
    }
}

/// What to do with an intent whose attempt may or may not have happened.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code, reason = "it describes the values of the library's own type")]
pub enum InDoubtPolicy {
    /// Nothing runs until the doubt is settled.
    Hold,
    /// It is retried with the same downstream key, as long as the downstream remembers that key.
    Retry,
    /// The downstream is asked first.
    Probe,
}

/// An optional field that must not be null.
pub(super) fn given<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// An integer. `2.0` counts as one: some languages write all numbers like that.
pub(super) fn whole<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<i64>,
{
    struct Visitor<T>(PhantomData<T>);

    impl<T: TryFrom<i64>> de::Visitor<'_> for Visitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an integer in range")
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
            // All integers up to here have an exact float.
            const EXACT: f64 = 9_007_199_254_740_992.0;
            if number.fract() == 0.0 && number.abs() <= EXACT {
                return self.visit_i64(number as i64);
            }
            Err(E::invalid_value(Unexpected::Float(number), &self))
        }
    }

    deserializer.deserialize_any(Visitor(PhantomData))
}

/// An optional integer.
pub(super) fn given_whole<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<i64>,
{
    whole(deserializer).map(Some)
}

/// The errors of every request.
#[derive(IntoResponses)]
#[allow(dead_code, reason = "it describes the responses of `Problem`")]
pub(super) enum CommonErrors {
    /// Missing or unknown token
    #[response(status = 401, content_type = "application/problem+json")]
    NoToken(ProblemDocument),
    /// The token lacks the required scope
    #[response(status = 403, content_type = "application/problem+json")]
    NotAllowed(ProblemDocument),
    /// Without tokens, the server only accepts requests to localhost
    #[response(status = 421, content_type = "application/problem+json")]
    WrongHost(ProblemDocument),
    /// A field is unknown, missing or invalid
    #[response(status = 422, content_type = "application/problem+json")]
    Invalid(ProblemDocument),
    /// Internal server error
    #[response(status = 500, content_type = "application/problem+json")]
    Internal(ProblemDocument),
    /// The store is unavailable; retry after `Retry-After`
    #[response(status = 503, content_type = "application/problem+json")]
    StoreDown(ProblemDocument),
}

/// Additional errors of requests with a body.
#[derive(IntoResponses)]
#[allow(dead_code, reason = "it describes the responses of `Problem`")]
pub(super) enum BodyErrors {
    /// The body is not valid JSON
    #[response(status = 400, content_type = "application/problem+json")]
    NotJson(ProblemDocument),
    /// Timed out reading the body
    #[response(status = 408, content_type = "application/problem+json")]
    TooSlow(ProblemDocument),
    /// The body is larger than 1 MiB (8 MiB for enqueue), or the headers of an outcome are larger than 32 KiB
    #[response(status = 413, content_type = "application/problem+json")]
    TooLarge(ProblemDocument),
    /// The content type is not JSON
    #[response(status = 415, content_type = "application/problem+json")]
    NotJsonType(ProblemDocument),
}

/// The additional error of requests that may make a record.
#[derive(IntoResponses)]
#[allow(dead_code, reason = "it describes the responses of `Problem`")]
pub(super) enum QuotaErrors {
    /// The tenant has reached its quota of records; retry after `Retry-After`
    #[response(status = 429, content_type = "application/problem+json")]
    OverQuota(ProblemDocument),
}
