//! Judges whether writes and answers can be true together: every write is what `decide` returns for the record that it
//! replaced, and every answer was right at some moment between question and answer. Whether `decide` itself is right is
//! checked by the model, the walks and the vectors; effects are judged without it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use onceward::core::decide::{Begin, Command, CommandResult, Decision, Resolution, Take, Write, decide};
use onceward::core::hash::Digest;
use onceward::core::outcome::Outcome;
use onceward::core::policy::InDoubt;
use onceward::core::record::{Fence, Phase, Record, Seen, State, Status};
use onceward::core::time::Timestamp;
use onceward::{Call, Error, WriteResult};

use super::actor::{Effect, Exchange, Log, Response, json, text};
use super::history::{Change, History, Moment};
use super::plan::{End, Plan, actor_of_lease, id};
use crate::standing;

/// The judge of one schedule.
pub struct Judge<'a> {
    pub plan: &'a Plan,
    pub history: &'a History,
    /// The last claim of each caller, and when it asked for it.
    claims: BTreeMap<usize, (Fence, Moment)>,
    granted: BTreeSet<(Digest, usize)>,
}

fn seen(record: &Record, now: Timestamp) -> Seen {
    Seen { record: record.clone(), now, owner_gone: false }
}

/// Since when a record is in doubt at this moment: by its own field, or since its lease lapsed.
fn in_doubt_since(seen: &Seen) -> Option<Timestamp> {
    let Seen { record, now, owner_gone } = seen;
    let is_doubt = standing::status(record, *now, *owner_gone) == Some(Status::InDoubt);
    let since = record.doubt_since.unwrap_or(match &record.state {
        State::Leased(lease) => lease.until.min(*now),
        _ => record.updated_at,
    });
    is_doubt.then_some(since)
}

/// The begin of a call.
fn begin(call: &Call, fence: Fence) -> Command {
    let policy = &call.policy;
    let take = Take {
        fence,
        lease: policy.lease(),
        marks_sent: policy.marks_sent,
        probes: policy.probes,
        owner: None,
        claim: None,
    };
    Command::Begin(Begin {
        identity: call.identity.clone(),
        key_digest: call.key_digest,
        fingerprint: call.fingerprint,
        terms: policy.terms(),
        take,
        again: call.again,
    })
}

impl<'a> Judge<'a> {
    pub fn new(plan: &'a Plan, history: &'a History) -> Self {
        Self { plan, history, claims: BTreeMap::new(), granted: BTreeSet::new() }
    }

    /// Returns everything that is wrong.
    pub fn judge(mut self, log: &Log) -> Vec<String> {
        let mut wrong = Vec::new();
        for id in self.history.keys() {
            wrong.extend(
                self.history.changes(id).windows(2).filter_map(|pair| unexplained(&pair[0], &pair[1], &log.calls)),
            );
        }
        for exchange in &log.exchanges {
            if let Some(why) = self.unjustified(exchange) {
                wrong.push(format!("caller {} got an answer that was never true: {why}: {exchange:?}", exchange.actor));
            }
        }
        wrong.extend(self.repeated(&log.effects));
        wrong
    }

    fn unjustified(&mut self, exchange: &Exchange) -> Option<String> {
        match &exchange.response {
            Response::Claimed(attempt) => self.claim(exchange, *attempt),
            Response::Decided(decision) => self.decision(exchange, decision),
            Response::Ended(end, value, reach) => self.end(exchange, *end, value, *reach),
            Response::Ran(Ok(done)) => self.written(exchange, &done.value),
            Response::Ran(Err(error)) | Response::Failed(error) => self.error(exchange, error),
            Response::Nothing => None,
        }
    }

    /// The record between question and answer, at each millisecond.
    fn between(&self, exchange: &Exchange) -> impl Iterator<Item = Option<Seen>> {
        let id = exchange.call.identity.digest();
        let states = self.history.between(id, exchange.asked, exchange.answered);
        states.into_iter().flat_map(|(record, since, until)| {
            let times = since.as_millis()..=until.as_millis();
            times.map(move |time| record.map(|record| seen(record, Timestamp::from_millis(time))))
        })
    }

