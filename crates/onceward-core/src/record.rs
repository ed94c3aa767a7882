//! The record of one intent, as every store keeps it.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::claim::{Claims, Mark};
use crate::fingerprint::Fingerprint;
use crate::hash::{Digest, Fields};
use crate::name::Identity;
use crate::outcome::Outcome;
use crate::plant::{Plant, planted};
use crate::policy::{LONGEST_CREDIBLE_LEASE, LONGEST_NOT_BEFORE, Terms, WINDOW_RETRIES_FOR};
use crate::time::{Timestamp, When};

/// Names one claim: 128 random bits, never reused. Whoever holds it owns the work.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Fence(u128);

impl Fence {
    /// A fence from 128 random bits.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// The bits, for a store.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// A fence as a store kept it.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }
}

impl From<Fence> for String {
    fn from(fence: Fence) -> Self {
        format!("{:032x}", fence.0)
    }
}

impl TryFrom<String> for Fence {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bits = digits.then(|| u128::from_str_radix(&text, 16).ok()).flatten();
        bits.map(Self).ok_or("a fence is 32 hex digits")
    }
}

// A fence is the right to finish the work, so no log shows all of it.
impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fence({:04x}…)", self.0 >> 112)
    }
}

/// A process that a store can tell to be alive or gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Owner(pub u64);

/// How far an attempt has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Nothing has left yet.
    Claimed,
    /// The effect may have happened.
    Sent,
    /// The effect may have happened, and the attempt is past its deadline: it is in doubt although its owner may still be at
    /// work.
    Overdue,
}

/// The right to do the work now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease<T = Timestamp> {
    /// How far the attempt has come.
    pub phase: Phase,
    /// Whose right it is.
    pub fence: Fence,
    /// The deadline, unless it is renewed.
    pub until: T,
    /// The process that holds it, where the store can watch processes.
    pub owner: Option<Owner>,
}

/// Where an intent stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State<T = Timestamp> {
    /// Waits for the courier.
    Queued {
        /// Not before this time.
        due: T,
    },
    /// Somebody has the right to do the work.
    Leased(Lease<T>),
    /// An attempt was proven harmless; the next begin may try.
    Open {
        /// Not before this time.
        not_before: T,
    },
    /// An attempt may have happened, and its owner does not know either.
    InDoubt {
        /// The last owner: should it learn the answer after all, it may still say so.
        fence: Fence,
    },
    /// Finished; the outcome is replayed.
    Done {
        /// What every repeat gets.
        outcome: Outcome,
        /// Who finished it.
        fence: Fence,
        /// When.
        finished_at: T,
        /// When the outcome is dropped; `None` is never.
        expires_at: Option<T>,
        /// When the key is free again; `None` is never.
        forget_at: Option<T>,
    },
    /// Finished, and the outcome is no longer kept.
    Tombstone {
        /// The digest of the outcome that was.
        outcome: Digest,
        /// When the key is free again.
        forget_at: T,
    },
    /// All attempts are used up, and all are known not to have happened.
    Dead,
}

/// The name of a state, as lists and filters use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
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

impl Status {
    /// Every status, in the order in which an intent may go through them.
    pub const ALL: [Self; 7] =
        [Self::Queued, Self::Running, Self::Open, Self::InDoubt, Self::Done, Self::Tombstone, Self::Dead];

    /// The name as it is written in filters and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Open => "open",
            Self::InDoubt => "in_doubt",
            Self::Done => "done",
            Self::Tombstone => "tombstone",
            Self::Dead => "dead",
        }
    }
}

/// The record of one intent. `Record<Timestamp>` is one that a store gave; a [`Draft`] is one to write.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Record<T = Timestamp> {
    /// The digest of the identity: where stores look.
    pub id: Digest,
    /// The identity itself; a tombstone has none any more.
    pub identity: Option<Identity>,
    /// The full digest of a derived key: an equal key with another digest is a collision.
    pub key_digest: Option<Digest>,
    /// The hash of the request that came with the key.
    pub fingerprint: Fingerprint,
    /// Rises with every write.
    pub version: u64,
    /// Where the intent stands.
    pub state: State<T>,
    /// What governs it.
    pub terms: Terms,
    /// How many claims there have been.
    pub attempts: u32,
    /// Part of the downstream key; raised only by an explicit requeue with a fresh key.
    pub generation: u32,
    /// What the courier is to deliver; `None` for a direct call.
    pub payload: Option<Bytes>,
    /// When the intent was recorded.
    pub created_at: T,
    /// When the record was last written.
    pub updated_at: T,
    /// When an attempt was first sent: from here the other side knows the downstream key.
    pub first_sent_at: Option<T>,
    /// Since when an attempt may have happened that nobody has settled.
    pub doubt_since: Option<T>,
    /// When the caller got the answer that this version of the record stands for: the outcome, or that it is unknown. Every
    /// other write clears it, except that of a tombstone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<T>,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// Which item of its stream this is; `None` for an intent with a key of its own.
    #[serde(default)]
    pub sequence: Option<u64>,
    /// The ids that callers chose for its claims.
    #[serde(default, skip_serializing_if = "Claims::is_empty")]
    pub claims: Claims,
    /// The request that made this version, where a repeat of it must be recognised. Every write replaces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<Mark>,
}

