//! Classes of failure, and what each one does to the claim.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::plant::{Plant, planted};
use crate::policy::OnError;

/// What is known about a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// It never reached the other side: connection refused, DNS, TLS, a program that could not start.
    NotSent,
    /// The other side says: not done, perhaps later.
    Refused {
        /// When it may be tried again, if the other side said so.
        #[serde(default, with = "crate::duration::as_millis_option")]
        retry_after: Option<Duration>,
    },
    /// The same request would fail the same way again.
    Final,
    /// It may have happened: a time-out, a lost connection.
    Unknown,
    /// Nobody said.
    Unclassified,
}

/// What becomes of a claim whose attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Disposition {
    /// Proven harmless: the next begin may try, after this long.
    Release(#[serde(with = "crate::duration::as_millis")] Duration),
    /// A final failure, kept and replayed.
    Keep,
    /// It may have happened, and nobody knows.
    Doubt,
}

/// Decides what a failure does. `marked_sent` is true when the caller itself wrote `sent`: from then on an
/// error that nobody classified can prove nothing.
pub fn disposition(class: Class, on_error: OnError, marked_sent: bool) -> Disposition {
    match class {
        Class::NotSent => Disposition::Release(Duration::ZERO),
        Class::Refused { retry_after } => Disposition::Release(retry_after.unwrap_or_default()),
        Class::Final => Disposition::Keep,
        Class::Unknown if planted(Plant::ReleaseOnUnknown) => Disposition::Release(Duration::ZERO),
        Class::Unknown => Disposition::Doubt,
        Class::Unclassified if marked_sent => Disposition::Doubt,
        Class::Unclassified => match on_error {
            OnError::Retry => Disposition::Release(Duration::ZERO),
            OnError::Doubt => Disposition::Doubt,
            OnError::Keep => Disposition::Keep,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Disposition = Disposition::Release(Duration::ZERO);

    #[test]
    fn what_is_known_outranks_the_policy() {
        for on_error in [OnError::Retry, OnError::Doubt, OnError::Keep] {
            for marked in [false, true] {
                assert_eq!(disposition(Class::NotSent, on_error, marked), NOW);
                assert_eq!(disposition(Class::Final, on_error, marked), Disposition::Keep);
                assert_eq!(disposition(Class::Unknown, on_error, marked), Disposition::Doubt);
            }
        }
    }

    #[test]
    fn an_unclassified_error_follows_the_policy_until_sent_was_marked() {
        assert_eq!(disposition(Class::Unclassified, OnError::Retry, false), NOW);
        assert_eq!(disposition(Class::Unclassified, OnError::Keep, false), Disposition::Keep);
        assert_eq!(disposition(Class::Unclassified, OnError::Doubt, false), Disposition::Doubt);
        for on_error in [OnError::Retry, OnError::Doubt, OnError::Keep] {
            assert_eq!(disposition(Class::Unclassified, on_error, true), Disposition::Doubt);
        }
    }

    #[test]
    fn a_refusal_waits_as_long_as_the_other_side_asked() {
        let class = Class::Refused { retry_after: Some(Duration::from_secs(7)) };
        assert_eq!(disposition(class, OnError::Doubt, true), Disposition::Release(Duration::from_secs(7)));
    }
}
