//! Rules taken out of `decide`, one at a time. The checker must find each of them; otherwise its silence means nothing.

use onceward::core::decide::{Command, Transition, Write, decide};
use onceward::core::record::{Phase, Seen, State};

/// A rule that is missing.
#[cfg_attr(not(test), expect(dead_code, reason = "only tests take a rule out"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Anybody may write: the fence is not compared.
    NoFence,
    /// A takeover forgets that an attempt may have happened.
    DoubtForgotten,
    /// A lapsed lease proves that nothing happened.
    TimeIsProof,
    /// A proof of one attempt speaks for all of them.
    ProofSpeaksForAll,
    /// Finished work may be taken again as soon as its outcome expires.
    NoTombstone,
}

#[cfg(test)]
impl Fault {
    /// Every fault.
    pub const ALL: [Self; 5] =
        [Self::NoFence, Self::DoubtForgotten, Self::TimeIsProof, Self::ProofSpeaksForAll, Self::NoTombstone];
}

/// The real `decide`, or the real one without a rule.
pub(super) fn decide_with(fault: Option<Fault>, current: Option<&Seen>, command: &Command) -> Transition {
    let mut current = current.cloned();
    let mut command = command.clone();
    match (fault, &mut current) {
        (Some(Fault::NoFence), Some(seen)) => take_their_fence(&mut command, seen),
        (Some(Fault::TimeIsProof), Some(seen)) => {
            let now = seen.now;
            if let State::Leased(lease) = &mut seen.record.state
                && lease.until <= now
            {
                lease.phase = Phase::Claimed;
            }
        }
        (Some(Fault::ProofSpeaksForAll), Some(seen)) if matches!(command, Command::Release { .. }) => {
            seen.record.doubt_since = None;
        }
        (Some(Fault::NoTombstone), Some(seen)) => {
            if let State::Done { expires_at, forget_at, .. } = &mut seen.record.state {
                *forget_at = *expires_at;
            }
        }
        _ => {}
    }
    let mut transition = decide(current.as_ref(), &command);
    if fault == Some(Fault::DoubtForgotten)
        && let (Command::Begin(_), Write::Replace(draft)) = (&command, &mut transition.write)
    {
        draft.doubt_since = None;
        draft.first_sent_at = draft.first_sent_at.map(|_| onceward::core::time::When::NOW);
    }
    transition
}

fn take_their_fence(command: &mut Command, seen: &Seen) {
    let Some(theirs) = seen.record.fence() else { return };
    match command {
        Command::Sent { fence, .. }
        | Command::Renew { fence, .. }
        | Command::Finish { fence, .. }
        | Command::Release { fence, .. }
        | Command::Doubt { fence, .. }
        | Command::NotFound { fence } => *fence = theirs,
        _ => {}
    }
}
