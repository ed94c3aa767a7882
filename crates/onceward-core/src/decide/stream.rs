//! Numbered items: each is done before the next may begin, and an old number gets its stored outcome.
//!
//! The head is the lock. It goes from one item to the next by one conditional write, after the finished item was archived in a
//! record of its own. Both writes follow from the head alone, so a crash between them leaves both records sound.

use super::begin::{create, misuse, proceed, tell};
use super::{BeginItem, CommandResult, Decision, Transition, Write};
use crate::hash::Digest;
use crate::record::{Draft, Record, Seen, State};
use crate::time::When;

/// Begins an item, by the head of its stream.
pub(super) fn begin(current: Option<&Seen>, call: &BeginItem) -> Transition {
    let BeginItem { item, begin } = call;
    let out_of_order =
        |expected, status| Transition::decision(Decision::OutOfOrder { expected, given: item.number, status });
    let (seen, standing) = match current.map(|seen| (seen, seen.standing())) {
        None | Some((_, None)) if item.number != item.start => return out_of_order(item.start, None),
        None => return create(begin, Some(item.number), 1, Write::Insert),
        Some((seen, None)) => return create(begin, Some(item.number), seen.record.version + 1, Write::Replace),
        Some((seen, Some(standing))) => (seen, standing),
    };
    let record = &seen.record;
    let Some(newest) = record.sequence else { return Transition::decision(Decision::MixedUse) };
    if item.number == newest {
        return match misuse(record, record.sequence, begin.fingerprint, begin.key_digest) {
            Some(misuse) => Transition::decision(misuse),
            None => proceed(seen, standing, begin),
        };
    }
    if item.number < newest && item.number >= item.start {
        return Transition::answer(CommandResult::Archived);
    }
    let next = newest.saturating_add(1);
    match done(call, record) {
        Some(archive) if item.number == next => {
            let claimed = create(begin, Some(next), record.version + 1, Write::Replace);
            Transition { archive: Some(Box::new(archive)), ..claimed }
        }
        Some(_) => out_of_order(next, None),
        None => out_of_order(newest, Some(standing.status())),
    }
}

/// The archive of the head's item, if it is done. A final failure is an outcome too. Its two clocks count from when it was done,
/// so that every caller writes the same archive, at any time.
fn done(call: &BeginItem, head: &Record) -> Option<Draft> {
    let (State::Done { outcome, fence, finished_at, .. }, Some(number)) = (&head.state, head.sequence) else {
        return None;
    };
    let identity = call.item.stream.item(number);
    let expires_at = head.terms.retention.map(|kept| finished_at.after(kept));
    let mut draft = head.clone().map(When::At);
    draft.id = identity.digest();
    draft.identity = Some(identity);
    draft.version = 1;
    draft.state = State::Done {
        outcome: outcome.clone(),
        fence: *fence,
        finished_at: When::At(*finished_at),
        expires_at: expires_at.map(When::At),
        forget_at: expires_at.map(|expires| When::At(expires.after(head.terms.tombstone))),
    };
    Some(draft)
}

/// Puts a finished item into its own record. It may be there already: then another caller has archived it.
pub(super) fn archive(current: Option<&Seen>, draft: &Draft) -> Transition {
    let write = match current {
        None => Write::Insert(draft.clone()),
        Some(seen) if is_archive(&seen.record, draft) => Write::None,
        Some(seen) if seen.standing().is_none() => {
            Write::Replace(Draft { version: seen.record.version + 1, ..draft.clone() })
        }
        // If the head went on now, the outcome would be lost.
        Some(_) => return Transition::decision(Decision::MixedUse),
    };
    Transition::write(write, CommandResult::Accepted)
}

fn is_archive(record: &Record, draft: &Draft) -> bool {
    record.sequence == draft.sequence && outcome_of(record) == outcome_of(draft)
}

fn outcome_of<T>(record: &Record<T>) -> Option<Digest> {
    match &record.state {
        State::Done { outcome, .. } => Some(outcome.digest()),
        State::Tombstone { outcome, .. } => Some(*outcome),
        _ => None,
    }
}

/// Answers from an item's own record. The stream is past the item, so it is done, even if its outcome is not kept.
pub(super) fn recall(current: Option<&Seen>, call: &BeginItem) -> Transition {
    let Some((seen, standing)) = current.and_then(|seen| Some((seen, seen.standing()?))) else {
        return Transition::decision(Decision::OutcomeNotKept { outcome: None, status: None });
    };
    let BeginItem { item, begin } = call;
    let misuse = misuse(&seen.record, Some(item.number), begin.fingerprint, begin.key_digest);
    Transition::decision(misuse.unwrap_or_else(|| tell(seen, standing)))
}
