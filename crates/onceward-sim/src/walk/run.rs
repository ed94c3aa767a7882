//! The calls of a run, each compared with the oracle.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use onceward::core::decide::{Decision, Refusal, Resolution};
use onceward::core::outcome::{Body, Outcome, Verdict};
use onceward::core::record::Status;
use onceward::core::time::Timestamp;
use onceward::store::Filter;
use onceward::{Begun, CallBuilder, Guard, Resolved, StartOptions, Started};
use tokio::sync::oneshot;

use super::oracle::{Caller, OperatorChoice, Oracle, RETENTION, ResolveResult, Response, Standing, Value};
use super::setup::{IntentId, Setup, millis};
use crate::first_sweep;
use crate::rng::Rng;
use crate::seeded::Counts;

/// Claims that are held at the same time.
const MAX_HELD: usize = 4;

/// A run in progress.
pub struct Walk {
    pub(super) rng: Rng,
    pub(super) setup: Setup,
    ids: Vec<IntentId>,
    pub(super) oracles: BTreeMap<IntentId, Oracle>,
    held: Vec<HeldClaim>,
    /// The downstream key of each intent and generation.
    keys: HashMap<(IntentId, u32), String>,
    next: u64,
    pub(super) tally: Tally,
}

/// A claim that a caller holds.
pub(super) struct HeldClaim {
    pub(super) id: IntentId,
    pub(super) holder: u64,
    pub(super) caller: Caller,
    pub(super) guard: Guard,
}

/// What was seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    granted: u64,
    replayed: u64,
    refused: u64,
    settled: u64,
    pub(super) late: u64,
    /// Claims on intents that had not happened and were forgotten.
    started_over: u64,
}

impl Tally {
    pub fn add_to(&self, counts: &mut Counts) {
        counts.add("claims granted", self.granted);
        counts.add("outcomes replayed", self.replayed);
        counts.add("other answers", self.refused);
        counts.add("settled by an operator", self.settled);
        counts.add("late owners", self.late);
        counts.add("started over", self.started_over);
    }
}

#[derive(Clone, Copy)]
enum Action {
    Run,
    Hold,
    Go,
    End,
    Wait,
    Resolve,
    Look,
    Purge,
    Unplug,
}

impl Walk {
    pub async fn begin(mut rng: Rng, run: u64, server: Option<&str>) -> Self {
        let setup = match server {
            Some(server) => Setup::on(server).await,
            None => Setup::set(run).await,
        };
        for ledger in &setup.ledgers {
            first_sweep::run_first_sweep(ledger).await;
        }
        let ids = IntentId::some(&mut rng);
        let oracles = ids.iter().map(|id| (*id, Oracle::default())).collect();
        Self { rng, setup, ids, oracles, held: Vec::new(), keys: HashMap::new(), next: 1, tally: Tally::default() }
    }

    pub async fn end(mut self) {
        self.held.clear();
        for ledger in self.setup.ledgers {
            ledger.close().await;
        }
    }

    /// Does one thing. Returns what is wrong with it, if anything.
    pub async fn step(&mut self) -> Result<(), String> {
        let choice = self.rng.weighted(&[
            (6, Action::Run),
            (4, Action::Hold),
            (4, Action::Go),
            (3, Action::End),
            (1, Action::Wait),
            (2, Action::Resolve),
            (2, Action::Look),
            (1, Action::Purge),
            (1, Action::Unplug),
        ]);
        match choice {
            Action::Run => self.run().await,
            Action::Hold => self.hold().await,
            Action::Go => {
                self.advance_clock();
                Ok(())
            }
            Action::End => match self.take_held() {
                Some(held) => self.end_held(held).await,
                None => Ok(()),
            },
            Action::Wait => self.wait().await,
            Action::Resolve => self.resolve().await,
            Action::Look => self.compare_views().await,
            Action::Purge => {
                let ledger = self.ledger();
                self.setup.ledgers[ledger].purge(self.rng.below(20) as usize).await.map_err(store)?;
                Ok(())
            }
            Action::Unplug => self.unplug().await,
        }
    }

    pub(super) fn pick_intent(&mut self) -> IntentId {
        self.ids[self.rng.below(self.ids.len() as u64) as usize]
    }

    pub(super) fn ledger(&mut self) -> usize {
        self.rng.below(self.setup.ledgers.len() as u64) as usize
    }

