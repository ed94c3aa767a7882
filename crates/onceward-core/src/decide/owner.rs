//! What the owner of a claim may do. Only the fence is judged, never the deadline: an owner that is late but was not
//! superseded settles the doubt.

use std::time::Duration;

use super::queue::{NextTry, undelivered};
use super::{Command, CommandResult, Refusal, Transition, Write};
use crate::claim::Claims;
use crate::outbox::AfterAttempt;
use crate::outcome::{Outcome, Verdict};
use crate::policy::{Effect, LONGEST_NOT_BEFORE};
use crate::record::{Draft, Fence, Lease, Phase, Record, Seen, Standing, State, Status};
use crate::time::When;

pub(super) fn own(current: Option<&Seen>, fence: Fence, command: &Command) -> Transition {
    let Some(seen) = current else {
        // The record is gone, so there is nothing that this owner could contradict.
        return Transition::answer(CommandResult::Stale { contradicts: false });
    };
    if seen.record.fence() != Some(fence) {
        return Transition::answer(CommandResult::Stale { contradicts: contradicts(seen, command) });
    }
    let record = &seen.record;
    let now = NextTry::of(seen, Duration::ZERO, AfterAttempt::Retry);
    match (&record.state, command) {
        (State::Leased(lease), Command::Sent { lease: length, .. }) => sent(record, lease, *length),
        (State::Leased(lease), Command::Renew { lease: length, .. }) => extend(record, lease, lease.phase, *length),
        (State::Leased(lease), Command::Doubt { error, .. }) => match lease.phase {
            Phase::Claimed => release(record, error, &now),
            Phase::Sent | Phase::Overdue => doubt(record, lease.fence, error, &now),
        },
        (State::Leased(lease), Command::Overdue { lease: length, error, .. }) => match lease.phase {
            // Nothing was sent, so there is nothing to doubt.
            Phase::Claimed => extend(record, lease, lease.phase, *length),
            Phase::Sent | Phase::Overdue => overdue(extend(record, lease, Phase::Overdue, *length), error),
        },
        (State::Leased(_), Command::Release { not_before, error, .. }) => {
            release(record, error, &NextTry::of(seen, (*not_before).min(LONGEST_NOT_BEFORE), AfterAttempt::Retry))
        }
        // The courier has sent nothing, so the attempt does not count.
        (State::Leased(_), Command::Withdraw { error, .. }) => {
            release(record, error, &NextTry::of(seen, Duration::ZERO, AfterAttempt::RetryUncounted))
        }
        (State::Leased(lease), Command::Undelivered(end)) => undelivered(seen, lease, end),
        (_, Command::Delivered { arrived, .. }) => delivered(seen, *arrived),
        (State::Leased(lease), Command::NotFound { .. }) => not_found(record, lease.phase),
        (State::Leased(lease), Command::Finish { .. }) if is_unsent_entry(record, lease) => {
            Transition::refused(Refusal::NotSent)
        }
        (State::Leased(_) | State::InDoubt { .. }, Command::Finish { outcome, .. }) => finish(record, fence, outcome),
        // The answer to an earlier finish, doubt or release may have been lost on its way to the owner.
        (State::Done { outcome: kept, .. }, Command::Finish { outcome, .. }) if kept.digest() == outcome.digest() => {
            Transition::answer(CommandResult::Accepted)
        }
        (State::InDoubt { .. }, Command::Doubt { .. }) => Transition::answer(CommandResult::Accepted),
        (State::InDoubt { .. }, _) => Transition::refused(Refusal::NothingToDo(Status::InDoubt)),
        _ => Transition::answer(CommandResult::Stale { contradicts: contradicts(seen, command) }),
    }
}

/// Whether the owner promised to mark the entry as sent, and has not done so.
fn is_unsent_entry(record: &Record, lease: &Lease) -> bool {
    lease.phase == Phase::Claimed && record.payload.is_some() && record.terms.effect == Effect::External
}

fn sent(record: &Record, lease: &Lease, length: Duration) -> Transition {
    let phase = match lease.phase {
        Phase::Overdue => Phase::Overdue,
        Phase::Claimed | Phase::Sent => Phase::Sent,
    };
    let mut transition = extend(record, lease, phase, length);
    if let Write::Replace(draft) = &mut transition.write
        && draft.first_sent_at.is_none()
    {
        draft.first_sent_at = Some(When::NOW);
    }
    transition
}

fn extend(record: &Record, lease: &Lease, phase: Phase, length: Duration) -> Transition {
    let mut draft = record.next();
    draft.state = State::Leased(Lease { phase, fence: lease.fence, until: When::In(length), owner: lease.owner });
    Transition::replace(draft)
}

