//! Broken versions of `decide` for entries of the outbox. Each one changes what the real `decide` is given or what it
//! returns.

use onceward::core::decide::{Command, CommandResult, Transition, Undelivered, Write, decide};
use onceward::core::outbox::AfterAttempt;
use onceward::core::record::{Phase, Record, Seen, State};
use onceward::core::time::When;

/// A rule that is taken out of `decide`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An entry in doubt is sent to another sink.
    SinkChanged,
    /// An attempt does not count when it begins.
    AttemptUncounted,
    /// An attempt counts that sent nothing.
    WithdrawalCounted,
    /// An entry in doubt whose attempts are over is dead.
    DeadInDoubt,
    /// The fence of a finish is not compared.
    AnyFenceFinishes,
    /// An entry that waits for a person from now on stays due.
    HeldNotWritten,
    /// An entry that is being delivered is cancelled.
    RunningCancelled,
    /// An entry in doubt gets a fresh key.
    FreshKeyInDoubt,
    /// A courier that died proves that nothing was sent.
    LapseIsProof,
    /// A doubt is recorded without the time of its next attempt.
    RetryForgotten,
    /// An entry whose time is over is delivered.
    LateDelivered,
    /// An entry is tried again at once.
    WaitSkipped,
}

impl Fault {
    /// Every fault, with its name on the command line.
    pub const ALL: [(&str, Self); 12] = [
        ("sink-changed", Self::SinkChanged),
        ("attempt-uncounted", Self::AttemptUncounted),
        ("withdrawal-counted", Self::WithdrawalCounted),
        ("dead-in-doubt", Self::DeadInDoubt),
        ("any-fence-finishes", Self::AnyFenceFinishes),
        ("held-not-written", Self::HeldNotWritten),
        ("running-cancelled", Self::RunningCancelled),
        ("fresh-key-in-doubt", Self::FreshKeyInDoubt),
        ("entry-lapse-is-proof", Self::LapseIsProof),
        ("retry-forgotten", Self::RetryForgotten),
        ("late-delivered", Self::LateDelivered),
        ("wait-skipped", Self::WaitSkipped),
    ];

    /// What `decide` would return with this fault in it.
    pub(super) fn decide(self, seen: &Seen, command: &Command) -> Transition {
        let real = || decide(Some(seen), command);
        match (self, command) {
            (Self::SinkChanged, Command::Lease(call)) => changed(real(), |draft| {
                draft.entry.get_or_insert_default().destination = Some(call.destination.clone())
            }),
            (Self::AttemptUncounted, Command::Lease(_)) => changed(real(), |draft| {
                if matches!(draft.state, State::Leased(_)) {
                    draft.attempts -= 1;
                }
            }),
            (Self::WithdrawalCounted, Command::Undelivered(end)) => {
                decide(Some(seen), &Command::Undelivered(Undelivered { after: AfterAttempt::Retry, ..end.clone() }))
            }
            (Self::DeadInDoubt, Command::Undelivered(_) | Command::Lease(_)) => changed(real(), |draft| {
                if matches!(draft.state, State::InDoubt { retry_at: None, .. }) {
                    draft.state = State::Dead;
                }
            }),
            (Self::AnyFenceFinishes, Command::Finish { outcome, .. }) => match seen.record.fence() {
                Some(fence) => decide(Some(seen), &Command::Finish { fence, outcome: outcome.clone() }),
                None => real(),
            },
            (Self::HeldNotWritten, Command::Lease(_)) => {
                let mut transition = real();
                if matches!(&transition.write, Write::Replace(draft) if matches!(draft.state, State::InDoubt { .. })) {
                    transition.write = Write::None;
                }
                transition
            }
            (Self::RunningCancelled, Command::Cancel { .. }) if seen.has_living_owner() => {
                decide(Some(&with(seen, |record| record.state = State::Queued { due: seen.now })), command)
            }
            (Self::FreshKeyInDoubt, Command::Requeue { .. }) if matches!(seen.record.state, State::InDoubt { .. }) => {
                decide(Some(&with(seen, |record| record.state = State::Dead)), command)
            }
            (Self::LapseIsProof, Command::Lease(_)) => decide(Some(&with(seen, forget_that_it_was_sent)), command),
            (Self::RetryForgotten, Command::Undelivered(_)) => changed(real(), |draft| {
                if let State::InDoubt { retry_at, .. } = &mut draft.state {
                    *retry_at = None;
                }
            }),
            (Self::LateDelivered, Command::Lease(_)) => {
                let unlimited = |record: &mut Record| {
                    if let Some(entry) = &mut record.entry {
                        entry.deliver_within = None;
                    }
                };
                decide(Some(&with(seen, unlimited)), command)
            }
            (Self::WaitSkipped, Command::Undelivered(_)) => changed(real(), |draft| match &mut draft.state {
                State::Queued { due } | State::InDoubt { retry_at: Some(due), .. } => *due = When::NOW,
                _ => {}
            }),
            _ => real(),
        }
    }
}

fn with(seen: &Seen, change: impl FnOnce(&mut Record)) -> Seen {
    let mut seen = seen.clone();
    change(&mut seen.record);
    seen
}

fn forget_that_it_was_sent(record: &mut Record) {
    if let State::Leased(lease) = &mut record.state {
        lease.phase = Phase::Claimed;
    }
}

/// Changes what is written, if something is.
fn changed(mut transition: Transition, change: impl FnOnce(&mut onceward::core::record::Draft)) -> Transition {
    if let Write::Replace(draft) = &mut transition.write {
        change(draft);
    }
    if let Write::Replace(draft) = &transition.write
        && draft.state == State::Dead
    {
        transition.answer = CommandResult::Accepted;
    }
    transition
}
