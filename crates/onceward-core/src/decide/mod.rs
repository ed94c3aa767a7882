//! The one transition function. It is given what a store showed and what is wanted, and says which single
//! conditional write to make and what to answer once that write has held. It performs nothing.
//!
//! No store, surface or SDK repeats any of these rules.
//!
//! - `begin`: who may do the work, and what a repeat is told.
//! - `own`: what the holder of a fence may do.
//! - `repeat`: requests whose answers were lost, and which come again.
//! - `settle`: what a person decides, and what time does.
//! - `queue`: the outbox, which is the same record in another state.
//! - `stream`: numbered items, of which each is done before the next may begin.

mod begin;
mod own;
mod queue;
mod repeat;
mod settle;
mod stream;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::claim::ClaimId;
use crate::duration::as_millis;
use crate::fingerprint::Fingerprint;
use crate::hash::Digest;
use crate::name::Identity;
use crate::outcome::Outcome;
use crate::policy::{InDoubt, Terms};
use crate::record::{Draft, Fence, Owner, Phase, Seen, Status};
use crate::stream::Item;
use crate::time::Timestamp;

/// What is wanted of an intent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// May I do the work, or what became of it?
    Begin(Begin),
    /// The same for an item of a stream. The record is that of the stream's head.
    BeginItem(BeginItem),
    /// The same for an item that its stream is past. The record is the item's own.
    Recall(BeginItem),
    /// The head is about to go on: this is what its item came to. The record is the item's own.
    Archive(Box<Draft>),
    /// The first byte is about to leave.
    Sent {
        /// The caller's claim.
        fence: Fence,
        /// The lease from now on.
        #[serde(with = "as_millis")]
        lease: Duration,
    },
    /// The work goes on.
    Renew {
        /// The caller's claim.
        fence: Fence,
        /// The lease from now on.
        #[serde(with = "as_millis")]
        lease: Duration,
    },
    /// The work is finished.
    Finish {
        /// The caller's claim.
        fence: Fence,
        /// What every repeat will get.
        outcome: Outcome,
    },
    /// It is proven that this attempt did nothing.
    Release {
        /// The caller's claim.
        fence: Fence,
        /// Not to be tried again before this long.
        #[serde(with = "as_millis")]
        not_before: Duration,
        /// What went wrong.
        error: Option<String>,
    },
    /// Nobody knows whether this attempt did anything.
    Doubt {
        /// The caller's claim.
        fence: Fence,
        /// What went wrong.
        error: Option<String>,
    },
    /// The work is past its deadline and goes on: it is in doubt, and its owner may still finish it.
    Overdue {
        /// The caller's claim.
        fence: Fence,
        /// The lease from now on.
        #[serde(with = "as_millis")]
        lease: Duration,
        /// Why.
        error: Option<String>,
    },
    /// The server takes back a claim that was made with an id and whose answer did not reach the caller.
    GiveBack {
        /// The claim.
        fence: Fence,
        /// The version of the record that the claim made.
        version: u64,
        /// What went wrong.
        error: Option<String>,
    },
    /// Whether the caller got the answer that the record stands for: its outcome, or that this is unknown.
    Delivered {
        /// The claim whose end was answered.
        fence: Fence,
        /// The answer arrived; or it turned out that it did not.
        arrived: bool,
    },
    /// The other side was asked and has seen nothing of any earlier attempt.
    NotFound {
        /// The caller's claim.
        fence: Fence,
    },
    /// A person says what happened.
    Resolve {
        /// The version of the record that the person saw.
        version: u64,
        /// What happened.
        resolution: Resolution,
        /// Replaces the owner's, so that a late owner cannot overwrite the decision.
        fence: Fence,
    },
    /// Time has passed.
    Expire,
    /// Queue it for the courier.
    Enqueue(Enqueue),
    /// The courier takes it.
    Lease(Take),
    /// A person has a dead one tried again.
    Requeue {
        /// The version of the record that the person saw.
        version: u64,
        /// Use a new downstream key.
        fresh_key: bool,
    },
}