/// Extends the lease, and begins the doubt.
fn overdue(mut transition: Transition, error: &Option<String>) -> Transition {
    if let Write::Replace(draft) = &mut transition.write {
        draft.doubt_since = draft.doubt_since.or(Some(When::NOW));
        draft.last_error.clone_from(error);
    }
    transition
}

pub(super) fn finish(record: &Record, fence: Fence, outcome: &Outcome) -> Transition {
    Transition::replace(done(record, fence, outcome))
}

/// The record with its outcome: the doubt is settled, and the two clocks of retention start. The newest item of a stream has no
/// such clocks: it says which number comes next.
pub(super) fn done(record: &Record, fence: Fence, outcome: &Outcome) -> Draft {
    let mut draft = record.next();
    let retention = record.terms.retention.filter(|_| record.sequence.is_none());
    draft.state = State::Done {
        outcome: outcome.clone(),
        fence,
        finished_at: When::NOW,
        expires_at: retention.map(When::In),
        forget_at: retention.map(|kept| When::In(kept.saturating_add(record.terms.tombstone))),
    };
    draft.doubt_since = None;
    draft.last_error = None;
    draft.payload = draft.payload.filter(|_| draft.entry.as_ref().is_some_and(|entry| entry.keeps_payload));
    // From now on every begin gets the outcome, whatever its claim id. Only where a begin may be the next call must a late repeat
    // of this one still be recognised.
    if record.terms.after_delivery.is_none() {
        draft.claims = Claims::default();
    }
    draft
}

/// A proof covers its own attempt only: an older doubt stays.
pub(super) fn release(record: &Record, error: &Option<String>, next: &NextTry) -> Transition {
    let mut draft = record.next();
    draft.last_error.clone_from(error);
    match (record.doubt_since, record.fence()) {
        (Some(_), Some(fence)) => next.in_doubt(&mut draft, fence),
        _ => next.after_release(&mut draft),
    }
    Transition::replace(draft)
}

pub(super) fn doubt(record: &Record, fence: Fence, error: &Option<String>, next: &NextTry) -> Transition {
    let mut draft = record.next();
    draft.last_error.clone_from(error);
    draft.doubt_since = draft.doubt_since.or(Some(When::NOW));
    next.in_doubt(&mut draft, fence);
    Transition::replace(draft)
}

/// The caller got the answer that the record stands for, or did not get it after all. A lapsed claim that may have sent something
/// becomes the doubt that its caller was told of.
fn delivered(seen: &Seen, arrived: bool) -> Transition {
    let record = &seen.record;
    let state = match (&record.state, seen.standing()) {
        // The first delivery counts. That an answer did not arrive is always written: a write that says the opposite may be under
        // way and not in the record yet.
        _ if arrived && record.delivered_at.is_some() => return Transition::answer(CommandResult::Accepted),
        (State::Done { .. } | State::InDoubt { .. }, _) => None,
        (State::Leased(lease), Some(Standing::InDoubt { .. }))
            if !seen.has_living_owner() && record.payload.is_none() =>
        {
            Some(State::InDoubt { fence: lease.fence, retry_at: None })
        }
        _ => return Transition::answer(CommandResult::Stale { contradicts: false }),
    };
    let mut draft = record.next();
    if let (Some(state), Some(Standing::InDoubt { since })) = (state, seen.standing()) {
        draft.state = state;
        draft.doubt_since = Some(When::At(since));
    }
    draft.made_by = record.made_by;
    draft.delivered_at = arrived.then_some(When::NOW);
    Transition::replace(draft)
}

/// The probe has settled the doubt. The work may go on under the same claim.
fn not_found(record: &Record, phase: Phase) -> Transition {
    let mut draft = record.next();
    draft.doubt_since = None;
    draft.first_sent_at = (phase != Phase::Claimed).then_some(When::NOW);
    Transition::replace(draft)
}

/// Whether the report of a superseded owner cannot be true together with the record: it reports an effect that did not happen
/// according to the record, or another outcome than the record keeps.
fn contradicts(seen: &Seen, command: &Command) -> bool {
    let Command::Finish { outcome, .. } = command else { return false };
    let happened = outcome.verdict == Verdict::Success;
    match (&seen.record.state, seen.standing()) {
        (State::Done { outcome: kept, .. }, _) => kept.digest() != outcome.digest(),
        (State::Tombstone { outcome: kept, .. }, _) => *kept != outcome.digest(),
        (_, Some(Standing::Open { .. } | Standing::Queued { .. } | Standing::Dead)) => happened,
        (_, Some(Standing::Running { .. })) => happened && seen.record.doubt_since.is_none(),
        _ => false,
    }
}
