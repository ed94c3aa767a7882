//! The transition function. From the record as a store showed it and a command, it decides which single conditional write to
//! make, and what to answer once that write has succeeded. It writes nothing itself.
//!
//! No store, surface or SDK repeats any of these rules.
//!
//! - `begin`: which caller may do the work, and what a repeat gets.
//! - `owner`: what the owner of a claim may do.
//! - `repeat`: requests that come again because their answers were lost.
//! - `settle`: decisions of people, and expiry.
//! - `queue`: the outbox, which is the same record in another state.
//! - `stream`: numbered items, each of which is done before the next may begin.

mod begin;
mod owner;
mod queue;
mod refusal;
mod repeat;
mod settle;
mod stream;

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::claim::ClaimId;
use crate::duration::as_millis;
use crate::fingerprint::Fingerprint;
use crate::hash::Digest;
use crate::name::Identity;
use crate::outbox::{AfterAttempt, Destination, Entry};
use crate::outcome::Outcome;
use crate::policy::{InDoubt, Terms};
use crate::record::{Draft, Fence, Owner, Phase, Seen, Status};
use crate::stream::Item;
use crate::time::Timestamp;

pub use refusal::Refusal;

/// A request to change an intent, or to learn about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Asks for the claim, or for what became of the work.
    Begin(Begin),
    /// The same for an item of a stream. The record is that of the stream's head.
    BeginItem(BeginItem),
    /// The same for an item that its stream is past. The record is the item's own.
    Recall(BeginItem),
    /// Archives the finished item of a stream whose head is about to go on. The record is the item's own.
    Archive(Box<Draft>),
    /// The owner is about to send the first byte.
    Sent {
        /// The caller's claim.
        fence: Fence,
        /// The lease from now on.
        #[serde(with = "as_millis")]
        lease: Duration,
    },
    /// The owner is still at work.
    Renew {
        /// The caller's claim.
        fence: Fence,
        /// The lease from now on.
        #[serde(with = "as_millis")]
        lease: Duration,
    },
    /// The owner has finished the work.
    Finish {
        /// The caller's claim.
        fence: Fence,
        /// The outcome that every repeat gets.
        outcome: Outcome,
    },
    /// The owner has a proof that this attempt did nothing.
    Release {
        /// The caller's claim.
        fence: Fence,
        /// How long to wait before the next try.
        #[serde(with = "as_millis")]
        not_before: Duration,
        /// What went wrong.
        error: Option<String>,
    },
    /// The owner gives up before it has sent anything. Like a release; besides, a caller that waits for this attempt may take
    /// its turn, because there is no failure to report to it.
    Withdraw {
        /// The caller's claim.
        fence: Fence,
        /// Why.
        error: Option<String>,
    },
    /// It is unknown whether this attempt did anything.
    Doubt {
        /// The caller's claim.
        fence: Fence,
        /// What went wrong.
        error: Option<String>,
    },
    /// The work is past its deadline and still running: it is in doubt, and its owner may still finish it.
    Overdue {
        /// The caller's claim.
        fence: Fence,
        /// The lease from now on.
        #[serde(with = "as_millis")]
        lease: Duration,
        /// Why.
        error: Option<String>,
    },
    /// The server takes back a claim with an id, because its answer did not reach the caller.
    GiveBack {
        /// The claim.
        fence: Fence,
        /// The version of the record that the claim wrote.
        version: u64,
        /// What went wrong.
        error: Option<String>,
    },
    /// Records whether the caller got the answer that the record stands for: its outcome, or that the outcome is unknown.
    Delivered {
        /// The claim whose end was answered.
        fence: Fence,
        /// Whether the answer arrived.
        arrived: bool,
    },
    /// The downstream was asked, and knows of no earlier attempt.
    NotFound {
        /// The caller's claim.
        fence: Fence,
    },
    /// A person settles the intent.
    Resolve {
        /// The version of the record that the person saw.
        version: u64,
        /// The decision.
        resolution: Resolution,
        /// Replaces the owner's fence, so that a late owner cannot overwrite the decision.
        fence: Fence,
    },
    /// Time has passed.
    Expire,
    /// Queues the intent for the courier.
    Enqueue(Enqueue),
    /// The courier takes an entry.
    Lease(LeaseEntry),
    /// The courier has made an attempt that did not deliver the entry.
    Undelivered(Undelivered),
    /// Writes a note: a small record of the courier's own, such as the state of a breaker.
    Note(Note),
    /// A person has a dead entry tried again.
    Requeue {
        /// The version of the record that the person saw.
        version: u64,
        /// Whether to use a new downstream key.
        fresh_key: bool,
    },
    /// A person takes an entry out of the outbox that has not been delivered.
    Cancel {
        /// The version of the record that the person saw.
        version: u64,
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
    /// How the claim is to be held.
    pub take: Take,
    /// Whether work that is finished is done again for this caller.
    #[serde(default, skip_serializing_if = "Again::is_default")]
    pub again: Again,
}

