//! What can go wrong, and how a closure says what went wrong with its effect.

use std::fmt;
use std::time::Duration;

use onceward_core::class::Class;
use onceward_core::hash::Digest;
use onceward_core::outcome::Outcome;
use onceward_core::record::Status;
use onceward_core::stream::LARGEST_NUMBER;
use onceward_core::time::Timestamp;
use onceward_core::{json, name, recipe};

use crate::{evidence, store};

/// Why a guarded call has no value to give. Every message names the intent by its operation and a short hash,
/// never by its key or arguments.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call itself is wrong; nothing was written.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The store failed; nothing ran.
    #[error("{0}; nothing ran")]
    Store(#[from] store::Error),
    /// Somebody is doing it at this moment, or it may not be tried again yet.
    #[error("{intent} is in flight; ask again in {}", seconds(*retry_after))]
    InFlight {
        /// Which intent, masked.
        intent: String,
        /// When to ask again.
        retry_after: Duration,
    },
    /// An attempt may have happened, and it is not known whether it did.
    #[error(
        "{intent} is in doubt since {since}: an attempt may have happened. Do not try again under another key; \
         find out what happened and settle it with `onceward resolve`"
    )]
    InDoubt {
        /// Which intent, masked.
        intent: String,
        /// Since when.
        since: Timestamp,
    },
    /// The same key came with another request.
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
    /// The key, or one that its stream needs, is used by calls of streams and by others.
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
        /// The item that was asked for.
        given: u64,
        /// How the expected one stands; `None` when nobody has begun it.
        status: Option<Status>,
    },
    /// It is done, but the answer is not kept.
    #[error("{intent} is done, but its outcome is not kept (any more); it will not run again")]
    OutcomeNotKept {
        /// Which intent, masked.
        intent: String,
        /// The original status, where it is still known.
        status: Option<i32>,
        /// The digest of the outcome, where it is still known.
        outcome: Option<Digest>,
    },
    /// It waits for the courier.
    #[error("{intent} is queued; the courier will deliver it")]
    Queued {
        /// Which intent, masked.
        intent: String,
    },
    /// All attempts are used up; it did not happen.
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
        /// What the closure said.
        failure: Failure,
        /// This is a repeat of a failure that is kept.
        replayed: bool,
    },
    /// The attempt that this call waited for failed and was released.
    #[error("the attempt at {intent} that this call waited for failed and was released: {reason}")]
    OwnerFailed {
        /// Which intent, masked.
        intent: String,
        /// What the owner said.
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
    /// The claim was lost to somebody else while the work ran: somebody took over, or settled it.
    #[error("the claim on {intent} was lost while the work ran; somebody else may go on with it")]
    ClaimLost {
        /// Which intent, masked.
        intent: String,
        /// What the work had come to by then, if it was not stopped before its end.
        outcome: Option<Box<Outcome>>,
    },
    /// The effect took place, but its outcome could not be written. It stays in doubt until a later write holds
    /// or somebody settles it.
    #[error("{intent} took place, but its outcome could not be recorded: {source}")]
    NotRecorded {
        /// Which intent, masked.
        intent: String,
        /// The outcome itself.
        outcome: Box<Outcome>,
        /// Why.
        source: store::Error,
    },
    /// The value cannot be written as JSON. The effect took place; the intent is in doubt.
    #[error("the value of {intent} cannot be kept as JSON: {reason}")]
    NotJson {
        /// Which intent, masked.
        intent: String,
        /// Why.
        reason: String,
    },
    /// The stored outcome is not the kind of value that this caller expects.
    #[error("the stored outcome of {intent} is not what this caller expects: {reason}")]
    Unreadable {
        /// Which intent, masked.
        intent: String,
        /// Why.
        reason: String,
    },
    /// The tenant has as many records as it may have, and this key would be a new one.
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
    /// The record changed again and again while this call tried to write it.
    #[error("{intent} is too contended; try again")]
    Contended {
        /// Which intent, masked.
        intent: String,
    },
}

/// What is wrong with a call. Nothing of it has reached the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// A name is empty, too long, or contains control characters.
    #[error(transparent)]
    Name(#[from] name::Error),
    /// The intent is no JSON that can be told apart safely.
    #[error("the intent is refused: {0}")]
    Json(#[from] json::Error),
    /// The recipe does not fit the intent.
    #[error("the recipe cannot be applied: {0}")]
    Recipe(#[from] recipe::Error),
    /// Neither key nor intent was given.
    #[error("a guarded call needs a key or an intent")]
    NoKey,
    /// Both a key and an item of a stream were given.
    #[error("a guarded call has a key or is an item of a stream, and not both")]
    KeyAndItem,
    /// The number of an item is too large.
    #[error("the number of an item is at most {LARGEST_NUMBER}")]
    Number,
    /// The effect cannot commit together with the record: no store of this version can take part in a transaction.
    #[error("effect = \"transactional\" needs a store that shares the effect's transaction; this version has none")]
    Transactional,
    /// This system has no random numbers.
    #[error("no random numbers could be had: {0}")]
    Randomness(String),
}

/// A failed effect, as the closure classifies it. Any error turns into one by `?`, as unclassified; then the
/// policy's `on_error` decides, together with the evidence in the error and its sources.
pub struct Failure {
    class: Class,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Failure {
    /// It never reached the other side: nothing happened, and the claim is released.
    pub fn not_sent(error: impl fmt::Display) -> Self {
        Self::of(Class::NotSent, error)
    }

    /// The other side says that it was not done, perhaps later.
    pub fn refused(error: impl fmt::Display, retry_after: Option<Duration>) -> Self {
        Self::of(Class::Refused { retry_after }, error)
    }

    /// The same request would fail the same way again: the failure is kept and replayed.
    pub fn last(error: impl fmt::Display) -> Self {
        Self::of(Class::Final, error)
    }

    /// It may have happened.
    pub fn unknown(error: impl fmt::Display) -> Self {
        Self::of(Class::Unknown, error)
    }

    /// A failure of a given class.
    pub fn of(class: Class, error: impl fmt::Display) -> Self {
        Self { class, message: error.to_string(), source: None }
    }

    /// What is known about it.
    pub fn class(&self) -> Class {
        self.class
    }

    /// What the effect said.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The error that it came from, if it came from one in this process.
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
        Some(Status::Running) => format!("item {expected} is being done at this moment, and comes first"),
        Some(Status::InDoubt) => format!(
            "item {expected} is in doubt, and holds the stream until it is settled. Find out what happened, then use \
             `onceward resolve` with the stream's name and `/head` as key"
        ),
        Some(Status::Open) => format!("item {expected} was given back, and has to be tried again first"),
        Some(status) => format!("item {expected} is {}, and comes first", status.as_str()),
    }
}
