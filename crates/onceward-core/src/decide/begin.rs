//! Who may do the work, and what a repeat is told.

use std::borrow::Cow;
use std::time::Duration;

use super::{Acquired, Again, Answer, Begin, Decision, Take, Transition, Write, repeat};
use crate::claim::Claims;
use crate::fingerprint::Fingerprint;
use crate::hash::Digest;
use crate::name::Identity;
use crate::outcome::Body;
use crate::plant::{Plant, planted};
use crate::policy::{Effect, InDoubt, LEASE_FACTOR, Terms};
use crate::record::{Draft, Lease, Phase, Record, Seen, Standing, State};
use crate::time::{Timestamp, When};

/// How soon to ask again about running work: short, because most effects take well under a second.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Clocks are set back by this much without much ado; a first attempt that lies further ahead was not made then.
const SET_BACK: Duration = Duration::from_secs(60);

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

/// Whether this caller's work is not the finished work of the record but the next of its kind. The items of a stream have
/// numbers for that. A claim id names one claim, so a late repeat of its begin is never another call.
fn is_another_call(seen: &Seen, standing: Standing, call: &Begin) -> bool {
    let record = &seen.record;
    let is_over = matches!(standing, Standing::Done | Standing::Tombstone);
    let is_repeat = call.take.claim.is_some_and(|id| record.claims.include(id)) && !planted(Plant::LateRepeatRuns);
    if !is_over || record.sequence.is_some() || is_repeat {
        return false;
    }
    match call.again {
        Again::Always => true,
        Again::Never => false,
        Again::IfDeliveredBefore(end) if record.delivered_at.is_some_and(|at| at <= end) => true,
        Again::IfDelivered | Again::IfDeliveredBefore(_) => {
            let after = record.terms.tightened_by(&call.terms).after_delivery;
            // A delivery that lies ahead was written by a clock that ran ahead: no time has passed since.
            let passed = record.delivered_at.map(|at| at.until(seen.now));
            let passed = if planted(Plant::DeliveryNotJudged) { Some(Duration::MAX) } else { passed };
            passed.zip(after).is_some_and(|(passed, after)| passed >= after)
        }
    }
}

/// The next call of an intent whose last one is over. It goes under a downstream key of its own.
fn create_next(seen: &Seen, call: &Begin) -> Transition {
    let mut transition = create(call, None, seen.record.version + 1, Write::Replace);
    let generation = seen.record.generation.saturating_add(u32::from(!planted(Plant::NextSharesKey)));
    if let Write::Replace(draft) = &mut transition.write {
        draft.generation = generation;
        draft.claims.clone_from(&seen.record.claims);
        draft.claims.add(call.take.claim);
    }
    if let Answer::Decision(Decision::Acquired(acquired)) = &mut transition.answer {
        acquired.generation = generation;
    }
    transition
}

/// The claim, if the record's standing permits it, for a caller whose request belongs to the record.
pub(super) fn proceed(seen: &Seen, standing: Standing, call: &Begin) -> Transition {
    if let Some(repeat) = repeat::begin(seen, call) {
        return repeat;
    }
    let terms = match seen.record.terms.tightened_by(&call.terms) {
        _ if planted(Plant::TermsLoosened) => call.terms,
        _ if planted(Plant::StricterCallerIgnored) => seen.record.terms,
        terms => terms,
    };
    match standing {
        Standing::Open { not_before } if not_before <= seen.now => {
            let record = owned_by(&seen.record, call.fingerprint, call.key_digest, call.terms);
            let terms = if record.fingerprint == seen.record.fingerprint { terms } else { record.terms };
            acquire(&record, terms, &call.take, call.terms.effect)
        }
        // Of a call that was unanswered when this one came, this caller has not been told anything yet.
        Standing::InDoubt { .. }
            if terms.in_doubt == InDoubt::Tell && call.again == Again::Never && !planted(Plant::OverlapRunsDoubt) =>
        {
            Transition::decision(tell(seen, standing))
        }
        Standing::InDoubt { since } if may_take_over(seen, &terms, &call.take) => {
            take_over(seen, &terms, &call.take, call.terms.effect, since)
        }
        _ => Transition::decision(tell(seen, standing)),
    }
}

/// Finds a request that does not belong to the record, before anything else is answered.
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
    if collides && !planted(Plant::CollisionNotSeen) {
        return Some(Decision::Collision);
    }
    let agrees = record.fingerprint == fingerprint
        || record.fingerprint == Fingerprint::free()
        || planted(Plant::FingerprintNotCompared);
    (!agrees).then_some(Decision::Mismatch)
}

/// A record that was reset becomes the next request's own; any other stays as it is.
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