/// Whether finished work is done again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Again {
    /// Only after its outcome was delivered, and the time after that is over: see [`Terms::after_delivery`].
    #[default]
    IfDelivered,
    /// The same; and also if it was delivered before this time.
    IfDeliveredBefore(Timestamp),
    /// No: this call came before the first one was answered.
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
    /// The caller asks the downstream first when it is told to. Under `probe`, a caller that cannot ask does not get the claim.
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
    /// The payload to deliver.
    pub payload: Bytes,
    /// How it is delivered.
    #[serde(default)]
    pub entry: Entry,
    /// How long to wait before the first try.
    #[serde(with = "as_millis")]
    pub delay: Duration,
}

/// A courier that takes an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseEntry {
    /// How the claim is to be held.
    pub take: Take,
    /// Where this attempt is to go. If an earlier attempt may have happened, the record keeps the place and key of that one.
    pub destination: Destination,
}

/// The end of an attempt that did not deliver its entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undelivered {
    /// The courier's claim.
    pub fence: Fence,
    /// Whether the attempt may have happened. Otherwise there is a proof that it did not.
    pub may_have_happened: bool,
    /// How long to wait before the next attempt.
    #[serde(with = "as_millis")]
    pub retry_in: Duration,
    /// Whether there is a next attempt.
    #[serde(default, skip_serializing_if = "AfterAttempt::is_default")]
    pub after: AfterAttempt,
    /// What went wrong.
    pub error: Option<String>,
}

/// A small record of the courier's own, which is not an intent. It is written by compare-and-swap and never expires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Its name.
    pub identity: Identity,
    /// The version that the writer saw; `None` if there was none.
    pub version: Option<u64>,
    /// What it says.
    pub text: Bytes,
}

/// What a person has found out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// It happened, with this outcome.
    Happened(Outcome),
    /// It did not happen; it may be tried again.
    DidNotHappen,
    /// It did not happen, and the key is free for another request.
    Reset,
    /// It has been running for too long: it is in doubt from now on, and what happened is a second decision.
    Force,
}

/// What `decide` returns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transition {
    /// A finished item that the write would overwrite: [`Command::Archive`] puts it into its own record first. Doing so twice,
    /// or without the write, does no harm.
    pub archive: Option<Box<Draft>>,
    /// The one conditional write.
    pub write: Write,
    /// The answer, once the write has held.
    pub answer: CommandResult,
}

/// One conditional write: it holds only if the record has not changed since it was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Write {
    /// No write.
    None,
    /// Inserts a record that does not exist yet.
    Insert(Draft),
    /// Writes the next version of the record that was seen.
    Replace(Draft),
    /// Removes a record that is no longer needed.
    Remove,
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandResult {
    /// To begin, enqueue and lease.
    Decision(Decision),
    /// The record is as the command asks.
    Accepted,
    /// The record has another fence: another owner or a person came first. To a begin: the claim that was made with this id is
    /// over, and a new claim needs a new id.
    Stale {
        /// The owner's report cannot be true together with the record.
        contradicts: bool,
    },
    /// The command is refused, for this reason.
    Refused(Refusal),
    /// The stream is past this item. The item's own record has the answer: see [`Command::Recall`].
    Archived,
}