    /// The changes between question and answer.
    fn changes(&self, exchange: &Exchange) -> impl Iterator<Item = &Change> {
        let (from, to) = (exchange.asked.position, exchange.answered.position);
        let changes = self.history.changes(exchange.call.identity.digest()).iter();
        changes.filter(move |change| (from..to).contains(&change.at.position))
    }

    /// A claim was written for this caller, and for no other.
    fn claim(&mut self, exchange: &Exchange, attempt: u32) -> Option<String> {
        let id = exchange.call.identity.digest();
        let is_it = |change: &&Change| match change.record.as_ref() {
            Some(Record { state: State::Leased(lease), attempts, .. }) => {
                let actor = actor_of_lease(change.at.time.until(lease.until));
                *attempts == attempt
                    && actor == Some(exchange.actor)
                    && !self.granted.contains(&(id, change.at.position))
            }
            _ => false,
        };
        let Some((position, fence)) = self
            .changes(exchange)
            .find(is_it)
            .and_then(|change| Some((change.at.position, change.record.as_ref()?.fence()?)))
        else {
            return Some("there is no such claim".to_owned());
        };
        self.granted.insert((id, position));
        self.claims.insert(exchange.actor, (fence, exchange.asked));
        None
    }

    fn decision(&self, exchange: &Exchange, response: &Decision) -> Option<String> {
        let command = begin(&exchange.call, Fence::from_bits(0));
        let is_so = |seen: Option<Seen>| match (decide(seen.as_ref(), &command).answer, response) {
            (CommandResult::Decision(decision), response) if alike(&decision, response) => true,
            // A waiting caller is told of a doubt, also where a new caller would get the claim.
            (_, Decision::InDoubt { since }) if exchange.planned.waits => {
                seen.is_some_and(|seen| in_doubt_since(&seen) == Some(*since))
            }
            _ => false,
        };
        (!self.between(exchange).any(is_so)).then(|| "no begin was answered so".to_owned())
    }

    /// An outcome, or the error of a release, is in the record.
    fn written(&self, exchange: &Exchange, value: &str) -> Option<String> {
        let holds = |record: &Record| match &record.state {
            State::Done { outcome, .. } => text(outcome).as_deref() == Some(value),
            _ => record.last_error.as_deref() == Some(value),
        };
        let is_there = self.changes(exchange).filter_map(|change| change.record.as_ref()).any(holds);
        (!is_there).then(|| "it is not in any record".to_owned())
    }

    fn end(&self, exchange: &Exchange, end: End, value: &str, reach: WriteResult) -> Option<String> {
        if reach == WriteResult::Written {
            return self.written(exchange, value);
        }
        let Some((fence, _)) = self.claims.get(&exchange.actor).copied() else {
            return Some("it had no claim".to_owned());
        };
        let error = Some(value.to_owned());
        let command = match end {
            End::Done => Command::Finish { fence, outcome: Outcome::success(json(value)) },
            End::Final => Command::Finish { fence, outcome: Outcome::failure(json(value)) },
            End::NotSent | End::Refused => Command::Release { fence, not_before: Duration::ZERO, error },
            End::Unknown => Command::Doubt { fence, error },
        };
        let is_refused = |seen: Option<Seen>| {
            matches!(decide(seen.as_ref(), &command).answer, CommandResult::Stale { .. } | CommandResult::Refused(_))
        };
        (!self.between(exchange).any(is_refused)).then(|| "it still had the claim".to_owned())
    }

