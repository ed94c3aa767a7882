//! The record of one intent, as every store keeps it.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::claim::{Claims, Mark};
use crate::fingerprint::Fingerprint;
use crate::hash::{Digest, Fields};
use crate::name::Identity;
use crate::outbox::Entry;
use crate::outcome::Outcome;
use crate::policy::{LONGEST_CREDIBLE_LEASE, LONGEST_NOT_BEFORE, Terms, WINDOW_RETRIES_FOR};
use crate::time::{Timestamp, When};

/// Names one claim: 128 random bits, never reused. The holder of the fence owns the work.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Fence(u128);

impl Fence {
    /// A fence from 128 random bits.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// The bytes in which stores keep it.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// A fence from the bytes in a store.
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

// A fence is the right to finish the work, so logs show only its first digits.
impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fence({:04x}…)", self.0 >> 112)
    }
}

/// The id of a process whose end the store can detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Owner(pub u64);

/// How far an attempt has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Nothing was sent yet.
    Claimed,
    /// The effect may have happened.
    Sent,
    /// The effect may have happened, and the attempt is past its deadline: it is in doubt although its owner may still work on
    /// it.
    Overdue,
}

/// The right to do the work now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease<T = Timestamp> {
    /// How far the attempt has got.
    pub phase: Phase,
    /// Identifies the claim.
    pub fence: Fence,
    /// When the lease lapses, unless it is renewed.
    pub until: T,
    /// The process that holds it, if the store can detect its end.
    pub owner: Option<Owner>,
}

/// The state of an intent, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State<T = Timestamp> {
    /// Waits for the courier.
    Queued {
        /// The earliest time of delivery.
        due: T,
    },
    /// An owner has the right to do the work.
    Leased(Lease<T>),
    /// An attempt was proven harmless; the next caller may try.
    Open {
        /// The earliest time of the next attempt.
        not_before: T,
    },
    /// An attempt may have happened, and its owner does not know.
    InDoubt {
        /// The fence of the last owner, which may still report the outcome if it learns it.
        fence: Fence,
        /// When the courier tries again; `None` if it does not.
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_at: Option<T>,
    },
    /// Finished; the outcome is replayed.
    Done {
        /// What every repeat gets.
        outcome: Outcome,
        /// The fence of the owner that finished it.
        fence: Fence,
        /// When it was finished.
        finished_at: T,
        /// When the outcome is dropped; `None` means never.
        expires_at: Option<T>,
        /// When the key is free again; `None` means never.
        forget_at: Option<T>,
    },
    /// Finished, and the outcome is no longer kept.
    Tombstone {
        /// The digest of the outcome.
        outcome: Digest,
        /// When the key is free again.
        forget_at: T,
    },
    /// All attempts are used up, and all are known not to have happened.
    Dead,
}

/// The status of an intent, as lists and filters use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Waits for the courier.
    Queued,
    /// An owner is doing the work.
    Running,
    /// Released: the next caller may try.
    Open,
    /// An attempt may have happened, and this is not settled.
    InDoubt,
    /// Finished.
    Done,
    /// Finished, and the outcome is no longer kept.
    Tombstone,
    /// Known not to have happened, and no longer tried.
    Dead,
}

impl Status {
    /// All statuses, roughly in the order of an intent's life.
    pub const ALL: [Self; 7] =
        [Self::Queued, Self::Running, Self::Open, Self::InDoubt, Self::Done, Self::Tombstone, Self::Dead];

