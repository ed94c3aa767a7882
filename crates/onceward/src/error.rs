//! The errors of the library, and how a closure says what became of its effect.

use std::fmt;
use std::time::Duration;

use onceward_core::class::Class;
use onceward_core::decide::Decision;
use onceward_core::hash::Digest;
use onceward_core::outcome::Outcome;
use onceward_core::policy::LARGEST_PAYLOAD;
use onceward_core::record::Status;
use onceward_core::stream::LARGEST_NUMBER;
use onceward_core::time::Timestamp;
use onceward_core::{identify, json, name, recipe};

use crate::{evidence, store};

/// What the operations begin with under which the ledger keeps its own records: breakers, and the leases of workers.
pub const RESERVED: &str = "onceward/";

/// Why a guarded call has no value. Every message names the intent by its operation and a short hash, never by its key or
/// arguments.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call itself is wrong; nothing was written.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The store failed; nothing ran.
    #[error("{0}; nothing ran")]
    Store(#[from] store::Error),
    /// Another caller is doing the work now, or it may not be tried again yet.
    #[error("{intent} is in flight; ask again in {}", seconds(*retry_after))]
    InFlight {
        /// Which intent, masked.
        intent: String,
        /// When to ask again.
        retry_after: Duration,
    },
    /// An attempt may have happened; its outcome is unknown.
    #[error(
        "{intent} is in doubt since {since}: an attempt may have happened. Do not try again under another key; \
         find out what happened and settle it with `onceward resolve`"
    )]
    InDoubt {
        /// Which intent, masked.
        intent: String,
        /// Since when the outcome is unknown.
        since: Timestamp,
    },
    /// The same key came with a different request.
    #[error("{intent} was recorded with another request: the same key must always mean the same request")]
    Mismatch {
        /// Which intent, masked.
        intent: String,
    },
    /// Two different intents have the same derived key.
    #[error("{intent} collides with another intent that has the same derived key; nothing ran")]
    Collision {
        /// Which intent, masked.
        intent: String,
    },
    /// The key is used both by a stream and by calls with keys of their own.
    #[error(
        "the key of {intent} is used both by a stream and by a call with a key of its own; nothing ran. Give streams an \
         operation of their own"
    )]
    MixedUse {
        /// Which intent, masked.
        intent: String,
    },
    /// Another item of the stream comes first.
    #[error("{intent} is out of order: {}; nothing ran", expectation(*expected, *status))]
    OutOfOrder {
        /// Which intent, masked.
        intent: String,
        /// The item that comes first.
        expected: u64,
        /// The item of this call.
        given: u64,
        /// The state of the expected item; `None` if it has not begun.
        status: Option<Status>,
    },
    /// The work is done, but its outcome is not kept.
    #[error("{intent} is done, but its outcome is not kept (any more); it will not run again")]
    OutcomeNotKept {
        /// Which intent, masked.
        intent: String,
        /// The original status, where it is still known.
        status: Option<i32>,
        /// The digest of the outcome, where it is still known.
        outcome: Option<Digest>,
    },
    /// The intent is queued for the courier.
    #[error("{intent} is queued; the courier will deliver it")]
    Queued {
        /// Which intent, masked.
        intent: String,
    },
    /// All attempts are used up; the effect did not happen.
    #[error("{intent} is dead: all attempts are used up, and none of them happened")]
    Dead {
        /// Which intent, masked.
        intent: String,
    },
    /// The effect failed.
    #[error("{intent} failed: {failure}")]
    Failed {
        /// Which intent, masked.
        intent: String,
        /// The error of the closure.
        failure: Failure,
        /// Whether this is a stored failure: the work did not run now.
        replayed: bool,
    },
    /// The attempt that this call waited for failed and was released.
    #[error("the attempt at {intent} that this call waited for failed and was released: {reason}")]
    OwnerFailed {
        /// Which intent, masked.
        intent: String,
        /// The owner's error.
        reason: String,
    },
    /// The attempt that this call waited for ended in doubt, and the policy lets the next call try again.
    #[error(
        "the attempt at {intent} that this call waited for may or may not have happened; another call may try it again, with \
         the same key"
    )]
    OwnerUnknown {
        /// Which intent, masked.
        intent: String,
    },
    /// The claim was lost while the work ran: another caller took over, or a person settled the intent.
    #[error("the claim on {intent} was lost while the work ran; another caller may go on with it")]
    ClaimLost {
        /// Which intent, masked.
        intent: String,
        /// The outcome of the work, if it was not stopped before its end.
        outcome: Option<Box<Outcome>>,
    },
    /// The effect took place, but its outcome could not be recorded. The intent stays in doubt until a later write succeeds
    /// or a person settles it.
    #[error("{intent} took place, but its outcome could not be recorded: {source}")]
    NotRecorded {
        /// Which intent, masked.
        intent: String,
        /// The outcome itself.
        outcome: Box<Outcome>,
        /// Why.
        source: store::Error,
    },
    /// The value cannot be written as JSON. The effect took place, and the intent is in doubt.
    #[error("the value of {intent} cannot be kept as JSON: {reason}")]
    NotJson {
        /// Which intent, masked.
        intent: String,
        /// Why.
        reason: String,
    },
    /// The stored outcome does not have the type that this caller expects.
    #[error("the stored outcome of {intent} is not what this caller expects: {reason}")]
    Unreadable {
        /// Which intent, masked.
        intent: String,
        /// Why.
        reason: String,
    },
    /// The tenant has reached its quota of records, and this key would need a new one.
    #[error(
        "{intent} was refused: its tenant has reached its quota of {most} records; nothing ran. Try again with the same key \
         when older records have expired, or raise `records_per_tenant`"
    )]
    Quota {
        /// Which intent, masked.
        intent: String,
        /// How many records the tenant may have.
        most: u64,
    },
    /// The record changed again and again while this call tried to write to it.
    #[error("{intent} is too contended; try again")]
    Contended {
        /// Which intent, masked.
        intent: String,
    },
}

