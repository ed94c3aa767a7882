//! Which caller may do the work, and what a repeat gets.

use std::borrow::Cow;
use std::time::Duration;

use super::{Acquired, Again, Begin, CommandResult, Decision, Take, Transition, Write, repeat};
use crate::claim::Claims;
use crate::fingerprint::Fingerprint;
use crate::hash::Digest;
use crate::name::Identity;
use crate::outcome::Body;
use crate::policy::{Effect, InDoubt, LEASE_FACTOR, Terms};
use crate::record::{Draft, Lease, Phase, Record, Seen, Standing, State};
use crate::time::{MAX_SET_BACK, Timestamp, When};

/// How soon to ask again about running work: short, because most effects take well under a second.
const RETRY_AFTER: Duration = Duration::from_secs(1);

pub(super) fn begin(current: Option<&Seen>, call: &Begin) -> Transition {
    let (seen, standing) = match current.map(|seen| (seen, seen.standing())) {
        None => return create(call, None, 1, Write::Insert),
        Some((seen, None)) => return create(call, None, seen.record.version + 1, Write::Replace),
        Some((seen, Some(standing))) if is_another_call(seen, standing, call) => return create_next(seen, call),
        Some((seen, Some(standing))) => (seen, standing),
    };
    if let Some(misuse) = misuse(&seen.record, None, call.fingerprint, call.key_digest) {
        return Transition::decision(misuse);
    }
    proceed(seen, standing, call)
}

/// Whether this call is not a repeat of the finished work but the next call of the same kind. The items of a stream have numbers
/// for that. A claim id names one claim, so a late repeat of its begin is never another call.
fn is_another_call(seen: &Seen, standing: Standing, call: &Begin) -> bool {
    let record = &seen.record;
    let is_over = matches!(standing, Standing::Done | Standing::Tombstone);
    let is_repeat = call.take.claim.is_some_and(|id| record.claims.include(id));
    if !is_over || record.sequence.is_some() || is_repeat {
        return false;
    }
    match call.again {
        Again::Always => true,
        Again::Never => false,
        Again::IfDeliveredBefore(end) if record.delivered_at.is_some_and(|at| at <= end) => true,
        Again::IfDelivered | Again::IfDeliveredBefore(_) => {
            let after = record.terms.tightened_by(&call.terms).after_delivery;
            // A delivery in the future was written by a clock that ran ahead: no time has passed since.
            let passed = record.delivered_at.map(|at| at.until(seen.now));
            passed.zip(after).is_some_and(|(passed, after)| passed >= after)
        }
    }
}

/// The next call of an intent whose last call is over. It has a downstream key of its own.
fn create_next(seen: &Seen, call: &Begin) -> Transition {
    let mut transition = create(call, None, seen.record.version + 1, Write::Replace);
    let generation = seen.record.generation.saturating_add(1);
    if let Write::Replace(draft) = &mut transition.write {
        draft.generation = generation;
        draft.claims.clone_from(&seen.record.claims);
        draft.claims.add(call.take.claim);
    }
    if let CommandResult::Decision(Decision::Acquired(acquired)) = &mut transition.answer {
        acquired.generation = generation;
    }
    transition
}

/// Grants the claim, if the record's standing permits it, to a caller whose request belongs to the record.
pub(super) fn proceed(seen: &Seen, standing: Standing, call: &Begin) -> Transition {
    if let Some(repeat) = repeat::begin(seen, call) {
        return repeat;
    }
    let terms = seen.record.terms.tightened_by(&call.terms);
    match standing {
        Standing::Open { not_before } if not_before <= seen.now && seen.record.payload.is_none() => {
            let record = owned_by(&seen.record, call.fingerprint, call.key_digest, call.terms);
            let terms = if record.fingerprint == seen.record.fingerprint { terms } else { record.terms };
            acquire(&record, terms, &call.take, call.terms.effect)
        }
        // This call came before the attempt was answered, so its caller has not been told of the doubt yet.
        Standing::InDoubt { .. } if terms.in_doubt == InDoubt::Tell && call.again == Again::Never => {
            Transition::decision(tell(seen, standing))
        }
        // The courier tries its entries again, and no other caller.
        Standing::InDoubt { since } if seen.record.payload.is_none() && may_take_over(seen, &terms, &call.take) => {
            take_over(seen, &terms, &call.take, call.terms.effect, since)
        }
        _ => Transition::decision(tell(seen, standing)),
    }
}