/// A caller that wants to do the work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// Which intent.
    pub identity: Identity,
    /// The full digest of a derived key.
    pub key_digest: Option<Digest>,
    /// The hash of the request.
    pub fingerprint: Fingerprint,
    /// What governs the record, if this call creates it.
    pub terms: Terms,
    /// How it wants to hold the claim.
    pub take: Take,
    /// Whether work that is finished is done again for this caller.
    #[serde(default, skip_serializing_if = "Again::is_default")]
    pub again: Again,
}

/// Whether finished work is done again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Again {
    /// Only once its outcome was delivered and the time after that is over: see [`Terms::after_delivery`].
    #[default]
    IfDelivered,
    /// The same; and also if it was delivered before this time.
    IfDeliveredBefore(Timestamp),
    /// No: this call came while the first one was not answered yet.
    Never,
    /// Yes: this is another call, whatever became of the first one.
    Always,
}

impl Again {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A caller that wants to do one item of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeginItem {
    /// Which item.
    pub item: Item,
    /// The call. Its identity is that of the stream's head.
    pub begin: Begin,
}

/// How a claim is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Take {
    /// 128 fresh random bits.
    pub fence: Fence,
    /// How long.
    #[serde(with = "as_millis")]
    pub lease: Duration,
    /// The caller writes `sent` before the first byte leaves.
    pub marks_sent: bool,
    /// The caller asks the other side first when it is told to. Who cannot ask is not let in under `probe`.
    pub probes: bool,
    /// The process, where the store can watch it.
    pub owner: Option<Owner>,
    /// The id that the caller chose for the claim, so that it can repeat the request.
    #[serde(default)]
    pub claim: Option<ClaimId>,
}

/// An intent for the courier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enqueue {
    /// Which intent.
    pub identity: Identity,
    /// The full digest of a derived key.
    pub key_digest: Option<Digest>,
    /// The hash of the request.
    pub fingerprint: Fingerprint,
    /// What governs the record, if this call creates it.
    pub terms: Terms,
    /// What is to be delivered.
    pub payload: Bytes,
    /// Not before this long from now.
    #[serde(with = "as_millis")]
    pub delay: Duration,
}

/// What a person found out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// It happened, with this outcome.
    Happened(Outcome),
    /// It did not happen; it may be tried again.
    DidNotHappen,
    /// It did not happen, and the key is free for another request.
    Reset,
    /// It has been running for too long: it is in doubt from now on. What happened is a second decision.
    Force,
}

/// What `decide` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transition {
    /// What the write would overwrite and must not be lost: it is put into its own record first, by
    /// [`Command::Archive`]. Doing so twice, or without the write, does no harm.
    pub archive: Option<Box<Draft>>,
    /// The one conditional write.
    pub write: Write,
    /// The answer, once the write has held.
    pub answer: Answer,
}

/// One conditional write: it holds only if the record is still the one that was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Write {
    /// Nothing to write.
    None,
    /// A record where there is none.
    Insert(Draft),
    /// The next version of the record that was seen.
    Replace(Draft),
    /// The record is no longer needed.
    Remove,
}

/// What the asker is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To begin, enqueue and lease.
    Decision(Decision),
    /// It is as the asker wanted.
    Accepted,
    /// The fence is no longer the record's: another owner or a person came first. To a begin: the claim that was made
    /// with this id is over, and a new one needs a new id.
    Stale {
        /// What this owner reports cannot be true together with what the record says.
        contradicts: bool,
    },
    /// It cannot be done, for this reason.
    Refused(Refusal),
    /// The stream is past this item, whose own record has the answer: see [`Command::Recall`].
    Archived,
}

