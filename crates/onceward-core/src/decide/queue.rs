//! The outbox: the same record in state `queued`, taken by the courier instead of a caller.

use std::time::Duration;

use super::begin::{acquire, fresh, may_take_over, misuse, owned_by, take_over, tell};
use super::owner::{doubt, release};
use super::{CommandResult, Decision, Enqueue, LeaseEntry, Note, Refusal, Transition, Undelivered, Write};
use crate::fingerprint::Fingerprint;
use crate::outbox::AfterAttempt;
use crate::policy::{Effect, InDoubt, Terms};
use crate::record::{Draft, Fence, Lease, Phase, Record, Seen, Standing, State};
use crate::time::{Timestamp, When};

/// Nothing is ever claimed under a note, so that its terms do not matter.
const TERMS_OF_NOTE: Terms = Terms {
    effect: Effect::External,
    in_doubt: InDoubt::Hold,
    retention: None,
    tombstone: Duration::ZERO,
    honours_key_for: Duration::ZERO,
    max_attempts: None,
    after_delivery: None,
};

const TOO_LATE: &str = "it was not delivered within the time that was set for it";
const USED_UP: &str = "all attempts are used up";

pub(super) fn enqueue(current: Option<&Seen>, call: &Enqueue) -> Transition {
    let (seen, standing) = match current.map(|seen| (seen, seen.standing())) {
        None => return queue(create(call, 1), call, Write::Insert),
        Some((seen, None)) => return queue(create(call, seen.record.version + 1), call, Write::Replace),
        Some((seen, Some(standing))) => (seen, standing),
    };
    if let Some(misuse) = misuse(&seen.record, None, call.fingerprint, call.key_digest) {
        return Transition::decision(misuse);
    }
    match standing {
        Standing::Open { .. } if seen.record.payload.is_none() => {
            let record = owned_by(&seen.record, call.fingerprint, call.key_digest, call.terms);
            let mut draft = record.next();
            // A direct call has no number of attempts.
            draft.terms = Terms { max_attempts: call.terms.max_attempts, ..record.terms.tightened_by(&call.terms) };
            let mut call = call.clone();
            // The time for its delivery begins now, and is counted from when a direct call recorded the intent.
            let age = record.created_at.until(seen.now);
            call.entry.deliver_within = call.entry.deliver_within.map(|within| within.saturating_add(age));
            queue(draft, &call, Write::Replace)
        }
        _ => Transition::decision(tell(seen, standing)),
    }
}

fn create(call: &Enqueue, version: u64) -> Draft {
    fresh(&call.identity, call.key_digest, call.fingerprint, call.terms, version)
}

fn queue(mut draft: Draft, call: &Enqueue, write: fn(Draft) -> Write) -> Transition {
    draft.payload = Some(call.payload.clone());
    draft.entry = Some(Box::new(call.entry.clone()));
    draft.attempts = 0;
    draft.state = State::Queued { due: When::In(call.delay) };
    Transition::write(write(draft), CommandResult::Decision(Decision::Queued { created: true }))
}

/// The courier may take an entry that is due, and one that an earlier courier left behind if the record's terms permit it. An
/// entry that is due and that it may not take is set aside in the same step, so that no courier meets it again and again.
pub(super) fn lease(current: Option<&Seen>, call: &LeaseEntry) -> Transition {
    let Some((seen, standing)) = current.and_then(|seen| Some((seen, seen.standing()?))) else {
        return Transition::refused(Refusal::Absent);
    };
    let record = &seen.record;
    let nothing_to_do = Transition::refused(Refusal::NothingToDo(standing.status()));
    if record.payload.is_none() {
        return nothing_to_do;
    }
    let reason = if is_late(record, seen.now) {
        Some(TOO_LATE)
    } else {
        is_used_up(record.attempts, &record.terms).then_some(USED_UP)
    };
    let (terms, effect) = (record.terms, record.terms.effect);
    let transition = match (standing, reason) {
        (Standing::Queued { due: at } | Standing::Open { not_before: at }, _) if at > seen.now => nothing_to_do,
        (Standing::Queued { .. } | Standing::Open { .. }, Some(reason)) => dead(record, reason),
        (Standing::Queued { .. } | Standing::Open { .. }, None) => acquire(record, terms, &call.take, effect),
        (Standing::InDoubt { .. }, _) if !is_due_in_doubt(seen) => nothing_to_do,
        (Standing::InDoubt { since }, None) if may_take_over(seen, &terms, &call.take) => {
            take_over(seen, &terms, &call.take, effect, since)
        }
        (Standing::InDoubt { since }, _) => held(record, since),
        _ => nothing_to_do,
    };
    with_destination(transition, call)
}