    fn error(&self, exchange: &Exchange, error: &Error) -> Option<String> {
        match error {
            Error::Failed { failure, .. } => {
                let why = self.written(exchange, failure.message())?;
                (!self.was_superseded(exchange) && !self.plan.faults).then_some(why)
            }
            Error::OwnerFailed { reason, .. } => {
                let said = |record: &Record| record.last_error.as_deref().unwrap_or("it was given back") == reason;
                let is_open = |record: &Record| matches!(record.state, State::Open { .. }) && said(record);
                let is_so = |seen: Option<Seen>| seen.is_some_and(|seen| is_open(&seen.record));
                (!self.between(exchange).any(is_so)).then(|| "no owner released it".to_owned())
            }
            Error::OwnerUnknown { .. } => {
                let retries = |record: &Record| record.terms.in_doubt != InDoubt::Hold;
                let is_doubt = |record: &Record| matches!(record.state, State::InDoubt { .. }) && retries(record);
                let is_so = |seen: Option<Seen>| seen.is_some_and(|seen| is_doubt(&seen.record));
                (!self.between(exchange).any(is_so)).then(|| "no owner left a doubt that may be retried".to_owned())
            }
            Error::ClaimLost { .. } => (!self.was_superseded(exchange) && !self.may_have_lapsed(exchange))
                .then(|| "it had the claim".to_owned()),
            Error::Store(_) | Error::NotRecorded { .. } if self.plan.faults => None,
            other => Some(format!("unexpected error: {other}")),
        }
    }

    /// Whether another caller owned the record at some moment.
    fn was_superseded(&self, exchange: &Exchange) -> bool {
        let Some((fence, _)) = self.claims.get(&exchange.actor).copied() else { return false };
        self.between(exchange).any(|seen| seen.is_none_or(|seen| seen.record.fence() != Some(fence)))
    }

    /// Whether its lease was over, as its owner counts, and another caller could have had it.
    fn may_have_lapsed(&self, exchange: &Exchange) -> bool {
        let Some((fence, since)) = self.claims.get(&exchange.actor).copied() else { return false };
        let is_held = |seen: &Seen| match &seen.record.state {
            State::Leased(lease) => lease.phase == Phase::Sent && seen.record.terms.in_doubt == InDoubt::Hold,
            _ => false,
        };
        let mine = self.between(exchange).flatten().filter(|seen| seen.record.fence() == Some(fence));
        let is_over = since.time.until(exchange.answered.time) >= exchange.call.policy.lease();
        is_over && mine.into_iter().any(|seen| !is_held(&seen))
    }

    /// Under `hold`, and without operators, a second effect may only follow one that is known to have done nothing, or
    /// whose outcome was forgotten. A forgotten record that says that nothing happened excuses nothing: it did not know
    /// of the effect.
    fn repeated(&self, effects: &[Effect]) -> Vec<String> {
        let mut wrong = Vec::new();
        for (intent, policy) in self.plan.policies.iter().enumerate() {
            if *policy != InDoubt::Hold || !self.plan.unattended {
                continue;
            }
            let of_intent: Vec<&Effect> = effects.iter().filter(|effect| effect.intent == intent).collect();
            for pair in of_intent.windows(2) {
                let (one, next) = (pair[0], pair[1]);
                let is_harmless = one.end.is_some_and(|(end, at)| end.is_harmless() && at.position <= next.at.position);
                let mut states = self.history.between(id(intent), one.at, next.at).into_iter();
                let is_forgotten = states.any(|(record, _, until)| {
                    record.is_some_and(|record| is_done(record) && standing::status(record, until, false).is_none())
                });
                if !is_harmless && !is_forgotten {
                    wrong.push(format!("an effect took place twice: {one:?}, then {next:?}"));
                }
            }
        }
        wrong
    }
}

/// Whether two answers are the same. The time to wait depends on the moment.
fn alike(one: &Decision, other: &Decision) -> bool {
    match (one, other) {
        (
            Decision::InFlight { running, attempt, .. },
            Decision::InFlight { running: also_running, attempt: same_attempt, .. },
        ) => running == also_running && attempt == same_attempt,
        // A cache may still know the status of an outcome that is a tombstone in the store.
        (
            Decision::OutcomeNotKept { outcome, status },
            Decision::OutcomeNotKept { outcome: same_outcome, status: same_status },
        ) => outcome == same_outcome && (status.is_none() || same_status.is_none() || status == same_status),
        _ => one == other,
    }
}

