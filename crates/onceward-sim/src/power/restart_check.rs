//! What each intent answers after a restart: a finished outcome is replayed unchanged, and no claimed intent counts as
//! new.

use onceward::clock::{Clock, ManualClock};
use onceward::core::decide::Decision;
use onceward::core::record::{Lease, Phase, Record, State, Status};
use onceward::core::time::Timestamp;
use onceward::{Begun, InDoubt, Ledger, Outcome};

use super::work::{operation, window};
use crate::recording_store::Acknowledged;
use crate::rng::Rng;
use crate::standing;
use crate::vfs::Drive;

/// About one intent in this many is asked for after a restart.
const SAMPLE: u64 = 3;

/// Asks for intents after a restart.
pub struct RestartCheck<'a> {
    /// The ledger that was opened again.
    pub ledger: &'a Ledger,
    /// What it holds, after the comparison.
    pub acknowledged: &'a Acknowledged,
    /// What is under it.
    pub drive: &'a Drive,
    /// Its clock, which does not move meanwhile.
    pub clock: &'a ManualClock,
}

impl RestartCheck<'_> {
    /// Asks for the intents of the last cycle, one after another. Returns what is wrong.
    pub async fn call(&self, cycle: u64, mut rng: Rng) -> Vec<String> {
        let mut violations = Vec::new();
        for intent in window(cycle.saturating_sub(1)) {
            if !rng.one_in(SAMPLE) {
                continue;
            }
            let operation = operation(self.ledger, intent);
            let call = operation.call().expect("the names are fixed");
            let before = self.acknowledged.acknowledged(call.identity.digest());
            let begun = match operation.begin().await {
                Ok(begun) => begun,
                Err(_) if self.drive.is_dark() => break,
                Err(error) => {
                    violations.push(format!("k{intent}: begin failed: {error}"));
                    continue;
                }
            };
            if !is_right(before.as_ref(), self.clock.now(), &BeginResult::of(&begun)) {
                violations.push(format!("k{intent}: answered {begun:?}, but the ledger holds {before:?}"));
            }
            if let Begun::Acquired(guard) = begun {
                drop(guard.finish(Outcome::success(format!("\"restart check {cycle}\""))).await);
            }
        }
        violations
    }
}

/// An answer, as far as the rules need it.
enum BeginResult<'a> {
    Acquired { attempt: u32 },
    Replay(&'a Outcome),
    NotKept,
    InFlight,
    InDoubt,
    Other,
}

impl<'a> BeginResult<'a> {
    fn of(begun: &'a Begun) -> Self {
        match begun {
            Begun::Acquired(guard) => Self::Acquired { attempt: guard.claim().attempt() },
            Begun::Answered(Decision::Replay { outcome, .. }) => Self::Replay(outcome),
            Begun::Answered(Decision::OutcomeNotKept { .. }) => Self::NotKept,
            Begun::Answered(Decision::InFlight { .. }) => Self::InFlight,
            Begun::Answered(Decision::InDoubt { .. }) => Self::InDoubt,
            Begun::Answered(_) => Self::Other,
        }
    }
}

/// The rules, written again from the promises, and not taken from `decide`.
fn is_right(before: Option<&Record>, now: Timestamp, result: &BeginResult<'_>) -> bool {
    let Some(record) = before else { return matches!(result, BeginResult::Acquired { attempt: 1 }) };
    let status = standing::status(record, now, false);
    let next = matches!(result, BeginResult::Acquired { attempt } if *attempt == record.attempts + 1);
    let may_have_happened = record.doubt_since.is_some();
    match &record.state {
        State::Open { not_before } if !may_have_happened && now >= remembered_until(record, *not_before) => {
            matches!(result, BeginResult::Acquired { attempt: 1 })
        }
        State::Leased(Lease { phase: Phase::Claimed, until, .. })
            if !may_have_happened && now >= remembered_until(record, *until) =>
        {
            matches!(result, BeginResult::Acquired { attempt: 1 })
        }
        State::Done { .. } | State::Tombstone { .. } if status.is_none() => {
            matches!(result, BeginResult::Acquired { attempt: 1 })
        }
        // A delivered outcome answers no further call. A lost delivery counts as no delivery.
        State::Done { .. } | State::Tombstone { .. } if record.delivered_at.is_some() && is_causal(record) => {
            matches!(result, BeginResult::Acquired { attempt: 1 })
        }
        State::Done { outcome, .. } if status == Some(Status::Done) => {
            matches!(result, BeginResult::Replay(replayed) if *replayed == outcome)
        }
        State::Done { .. } | State::Tombstone { .. } => matches!(result, BeginResult::NotKept),
        State::Leased(Lease { phase: Phase::Claimed, .. }) | State::Open { .. } if !may_have_happened => {
            next || matches!(result, BeginResult::InFlight)
        }
        State::Leased(_) | State::Open { .. } | State::InDoubt { .. } => {
            let again = next && record.terms.in_doubt == InDoubt::Retry;
            again || matches!(result, BeginResult::InFlight | BeginResult::InDoubt)
        }
        State::Queued { .. } | State::Dead => false,
    }
}

/// Whether a call after a delivered outcome is the next call. A tombstone records a delivery only then.
fn is_causal(record: &Record) -> bool {
    record.terms.after_delivery.is_some() || matches!(record.state, State::Tombstone { .. })
}

/// An attempt that did not happen is forgotten when its key would be free again and the downstream has forgotten it.
fn remembered_until(record: &Record, not_before: Timestamp) -> Timestamp {
    let Some(retention) = record.terms.retention else { return Timestamp::from_millis(i64::MAX) };
    let held = (retention + record.terms.tombstone).max(record.terms.honours_key_for);
    record.updated_at.max(not_before).after(held)
}