/// Finds a request that does not belong to the record. Checked before anything else is answered.
pub(super) fn misuse(
    record: &Record,
    sequence: Option<u64>,
    fingerprint: Fingerprint,
    key_digest: Option<Digest>,
) -> Option<Decision> {
    if record.sequence != sequence {
        return Some(Decision::MixedUse);
    }
    let collides = matches!((record.key_digest, key_digest), (Some(kept), Some(new)) if kept != new);
    if collides {
        return Some(Decision::Collision);
    }
    let agrees = record.fingerprint == fingerprint || record.fingerprint == Fingerprint::free();
    (!agrees).then_some(Decision::Mismatch)
}

/// A record that was reset takes over the next request; any other record stays as it is.
pub(super) fn owned_by<'a>(
    record: &'a Record,
    fingerprint: Fingerprint,
    key_digest: Option<Digest>,
    terms: Terms,
) -> Cow<'a, Record> {
    if record.fingerprint != Fingerprint::free() {
        return Cow::Borrowed(record);
    }
    Cow::Owned(Record { fingerprint, key_digest, terms, ..record.clone() })
}

/// The answer to a caller that cannot have the claim.
pub(super) fn tell(seen: &Seen, standing: Standing) -> Decision {
    let attempt = seen.record.attempts;
    match standing {
        Standing::Queued { .. } => Decision::Queued { created: false },
        Standing::Open { .. } if seen.record.payload.is_some() => Decision::Queued { created: false },
        Standing::Dead => Decision::Dead,
        Standing::InDoubt { since } => Decision::InDoubt { since },
        Standing::Open { not_before } => {
            Decision::InFlight { retry_after: seen.now.until(not_before), running: false, attempt }
        }
        Standing::Running { until } => {
            Decision::InFlight { retry_after: seen.now.until(until).min(RETRY_AFTER), running: true, attempt }
        }
        Standing::Done | Standing::Tombstone => replay(seen),
    }
}

fn replay(seen: &Seen) -> Decision {
    match &seen.record.state {
        State::Done { outcome, finished_at, expires_at, .. } => {
            let kept = matches!(outcome.body, Body::Kept(_)) && seen.standing() == Some(Standing::Done);
            if kept {
                return Decision::Replay {
                    outcome: outcome.clone(),
                    finished_at: *finished_at,
                    expires_at: *expires_at,
                };
            }
            Decision::OutcomeNotKept { outcome: Some(outcome.digest()), status: Some(outcome.status) }
        }
        State::Tombstone { outcome, .. } => Decision::OutcomeNotKept { outcome: Some(*outcome), status: None },
        // No other state stands as done or tombstone. If that ever changes, the safe answer is not to do the work.
        _ => Decision::InDoubt { since: seen.record.updated_at },
    }
}

/// Whether the terms let this caller do the work although an attempt may have happened.
pub(super) fn may_take_over(seen: &Seen, terms: &Terms, take: &Take) -> bool {
    match terms.in_doubt {
        // An overdue attempt is in doubt, and may still be running.
        _ if seen.has_living_owner() => false,
        InDoubt::Hold => false,
        InDoubt::Probe => take.probes,
        // The caller was told of the doubt and asks again: it knows that the work may run a second time.
        InDoubt::Tell => seen.record.delivered_at.is_some(),
        InDoubt::Retry => downstream_knows_key(seen, terms, take.lease / LEASE_FACTOR),
    }
}

