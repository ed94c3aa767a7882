//! The policy of an operation: how long a claim may run, what is kept and for how long, and what happens in doubt. The parts that
//! govern a record are its [`Terms`], which are written into it at begin.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::class::Errors;
use crate::duration;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A lease is three times as long as the longest run, so that a slow run is not mistaken for a dead one.
pub(crate) const LEASE_FACTOR: u32 = 3;

/// The `max_runtime` of an operation that does not set it.
pub const DEFAULT_MAX_RUNTIME: Duration = Duration::from_secs(60);

/// The largest `max_runtime`. With much longer leases, the work of a dead owner would be blocked for days.
pub const LONGEST_MAX_RUNTIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest lease that is ever granted.
pub const LONGEST_LEASE: Duration = Duration::from_secs(3 * 24 * 60 * 60);

/// A lease that ends later than this was written by a clock that ran ahead, and must not block the key until the real time has
/// caught up. It is a day more than the longest lease, so that setting a clock back a little does not end a live claim.
pub const LONGEST_CREDIBLE_LEASE: Duration = Duration::from_secs(4 * 24 * 60 * 60);

/// The longest wait before the next attempt, however long the downstream asks to wait.
pub const LONGEST_NOT_BEFORE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How long most payment providers remember an idempotency key.
pub const DEFAULT_HONOURS_KEY_FOR: Duration = DAY;

/// How long [`Policy::window`] allows a retry after a crash: a hundred years, which means always.
pub(crate) const WINDOW_RETRIES_FOR: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// How many attempts the courier makes, unless the operation or its sink says otherwise. With the default pauses that is about
/// half a minute.
pub const DEFAULT_MAX_ATTEMPTS: u32 = 8;

/// The largest payload of an entry. A ledger is not a file store, and every attempt reads the payload.
pub const LARGEST_PAYLOAD: usize = 1024 * 1024;

/// Larger outcomes are recorded as done, but their body is not kept. 256 KiB is enough for any receipt.
pub const DEFAULT_KEEP_LIMIT: usize = 256 * 1024;

/// The largest `keep_limit`: a ledger is not a file store.
pub const LARGEST_KEEP_LIMIT: usize = 8 * 1024 * 1024;

/// How much is at stake. Sets retention and tombstone. If an operation declares a tier, an unclassified error puts it in doubt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Money: 30 days, then a tombstone for 90.
    Payment,
    /// 7 days, then a tombstone for 14.
    Notification,
    /// 24 hours and no tombstone.
    Email,
    /// 24 hours, then a tombstone for 48.
    #[default]
    Standard,
    /// Never forgotten.
    Forever,
}

impl Tier {
    /// How long an outcome is kept; `None` means for ever.
    pub fn retention(self) -> Option<Duration> {
        match self {
            Self::Payment => Some(30 * DAY),
            Self::Notification => Some(7 * DAY),
            Self::Email | Self::Standard => Some(DAY),
            Self::Forever => None,
        }
    }

    /// How long a tombstone holds the key after an outcome that was kept for `retention`.
    pub fn tombstone(self, retention: Option<Duration>) -> Duration {
        match self {
            Self::Payment => 90 * DAY,
            Self::Email => Duration::ZERO,
            Self::Notification | Self::Standard | Self::Forever => retention.unwrap_or_default().saturating_mul(2),
        }
    }
}

/// What happens to an intent in doubt: an attempt may or may not have happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InDoubt {
    /// Nothing runs until an operator settles it: at most once.
    #[default]
    Hold,
    /// The caller is told once that the outcome is unknown; the next equal call runs. For work that its caller can inspect and
    /// repeat.
    Tell,
    /// The work is retried with the same downstream key, while the downstream still knows that key.
    Retry,
    /// The downstream is asked first whether it happened.
    Probe,
}

impl InDoubt {
    /// The stricter of two: `hold` before `probe` before `tell` before `retry`.
    pub fn stricter(self, other: Self) -> Self {
        match (self, other) {
            (Self::Hold, _) | (_, Self::Hold) => Self::Hold,
            (Self::Probe, _) | (_, Self::Probe) => Self::Probe,
            (Self::Tell, _) | (_, Self::Tell) => Self::Tell,
            (Self::Retry, Self::Retry) => Self::Retry,
        }
    }
}

/// What an unclassified error means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// In doubt if the error contains evidence that the attempt may have happened, or if a tier is declared; otherwise nothing
    /// happened.
    #[default]
    Classify,
    /// Nothing happened; the claim is released.
    Retry,
    /// It may have happened.
    Doubt,
    /// It is a final failure, kept and replayed.
    Keep,
}

/// Where the effect happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// In another system: it may have happened although the caller got no response.
    #[default]
    External,
    /// In the same transaction as the record: it happened exactly when the record says so.
    Transactional,
}

/// How long an outcome is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// This long.
    For(Duration),
    /// It never expires.
    Forever,
}

/// What a guarded call does when the store cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreDown {
    /// Nothing runs.
    #[default]
    Closed,
    /// The call runs unguarded, which is counted and reported.
    Open,
}