/// What begin answers. These are decisions, not errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Do the work.
    Acquired(Acquired),
    /// It is done; this is the outcome.
    Replay {
        /// The stored outcome.
        outcome: Outcome,
        /// When it was finished.
        finished_at: Timestamp,
        /// Until when it is kept; `None` is for ever.
        expires_at: Option<Timestamp>,
    },
    /// Somebody is doing it, or it may not be tried again yet.
    InFlight {
        /// When to ask again.
        #[serde(with = "as_millis")]
        retry_after: Duration,
        /// Somebody is doing it now.
        running: bool,
        /// Which attempt it is.
        attempt: u32,
    },
    /// An attempt may have happened; somebody has to settle it.
    InDoubt {
        /// Since when.
        since: Timestamp,
    },
    /// The same intent came with another request.
    Mismatch,
    /// Two different intents have the same derived key.
    Collision,
    /// The key, or one that its stream needs, was used by calls of streams and by others.
    MixedUse,
    /// Another item of the stream comes first.
    OutOfOrder {
        /// Which one.
        expected: u64,
        /// The one that was asked for.
        given: u64,
        /// How the expected one stands; `None` when nobody has begun it.
        status: Option<Status>,
    },
    /// It is done, but its outcome is not kept.
    OutcomeNotKept {
        /// The digest of the outcome that was, where it is still known.
        outcome: Option<Digest>,
        /// The original status, where it is still known.
        status: Option<i32>,
    },
    /// It waits for the courier.
    Queued {
        /// This call queued it.
        created: bool,
    },
    /// All attempts are used up.
    Dead,
}

/// A claim that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acquired {
    /// The right to do the work.
    pub fence: Fence,
    /// Where the attempt stands.
    pub phase: Phase,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// Part of the downstream key.
    pub generation: u32,
    /// An earlier attempt may have happened: the other side must be asked before anything is sent.
    pub probe_first: bool,
    /// What the record says for the case of doubt.
    pub in_doubt: InDoubt,
}

/// Why something cannot be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// There is no such intent.
    Absent,
    /// Somebody is doing the work at this moment.
    Running,
    /// The record has changed since it was looked at.
    Changed,
    /// There is nothing to settle: the intent stands otherwise.
    NothingToDo(Status),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("there is no such intent"),
            Self::Running => f.write_str("somebody is doing the work at this moment"),
            Self::Changed => f.write_str("the record has changed since it was looked at"),
            Self::NothingToDo(status) => write!(f, "there is nothing to settle: the intent is {}", status.as_str()),
        }
    }
}

/// Decides. `current` is what the store showed, or `None` where it has no such record.
pub fn decide(current: Option<&Seen>, command: &Command) -> Transition {
    match command {
        Command::Begin(begin) => begin::begin(current, begin),
        Command::BeginItem(call) => stream::begin(current, call),
        Command::Recall(call) => stream::recall(current, call),
        Command::Archive(draft) => stream::archive(current, draft),
        Command::Enqueue(enqueue) => queue::enqueue(current, enqueue),
        Command::Lease(take) => queue::lease(current, take),
        Command::Requeue { version, fresh_key } => queue::requeue(current, *version, *fresh_key),
        Command::Resolve { version, resolution, fence } => repeat::resolve(current, *version, resolution, *fence),
        Command::Expire => settle::expire(current),
        Command::Sent { fence, .. }
        | Command::Renew { fence, .. }
        | Command::Finish { fence, .. }
        | Command::Release { fence, .. }
        | Command::Doubt { fence, .. }
        | Command::Overdue { fence, .. }
        | Command::Delivered { fence, .. }
        | Command::NotFound { fence } => repeat::own(current, *fence, command),
        Command::GiveBack { fence, version, error } => repeat::give_back(current, *fence, *version, error),
    }
}

impl Transition {
    fn write(write: Write, answer: Answer) -> Self {
        Self { archive: None, write, answer }
    }

    fn answer(answer: Answer) -> Self {
        Self::write(Write::None, answer)
    }

    fn decision(decision: Decision) -> Self {
        Self::answer(Answer::Decision(decision))
    }

    fn refused(refusal: Refusal) -> Self {
        Self::answer(Answer::Refused(refusal))
    }

    fn replace(draft: Draft) -> Self {
        Self::write(Write::Replace(draft), Answer::Accepted)
    }
}
