//! Repeats of requests whose answers were lost. A request that has taken effect gets its answer again; a request that was
//! superseded meanwhile is stale.

use std::time::Duration;

use super::begin::{phase_of, tell};
use super::queue::{self, NextTry};
use super::{Acquired, Begin, Command, CommandResult, Decision, Resolution, Transition, Write, owner, settle};
use crate::claim::Mark;
use crate::outbox::AfterAttempt;
use crate::policy::InDoubt;
use crate::record::{Fence, Lease, Phase, Record, Seen, State};
use crate::time::When;

/// A begin with a claim id that the record knows. An id names one claim: while that claim is held, the repeat gets it again,
/// with the same fence and a new lease. Once its lease has lapsed and it may have sent something, or a deadline or a person has
/// put it in doubt, it is in doubt for its own caller too: the caller may have acted and died. Finished work is answered as for
/// any caller (`None`). Otherwise the id is used up: a second claim under it could not be told from the first.
pub(super) fn begin(seen: &Seen, call: &Begin) -> Option<Transition> {
    let record = &seen.record;
    let id = call.take.claim.filter(|id| record.claims.include(*id))?;
    match &record.state {
        State::Done { .. } | State::Tombstone { .. } => None,
        State::Leased(lease) if record.claims.current == Some(id) => {
            let is_doubted = lease.phase == Phase::Overdue;
            if is_doubted || lease.phase != Phase::Claimed && !seen.has_living_owner() {
                return seen.standing().map(|standing| Transition::decision(tell(seen, standing)));
            }
            let must_ask = record.terms.in_doubt == InDoubt::Probe && record.doubt_since.is_some();
            (call.take.probes || !must_ask).then(|| granted_again(record, lease, call, must_ask))
        }
        _ => Some(Transition::answer(CommandResult::Stale { contradicts: false })),
    }
}

/// Always written: the version rises, so that a claim whose first answer was lost is not given back on account of that
/// answer (see [`give_back`]).
fn granted_again(record: &Record, lease: &Lease, call: &Begin, probe_first: bool) -> Transition {
    let mut draft = record.next();
    draft.terms = record.terms.tightened_by(&call.terms);
    // Of the first request and its repeat the stricter reading holds: a caller that does not mark `sent` may have sent.
    let phase = match phase_of(&call.take, call.terms.effect, record.terms.effect) {
        Phase::Sent if lease.phase == Phase::Claimed => Phase::Sent,
        _ => lease.phase,
    };
    if phase != Phase::Claimed && draft.first_sent_at.is_none() {
        draft.first_sent_at = Some(When::NOW);
    }
    let (fence, until) = (lease.fence, When::In(call.take.lease));
    draft.state = State::Leased(Lease { phase, fence, until, owner: lease.owner });
    let acquired = Acquired {
        fence,
        phase,
        attempt: record.attempts,
        generation: record.generation,
        probe_first,
        in_doubt: draft.terms.in_doubt,
    };
    Transition::write(Write::Replace(draft), CommandResult::Decision(Decision::Acquired(acquired)))
}

/// The server takes back a claim whose answer did not reach the caller. Only if the record is still the version that the
/// claim made: a repeat that was answered meanwhile has the same fence, and its caller may be at work. The id is free
/// again, because no caller has been told of the claim.
pub(super) fn give_back(current: Option<&Seen>, fence: Fence, version: u64, error: &Option<String>) -> Transition {
    let stale = || Transition::answer(CommandResult::Stale { contradicts: false });
    let Some(seen) = current else { return stale() };
    let record = &seen.record;
    if record.fence() != Some(fence) || record.version != version || !matches!(record.state, State::Leased(_)) {
        return stale();
    }
    let mut transition =
        owner::release(record, error, &NextTry::of(seen, Duration::ZERO, AfterAttempt::RetryUncounted));
    if let Write::Replace(draft) = &mut transition.write {
        draft.claims.current = None;
    }
    marked(transition, Some(Mark::of_withdrawal()))
}

/// A request of an owner. A repeat of the request that ended its claim is accepted again until the record changes.
pub(super) fn own(current: Option<&Seen>, fence: Fence, command: &Command) -> Transition {
    let mark = match command {
        Command::Release { .. } => Some(Mark::of_owner("release", fence)),
        Command::Withdraw { .. } => Some(Mark::of_withdrawal()),
        Command::Doubt { .. } => Some(Mark::of_owner("doubt", fence)),
        Command::Undelivered(_) => Some(Mark::of_owner("undelivered", fence)),
        _ => None,
    };
    if made_by(current, mark) || found_nothing_before(current, fence, command) {
        return Transition::answer(CommandResult::Accepted);
    }
    marked(owner::own(current, fence, command), mark)
}

/// A late repeat of "not found" must not restart the clock of the downstream's memory after the work that followed.
fn found_nothing_before(current: Option<&Seen>, fence: Fence, command: &Command) -> bool {
    let Some(record) = current.map(|seen| &seen.record) else { return false };
    let is_settled = matches!(record.state, State::Leased(_)) && record.doubt_since.is_none();
    matches!(command, Command::NotFound { .. }) && record.fence() == Some(fence) && is_settled
}

/// A decision of a person. A repeat of the same decision on the same version is accepted again.
pub(super) fn resolve(current: Option<&Seen>, version: u64, resolution: &Resolution, fence: Fence) -> Transition {
    let mark = Some(match resolution {
        Resolution::Happened(outcome) => Mark::of_person("happened", version, Some(outcome.digest())),
        Resolution::DidNotHappen => Mark::of_person("did not happen", version, None),
        Resolution::Reset => Mark::of_person("reset", version, None),
        Resolution::Force => Mark::of_person("force", version, None),
    });
    by_person(current, mark, || settle::resolve(current, version, resolution, fence))
}

/// The same for a person who has a dead entry tried again.
pub(super) fn requeue(current: Option<&Seen>, version: u64, fresh_key: bool) -> Transition {
    let kind = if fresh_key { "requeue with a fresh key" } else { "requeue" };
    by_person(current, Some(Mark::of_person(kind, version, None)), || queue::requeue(current, version, fresh_key))
}

/// The same for a person who cancels an entry.
pub(super) fn cancel(current: Option<&Seen>, version: u64) -> Transition {
    by_person(current, Some(Mark::of_person("cancel", version, None)), || queue::cancel(current, version))
}

fn by_person(current: Option<&Seen>, mark: Option<Mark>, decide: impl FnOnce() -> Transition) -> Transition {
    if made_by(current, mark) {
        return Transition::answer(CommandResult::Accepted);
    }
    marked(decide(), mark)
}

fn made_by(current: Option<&Seen>, mark: Option<Mark>) -> bool {
    // An expired record counts as gone.
    let standing = |seen: &&Seen| seen.standing().is_some();
    mark.is_some() && current.filter(standing).is_some_and(|seen| seen.record.made_by == mark)
}

fn marked(mut transition: Transition, mark: Option<Mark>) -> Transition {
    if let Write::Replace(draft) = &mut transition.write {
        draft.made_by = mark;
    }
    transition
}