/// The answer to a begin. These are decisions, not errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Decision {
    /// Do the work.
    Acquired(Acquired),
    /// The work is done; this is the outcome.
    Replay {
        /// The stored outcome.
        outcome: Outcome,
        /// When it was finished.
        finished_at: Timestamp,
        /// Until when it is kept; `None` is forever.
        expires_at: Option<Timestamp>,
    },
    /// Another caller is doing the work, or it may not be tried again yet.
    InFlight {
        /// When to ask again.
        #[serde(with = "as_millis")]
        retry_after: Duration,
        /// Another caller is doing the work now.
        running: bool,
        /// The number of the attempt.
        attempt: u32,
    },
    /// An attempt may have happened; it has to be settled.
    InDoubt {
        /// Since when.
        since: Timestamp,
    },
    /// The same key came with a different request.
    Mismatch,
    /// Two different intents have the same derived key.
    Collision,
    /// The key is used both by a stream and by calls with keys of their own.
    MixedUse,
    /// Another item of the stream comes first.
    OutOfOrder {
        /// The item that comes first.
        expected: u64,
        /// The item of this call.
        given: u64,
        /// The state of the expected item; `None` if it has not begun.
        status: Option<Status>,
    },
    /// The work is done, but its outcome is not kept.
    OutcomeNotKept {
        /// The digest of the outcome, where it is still known.
        outcome: Option<Digest>,
        /// The original status, where it is still known.
        status: Option<i32>,
    },
    /// The intent is queued for the courier.
    Queued {
        /// Whether this call queued it.
        created: bool,
    },
    /// All attempts are used up, and none of them happened.
    Dead,
}

/// A claim that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acquired {
    /// The right to do the work.
    pub fence: Fence,
    /// The phase of the attempt.
    pub phase: Phase,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// Part of the downstream key.
    pub generation: u32,
    /// An earlier attempt may have happened: the owner must ask the downstream before it sends anything.
    pub probe_first: bool,
    /// What happens in doubt, by the record's terms.
    pub in_doubt: InDoubt,
}

/// Decides what a command does. `current` is the record as the store showed it, or `None` if it has none.
pub fn decide(current: Option<&Seen>, command: &Command) -> Transition {
    match command {
        Command::Begin(begin) => begin::begin(current, begin),
        Command::BeginItem(call) => stream::begin(current, call),
        Command::Recall(call) => stream::recall(current, call),
        Command::Archive(draft) => stream::archive(current, draft),
        Command::Enqueue(enqueue) => queue::enqueue(current, enqueue),
        Command::Lease(call) => queue::lease(current, call),
        Command::Undelivered(end) => repeat::own(current, end.fence, command),
        Command::Note(note) => queue::note(current, note),
        Command::Requeue { version, fresh_key } => repeat::requeue(current, *version, *fresh_key),
        Command::Cancel { version } => repeat::cancel(current, *version),
        Command::Resolve { version, resolution, fence } => repeat::resolve(current, *version, resolution, *fence),
        Command::Expire => settle::expire(current),
        Command::Sent { fence, .. }
        | Command::Renew { fence, .. }
        | Command::Finish { fence, .. }
        | Command::Release { fence, .. }
        | Command::Withdraw { fence, .. }
        | Command::Doubt { fence, .. }
        | Command::Overdue { fence, .. }
        | Command::Delivered { fence, .. }
        | Command::NotFound { fence } => repeat::own(current, *fence, command),
        Command::GiveBack { fence, version, error } => repeat::give_back(current, *fence, *version, error),
    }
}

impl Transition {
    fn write(write: Write, answer: CommandResult) -> Self {
        Self { archive: None, write, answer }
    }

    fn answer(answer: CommandResult) -> Self {
        Self::write(Write::None, answer)
    }

    fn decision(decision: Decision) -> Self {
        Self::answer(CommandResult::Decision(decision))
    }

    fn refused(refusal: Refusal) -> Self {
        Self::answer(CommandResult::Refused(refusal))
    }

    fn replace(draft: Draft) -> Self {
        Self::write(Write::Replace(draft), CommandResult::Accepted)
    }
}