/// The downstream remembers our key from the first time that it may have seen it, and not forever. What counts is the time by
/// which this attempt should be over, so that it cannot arrive just after the key was forgotten. A first attempt in the future
/// was written by a clock that ran ahead: its age is unknown.
fn downstream_knows_key(seen: &Seen, terms: &Terms, runtime: Duration) -> bool {
    let Some(first) = seen.record.first_sent_at else { return false };
    first <= seen.now.after(MAX_SET_BACK) && seen.now.after(runtime) < first.after(terms.honours_key_for)
}

pub(super) fn create(call: &Begin, sequence: Option<u64>, version: u64, write: fn(Draft) -> Write) -> Transition {
    let mut draft = fresh(&call.identity, call.key_digest, call.fingerprint, call.terms, version);
    draft.sequence = sequence;
    let acquired = claim(&mut draft, &call.take, call.terms.effect);
    Transition::write(write(draft), CommandResult::Decision(Decision::Acquired(acquired)))
}

/// A record before its first attempt.
pub(super) fn fresh(
    identity: &Identity,
    key_digest: Option<Digest>,
    fingerprint: Fingerprint,
    terms: Terms,
    version: u64,
) -> Draft {
    Draft {
        id: identity.digest(),
        identity: Some(identity.clone()),
        key_digest,
        fingerprint,
        version,
        state: State::Open { not_before: When::NOW },
        terms,
        attempts: 0,
        generation: 0,
        payload: None,
        entry: None,
        created_at: When::NOW,
        updated_at: When::NOW,
        first_sent_at: None,
        doubt_since: None,
        delivered_at: None,
        last_error: None,
        sequence: None,
        claims: Claims::default(),
        made_by: None,
    }
}

/// Takes a record without doubt. From now on its terms are at least as strict as this caller's, because they govern this
/// caller's attempt.
pub(super) fn acquire(record: &Record, terms: Terms, take: &Take, effect: Effect) -> Transition {
    let mut draft = record.next();
    draft.terms = terms;
    let acquired = claim(&mut draft, take, effect);
    Transition::write(Write::Replace(draft), CommandResult::Decision(Decision::Acquired(acquired)))
}

/// Takes over a record in doubt. The doubt stays: nothing has settled it.
pub(super) fn take_over(seen: &Seen, terms: &Terms, take: &Take, effect: Effect, since: Timestamp) -> Transition {
    let mut draft = seen.record.next();
    draft.terms = *terms;
    draft.doubt_since = Some(When::At(since));
    let mut acquired = claim(&mut draft, take, effect);
    acquired.probe_first = terms.in_doubt == InDoubt::Probe;
    Transition::write(Write::Replace(draft), CommandResult::Decision(Decision::Acquired(acquired)))
}

/// The phase in which a caller begins. It may begin before `sent` only if it promises to write `sent`, or if both it and the
/// record say that the effect commits together with the record.
pub(super) fn phase_of(take: &Take, said: Effect, recorded: Effect) -> Phase {
    let transactional = said == Effect::Transactional && recorded == Effect::Transactional;
    if take.marks_sent || transactional { Phase::Claimed } else { Phase::Sent }
}

/// Puts the claim into the draft.
fn claim(draft: &mut Draft, take: &Take, effect: Effect) -> Acquired {
    let phase = phase_of(take, effect, draft.terms.effect);
    if phase == Phase::Sent && draft.first_sent_at.is_none() {
        draft.first_sent_at = Some(When::NOW);
    }
    draft.attempts = draft.attempts.saturating_add(1);
    draft.claims.add(take.claim);
    draft.state = State::Leased(Lease { phase, fence: take.fence, until: When::In(take.lease), owner: take.owner });
    Acquired {
        fence: take.fence,
        phase,
        attempt: draft.attempts,
        generation: draft.generation,
        probe_first: false,
        in_doubt: draft.terms.in_doubt,
    }
}
