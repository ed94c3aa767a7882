//! What each intent answers after a restart: done is replayed as it was, and nothing that was claimed before is new.

use onceward::clock::{Clock, ManualClock};
use onceward::core::decide::Decision;
use onceward::core::record::{Lease, Phase, Record, State, Status};
use onceward::core::time::Timestamp;
use onceward::{Begun, InDoubt, Ledger, Outcome};

use super::work::{operation, window};
use crate::dice::Dice;
use crate::standing;
use crate::vfs::Drive;
use crate::witness::Book;

/// What is asked for after a restart: about one intent in so many.
const SAMPLE: u64 = 3;

/// The rules of a roll call.
pub struct Roll<'a> {
    /// The ledger that was opened anew.
    pub ledger: &'a Ledger,
    /// What it holds, after the comparison.
    pub book: &'a Book,
    /// What is under it.
    pub drive: &'a Drive,
    /// Its time, which stands still meanwhile.
    pub clock: &'a ManualClock,
}

impl Roll<'_> {
    /// Asks for the intents of the last cycle, one after another. The answer is what should not be.
    pub async fn call(&self, cycle: u64, mut dice: Dice) -> Vec<String> {
        let mut faults = Vec::new();
        for intent in window(cycle.saturating_sub(1)) {
            if !dice.one_in(SAMPLE) {
                continue;
            }
            let operation = operation(self.ledger, intent);
            let call = operation.call().expect("the names are fixed");
            let before = self.book.acknowledged(call.identity.digest());
            let begun = match operation.begin().await {
                Ok(begun) => begun,
                Err(_) if self.drive.is_dark() => break,
                Err(error) => {
                    faults.push(format!("k{intent}: begin failed: {error}"));
                    continue;
                }
            };
            if !is_right(before.as_ref(), self.clock.now(), &Answer::of(&begun)) {
                faults.push(format!("k{intent}: told {begun:?}, but the ledger holds {before:?}"));
            }
            if let Begun::Acquired(guard) = begun {
                drop(guard.finish(Outcome::success(format!("\"roll call {cycle}\""))).await);
            }
        }
        faults
    }
}

/// An answer, as far as the rules look at it.
enum Answer<'a> {
    Acquired { attempt: u32 },
    Replay(&'a Outcome),
    NotKept,
    InFlight,
    InDoubt,
    Other,
}

impl<'a> Answer<'a> {
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

/// The rules, written again from what is promised, and not taken from `decide`.
fn is_right(before: Option<&Record>, now: Timestamp, answer: &Answer<'_>) -> bool {
    let Some(record) = before else { return matches!(answer, Answer::Acquired { attempt: 1 }) };
    let status = standing::status(record, now, false);
    let next = matches!(answer, Answer::Acquired { attempt } if *attempt == record.attempts + 1);
    let may_have_happened = record.doubt_since.is_some();
    match &record.state {
        State::Open { not_before } if !may_have_happened && now >= remembered_until(record, *not_before) => {
            matches!(answer, Answer::Acquired { attempt: 1 })
        }
        State::Leased(Lease { phase: Phase::Claimed, until, .. })
            if !may_have_happened && now >= remembered_until(record, *until) =>
        {
            matches!(answer, Answer::Acquired { attempt: 1 })
        }
        State::Done { .. } | State::Tombstone { .. } if status.is_none() => {
            matches!(answer, Answer::Acquired { attempt: 1 })
        }
        // What was delivered answers no further call. A delivery that was lost is as if there had been none.
        State::Done { .. } | State::Tombstone { .. } if record.delivered_at.is_some() && is_causal(record) => {
            matches!(answer, Answer::Acquired { attempt: 1 })
        }
        State::Done { outcome, .. } if status == Some(Status::Done) => {
            matches!(answer, Answer::Replay(replayed) if *replayed == outcome)
        }
        State::Done { .. } | State::Tombstone { .. } => matches!(answer, Answer::NotKept),
        State::Leased(Lease { phase: Phase::Claimed, .. }) | State::Open { .. } if !may_have_happened => {
            next || matches!(answer, Answer::InFlight)
        }
        State::Leased(_) | State::Open { .. } | State::InDoubt { .. } => {
            let again = next && record.terms.in_doubt == InDoubt::Retry;
            again || matches!(answer, Answer::InFlight | Answer::InDoubt)
        }
        State::Queued { .. } | State::Dead => false,
    }
}

/// Whether a call after a delivered outcome is another one. A tombstone knows of a delivery only then.
fn is_causal(record: &Record) -> bool {
    record.terms.after_delivery.is_some() || matches!(record.state, State::Tombstone { .. })
}

/// What did not happen is as good as new when its key would be free again and the other side has forgotten it.
fn remembered_until(record: &Record, not_before: Timestamp) -> Timestamp {
    let Some(retention) = record.terms.retention else { return Timestamp::from_millis(i64::MAX) };
    let held = (retention + record.terms.tombstone).max(record.terms.honours_key_for);
    record.updated_at.max(not_before).after(held)
}