/// A record to write; the store adds its own clock.
pub type Draft = Record<When>;

impl<T> Record<T> {
    /// The fence that a conditional write must find.
    pub fn fence(&self) -> Option<Fence> {
        match &self.state {
            State::Leased(lease) => Some(lease.fence),
            State::InDoubt { fence } | State::Done { fence, .. } => Some(*fence),
            State::Queued { .. } | State::Open { .. } | State::Tombstone { .. } | State::Dead => None,
        }
    }

    /// The time that a conditional write must find where there is no fence. Versions start anew when a key is forgotten and
    /// recorded again, so that they alone do not tell one record from the next of its key.
    pub fn time(&self) -> Option<&T> {
        match &self.state {
            State::Open { not_before } => Some(not_before),
            State::Tombstone { forget_at, .. } => Some(forget_at),
            State::Leased(_) | State::InDoubt { .. } | State::Done { .. } | State::Queued { .. } | State::Dead => None,
        }
    }

    /// The same record with every time mapped.
    pub fn map<U>(self, mut time: impl FnMut(T) -> U) -> Record<U> {
        Record {
            id: self.id,
            identity: self.identity,
            key_digest: self.key_digest,
            fingerprint: self.fingerprint,
            version: self.version,
            state: match self.state {
                State::Queued { due } => State::Queued { due: time(due) },
                State::Leased(Lease { phase, fence, until, owner }) => {
                    State::Leased(Lease { phase, fence, until: time(until), owner })
                }
                State::Open { not_before } => State::Open { not_before: time(not_before) },
                State::InDoubt { fence } => State::InDoubt { fence },
                State::Done { outcome, fence, finished_at, expires_at, forget_at } => State::Done {
                    outcome,
                    fence,
                    finished_at: time(finished_at),
                    expires_at: expires_at.map(&mut time),
                    forget_at: forget_at.map(&mut time),
                },
                State::Tombstone { outcome, forget_at } => State::Tombstone { outcome, forget_at: time(forget_at) },
                State::Dead => State::Dead,
            },
            terms: self.terms,
            attempts: self.attempts,
            generation: self.generation,
            payload: self.payload,
            created_at: time(self.created_at),
            updated_at: time(self.updated_at),
            first_sent_at: self.first_sent_at.map(&mut time),
            doubt_since: self.doubt_since.map(&mut time),
            delivered_at: self.delivered_at.map(&mut time),
            last_error: self.last_error,
            sequence: self.sequence,
            claims: self.claims,
            made_by: self.made_by,
        }
    }
}

impl Draft {
    /// The record as it is once the store has written it. Nothing is done before it was asked for: where the clock was set
    /// back in between, the outcome is kept from when it was asked for. Otherwise it would have expired as soon as the clock
    /// is right again, and the work would be done once more.
    pub fn stamp(self, now: Timestamp) -> Record {
        let from = match (&self.state, self.created_at) {
            (State::Done { .. }, When::At(created_at)) => now.max(created_at),
            _ => now,
        };
        self.map(|when| when.stamp(from))
    }
}

impl Record {
    /// The next version of this record, to be changed and written.
    pub fn next(&self) -> Draft {
        let mut draft = self.clone().map(When::At);
        draft.version += 1;
        draft.updated_at = When::NOW;
        draft.made_by = None;
        draft.delivered_at = None;
        draft
    }

    /// Until when an attempt that is known not to have happened is remembered, if this is one: as long as its outcome would
    /// have held the key. A table of what was refused must not grow for ever either. The record starts over with the same
    /// downstream key, perhaps for another request, so the other side must have forgotten that first.
    pub fn untried_until(&self) -> Option<Timestamp> {
        let since = match &self.state {
            State::Open { not_before } => not_before,
            // Nothing was sent, so it stands open once its lease has lapsed.
            State::Leased(Lease { phase: Phase::Claimed, until, .. }) => until,
            _ => return None,
        };
        let doubted = self.doubt_since.is_some() && !planted(Plant::OpenDoubtForgotten);
        let in_stream = self.sequence.is_some() && !planted(Plant::OpenItemForgotten);
        if doubted || in_stream || self.payload.is_some() {
            return None;
        }
        let Terms { retention, tombstone, honours_key_for, .. } = self.terms;
        // A window says that its effect may be repeated at any time, and nothing about how long its key is known.
        let is_window = honours_key_for >= WINDOW_RETRIES_FOR;
        let known_there =
            if is_window || planted(Plant::ForgottenBeforeKey) { Duration::ZERO } else { honours_key_for };
        let held = retention?.saturating_add(tombstone).max(known_there);
        Some(self.updated_at.max(*since).after(held))
    }
}

