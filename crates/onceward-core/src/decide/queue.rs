//! The outbox: the same record in state `queued`, taken by the courier instead of a caller.

use super::begin::{acquire, fresh, may_take_over, misuse, owned_by, take_over, tell};
use super::{CommandResult, Decision, Enqueue, Refusal, Take, Transition, Write};
use crate::record::{Draft, Seen, Standing, State};
use crate::time::When;

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
        Standing::Open { .. } => {
            let record = owned_by(&seen.record, call.fingerprint, call.key_digest, call.terms);
            queue(record.next(), call, Write::Replace)
        }
        _ => Transition::decision(tell(seen, standing)),
    }
}

fn create(call: &Enqueue, version: u64) -> Draft {
    fresh(&call.identity, call.key_digest, call.fingerprint, call.terms, version)
}

fn queue(mut draft: Draft, call: &Enqueue, write: fn(Draft) -> Write) -> Transition {
    draft.payload = Some(call.payload.clone());
    draft.state = State::Queued { due: When::In(call.delay) };
    Transition::write(write(draft), CommandResult::Decision(Decision::Queued { created: true }))
}

/// The courier may take an intent that is due, and one that an earlier worker left behind if the record's policy permits it.
pub(super) fn lease(current: Option<&Seen>, take: &Take) -> Transition {
    let Some((seen, standing)) = current.and_then(|seen| Some((seen, seen.standing()?))) else {
        return Transition::refused(Refusal::Absent);
    };
    let terms = seen.record.terms;
    let delivers = seen.record.payload.is_some();
    match standing {
        Standing::Queued { due } if due <= seen.now => acquire(&seen.record, terms, take, terms.effect),
        Standing::Open { not_before } if delivers && not_before <= seen.now => {
            acquire(&seen.record, terms, take, terms.effect)
        }
        Standing::InDoubt { since } if delivers && may_take_over(seen, &terms, take) => {
            take_over(seen, &terms, take, terms.effect, since)
        }
        _ => Transition::refused(Refusal::NothingToDo(standing.status())),
    }
}

/// A dead intent is known not to have happened, so even a fresh downstream key is safe. For an intent in doubt it is not.
pub(super) fn requeue(current: Option<&Seen>, version: u64, fresh_key: bool) -> Transition {
    let Some((seen, standing)) = current.and_then(|seen| Some((seen, seen.standing()?))) else {
        return Transition::refused(Refusal::Absent);
    };
    if seen.record.version != version {
        return Transition::refused(Refusal::Changed);
    }
    if standing != Standing::Dead {
        return Transition::refused(Refusal::NothingToDo(standing.status()));
    }
    let mut draft = seen.record.next();
    draft.attempts = 0;
    draft.state = State::Queued { due: When::NOW };
    if fresh_key {
        draft.generation = draft.generation.saturating_add(1);
        draft.first_sent_at = None;
    }
    Transition::replace(draft)
}