fn is_due_in_doubt(seen: &Seen) -> bool {
    match seen.record.state {
        State::InDoubt { retry_at, .. } => retry_at.is_some_and(|at| at <= seen.now),
        _ => !seen.has_living_owner(),
    }
}

/// The place and key of the attempt are recorded with it. Where an earlier attempt may have happened, they stay what they were.
fn with_destination(mut transition: Transition, call: &LeaseEntry) -> Transition {
    if let Write::Replace(draft) = &mut transition.write
        && matches!(draft.state, State::Leased(_))
    {
        let entry = draft.entry.get_or_insert_default();
        if draft.doubt_since.is_none() || entry.destination.is_none() {
            entry.destination = Some(call.destination.clone());
        }
    }
    transition
}

fn dead(record: &Record, reason: &str) -> Transition {
    let mut draft = record.next();
    draft.state = State::Dead;
    draft.last_error = Some(because(record, reason));
    Transition::write(Write::Replace(draft), CommandResult::Decision(Decision::Dead))
}

/// It waits for a person from now on.
fn held(record: &Record, since: Timestamp) -> Transition {
    let Some(fence) = record.fence() else { return Transition::refused(Refusal::Changed) };
    let mut draft = record.next();
    draft.state = State::InDoubt { fence, retry_at: None };
    draft.doubt_since = Some(When::At(since));
    Transition::write(Write::Replace(draft), CommandResult::Decision(Decision::InDoubt { since }))
}

/// The reason, and the error of the last attempt.
fn because(record: &Record, reason: &str) -> String {
    match &record.last_error {
        Some(error) => format!("{reason}; the last attempt: {error}"),
        None => reason.to_owned(),
    }
}

fn is_used_up(attempts: u32, terms: &Terms) -> bool {
    terms.max_attempts.is_some_and(|max| attempts >= max)
}

/// Whether the entry may no longer be tried at this time.
fn is_late(record: &Record, at: Timestamp) -> bool {
    let within = record.entry.as_ref().and_then(|entry| entry.deliver_within);
    within.is_some_and(|within| at >= record.created_at.after(within))
}

/// When the courier tries an entry again whose attempt did not deliver it; `None` if it does not.
pub(super) struct NextTry {
    retry_in: Option<Duration>,
    /// How many attempts count.
    attempts: u32,
}

impl NextTry {
    pub(super) fn of(seen: &Seen, retry_in: Duration, after: AfterAttempt) -> Self {
        let record = &seen.record;
        let attempts = match after {
            AfterAttempt::RetryUncounted if record.payload.is_some() => record.attempts.saturating_sub(1),
            _ => record.attempts,
        };
        let ends = after == AfterAttempt::GiveUp
            || is_used_up(attempts, &record.terms)
            || is_late(record, seen.now.after(retry_in));
        Self { retry_in: (!ends).then_some(retry_in), attempts }
    }

    /// The state of work that is known not to have happened.
    pub(super) fn after_release(&self, draft: &mut Draft) {
        draft.attempts = self.attempts;
        draft.state = match (draft.payload.is_some(), self.retry_in) {
            (true, Some(retry_in)) => State::Queued { due: When::In(retry_in) },
            (true, None) => State::Dead,
            (false, retry_in) => State::Open { not_before: When::In(retry_in.unwrap_or_default()) },
        };
        // No attempt has reached the downstream, so it does not know the key.
        if self.attempts == 0 && draft.payload.is_some() {
            draft.first_sent_at = None;
        }
    }