    pub(super) fn draw(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn oracle(&mut self, id: IntentId) -> &mut Oracle {
        self.oracles.entry(id).or_default()
    }

    pub(super) fn operation(&mut self, id: IntentId, caller: Caller) -> CallBuilder {
        let ledger = self.ledger();
        self.setup.operation(ledger, id, caller, &mut self.rng)
    }

    fn take_held(&mut self) -> Option<HeldClaim> {
        let chosen = self.rng.below(self.held.len().max(1) as u64) as usize;
        (chosen < self.held.len()).then(|| self.held.swap_remove(chosen))
    }

    /// Compares an answer of the ledger with the oracle's.
    pub(super) fn compare(&mut self, id: IntentId, expected: &Response, found: &Response) -> Result<(), String> {
        match found {
            Response::Run { .. } => self.tally.granted += 1,
            Response::Replay { .. } => self.tally.replayed += 1,
            _ => self.tally.refused += 1,
        }
        if expected == found { Ok(()) } else { Err(format!("{id}: {found:?} instead of {expected:?}")) }
    }

    /// All attempts of an intent send the same key downstream, and no two intents send the same one.
    pub(super) fn check_downstream_key(&mut self, id: IntentId, generation: u32, key: &str) -> Result<(), String> {
        let known = self.keys.entry((id, generation)).or_insert_with(|| key.to_owned());
        if known != key {
            return Err(format!("{id}: the downstream key is {key}, and was {known} before"));
        }
        match self.keys.iter().find(|(whose, other)| **whose != (id, generation) && *other == key) {
            Some(((other, _), _)) => Err(format!("{id} and {other} send the same downstream key")),
            None => Ok(()),
        }
    }

    /// The oracle's answer to a caller that asks for the claim.
    pub(super) fn expected(&mut self, id: IntentId, now: i64, caller: Caller, holder: u64) -> Response {
        self.tally.started_over += u64::from(self.oracle(id).starts_over(now));
        self.oracle(id).begin(now, caller, holder)
    }

    /// Begins and keeps the claim for later.
    async fn hold(&mut self) -> Result<(), String> {
        if self.held.len() >= MAX_HELD {
            return Ok(());
        }
        let id = self.pick_intent();
        let caller = id.caller(&mut self.rng);
        let (operation, holder, now) = (self.operation(id, caller), self.draw(), self.setup.now());
        let expected = self.expected(id, now, caller, holder);
        match operation.begin().await.map_err(|error| format!("{id}: {error}"))? {
            Begun::Acquired(guard) => {
                let claim = guard.claim();
                let Response::Run { attempt, generation, probe_first } = expected else {
                    return Err(format!("{id}: it runs instead of {expected:?}"));
                };
                let found = Response::Run { attempt: claim.attempt(), generation, probe_first: claim.probe_first() };
                self.compare(id, &Response::Run { attempt, generation, probe_first }, &found)?;
                self.check_downstream_key(id, generation, claim.downstream_key())?;
                self.held.push(HeldClaim { id, holder, caller, guard });
                Ok(())
            }
            Begun::Answered(decision) => {
                let found = response(&decision)?;
                self.compare(id, &expected, &found)
            }
        }
    }

    /// Advances the clock: a little, or to just before or exactly the time of a change.
    fn advance_clock(&mut self) {
        let id = self.pick_intent();
        let now = self.setup.now();
        let deadlines: Vec<i64> = self.oracle(id).deadlines().into_iter().filter(|at| *at > now).collect();
        let chosen = deadlines.get(self.rng.below(deadlines.len().max(1) as u64) as usize);
        let to = match (chosen, self.rng.below(4)) {
            (Some(at), 0) => *at,
            (Some(at), 1) => at - 1,
            (Some(at), 2) => at - 500,
            _ => now + self.rng.weighted(&[(3, 1), (3, 10_000), (1, 100_000)]),
        };
        self.setup.clock.set(Timestamp::from_millis(to.max(now)));
    }

    /// A caller waits for a running attempt, and gets the answer of its owner.
    async fn wait(&mut self) -> Result<(), String> {
        let now = self.setup.now();
        let is_running = |held: &HeldClaim| {
            let oracle = &self.oracles[&held.id];
            oracle.is_held_by(held.holder) && oracle.standing(now) == Standing::Running
        };
        let Some(chosen) = self.held.iter().position(is_running) else { return Ok(()) };
        let HeldClaim { id, holder, caller, guard } = self.held.swap_remove(chosen);
        let ledger = self.ledger();
        let operation = self.setup.operation(ledger, id, caller, &mut self.rng);
        let call = operation.call().map_err(|error| error.to_string())?;
        let ledger = self.setup.ledgers[ledger].clone();
        let (waits, has_begun) = oneshot::channel();
        let waiting = tokio::spawn(async move {
            let waits = Mutex::new(Some(waits));
            let on_running = || {
                let waits = waits.lock().unwrap_or_else(PoisonError::into_inner).take();
                waits.is_some_and(|waits| waits.send(()).is_ok())
            };
            ledger.start(&call, StartOptions::default().wait(Duration::from_secs(20)).on_running(&on_running)).await
        });
        // The owner ends only after the caller has begun to wait. A caller that does not wait drops its sender.
        let _ = has_begun.await;
        tokio::task::yield_now().await;
        let value = self.value();
        let finishes = self.rng.one_in(2);
        if finishes {
            guard.finish(outcome(&value)).await.map_err(|error| error.to_string())?;
            self.oracle(id).finish(now, holder, Some(value.clone()));
        } else {
            guard.release(Duration::ZERO, Some("as planned")).await.map_err(|error| error.to_string())?;
            self.oracle(id).release(now, holder, 0);
        }
        let waited = waiting.await.map_err(|error| error.to_string())?;
        let expires_at = now + RETENTION;
        match (finishes, waited) {
            (true, Ok(Started::Answered(decision))) => {
                let found = response(&decision)?;
                self.compare(id, &Response::Replay { outcome: value, expires_at }, &found)
            }
            (false, Ok(Started::Answered(Decision::InDoubt { .. }))) => Ok(()),
            (false, Err(onceward::Error::OwnerFailed { .. } | onceward::Error::OwnerUnknown { .. })) => Ok(()),
            (_, waited) => Err(format!("{id}: a caller that waited got {waited:?}")),
        }
    }

    /// An operator says what happened, having seen this version of the record or another.
    async fn resolve(&mut self) -> Result<(), String> {
        let id = self.pick_intent();
        let caller = id.caller(&mut self.rng);
        let operation = self.operation(id, caller);
        let ledger = self.ledger();
        let call = operation.call().map_err(|error| error.to_string())?;
        let seen = operation.get().await.map_err(|error| error.to_string())?;
        let version = seen.map_or(1, |intent| intent.seen.record.version);
        let is_current = !self.rng.one_in(4);
        let value = self.value();
        let (choice, resolution) = match self.rng.below(3) {
            0 => (OperatorChoice::Happened(value.clone()), Resolution::Happened(outcome(&value))),
            1 => (OperatorChoice::DidNotHappen, Resolution::DidNotHappen),
            _ => (OperatorChoice::Reset, Resolution::Reset),
        };
        let now = self.setup.now();
        let expected = self.oracle(id).settle(now, is_current, &choice);
        let by = format!("person {}", self.draw());
        let version = if is_current { version } else { version + 1 };
        let resolved = self.setup.ledgers[ledger].resolve(&call.identity, version, resolution, Some(&by), None).await;
        let found = match resolved.map_err(|error| error.to_string())? {
            Resolved::Settled => ResolveResult::Yes,
            Resolved::Refused(Refusal::Absent) => ResolveResult::Absent,
            Resolved::Refused(Refusal::Running) => ResolveResult::Running,
            Resolved::Refused(Refusal::Changed | Refusal::NotSent) => ResolveResult::Changed,
            Resolved::Refused(Refusal::NothingToDo(_)) => ResolveResult::NothingToDo,
        };
        if expected != found {
            return Err(format!("{id}: an operator chose {choice:?}: {found:?} instead of {expected:?}"));
        }
        let seen = operation.get().await.map_err(|error| error.to_string())?;
        let noted = seen.is_some_and(|intent| intent.trail.iter().any(|entry| entry.event.by.as_ref() == Some(&by)));
        if noted != (found == ResolveResult::Yes) {
            return Err(format!("{id}: an operator chose {choice:?}: {found:?}, and in the audit trail: {noted}"));
        }
        self.tally.settled += u64::from(noted);
        Ok(())
    }

    /// Every view of the ledger agrees with the oracle.
    async fn compare_views(&mut self) -> Result<(), String> {
        let ledger = self.ledger();
        let (ledger, now) = (self.setup.ledgers[ledger].clone(), self.setup.now());
        for id in self.ids.clone() {
            let caller = id.caller(&mut self.rng);
            let seen = self.operation(id, caller).get().await.map_err(|error| error.to_string())?;
            let found = seen.and_then(|intent| intent.status());
            let expected = status(self.oracle(id).standing(now));
            if found != expected {
                return Err(format!("{id}: its status is {found:?} instead of {expected:?}"));
            }
        }
        let counts = ledger.counts().await.map_err(store)?;
        let standings: Vec<Option<Status>> = self.oracles.values().map(|oracle| status(oracle.standing(now))).collect();
        for each in Status::ALL {
            let expected = standings.iter().filter(|standing| **standing == Some(each)).count() as u64;
            if counts.of(each) != expected {
                return Err(format!("{} intents count as {} instead of {expected}", counts.of(each), each.as_str()));
            }
        }
        let id = self.pick_intent();
        let operation = self.operation(id, id.caller(&mut self.rng.clone()));
        let tenant = operation.call().map_err(|error| error.to_string())?.identity.tenant;
        let filter = Filter { tenant: Some(tenant.clone()), ..Filter::default() };
        let page = ledger.list(&filter, None, 100).await.map_err(store)?;
        let own = |listed: &&onceward::store::ListedRecord| {
            listed.seen.record.identity.as_ref().is_some_and(|identity| identity.tenant == tenant)
        };
        let unswept = |(other, oracle): &(&IntentId, &Oracle)| {
            let stands = !matches!(oracle.standing(now), Standing::Free | Standing::Tombstone);
            other.tenant == id.tenant && stands
        };
        let least = self.oracles.iter().filter(unswept).count();
        if page.listed.len() < least || page.listed.iter().filter(own).count() != page.listed.len() {
            return Err(format!(
                "{} lists {} intents: some of another tenant, or fewer than {least}",
                id.tenant(),
                page.listed.len()
            ));
        }
        Ok(())
    }

    /// Nothing runs while the store is unavailable; the cache may still answer.
    async fn unplug(&mut self) -> Result<(), String> {
        let Some(store_switch) = self.setup.store_switch.clone() else { return Ok(()) };
        let id = self.pick_intent();
        let caller = id.caller(&mut self.rng);
        let operation = self.operation(id, caller);
        store_switch.close(true);
        let ran = operation.run(|_| async { Ok("it ran".to_owned()) }).await;
        store_switch.close(false);
        match ran {
            Ok(done) if !done.replayed => Err(format!("{id}: it ran while the store was unavailable")),
            _ => Ok(()),
        }
    }

    pub(super) fn value(&mut self) -> Value {
        Value { success: true, text: format!("v{}", self.draw()) }
    }
}

fn store(error: onceward::store::Error) -> String {
    error.to_string()
}

fn status(standing: Standing) -> Option<Status> {
    Some(match standing {
        Standing::Free => return None,
        Standing::Open { .. } => Status::Open,
        Standing::Running => Status::Running,
        Standing::InDoubt => Status::InDoubt,
        Standing::Done => Status::Done,
        Standing::Tombstone => Status::Tombstone,
    })
}

/// Translates a decision into a response of the oracle.
pub(super) fn response(decision: &Decision) -> Result<Response, String> {
    Ok(match decision {
        Decision::Replay { outcome, expires_at, .. } => {
            Response::Replay { outcome: kept(outcome), expires_at: expires_at.map_or(0, Timestamp::as_millis) }
        }
        Decision::InFlight { running, .. } => Response::InFlight { running: *running },
        Decision::InDoubt { .. } => Response::InDoubt,
        Decision::Mismatch => Response::Mismatch,
        Decision::OutcomeNotKept { .. } => Response::NotKept,
        other => return Err(format!("unexpected decision {other:?}")),
    })
}

/// An outcome as the value of a closure is kept.
pub(super) fn outcome(value: &Value) -> Outcome {
    let body = serde_json::Value::String(value.text.clone()).to_string();
    if value.success { Outcome::success(body) } else { Outcome::failure(body) }
}

fn kept(outcome: &Outcome) -> Value {
    let bytes: &[u8] = match &outcome.body {
        Body::Kept(bytes) => bytes,
        Body::TooLarge { .. } => b"\"too large\"",
    };
    let text = serde_json::from_slice(bytes).unwrap_or_else(|_| String::from_utf8_lossy(bytes).into_owned());
    Value { success: outcome.verdict == Verdict::Success, text }
}

/// How long a refused attempt has to wait.
pub(super) const REFUSED_FOR: i64 = 60_000;

/// How long a dropped guard may take to write its doubt in the background, on a busy machine.
pub(super) const BACKGROUND_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a downstream that refuses asks to wait.
pub(super) fn refused_for() -> Duration {
    millis(REFUSED_FOR)
}