/// The parts of a policy that are written into a record at begin and govern it from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Terms {
    /// Where the effect happens.
    pub effect: Effect,
    /// What happens in doubt.
    pub in_doubt: InDoubt,
    /// How long the outcome is kept, from done; `None` means for ever.
    #[serde(with = "duration::as_millis_option")]
    pub retention: Option<Duration>,
    /// How long a tombstone holds the key after that.
    #[serde(with = "duration::as_millis")]
    pub tombstone: Duration,
    /// How long the downstream knows the downstream key, from the first `sent`.
    #[serde(with = "duration::as_millis")]
    pub honours_key_for: Duration,
    /// How many attempts the courier makes; `None` for a direct call, which makes one for each begin.
    pub max_attempts: Option<u32>,
    /// How long equal calls get the outcome after it was delivered to its caller; `None` means for the whole retention. A later
    /// equal call is a new one and runs.
    #[serde(default, with = "duration::as_millis_option", skip_serializing_if = "Option::is_none")]
    pub after_delivery: Option<Duration>,
}

impl Terms {
    /// The terms of a tombstone, which keeps none; its one time says when it is removed.
    pub fn of_tombstone() -> Self {
        Self {
            effect: Effect::External,
            in_doubt: InDoubt::Hold,
            retention: None,
            tombstone: Duration::ZERO,
            honours_key_for: Duration::ZERO,
            max_attempts: None,
            // The time after a recorded delivery is over.
            after_delivery: Some(Duration::ZERO),
        }
    }

    /// These terms, tightened by those of another caller: the stricter policy in doubt, and the longer retention.
    pub fn tightened_by(self, caller: &Self) -> Self {
        // The longer of two durations, where `None` is the longest.
        let longer = |one: Option<Duration>, other: Option<Duration>| one.zip(other).map(|(one, other)| one.max(other));
        Self {
            in_doubt: self.in_doubt.stricter(caller.in_doubt),
            honours_key_for: self.honours_key_for.min(caller.honours_key_for),
            retention: longer(self.retention, caller.retention),
            tombstone: self.tombstone.max(caller.tombstone),
            after_delivery: longer(self.after_delivery, caller.after_delivery),
            ..self
        }
    }
}

/// The policy of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How much is at stake, if the operation declares it. Without a tier, retention and tombstone are those of `standard`.
    pub tier: Option<Tier>,
    /// Where the effect happens.
    pub effect: Effect,
    /// What happens in doubt.
    pub in_doubt: InDoubt,
    /// What an unclassified error means.
    pub on_error: OnError,
    /// How long the outcome is kept; overrides the tier.
    pub retention: Option<Retention>,
    /// How long the tombstone stays; overrides the tier.
    pub tombstone: Option<Duration>,
    /// How long equal calls get the outcome after it was delivered to its caller; `None` means for the whole retention.
    pub after_delivery: Option<Duration>,
    /// How long a run should take at the most. Sets the length of the lease; does not stop the run.
    pub max_runtime: Duration,
    /// How long a run may take before it counts as in doubt, although its owner still works on it; `None` means no limit. The
    /// owner may still finish it, and until then no other caller takes over.
    pub deadline: Option<Duration>,
    /// How long the downstream knows the downstream key.
    pub honours_key_for: Duration,
    /// What happens when the store cannot be reached.
    pub store_down: StoreDown,
    /// How long a repeat waits for a running one.
    pub wait: Duration,
    /// The caller marks `sent` before the first byte leaves.
    pub marks_sent: bool,
    /// The caller can probe: it asks the downstream whether the effect happened.
    pub probes: bool,
    /// Larger outcomes are recorded as done, but their body is not kept.
    pub keep_limit: usize,
    /// The least retention that the operation's recipe needs.
    pub minimum_retention: Duration,
    /// How many attempts the courier makes for an entry; `None` means [`DEFAULT_MAX_ATTEMPTS`]. Direct calls make one attempt
    /// for each begin.
    pub max_attempts: Option<u32>,
    /// Payments may be recorded in a store that can lose an acknowledged claim.
    pub allow_best_effort: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            tier: None,
            effect: Effect::default(),
            in_doubt: InDoubt::default(),
            on_error: OnError::default(),
            retention: None,
            tombstone: None,
            after_delivery: None,
            max_runtime: DEFAULT_MAX_RUNTIME,
            deadline: None,
            honours_key_for: DEFAULT_HONOURS_KEY_FOR,
            store_down: StoreDown::default(),
            wait: Duration::ZERO,
            marks_sent: false,
            probes: false,
            keep_limit: DEFAULT_KEEP_LIMIT,
            minimum_retention: Duration::ZERO,
            max_attempts: None,
            allow_best_effort: false,
        }
    }
}

impl Policy {
    /// The default policy of a tier.
    pub fn of(tier: Tier) -> Self {
        Self { tier: Some(tier), ..Self::default() }
    }

