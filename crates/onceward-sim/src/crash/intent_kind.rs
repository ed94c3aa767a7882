//! The kinds of intents: the policy of each, and what it promises.

use std::time::Duration;

use onceward::core::policy::{Policy, Retention};
use onceward::{InDoubt, OnError};

use super::plan::{FIRST, NEW_INTENTS, RunPlan};
use super::times::Times;
use crate::rng::Rng;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A lease is this many times the longest run.
const LEASE_FACTOR: u32 = 3;

/// The kind of an intent; always the same for the same intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntentKind {
    /// Its in-doubt policy.
    pub in_doubt: InDoubt,
    /// The work marks `sent`.
    pub marks: bool,
    /// What an unclassified error means.
    pub on_error: OnError,
    /// The lease is short, and the work outlasts a third of it.
    pub slow: bool,
    /// The outcome is kept for moments only.
    pub brief: bool,
    /// The downstream knows the key for moments only, and then a retry becomes a hold.
    pub forgetful: bool,
    /// How long things take in its run.
    pub times: &'static Times,
}

impl IntentKind {
    /// The kind of an intent.
    pub fn of(plan: RunPlan, intent: u64) -> Self {
        let mut rng = Rng::of(&[plan.seed, 1, intent]);
        let brief = intent < FIRST;
        // Every cycle has a new intent with a short lease and one that marks, so that every step can be reached. Brief
        // intents have long leases: a takeover from a living owner could not be told apart from the next use of the
        // same key.
        let slow = !brief && intent.is_multiple_of(NEW_INTENTS);
        let marks = (!brief && intent % NEW_INTENTS == 1) || rng.one_in(4);
        // A probe cannot see what a stopped owner is yet to do, nor further back than a few cycles.
        let probes = u64::from(!slow && !brief);
        let in_doubt = rng.weighted(&[(5, InDoubt::Hold), (3, InDoubt::Retry), (probes, InDoubt::Probe)]);
        let on_error =
            rng.weighted(&[(1, OnError::Classify), (1, OnError::Retry), (2, OnError::Doubt), (1, OnError::Keep)]);
        let forgetful = in_doubt == InDoubt::Retry && !slow && !brief && rng.one_in(2);
        Self { in_doubt, marks, on_error, slow, brief, forgetful, times: plan.times }
    }

    /// The policy of this kind.
    pub fn policy(self) -> Policy {
        Policy {
            in_doubt: self.in_doubt,
            on_error: self.on_error,
            marks_sent: self.marks,
            probes: self.probes(),
            max_runtime: self.max_runtime(),
            honours_key_for: self.honours_key_for(),
            retention: Some(Retention::For(self.retention())),
            tombstone: Some(self.tombstone()),
            ..Policy::default()
        }
    }

    /// The longest that an attempt may take, as the policy promises.
    pub fn max_runtime(self) -> Duration {
        match self {
            Self { slow: true, .. } => self.times.short_runtime,
            Self { forgetful: true, .. } => self.times.forgetful_runtime,
            Self { brief: true, .. } => self.times.brief_runtime,
            _ => self.times.long_runtime,
        }
    }

    /// How long a claim lasts unless it is renewed.
    pub fn lease(self) -> Duration {
        self.max_runtime() * LEASE_FACTOR
    }

    /// Whether a stopped process may find that its lease has lapsed.
    pub fn can_lose_its_lease(self) -> bool {
        self.slow || self.forgetful || self.times.leases_outlive_owners
    }

    /// How long the downstream knows the key. A brief intent that is held is never retried, so this may be short.
    fn honours_key_for(self) -> Duration {
        match self {
            Self { forgetful: true, .. } => self.times.forgetful_memory,
            Self { brief: true, in_doubt: InDoubt::Hold, .. } => self.times.brief_memory,
            _ => DAY,
        }
    }

    /// How long the outcome is kept.
    pub fn retention(self) -> Duration {
        if self.brief { self.times.brief_retention } else { DAY }
    }

    /// How long its tombstone holds the key after that.
    fn tombstone(self) -> Duration {
        if self.brief { self.times.brief_tombstone } else { DAY }
    }

    /// Whether a caller asks the downstream about an attempt that may have happened.
    pub fn probes(self) -> bool {
        self.in_doubt == InDoubt::Probe
    }

    /// Whether a doubt waits for an operator.
    pub fn holds(self) -> bool {
        self.in_doubt == InDoubt::Hold
    }

    /// Whether the effect happens at most once.
    pub fn at_most_once(self) -> bool {
        self.in_doubt != InDoubt::Retry
    }

    /// How long the key is held, from done.
    pub fn horizon(self) -> Duration {
        self.retention() + self.tombstone()
    }

    /// How long it is remembered that nothing happened.
    pub fn untried_horizon(self) -> Duration {
        self.horizon().max(self.honours_key_for())
    }
}