    /// The name in filters and JSON.
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

/// The record of one intent. A `Record<Timestamp>` was read from a store; a [`Draft`] is to be written.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Record<T = Timestamp> {
    /// The digest of the identity, under which stores keep the record.
    pub id: Digest,
    /// The identity itself; a tombstone has none.
    pub identity: Option<Identity>,
    /// The full digest of a derived key: an equal key with another digest is a collision.
    pub key_digest: Option<Digest>,
    /// The hash of the request that came with the key.
    pub fingerprint: Fingerprint,
    /// Rises with every write.
    pub version: u64,
    /// The state of the intent.
    pub state: State<T>,
    /// The parts of the policy that govern it.
    pub terms: Terms,
    /// How many claims were granted.
    pub attempts: u32,
    /// Part of the downstream key; raised only by an explicit requeue with a fresh key.
    pub generation: u32,
    /// What the courier delivers; `None` for a direct call, and after delivery unless it is kept on purpose.
    pub payload: Option<Bytes>,
    /// How the courier delivers it; `None` for a direct call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<Box<Entry>>,
    /// When the intent was recorded.
    pub created_at: T,
    /// When the record was last written.
    pub updated_at: T,
    /// When an attempt was first sent: from then on the downstream knows the downstream key.
    pub first_sent_at: Option<T>,
    /// Since when an attempt may have happened that is not settled.
    pub doubt_since: Option<T>,
    /// When the caller got what this version of the record says: the outcome, or that the outcome is unknown. Every other write
    /// clears it, except that of a tombstone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<T>,
    /// The last error.
    pub last_error: Option<String>,
    /// The number of the item in its stream; `None` for an intent that is not in a stream.
    #[serde(default)]
    pub sequence: Option<u64>,
    /// The ids that callers chose for its claims.
    #[serde(default, skip_serializing_if = "Claims::is_empty")]
    pub claims: Claims,
    /// The request that made this version, if a repeat of that request must be recognised. Every write replaces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<Mark>,
}

/// A record to write; the store fills in its time.
pub type Draft = Record<When>;

impl<T> Record<T> {
    /// The fence that a conditional write compares.
    pub fn fence(&self) -> Option<Fence> {
        match &self.state {
            State::Leased(lease) => Some(lease.fence),
            State::InDoubt { fence, .. } | State::Done { fence, .. } => Some(*fence),
            State::Queued { .. } | State::Open { .. } | State::Tombstone { .. } | State::Dead => None,
        }
    }

    /// The time that a conditional write compares in a state without a fence. Versions restart when a key is forgotten and
    /// recorded again, so the version alone does not distinguish a record from a later one with the same key.
    pub fn time(&self) -> Option<&T> {
        match &self.state {
            State::Queued { due } => Some(due),
            State::Open { not_before } => Some(not_before),
            State::Tombstone { forget_at, .. } => Some(forget_at),
            State::Leased(_) | State::InDoubt { .. } | State::Done { .. } | State::Dead => None,
        }
    }

    /// When the courier looks at the record: a queued entry that is due, one whose owner has not renewed its lease, and one in
    /// doubt that it tries again. `None` for records that it leaves alone.
    pub fn due(&self) -> Option<&T> {
        self.payload.as_ref()?;
        match &self.state {
            State::Queued { due } => Some(due),
            State::Open { not_before } => Some(not_before),
            State::Leased(lease) => Some(&lease.until),
            State::InDoubt { retry_at, .. } => retry_at.as_ref(),
            State::Done { .. } | State::Tombstone { .. } | State::Dead => None,
        }
    }

    /// How long an attempt that is known not to have happened is remembered: as long as its outcome would have held the key, so
    /// that refused attempts do not accumulate for ever. `None` for other records. A new record would use the same downstream
    /// key, perhaps for another request, so the downstream must have forgotten that key first.
    pub fn untried_for(&self) -> Option<Duration> {
        // A claim that has not sent anything counts as open once its lease has lapsed.
        let is_untried = matches!(&self.state, State::Open { .. } | State::Leased(Lease { phase: Phase::Claimed, .. }));
        if !is_untried || self.doubt_since.is_some() || self.sequence.is_some() || self.payload.is_some() {
            return None;
        }
        let Terms { retention, tombstone, honours_key_for, .. } = self.terms;
        // For a window, `honours_key_for` only says that the effect may be repeated at any time.
        let is_window = honours_key_for >= WINDOW_RETRIES_FOR;
        let key_known_for = if is_window { Duration::ZERO } else { honours_key_for };
        Some(retention?.saturating_add(tombstone).max(key_known_for))
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
                State::InDoubt { fence, retry_at } => State::InDoubt { fence, retry_at: retry_at.map(&mut time) },
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
            entry: self.entry,
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
    /// The record as it is once the store has written it at `now`. If the clock was set back after the intent was recorded, the
    /// outcome is kept from the time of recording. Otherwise it would expire as soon as the clock is right again, and the work
    /// would run once more.
    pub fn stamp(self, now: Timestamp) -> Record {
        let from = match (&self.state, self.created_at) {
            (State::Done { .. }, When::At(created_at)) => now.max(created_at),
            _ => now,
        };
        self.map(|when| when.stamp(from))
    }
}

impl Record {
    /// A draft of the next version of this record.
    pub fn next(&self) -> Draft {
        let mut draft = self.clone().map(When::At);
        draft.version += 1;
        draft.updated_at = When::NOW;
        draft.made_by = None;
        draft.delivered_at = None;
        draft
    }