    /// For low stakes: the key is remembered for this long after done, and then the same intent runs again. There is no
    /// tombstone, and a crash in the middle of a run does not block the key: the next caller runs it again. So the effect may
    /// happen twice; do not use this for money.
    ///
    /// If the recipe has a window that needs a longer retention, that retention is used.
    pub fn window(window: Duration) -> Self {
        Self {
            retention: Some(Retention::For(window)),
            tombstone: Some(Duration::ZERO),
            in_doubt: InDoubt::Retry,
            honours_key_for: WINDOW_RETRIES_FOR,
            ..Self::default()
        }
    }

    /// How the operation treats unclassified errors.
    pub fn errors(&self) -> Errors {
        Errors { on_error: self.on_error, tier_declared: self.tier.is_some() }
    }

    /// How long a claim lasts unless it is renewed.
    pub fn lease(&self) -> Duration {
        self.max_runtime.min(LONGEST_MAX_RUNTIME).max(Duration::from_millis(1)) * LEASE_FACTOR
    }

    /// How long the outcome is kept: never less than what the recipe's window needs.
    pub fn kept_for(&self) -> Option<Duration> {
        let kept = match self.retention {
            Some(Retention::For(retention)) => Some(retention),
            Some(Retention::Forever) => None,
            None => self.tier.unwrap_or_default().retention(),
        };
        kept.map(|kept| kept.max(self.minimum_retention))
    }

    /// The terms that are written into a record.
    pub fn terms(&self) -> Terms {
        let retention = self.kept_for();
        Terms {
            effect: self.effect,
            in_doubt: self.in_doubt,
            retention,
            tombstone: self.tombstone.unwrap_or_else(|| self.tier.unwrap_or_default().tombstone(retention)),
            honours_key_for: self.honours_key_for,
            max_attempts: None,
            after_delivery: self.after_delivery,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tier_has_the_documented_retention() {
        let of = |tier| {
            let terms = Policy::of(tier).terms();
            (terms.retention, terms.tombstone)
        };
        assert_eq!(of(Tier::Payment), (Some(30 * DAY), 90 * DAY));
        assert_eq!(of(Tier::Notification), (Some(7 * DAY), 14 * DAY));
        assert_eq!(of(Tier::Email), (Some(DAY), Duration::ZERO));
        assert_eq!(of(Tier::Standard), (Some(DAY), 2 * DAY));
        assert_eq!(of(Tier::Forever), (None, Duration::ZERO));
    }

    #[test]
    fn every_limit_has_the_documented_value() {
        let seconds = [
            DAY,
            DEFAULT_MAX_RUNTIME,
            LONGEST_MAX_RUNTIME,
            LONGEST_LEASE,
            LONGEST_CREDIBLE_LEASE,
            LONGEST_NOT_BEFORE,
            DEFAULT_HONOURS_KEY_FOR,
            WINDOW_RETRIES_FOR,
        ];
        let documented = [86_400, 60, 86_400, 259_200, 345_600, 604_800, 86_400, 3_153_600_000];
        assert_eq!(seconds.map(|limit| limit.as_secs()), documented);
        assert_eq!((DEFAULT_KEEP_LIMIT, LARGEST_KEEP_LIMIT), (262_144, 8_388_608));
    }

    #[test]
    fn a_retention_shorter_than_the_window_needs_is_raised() {
        let policy =
            Policy { retention: Some(Retention::For(DAY / 24)), minimum_retention: 8 * DAY, ..Policy::default() };
        assert_eq!(policy.terms().retention, Some(8 * DAY));
        assert_eq!(policy.terms().tombstone, 16 * DAY);
    }

    #[test]
    fn a_window_has_no_tombstone_and_is_never_held() {
        let terms = Policy::window(DAY / 144).terms();
        assert_eq!((terms.retention, terms.tombstone), (Some(DAY / 144), Duration::ZERO));
        assert_eq!((terms.in_doubt, terms.honours_key_for), (InDoubt::Retry, WINDOW_RETRIES_FOR));
        let recipe = Policy { minimum_retention: 2 * DAY, ..Policy::window(DAY / 144) };
        assert_eq!((recipe.terms().retention, recipe.terms().tombstone), (Some(2 * DAY), Duration::ZERO));
    }

    #[test]
    fn only_a_declared_tier_puts_unclassified_errors_in_doubt() {
        let errors = |policy: Policy| (policy.errors().on_error, policy.errors().tier_declared);
        assert_eq!(errors(Policy::of(Tier::Email)), (OnError::Classify, true));
        assert_eq!(errors(Policy::default()), (OnError::Classify, false));
        assert_eq!(errors(Policy::window(DAY)), (OnError::Classify, false));
        assert_eq!(Policy::default().terms(), Policy::of(Tier::Standard).terms());
    }

    #[test]
    fn the_lease_is_three_times_the_longest_run_and_bounded() {
        assert_eq!(Policy::default().lease(), Duration::from_secs(180));
        let endless = Policy { max_runtime: Duration::MAX, ..Policy::default() };
        assert_eq!(endless.lease(), LONGEST_LEASE);
        let none = Policy { max_runtime: Duration::ZERO, ..Policy::default() };
        assert!(none.lease() > Duration::ZERO);
    }
}