/// What is told to somebody who cannot have the claim.
pub(super) fn tell(seen: &Seen, standing: Standing) -> Decision {
    let attempt = seen.record.attempts;
    match standing {
        Standing::Queued { .. } => Decision::Queued { created: false },
        Standing::Dead => Decision::Dead,
        Standing::InDoubt { since } => Decision::InDoubt { since },
        Standing::Open { not_before } => {
            Decision::InFlight { retry_after: seen.now.until(not_before), running: false, attempt }
        }
        Standing::Running { until } => {
            Decision::InFlight { retry_after: seen.now.until(until).min(ASK_AGAIN), running: true, attempt }
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
        // `standing` is Done or Tombstone for no other state; if that ever changes, the safe answer is that
        // the work is not to be done.
        _ => Decision::InDoubt { since: seen.record.updated_at },
    }
}

/// Whether the terms let this caller go on although an attempt may have happened.
pub(super) fn may_take_over(seen: &Seen, terms: &Terms, take: &Take) -> bool {
    match terms.in_doubt {
        // An overdue attempt is in doubt, and may go on all the same.
        _ if seen.has_living_owner() && !planted(Plant::OverdueTakenOver) => false,
        InDoubt::Hold => false,
        InDoubt::Probe => take.probes,
        // Told and asked for again: the caller knows that it may run a second time.
        InDoubt::Tell => seen.record.delivered_at.is_some() || planted(Plant::ToldBeforeAsked),
        InDoubt::Retry if planted(Plant::RetryPastMemory) => true,
        InDoubt::Retry => downstream_knows_key(seen, terms, take.lease / LEASE_FACTOR),
    }
}

/// The other side remembers our key from the first time it may have seen it, and not for ever. What counts is the
/// time by which this attempt should be over, so that none arrives just after the key was forgotten. How long ago a time
/// was that has yet to come nobody knows: a clock that ran ahead wrote it.
fn downstream_knows_key(seen: &Seen, terms: &Terms, runtime: Duration) -> bool {
    let Some(first) = seen.record.first_sent_at else { return false };
    let runtime = if planted(Plant::AttemptOutlivesMemory) { Duration::ZERO } else { runtime };
    first <= seen.now.after(SET_BACK) && seen.now.after(runtime) < first.after(terms.honours_key_for)
}

pub(super) fn create(call: &Begin, sequence: Option<u64>, version: u64, write: fn(Draft) -> Write) -> Transition {
    let mut draft = fresh(&call.identity, call.key_digest, call.fingerprint, call.terms, version);
    draft.sequence = sequence;
    let acquired = claim(&mut draft, &call.take, call.terms.effect);
    Transition::write(write(draft), Answer::Decision(Decision::Acquired(acquired)))
}

/// A record of which nothing has happened yet.
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

/// Takes a record of which nothing is in doubt. Its terms are from now on at least as strict as this caller's, because it is
/// this caller's attempt that they govern.
pub(super) fn acquire(record: &Record, terms: Terms, take: &Take, effect: Effect) -> Transition {
    let mut draft = record.next();
    draft.terms = terms;
    let acquired = claim(&mut draft, take, effect);
    Transition::write(Write::Replace(draft), Answer::Decision(Decision::Acquired(acquired)))
}

/// Takes a record of which an attempt may have happened. The doubt stays: nothing has settled it.
pub(super) fn take_over(seen: &Seen, terms: &Terms, take: &Take, effect: Effect, since: Timestamp) -> Transition {
    let mut draft = seen.record.next();
    draft.terms = *terms;
    draft.doubt_since = Some(When::At(since));
    if planted(Plant::DoubtForgotten) {
        (draft.doubt_since, draft.first_sent_at) = (None, None);
    }
    let mut acquired = claim(&mut draft, take, effect);
    acquired.probe_first = terms.in_doubt == InDoubt::Probe && !planted(Plant::ProbeNotAsked);
    Transition::write(Write::Replace(draft), Answer::Decision(Decision::Acquired(acquired)))
}

/// How far a caller begins. It may begin before `sent` only if it promises to write `sent`, or if both it and the record
/// say that the effect commits together with the record.
pub(super) fn phase_of(take: &Take, said: Effect, recorded: Effect) -> Phase {
    let transactional = said == Effect::Transactional && recorded == Effect::Transactional;
    if take.marks_sent || transactional { Phase::Claimed } else { Phase::Sent }
}

/// Puts the claim into the draft.
fn claim(draft: &mut Draft, take: &Take, effect: Effect) -> Acquired {
    let phase = phase_of(take, effect, draft.terms.effect);
    let is_first = draft.first_sent_at.is_none() || planted(Plant::MemoryCountedAnew);
    if phase == Phase::Sent && is_first {
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