    /// Until when an attempt that is known not to have happened is remembered: as long as [`Record::untried_for`] says, from
    /// the last write or from the end of its wait, whichever is later. `None` for other records.
    pub fn untried_until(&self) -> Option<Timestamp> {
        let since = match &self.state {
            State::Open { not_before } => not_before,
            State::Leased(lease) => &lease.until,
            _ => return None,
        };
        Some(self.updated_at.max(*since).after(self.untried_for()?))
    }
}

/// A record as a store returned it, with the store's time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Seen {
    /// The record.
    pub record: Record,
    /// The store's time when it returned the record.
    pub now: Timestamp,
    /// The process that holds the lease is known to have ended.
    #[serde(default)]
    pub owner_gone: bool,
}

impl Seen {
    /// Whether a lease is in force.
    fn is_alive(&self, lease: &Lease) -> bool {
        let is_credible = lease.until <= self.now.after(LONGEST_CREDIBLE_LEASE);
        self.now < lease.until && is_credible && !self.owner_gone
    }

    /// Whether an owner may still work: no other caller may take over until its lease has lapsed.
    pub fn has_living_owner(&self) -> bool {
        matches!(&self.record.state, State::Leased(lease) if self.is_alive(lease))
    }

    /// The standing of the intent at `now`; `None` if the record counts as absent.
    pub fn standing(&self) -> Option<Standing> {
        let record = &self.record;
        let standing = match &record.state {
            State::Queued { due } => Standing::Queued { due: *due },
            State::Dead => Standing::Dead,
            State::Open { .. } | State::Leased(_) if record.untried_until().is_some_and(|until| self.now >= until) => {
                return None;
            }
            // No wait was requested. On the clock of the reader, the time of the write may still be in the future.
            State::Open { not_before } if *not_before <= record.updated_at => Standing::Open { not_before: self.now },
            // Later than any wait that can be requested: a clock that ran ahead wrote it.
            State::Open { not_before } if *not_before > self.now.after(LONGEST_NOT_BEFORE * 2) => {
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
                (Phase::Sent | Phase::Overdue, None) => Standing::InDoubt { since: lease.until.min(self.now) },
                (Phase::Claimed, None) => Standing::Open { not_before: self.now },
            },
            State::Done { expires_at, forget_at, .. } => match (expires_at, forget_at) {
                (Some(expires_at), _) if self.now < *expires_at => Standing::Done,
                (None, _) => Standing::Done,
                (Some(_), Some(forget_at)) if self.now >= *forget_at => return None,
                (Some(_), _) => Standing::Tombstone,
            },
            State::Tombstone { forget_at, .. } if self.now >= *forget_at => {
                return None;
            }
            State::Tombstone { .. } => Standing::Tombstone,
        };
        Some(standing)
    }
}

/// The standing of an intent at a point in time: its stored state, with lapsed leases and expiry taken into account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Waits for the courier.
    Queued {
        /// The earliest time of delivery.
        due: Timestamp,
    },
    /// An owner is doing the work.
    Running {
        /// When the lease lapses.
        until: Timestamp,
    },
    /// The next caller may try.
    Open {
        /// The earliest time of the next attempt.
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
    /// The status without its times.
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

/// The downstream key: the same on every attempt of one intent, and different for every other intent. `sink` names where it goes;
/// it is empty for a direct call.
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
