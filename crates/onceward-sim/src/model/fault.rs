//! Broken versions of `decide`, to prove that the model checker finds them. Each one changes what the real `decide` is
//! given or what it returns; core itself has no switches.

use onceward::core::decide::{Command, CommandResult, Decision, Transition, Write, decide};
use onceward::core::record::{Lease, Phase, Record, Seen, State};
use onceward::core::time::When;

use super::world::TICK;

/// A rule that is taken out of `decide`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The fence is not compared.
    NoFence,
    /// A takeover forgets that an attempt may have happened.
    DoubtForgotten,
    /// A lapsed lease counts as proof that the effect did not happen.
    LapseIsProof,
    /// A proof for one attempt clears the doubt about earlier attempts.
    ProofClearsAll,
    /// A tombstone does not hold its key.
    TombstoneIgnored,
    /// `retry` is granted to an attempt that may end after the downstream has forgotten the key.
    AttemptOutlivesMemory,
    /// `retry` is granted after the downstream has forgotten the key.
    RetryPastMemory,
}

impl Fault {
    /// Every fault, with its name on the command line.
    pub const ALL: [(&str, Self); 7] = [
        ("no-fence", Self::NoFence),
        ("doubt-forgotten", Self::DoubtForgotten),
        ("lapse-is-proof", Self::LapseIsProof),
        ("proof-clears-all", Self::ProofClearsAll),
        ("tombstone-ignored", Self::TombstoneIgnored),
        ("attempt-outlives-memory", Self::AttemptOutlivesMemory),
        ("retry-past-memory", Self::RetryPastMemory),
    ];

    /// What `decide` would return with this fault in it.
    pub(super) fn decide(self, current: Option<&Seen>, command: &Command) -> Transition {
        let Some(seen) = current else { return decide(None, command) };
        match (self, command) {
            (Self::NoFence, command) => decide(current, &with_current_fence(command, &seen.record)),
            (Self::DoubtForgotten, Command::Begin(_)) => without_doubt(decide(current, command)),
            (Self::LapseIsProof, Command::Begin(_)) => decide(Some(&as_not_sent(seen)), command),
            (Self::ProofClearsAll, Command::Release { .. }) => {
                let record = Record { doubt_since: None, ..seen.record.clone() };
                decide(Some(&Seen { record, ..seen.clone() }), command)
            }
            (Self::TombstoneIgnored, Command::Begin(_)) if has_expired(seen) => decide(None, command),
            (Self::AttemptOutlivesMemory, Command::Begin(_)) => {
                let first = seen.record.first_sent_at.map(|first| first.after(TICK));
                let shifted = Record { first_sent_at: first, ..seen.record.clone() };
                restored(decide(Some(&Seen { record: shifted, ..seen.clone() }), command), seen)
            }
            (Self::RetryPastMemory, Command::Begin(_)) => {
                let first = seen.record.first_sent_at.map(|_| seen.now);
                let shifted = Record { first_sent_at: first, ..seen.record.clone() };
                restored(decide(Some(&Seen { record: shifted, ..seen.clone() }), command), seen)
            }
            _ => decide(current, command),
        }
    }
}

fn with_current_fence(command: &Command, record: &Record) -> Command {
    let Some(current) = record.fence() else { return command.clone() };
    let mut command = command.clone();
    match &mut command {
        Command::Sent { fence, .. }
        | Command::Renew { fence, .. }
        | Command::Release { fence, .. }
        | Command::Doubt { fence, .. }
        | Command::NotFound { fence }
        | Command::Finish { fence, .. } => *fence = current,
        _ => {}
    }
    command
}

fn without_doubt(mut transition: Transition) -> Transition {
    let granted = matches!(transition.answer, CommandResult::Decision(Decision::Acquired(_)));
    if let Write::Replace(draft) = &mut transition.write
        && granted
        && draft.doubt_since.take().is_some()
    {
        let is_sent = matches!(&draft.state, State::Leased(lease) if lease.phase == Phase::Sent);
        draft.first_sent_at = is_sent.then_some(When::NOW);
    }
    transition
}

/// The record of a lapsed attempt as if it had sent nothing.
fn as_not_sent(seen: &Seen) -> Seen {
    let mut seen = seen.clone();
    if let State::Leased(Lease { phase: phase @ Phase::Sent, until, .. }) = &mut seen.record.state
        && *until <= seen.now
        && seen.record.doubt_since.is_none()
    {
        *phase = Phase::Claimed;
    }
    seen
}

fn has_expired(seen: &Seen) -> bool {
    match &seen.record.state {
        State::Tombstone { .. } => true,
        State::Done { expires_at, .. } => expires_at.is_some_and(|at| at <= seen.now),
        _ => false,
    }
}

/// Puts the real time of the first attempt back, so that the next decision starts from a right record.
fn restored(mut transition: Transition, seen: &Seen) -> Transition {
    if let Write::Replace(draft) = &mut transition.write
        && draft.first_sent_at.is_some()
        && let Some(first) = seen.record.first_sent_at
    {
        draft.first_sent_at = Some(When::At(first));
    }
    transition
}
