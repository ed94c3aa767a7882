//! What a person decides, and what time does.

use super::own::done;
use super::{Answer, Refusal, Resolution, Transition, Write};
use crate::fingerprint::Fingerprint;
use crate::plant::{Plant, planted};
use crate::record::{Fence, Lease, Phase, Record, Seen, Standing, State};
use crate::time::When;

pub(super) fn resolve(current: Option<&Seen>, version: u64, resolution: &Resolution, fence: Fence) -> Transition {
    let Some((seen, standing)) = current.and_then(|seen| Some((seen, seen.standing()?))) else {
        return Transition::refused(Refusal::Absent);
    };
    if seen.record.version != version && !planted(Plant::ResolveOfAnotherVersion) {
        return Transition::refused(Refusal::Changed);
    }
    match (standing, resolution) {
        (Standing::Running { .. }, Resolution::Force) => force(&seen.record),
        (Standing::Running { .. }, _) if !planted(Plant::ResolveBesideRunning) => Transition::refused(Refusal::Running),
        (Standing::Done | Standing::Tombstone, _) => Transition::refused(Refusal::NothingToDo(standing.status())),
        (_, Resolution::Happened(outcome)) => Transition::replace(done(&seen.record, fence, outcome)),
        (Standing::InDoubt { .. }, Resolution::DidNotHappen) => did_not_happen(seen),
        (Standing::InDoubt { .. } | Standing::Open { .. } | Standing::Dead, Resolution::Reset) => reset(&seen.record),
        (_, Resolution::DidNotHappen | Resolution::Reset | Resolution::Force) => {
            Transition::refused(Refusal::NothingToDo(standing.status()))
        }
    }
}

/// The owner keeps its lease and its fence: a late answer still settles it, and until the lease has lapsed no other caller
/// takes over.
fn force(record: &Record) -> Transition {
    let State::Leased(lease) = record.state else { return Transition::refused(Refusal::Changed) };
    let mut draft = record.next();
    let until = When::At(lease.until);
    draft.state = State::Leased(Lease { phase: Phase::Overdue, fence: lease.fence, until, owner: lease.owner });
    draft.doubt_since = draft.doubt_since.or(Some(When::NOW));
    Transition::replace(draft)
}

/// Nothing of it is with the other side, so the clock of its memory starts anew as well.
///
/// An owner that is past its deadline may still be at work. It is superseded, and the next caller waits until its lease would
/// have ended: by then it has learnt so and has stopped.
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
    Transition::replace(draft)
}

/// Known not to have happened, so another request may have the key: a first one with a slip in it does not use it up.
/// The other side may have seen the slip under our key, so the next request goes under a fresh one.
fn reset(record: &Record) -> Transition {
    let mut draft = record.next();
    draft.state = State::Open { not_before: When::NOW };
    draft.fingerprint = Fingerprint::free();
    draft.key_digest = None;
    if !planted(Plant::ResetKeepsGeneration) {
        draft.generation = draft.generation.saturating_add(1);
    }
    draft.payload = None;
    draft.doubt_since = None;
    draft.first_sent_at = None;
    Transition::replace(draft)
}

/// Only what is settled expires: finished work, and what is known not to have happened, which includes a lapsed claim that
/// sent nothing. What is running, in doubt or dead
/// stays until somebody settles it.
pub(super) fn expire(current: Option<&Seen>) -> Transition {
    let Some(seen) = current else { return Transition::refused(Refusal::Absent) };
    let write = match (&seen.record.state, seen.standing()) {
        (State::Done { .. } | State::Tombstone { .. }, None) => Write::Remove,
        (State::Open { .. } | State::Leased(_), None) if !planted(Plant::OpenNotSwept) => Write::Remove,
        (State::InDoubt { .. }, _) if planted(Plant::DoubtExpires) => Write::Remove,
        (State::Done { outcome, forget_at: Some(forget_at), .. }, Some(Standing::Tombstone)) => {
            let mut draft = seen.record.next();
            draft.state = State::Tombstone { outcome: outcome.digest(), forget_at: When::At(*forget_at) };
            // A tombstone holds no name: only the digest of the identity is needed to meet a late retry.
            draft.identity = None;
            // The next call of an intent whose outcome was delivered is not held back by it.
            let ends = seen.record.terms.after_delivery.is_some();
            draft.delivered_at = seen.record.delivered_at.filter(|_| ends).map(When::At);
            Write::Replace(draft)
        }
        (_, Some(standing)) => return Transition::refused(Refusal::NothingToDo(standing.status())),
        (_, None) => return Transition::refused(Refusal::Absent),
    };
    Transition::write(write, Answer::Accepted)
}
