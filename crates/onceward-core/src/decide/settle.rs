//! Decisions of people, and expiry.

use super::owner::done;
use super::{CommandResult, Refusal, Resolution, Transition, Write};
use crate::fingerprint::Fingerprint;
use crate::record::{Fence, Lease, Phase, Record, Seen, Standing, State};
use crate::time::When;

pub(super) fn resolve(current: Option<&Seen>, version: u64, resolution: &Resolution, fence: Fence) -> Transition {
    let Some((seen, standing)) = current.and_then(|seen| Some((seen, seen.standing()?))) else {
        return Transition::refused(Refusal::Absent);
    };
    if seen.record.version != version {
        return Transition::refused(Refusal::Changed);
    }
    match (standing, resolution) {
        (Standing::Running { .. }, Resolution::Force) => force(&seen.record),
        (Standing::Running { .. }, _) => Transition::refused(Refusal::Running),
        (Standing::Done | Standing::Tombstone, _) => Transition::refused(Refusal::NothingToDo(standing.status())),
        (_, Resolution::Happened(outcome)) => Transition::replace(done(&seen.record, fence, outcome)),
        (Standing::InDoubt { .. }, Resolution::DidNotHappen) => did_not_happen(seen),
        (Standing::InDoubt { .. } | Standing::Open { .. } | Standing::Dead, Resolution::Reset) => reset(&seen.record),
        (_, Resolution::DidNotHappen | Resolution::Reset | Resolution::Force) => {
            Transition::refused(Refusal::NothingToDo(standing.status()))
        }
    }
}

/// The owner keeps its lease and its fence: a late answer still settles the doubt, and no other caller takes over until the
/// lease has lapsed.
fn force(record: &Record) -> Transition {
    let State::Leased(lease) = record.state else { return Transition::refused(Refusal::Changed) };
    let mut draft = record.next();
    let until = When::At(lease.until);
    draft.state = State::Leased(Lease { phase: Phase::Overdue, fence: lease.fence, until, owner: lease.owner });
    draft.doubt_since = draft.doubt_since.or(Some(When::NOW));
    Transition::replace(draft)
}

/// The downstream has seen nothing of it, so the clock of its memory starts anew as well.
///
/// An owner that is past its deadline may still be at work. It is superseded, and the next caller waits until its lease would
/// have ended: by then the owner has noticed and has stopped.
fn did_not_happen(seen: &Seen) -> Transition {
    let record = &seen.record;
    let not_before = match &record.state {
        State::Leased(lease) if seen.has_living_owner() => When::At(lease.until),
        _ => When::NOW,
    };
    let mut draft = record.next();
    draft.doubt_since = None;
    draft.first_sent_at = None;
    draft.state = match record.payload {
        Some(_) => State::Queued { due: not_before },
        None => State::Open { not_before },
    };
    if let Some(entry) = &mut draft.entry {
        // The courier tries it again, with all attempts, and with any of its sinks.
        draft.attempts = 0;
        entry.destination = None;
    }
    Transition::replace(draft)
}

/// Known not to have happened, so another request may have the key: a first request with a mistake does not use it up. The
/// downstream may have seen the mistake under our key, so the next request gets a fresh one.
fn reset(record: &Record) -> Transition {
    let mut draft = record.next();
    draft.state = State::Open { not_before: When::NOW };
    draft.fingerprint = Fingerprint::free();
    draft.key_digest = None;
    draft.generation = draft.generation.saturating_add(1);
    (draft.payload, draft.entry) = (None, None);
    draft.doubt_since = None;
    draft.first_sent_at = None;
    Transition::replace(draft)
}

/// Only settled intents expire: finished work, and work that is known not to have happened, which includes a lapsed claim that
/// sent nothing. Running, doubted and dead intents stay until they are settled.
pub(super) fn expire(current: Option<&Seen>) -> Transition {
    let Some(seen) = current else { return Transition::refused(Refusal::Absent) };
    let write = match (&seen.record.state, seen.standing()) {
        (State::Done { .. } | State::Tombstone { .. } | State::Open { .. } | State::Leased(_), None) => Write::Remove,
        (State::Done { outcome, forget_at: Some(forget_at), .. }, Some(Standing::Tombstone)) => {
            let mut draft = seen.record.next();
            draft.state = State::Tombstone { outcome: outcome.digest(), forget_at: When::At(*forget_at) };
            // A tombstone holds no name: the digest of the identity is enough to recognise a late retry.
            draft.identity = None;
            (draft.payload, draft.entry) = (None, None);
            // The next call of an intent whose outcome was delivered is not held back by it.
            let ends = seen.record.terms.after_delivery.is_some();
            draft.delivered_at = seen.record.delivered_at.filter(|_| ends).map(When::At);
            Write::Replace(draft)
        }
        (_, Some(standing)) => return Transition::refused(Refusal::NothingToDo(standing.status())),
        (_, None) => return Transition::refused(Refusal::Absent),
    };
    Transition::write(write, CommandResult::Accepted)
}