/// Whether a record is of finished work.
fn is_done(record: &Record) -> bool {
    matches!(record.state, State::Done { .. } | State::Tombstone { .. })
}

/// Finds a change that `decide` does not make of the record before it.
///
/// A claim is decided by the time of the store's last answer, and written a little later; the record is still the same
/// by then. Two rules can turn from yes to no in between. One is how long the downstream knows the key: it leaves room
/// for a whole run, and no check could do better, as an owner may also be stopped between its claim and its effect. The
/// other is how long it is remembered that nothing happened: a caller that got the claim from that record, or an
/// operator that settled it, a moment before its end has done no harm, since no other write came between.
fn unexplained(before: &Change, after: &Change, calls: &[Call]) -> Option<String> {
    let now = after.at.time;
    let makes = |decided: Timestamp, command: &Command| {
        let current = before.record.as_ref().map(|record| seen(record, decided));
        match (decide(current.as_ref(), command).write, &after.record) {
            (Write::Insert(draft) | Write::Replace(draft), Some(record)) => draft.stamp(now) == *record,
            (Write::Remove, None) => true,
            _ => false,
        }
    };
    let earlier = (before.at.time.as_millis()..now.as_millis()).map(Timestamp::from_millis);
    let is_explained = candidates(before.record.as_ref(), after.record.as_ref(), now, calls).iter().any(|command| {
        let is_open = || before.record.as_ref().is_some_and(|record| matches!(record.state, State::Open { .. }));
        let may_lag = match command {
            Command::Begin(_) => true,
            Command::Resolve { .. } => is_open(),
            _ => false,
        };
        makes(now, command) || may_lag && earlier.clone().any(|decided| makes(decided, command))
    });
    (!is_explained)
        .then(|| format!("no command leads from one to the other: {:?}, then {:?}", before.record, after.record))
}

/// Every command that could have led from one record to the next.
fn candidates(before: Option<&Record>, after: Option<&Record>, now: Timestamp, calls: &[Call]) -> Vec<Command> {
    let Some(after) = after else { return vec![Command::Expire] };
    let version = before.map_or(0, |record| record.version);
    let last = before.and_then(Record::fence).unwrap_or(Fence::from_bits(0));
    let error = after.last_error.clone();
    let resolve = |resolution, fence| Command::Resolve { version, resolution, fence };
    match &after.state {
        State::Leased(lease) => {
            let (fence, length) = (lease.fence, now.until(lease.until));
            let mut commands = vec![
                Command::Renew { fence, lease: length },
                Command::Sent { fence, lease: length },
                Command::NotFound { fence },
            ];
            commands.extend(calls.iter().map(|call| begin(call, fence)));
            commands
        }
        State::Done { outcome, fence, .. } => vec![
            Command::Finish { fence: last, outcome: outcome.clone() },
            resolve(Resolution::Happened(outcome.clone()), *fence),
        ],
        State::Open { not_before } => vec![
            Command::Release { fence: last, not_before: now.until(*not_before), error: error.clone() },
            Command::Withdraw { fence: last, error: error.clone() },
            Command::Doubt { fence: last, error },
            resolve(Resolution::DidNotHappen, last),
            resolve(Resolution::Reset, last),
        ],
        State::InDoubt { .. } => vec![
            Command::Doubt { fence: last, error: error.clone() },
            Command::Withdraw { fence: last, error: error.clone() },
            Command::Release { fence: last, not_before: Duration::ZERO, error },
        ],
        State::Tombstone { .. } => vec![Command::Expire],
        State::Queued { .. } | State::Dead => Vec::new(),
    }
}