    /// The state of work that may have happened.
    pub(super) fn in_doubt(&self, draft: &mut Draft, fence: Fence) {
        draft.attempts = self.attempts;
        let is_tried_again = draft.payload.is_some() && matches!(draft.terms.in_doubt, InDoubt::Retry | InDoubt::Probe);
        let retry_at = self.retry_in.filter(|_| is_tried_again).map(When::In);
        draft.state = State::InDoubt { fence, retry_at };
    }
}

/// An attempt of the courier has ended without delivering. Only a claim that has sent something can leave a doubt.
pub(super) fn undelivered(seen: &Seen, lease: &Lease, end: &Undelivered) -> Transition {
    let next = NextTry::of(seen, end.retry_in, end.after);
    match end.may_have_happened && lease.phase != Phase::Claimed {
        true => doubt(&seen.record, lease.fence, &end.error, &next),
        false => release(&seen.record, &end.error, &next),
    }
}

/// A dead entry is known not to have happened, so even a fresh downstream key is safe. For an entry in doubt it is not. The time
/// in which it was to be delivered may be over; the person who has it tried again knows that.
pub(super) fn requeue(current: Option<&Seen>, version: u64, fresh_key: bool) -> Transition {
    let seen = match seen_by_person(current, version) {
        Ok((seen, Standing::Dead)) => seen,
        Ok((_, standing)) => return Transition::refused(Refusal::NothingToDo(standing.status())),
        Err(refusal) => return Transition::refused(refusal),
    };
    let mut draft = seen.record.next();
    draft.attempts = 0;
    draft.state = State::Queued { due: When::NOW };
    if let Some(entry) = &mut draft.entry {
        (entry.deliver_within, entry.destination) = (None, None);
    }
    if fresh_key {
        draft.generation = draft.generation.saturating_add(1);
        draft.first_sent_at = None;
    }
    Transition::replace(draft)
}

/// Only what waits and is known not to have happened can be cancelled.
pub(super) fn cancel(current: Option<&Seen>, version: u64) -> Transition {
    let (seen, standing) = match seen_by_person(current, version) {
        Ok(found) => found,
        Err(refusal) => return Transition::refused(refusal),
    };
    match standing {
        Standing::Queued { .. } | Standing::Open { .. } if seen.record.payload.is_some() => {
            let mut draft = seen.record.next();
            draft.state = State::Dead;
            draft.last_error = Some(because(&seen.record, "an operator cancelled it"));
            Transition::replace(draft)
        }
        Standing::Running { .. } => Transition::refused(Refusal::Running),
        _ => Transition::refused(Refusal::NothingToDo(standing.status())),
    }
}

/// A note has no owner and no end. Its payload keeps it from being taken by a direct call, and no courier looks for entries of
/// its operation.
pub(super) fn note(current: Option<&Seen>, note: &Note) -> Transition {
    let (mut draft, write): (Draft, fn(Draft) -> Write) = match (current, note.version) {
        (None, None) => (fresh(&note.identity, None, Fingerprint::none(), TERMS_OF_NOTE, 1), Write::Insert),
        (Some(seen), Some(version)) if seen.record.version == version => (seen.record.next(), Write::Replace),
        _ => return Transition::refused(Refusal::Changed),
    };
    draft.payload = Some(note.text.clone());
    Transition::write(write(draft), CommandResult::Accepted)
}

fn seen_by_person(current: Option<&Seen>, version: u64) -> Result<(&Seen, Standing), Refusal> {
    let found = current.and_then(|seen| Some((seen, seen.standing()?)));
    match found {
        None => Err(Refusal::Absent),
        Some((seen, _)) if seen.record.version != version => Err(Refusal::Changed),
        Some(found) => Ok(found),
    }
}