/// A record as a store showed it, with the store's own time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Seen {
    /// The record.
    pub record: Record,
    /// The store's clock at the moment of the answer.
    pub now: Timestamp,
    /// The process that holds the lease is known to be gone.
    #[serde(default)]
    pub owner_gone: bool,
}

impl Seen {
    /// Whether a lease is in force.
    fn is_alive(&self, lease: &Lease) -> bool {
        let early = if planted(Plant::LeaseEndsEarly) { Duration::from_secs(1) } else { Duration::ZERO };
        let is_credible = lease.until <= self.now.after(LONGEST_CREDIBLE_LEASE) || planted(Plant::FarLeaseBelieved);
        self.now.after(early) < lease.until && is_credible && !self.owner_gone
    }

    /// Whether an owner may be at work: no other caller may take over until its lease has lapsed.
    pub fn has_living_owner(&self) -> bool {
        matches!(&self.record.state, State::Leased(lease) if self.is_alive(lease))
    }

    /// How the intent stands at this moment; `None` when the record is to be treated as absent.
    pub fn standing(&self) -> Option<Standing> {
        let record = &self.record;
        let standing = match &record.state {
            State::Queued { due } => Standing::Queued { due: *due },
            State::Dead => Standing::Dead,
            State::Open { .. } | State::Leased(_) if record.untried_until().is_some_and(|until| self.now >= until) => {
                return None;
            }
            // Nobody asked to wait. By the clock of whoever looks, the moment of the write may have yet to come.
            State::Open { not_before } if *not_before <= record.updated_at => Standing::Open { not_before: self.now },
            // Further off than anybody can ask for: a clock that ran ahead wrote it.
            State::Open { not_before }
                if *not_before > self.now.after(LONGEST_NOT_BEFORE * 2) && !planted(Plant::FarNotBeforeBelieved) =>
            {
                Standing::Open { not_before: self.now }
            }
            State::Open { not_before } => Standing::Open { not_before: *not_before },
            State::InDoubt { .. } => Standing::InDoubt { since: record.doubt_since.unwrap_or(record.updated_at) },
            State::Leased(lease) if lease.phase == Phase::Overdue => {
                Standing::InDoubt { since: record.doubt_since.unwrap_or(lease.until.min(self.now)) }
            }
            State::Leased(lease) if self.is_alive(lease) => Standing::Running { until: lease.until },
            State::Leased(lease) => match (lease.phase, record.doubt_since) {
                (_, Some(since)) => Standing::InDoubt { since },
                (Phase::Sent, None) if planted(Plant::LapseIsProof) => Standing::Open { not_before: self.now },
                (Phase::Sent | Phase::Overdue, None) => Standing::InDoubt { since: lease.until.min(self.now) },
                (Phase::Claimed, None) => Standing::Open { not_before: self.now },
            },
            State::Done { expires_at, forget_at, .. } => match (expires_at, forget_at) {
                (Some(expires_at), _) if self.now < *expires_at => Standing::Done,
                (None, _) => Standing::Done,
                (Some(_), Some(forget_at)) if self.now >= *forget_at => return None,
                (Some(_), _) if planted(Plant::TombstoneIgnored) => return None,
                (Some(_), _) => Standing::Tombstone,
            },
            State::Tombstone { forget_at, .. } if self.now >= *forget_at || planted(Plant::TombstoneIgnored) => {
                return None;
            }
            State::Tombstone { .. } => Standing::Tombstone,
        };
        Some(standing)
    }
}

/// How an intent stands at a moment: its state with lapsed leases and expiry judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Waits for the courier.
    Queued {
        /// Not before this time.
        due: Timestamp,
    },
    /// Somebody is doing the work.
    Running {
        /// The lease's deadline.
        until: Timestamp,
    },
    /// The next begin may try.
    Open {
        /// Not before this time.
        not_before: Timestamp,
    },
    /// An attempt may have happened.
    InDoubt {
        /// Since when.
        since: Timestamp,
    },
    /// Finished; the outcome is kept.
    Done,
    /// Finished; the outcome is no longer kept.
    Tombstone,
    /// Known not to have happened.
    Dead,
}

impl Standing {
    /// The name of the standing.
    pub fn status(self) -> Status {
        match self {
            Self::Queued { .. } => Status::Queued,
            Self::Running { .. } => Status::Running,
            Self::Open { .. } => Status::Open,
            Self::InDoubt { .. } => Status::InDoubt,
            Self::Done => Status::Done,
            Self::Tombstone => Status::Tombstone,
            Self::Dead => Status::Dead,
        }
    }
}

/// The key that goes downstream: the same on every attempt of one intent, and of nothing else. `sink` names
/// where it goes; it is empty for a direct call.
pub fn downstream_key(identity: &Identity, sink: &str, generation: u32) -> String {
    let digest = Fields::new()
        .field(b"downstream v1")
        .field(identity.tenant.as_str().as_bytes())
        .field(identity.operation.as_str().as_bytes())
        .field(identity.key.as_str().as_bytes())
        .field(sink.as_bytes())
        .field(generation.to_be_bytes())
        .digest();
    format!("once_v1_{}", &digest.to_hex()[..32])
}