impl Error {
    /// Why a call without a claim and without an outcome has no value.
    pub fn of_decision(intent: String, decision: Decision) -> Self {
        match decision {
            Decision::InFlight { retry_after, .. } => Self::InFlight { intent, retry_after },
            Decision::InDoubt { since } => Self::InDoubt { intent, since },
            Decision::Mismatch => Self::Mismatch { intent },
            Decision::Collision => Self::Collision { intent },
            Decision::MixedUse => Self::MixedUse { intent },
            Decision::OutOfOrder { expected, given, status } => Self::OutOfOrder { intent, expected, given, status },
            Decision::OutcomeNotKept { outcome, status } => Self::OutcomeNotKept { intent, outcome, status },
            Decision::Queued { .. } => Self::Queued { intent },
            Decision::Dead => Self::Dead { intent },
            // A claim comes as a guard, and an outcome as a value.
            _ => Self::Contended { intent },
        }
    }
}

/// What is wrong with a call. Nothing has reached the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// A name is empty, too long, or contains control characters.
    #[error(transparent)]
    Name(#[from] name::Error),
    /// The intent is not JSON that has one canonical form.
    #[error("the intent is refused: {0}")]
    Json(#[from] json::Error),
    /// The recipe does not fit the intent.
    #[error("the recipe cannot be applied: {0}")]
    Recipe(#[from] recipe::Error),
    /// The ledger keeps records of its own under names like this.
    #[error("the name of an operation cannot begin with `{RESERVED}`: the ledger uses it for its own records")]
    ReservedOperation,
    /// The call has neither a key nor an intent.
    #[error("a guarded call needs a key or an intent")]
    NoKey,
    /// The call has both a key and an item of a stream.
    #[error("a guarded call has a key or is an item of a stream, and not both")]
    KeyAndItem,
    /// The number of an item is too large.
    #[error("the number of an item is at most {LARGEST_NUMBER}")]
    Number,
    /// A guarded call records its claim before the work, in a commit of its own, so the effect cannot commit together with it.
    #[error(
        "effect = \"transactional\" cannot be promised here: the ledger records a call in a commit of its own. If the effect is a \
         change in a PostgreSQL database, call onceward.claim and onceward.finish in your own transaction; otherwise leave it out"
    )]
    Transactional,
    /// The payload of an entry is not JSON.
    #[error("the payload cannot be written as JSON: {0}")]
    Payload(String),
    /// The payload of an entry is too large.
    #[error(
        "the payload has {size} bytes; at most {LARGEST_PAYLOAD} are kept. Put large content elsewhere and queue a reference to it"
    )]
    LargePayload {
        /// Its size in bytes.
        size: usize,
    },
    /// The system gave no random numbers.
    #[error("the system gave no random numbers: {0}")]
    Randomness(String),
}

impl From<identify::Error> for Invalid {
    fn from(error: identify::Error) -> Self {
        match error {
            identify::Error::Recipe(error) => Self::Recipe(error),
            _ => Self::NoKey,
        }
    }
}

/// A failed effect, as the closure classifies it. `?` turns any error into an unclassified failure; then the policy's
/// `on_error` decides, together with the evidence in the error and its sources.
pub struct Failure {
    class: Class,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Failure {
    /// It never reached the downstream: nothing happened, and the claim is released.
    pub fn not_sent(error: impl fmt::Display) -> Self {
        Self::of(Class::NotSent, error)
    }

    /// The downstream says that it was not done, perhaps later. The claim is released until then.
    pub fn refused(error: impl fmt::Display, retry_after: Option<Duration>) -> Self {
        Self::of(Class::Refused { retry_after }, error)
    }

    /// A final failure: the same request would fail the same way again. It is kept and replayed.
    pub fn permanent(error: impl fmt::Display) -> Self {
        Self::of(Class::Final, error)
    }

    /// It may have happened: the intent is in doubt.
    pub fn unknown(error: impl fmt::Display) -> Self {
        Self::of(Class::Unknown, error)
    }

    /// A failure of a given class.
    pub fn of(class: Class, error: impl fmt::Display) -> Self {
        Self { class, message: error.to_string(), source: None }
    }

    /// The class of the failure.
    pub fn class(&self) -> Class {
        self.class
    }

    /// The message of the failure.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The error that it was made from, if that was in this process.
    pub fn source(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.source.as_deref()
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let class = Class::Unclassified { evidence: evidence::in_error(&error) };
        Self { class, message: error.to_string(), source: Some(Box::new(error)) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure").field("class", &self.class).field("message", &self.message).finish()
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

/// What has to happen before an item may begin.
fn expectation(expected: u64, status: Option<Status>) -> String {
    match status {
        None => format!("item {expected} is expected"),
        Some(Status::Running) => format!("item {expected} is running now, and comes first"),
        Some(Status::InDoubt) => format!(
            "item {expected} is in doubt, and holds the stream until it is settled. Find out what happened, then use \
             `onceward resolve` with the stream's name and `/head` as key"
        ),
        Some(Status::Open) => format!("item {expected} was released, and has to be tried again first"),
        Some(status) => format!("item {expected} is {}, and comes first", status.as_str()),
    }
}
