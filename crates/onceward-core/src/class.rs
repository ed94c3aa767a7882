//! Classes of failures, and how each one ends the claim.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::evidence::Evidence;
use crate::policy::OnError;

/// What is known about a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The attempt never reached the downstream: connection refused, DNS, TLS, a program that could not start.
    NotSent,
    /// The downstream says that nothing was done, perhaps later.
    Refused {
        /// When it may be tried again, if the downstream said so.
        #[serde(default, with = "crate::duration::as_millis_option")]
        retry_after: Option<Duration>,
    },
    /// The same request would fail in the same way again.
    Final,
    /// The effect may have happened: a timeout, a lost connection.
    Unknown,
    /// An unclassified error.
    Unclassified {
        /// Evidence in the error that the attempt may have happened.
        #[serde(default)]
        evidence: Option<Evidence>,
    },
}

/// How a claim ends whose attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Disposition {
    /// The attempt was proven or declared to be harmless: the next caller may try, after this long.
    Release(#[serde(with = "crate::duration::as_millis")] Duration),
    /// A final failure, kept and replayed.
    Keep,
    /// The effect may have happened.
    Doubt,
}

/// How an operation treats unclassified errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// What an unclassified error means.
    pub on_error: OnError,
    /// The operation declares a tier: something is at stake, so that even an error without evidence puts it in doubt.
    pub tier_declared: bool,
}

/// How a failure ends the claim. `marked_sent` is true if the caller itself marked `sent`: from then on an unclassified error
/// proves nothing.
pub fn disposition(class: Class, errors: Errors, marked_sent: bool) -> Disposition {
    match class {
        Class::NotSent => Disposition::Release(Duration::ZERO),
        Class::Refused { retry_after } => Disposition::Release(retry_after.unwrap_or_default()),
        Class::Final => Disposition::Keep,
        Class::Unknown => Disposition::Doubt,
        Class::Unclassified { .. } if marked_sent => Disposition::Doubt,
        Class::Unclassified { evidence } => match errors.on_error {
            OnError::Classify if errors.tier_declared => Disposition::Doubt,
            OnError::Classify if evidence.is_some() => Disposition::Doubt,
            OnError::Classify | OnError::Retry => Disposition::Release(Duration::ZERO),
            OnError::Doubt => Disposition::Doubt,
            OnError::Keep => Disposition::Keep,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Disposition = Disposition::Release(Duration::ZERO);
    const EVERY: [OnError; 4] = [OnError::Classify, OnError::Retry, OnError::Doubt, OnError::Keep];

    fn errors(on_error: OnError) -> Errors {
        Errors { on_error, tier_declared: false }
    }

    #[test]
    fn a_classified_error_takes_precedence_over_the_policy() {
        for on_error in EVERY {
            for marked in [false, true] {
                assert_eq!(disposition(Class::NotSent, errors(on_error), marked), NOW);
                assert_eq!(disposition(Class::Final, errors(on_error), marked), Disposition::Keep);
                assert_eq!(disposition(Class::Unknown, errors(on_error), marked), Disposition::Doubt);
            }
        }
    }

    #[test]
    fn after_sent_an_unclassified_error_is_always_in_doubt() {
        for on_error in EVERY {
            for evidence in [None, Some(Evidence::TimedOut)] {
                let class = Class::Unclassified { evidence };
                assert_eq!(disposition(class, errors(on_error), true), Disposition::Doubt);
            }
        }
    }

    #[test]
    fn a_refusal_waits_as_long_as_the_downstream_asked() {
        let class = Class::Refused { retry_after: Some(Duration::from_secs(7)) };
        assert_eq!(disposition(class, errors(OnError::Doubt), true), Disposition::Release(Duration::from_secs(7)));
    }
}
