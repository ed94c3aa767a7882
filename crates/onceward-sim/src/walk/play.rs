//! The calls of a run, each compared with what the oracle says.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

use onceward::core::decide::{Decision, Refusal, Resolution};
use onceward::core::outcome::{Body, Outcome, Verdict};
use onceward::core::record::Status;
use onceward::core::time::Timestamp;
use onceward::store::Filter;
use onceward::{Begun, Guard, Operation, Resolved};

use super::life::{Caller, Kept, Life, RETENTION, Settled, Standing, Told, Word};
use super::scene::{Scene, Who, millis};
use crate::dice::Dice;
use crate::sweep;

/// Claims that are held at the same time.
const MOST_HELD: usize = 4;

/// A run in progress.
pub struct Walk {
    pub(super) dice: Dice,
    pub(super) scene: Scene,
    cast: Vec<Who>,
    pub(super) lives: BTreeMap<Who, Life>,
    held: Vec<Held>,
    /// Which key the other side was given, by intent and generation.
    keys: HashMap<(Who, u32), String>,
    next: u64,
    pub(super) tally: Tally,
}

/// A claim in somebody's hands.
pub(super) struct Held {
    pub(super) who: Who,
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
    /// Claims on what had not happened and was forgotten.
    started_over: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        self.granted += other.granted;
        self.replayed += other.replayed;
        self.refused += other.refused;
        self.settled += other.settled;
        self.late += other.late;
        self.started_over += other.started_over;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} claims granted, {} outcomes replayed, {} other answers, {} settled by hand, {} late owners, {} started over",
            self.granted, self.replayed, self.refused, self.settled, self.late, self.started_over
        )
    }
}

#[derive(Clone, Copy)]
enum Do {
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
    pub async fn begin(mut dice: Dice, run: u64) -> Self {
        let scene = Scene::set(run).await;
        for ledger in &scene.ledgers {
            sweep::get_over_the_first(ledger).await;
        }
        let cast = Who::some(&mut dice);
        let lives = cast.iter().map(|who| (*who, Life::default())).collect();
        Self { dice, scene, cast, lives, held: Vec::new(), keys: HashMap::new(), next: 1, tally: Tally::default() }
    }

    pub async fn end(mut self) {
        self.held.clear();
        for ledger in self.scene.ledgers {
            ledger.close().await;
        }
    }

    /// One thing happens. What is wrong with it, if anything.
    pub async fn step(&mut self) -> Result<(), String> {
        let choice = self.dice.weighted(&[
            (6, Do::Run),
            (4, Do::Hold),
            (4, Do::Go),
            (3, Do::End),
            (1, Do::Wait),
            (2, Do::Resolve),
            (2, Do::Look),
            (1, Do::Purge),
            (1, Do::Unplug),
        ]);
        match choice {
            Do::Run => self.run().await,
            Do::Hold => self.hold().await,
            Do::Go => {
                self.go();
                Ok(())
            }
            Do::End => match self.take_held() {
                Some(held) => self.end_held(held).await,
                None => Ok(()),
            },
            Do::Wait => self.wait().await,
            Do::Resolve => self.resolve().await,
            Do::Look => self.look().await,
            Do::Purge => {
                let ledger = self.ledger();
                self.scene.ledgers[ledger].purge(self.dice.below(20) as usize).await.map_err(store)?;
                Ok(())
            }
            Do::Unplug => self.unplug().await,
        }
    }

    pub(super) fn somebody(&mut self) -> Who {
        self.cast[self.dice.below(self.cast.len() as u64) as usize]
    }

    pub(super) fn ledger(&mut self) -> usize {
        self.dice.below(self.scene.ledgers.len() as u64) as usize
    }

    pub(super) fn draw(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn life(&mut self, who: Who) -> &mut Life {
        self.lives.entry(who).or_default()
    }

    pub(super) fn operation(&mut self, who: Who, caller: Caller) -> Operation {
        let ledger = self.ledger();
        self.scene.operation(ledger, who, caller, &mut self.dice)
    }

    fn take_held(&mut self) -> Option<Held> {
        let chosen = self.dice.below(self.held.len().max(1) as u64) as usize;
        (chosen < self.held.len()).then(|| self.held.swap_remove(chosen))
    }

    /// Compares what the ledger says with what the oracle says.
    pub(super) fn compare(&mut self, who: Who, expected: &Told, found: &Told) -> Result<(), String> {
        match found {
            Told::Run { .. } => self.tally.granted += 1,
            Told::Replay { .. } => self.tally.replayed += 1,
            _ => self.tally.refused += 1,
        }
        if expected == found { Ok(()) } else { Err(format!("{who}: {found:?} instead of {expected:?}")) }
    }

    /// The other side gets one key for all attempts, and no two intents the same.
    pub(super) fn passed_on(&mut self, who: Who, generation: u32, key: &str) -> Result<(), String> {
        let known = self.keys.entry((who, generation)).or_insert_with(|| key.to_owned());
        if known != key {
            return Err(format!("{who}: the other side got the key {key}, and before it {known}"));
        }
        match self.keys.iter().find(|(whose, other)| **whose != (who, generation) && *other == key) {
            Some(((other, _), _)) => Err(format!("{who} and {other} go to the other side under the same key")),
            None => Ok(()),
        }
    }

    /// What the oracle says to somebody who asks for the claim.
    pub(super) fn expected(&mut self, who: Who, now: i64, caller: Caller, holder: u64) -> Told {
        self.tally.started_over += u64::from(self.life(who).starts_over(now));
        self.life(who).begin(now, caller, holder)
    }

    /// Begins and keeps the claim for later.
    async fn hold(&mut self) -> Result<(), String> {
        if self.held.len() >= MOST_HELD {
            return Ok(());
        }
        let who = self.somebody();
        let caller = who.caller(&mut self.dice);
        let (operation, holder, now) = (self.operation(who, caller), self.draw(), self.scene.now());
        let expected = self.expected(who, now, caller, holder);
        match operation.begin().await.map_err(|error| format!("{who}: {error}"))? {
            Begun::Acquired(guard) => {
                let claim = guard.claim();
                let Told::Run { attempt, generation, probe_first } = expected else {
                    return Err(format!("{who}: it runs, instead of {expected:?}"));
                };
                let found = Told::Run { attempt: claim.attempt(), generation, probe_first: claim.probe_first() };
                self.compare(who, &Told::Run { attempt, generation, probe_first }, &found)?;
                self.passed_on(who, generation, claim.downstream_key())?;
                self.held.push(Held { who, holder, caller, guard });
                Ok(())
            }
            Begun::Answered(decision) => {
                let found = told(&decision)?;
                self.compare(who, &expected, &found)
            }
        }
    }

    /// Time passes: a little, or until just before or exactly when something changes.
    fn go(&mut self) {
        let who = self.somebody();
        let now = self.scene.now();
        let deadlines: Vec<i64> = self.life(who).deadlines().into_iter().filter(|at| *at > now).collect();
        let chosen = deadlines.get(self.dice.below(deadlines.len().max(1) as u64) as usize);
        let to = match (chosen, self.dice.below(4)) {
            (Some(at), 0) => *at,
            (Some(at), 1) => at - 1,
            (Some(at), 2) => at - 500,
            _ => now + self.dice.weighted(&[(3, 1), (3, 10_000), (1, 100_000)]),
        };
        self.scene.clock.set(Timestamp::from_millis(to.max(now)));
    }

    /// Somebody waits for a running one, and gets its owner's answer.
    async fn wait(&mut self) -> Result<(), String> {
        let now = self.scene.now();
        let is_running = |held: &Held| {
            let life = &self.lives[&held.who];
            life.is_held_by(held.holder) && life.standing(now) == Standing::Running
        };
        let Some(chosen) = self.held.iter().position(is_running) else { return Ok(()) };
        let Held { who, holder, caller, guard } = self.held.swap_remove(chosen);
        let ledger = self.ledger();
        let operation = self.scene.operation(ledger, who, caller, &mut self.dice);
        let call = operation.call().map_err(|error| error.to_string())?;
        let ledger = self.scene.ledgers[ledger].clone();
        let begun = ledger.begin(&call).await.map_err(|error| format!("{who}: {error}"))?;
        let waiting = tokio::spawn(async move { ledger.wait_for(&call, begun, Duration::from_secs(20)).await });
        tokio::task::yield_now().await;
        let value = self.value();
        let finishes = self.dice.one_in(2);
        if finishes {
            guard.finish(outcome(&value)).await.map_err(|error| error.to_string())?;
            self.life(who).finish(now, holder, Some(value.clone()));
        } else {
            guard.release(Duration::ZERO, Some("as planned")).await.map_err(|error| error.to_string())?;
            self.life(who).release(now, holder, 0);
        }
        let waited = waiting.await.map_err(|error| error.to_string())?;
        let expires_at = now + RETENTION;
        match (finishes, waited) {
            (true, Ok(Begun::Answered(decision))) => {
                let found = told(&decision)?;
                self.compare(who, &Told::Replay { outcome: value, expires_at }, &found)
            }
            (false, Ok(Begun::Answered(Decision::InDoubt { .. }))) => Ok(()),
            (false, Err(onceward::Error::OwnerFailed { .. } | onceward::Error::OwnerUnknown { .. })) => Ok(()),
            (_, waited) => Err(format!("{who}: who waited was told {waited:?}")),
        }
    }

    /// A person says what happened, having seen this version of the record or another.
    async fn resolve(&mut self) -> Result<(), String> {
        let who = self.somebody();
        let caller = who.caller(&mut self.dice);
        let operation = self.operation(who, caller);
        let ledger = self.ledger();
        let call = operation.call().map_err(|error| error.to_string())?;
        let seen = operation.get().await.map_err(|error| error.to_string())?;
        let version = seen.map_or(1, |intent| intent.seen.record.version);
        let is_current = !self.dice.one_in(4);
        let value = self.value();
        let (word, resolution) = match self.dice.below(3) {
            0 => (Word::Happened(value.clone()), Resolution::Happened(outcome(&value))),
            1 => (Word::DidNotHappen, Resolution::DidNotHappen),
            _ => (Word::Reset, Resolution::Reset),
        };
        let now = self.scene.now();
        let expected = self.life(who).settle(now, is_current, &word);
        let by = format!("person {}", self.draw());
        let version = if is_current { version } else { version + 1 };
        let resolved = self.scene.ledgers[ledger].resolve(&call.identity, version, resolution, Some(&by), None).await;
        let found = match resolved.map_err(|error| error.to_string())? {
            Resolved::Settled => Settled::Yes,
            Resolved::Refused(Refusal::Absent) => Settled::Absent,
            Resolved::Refused(Refusal::Running) => Settled::Running,
            Resolved::Refused(Refusal::Changed) => Settled::Changed,
            Resolved::Refused(Refusal::NothingToDo(_)) => Settled::NothingToDo,
        };
        if expected != found {
            return Err(format!("{who}: a person said {word:?}: {found:?} instead of {expected:?}"));
        }
        let seen = operation.get().await.map_err(|error| error.to_string())?;
        let noted = seen.is_some_and(|intent| intent.trail.iter().any(|entry| entry.event.by.as_ref() == Some(&by)));
        if noted != (found == Settled::Yes) {
            return Err(format!("{who}: a person said {word:?}: {found:?}, and in the audit trail: {noted}"));
        }
        self.tally.settled += u64::from(noted);
        Ok(())
    }

    /// Everything that can be looked at agrees with the oracle.
    async fn look(&mut self) -> Result<(), String> {
        let ledger = self.ledger();
        let (ledger, now) = (self.scene.ledgers[ledger].clone(), self.scene.now());
        for who in self.cast.clone() {
            let caller = who.caller(&mut self.dice);
            let seen = self.operation(who, caller).get().await.map_err(|error| error.to_string())?;
            let found = seen.and_then(|intent| intent.status());
            let expected = status(self.life(who).standing(now));
            if found != expected {
                return Err(format!("{who}: it stands as {found:?} instead of {expected:?}"));
            }
        }
        let counts = ledger.counts().await.map_err(store)?;
        let standings: Vec<Option<Status>> = self.lives.values().map(|life| status(life.standing(now))).collect();
        for each in Status::ALL {
            let expected = standings.iter().filter(|standing| **standing == Some(each)).count() as u64;
            if counts.of(each) != expected {
                return Err(format!("{} intents count as {} instead of {expected}", counts.of(each), each.as_str()));
            }
        }
        let who = self.somebody();
        let operation = self.operation(who, who.caller(&mut self.dice.clone()));
        let tenant = operation.call().map_err(|error| error.to_string())?.identity.tenant;
        let filter = Filter { tenant: Some(tenant.clone()), ..Filter::default() };
        let page = ledger.list(&filter, None, 100).await.map_err(store)?;
        let own = |listed: &&onceward::store::Listed| {
            listed.seen.record.identity.as_ref().is_some_and(|identity| identity.tenant == tenant)
        };
        let unswept = |(other, life): &(&Who, &Life)| {
            let stands = !matches!(life.standing(now), Standing::Free | Standing::Tombstone);
            other.tenant == who.tenant && stands
        };
        let least = self.lives.iter().filter(unswept).count();
        if page.listed.len() < least || page.listed.iter().filter(own).count() != page.listed.len() {
            return Err(format!(
                "{} lists {} intents, not all its own, or fewer than {least}",
                who.tenant(),
                page.listed.len()
            ));
        }
        Ok(())
    }

    /// While the store is out of reach nothing runs; what is at hand may be told.
    async fn unplug(&mut self) -> Result<(), String> {
        let Some(gate) = self.scene.gate.clone() else { return Ok(()) };
        let who = self.somebody();
        let caller = who.caller(&mut self.dice);
        let operation = self.operation(who, caller);
        gate.close(true);
        let ran = operation.run(|_| async { Ok("it ran".to_owned()) }).await;
        gate.close(false);
        match ran {
            Ok(done) if !done.replayed => Err(format!("{who}: it ran while the store was out of reach")),
            _ => Ok(()),
        }
    }

    pub(super) fn value(&mut self) -> Kept {
        Kept { success: true, text: format!("v{}", self.draw()) }
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

/// A decision in the oracle's words.
pub(super) fn told(decision: &Decision) -> Result<Told, String> {
    Ok(match decision {
        Decision::Replay { outcome, expires_at, .. } => {
            Told::Replay { outcome: kept(outcome), expires_at: expires_at.map_or(0, Timestamp::as_millis) }
        }
        Decision::InFlight { running, .. } => Told::InFlight { running: *running },
        Decision::InDoubt { .. } => Told::InDoubt,
        Decision::Mismatch => Told::Mismatch,
        Decision::OutcomeNotKept { .. } => Told::NotKept,
        other => return Err(format!("nobody should be told {other:?}")),
    })
}

/// An outcome as a closure's value would be kept.
pub(super) fn outcome(value: &Kept) -> Outcome {
    let body = serde_json::Value::String(value.text.clone()).to_string();
    if value.success { Outcome::success(body) } else { Outcome::failure(body) }
}

fn kept(outcome: &Outcome) -> Kept {
    let bytes: &[u8] = match &outcome.body {
        Body::Kept(bytes) => bytes,
        Body::TooLarge { .. } => b"\"too large\"",
    };
    let text = serde_json::from_slice(bytes).unwrap_or_else(|_| String::from_utf8_lossy(bytes).into_owned());
    Kept { success: outcome.verdict == Verdict::Success, text }
}

/// How long a refused attempt has to wait.
pub(super) const REFUSED_FOR: i64 = 60_000;

/// For a guard that is dropped: its doubt is written behind the caller's back.
/// A busy machine takes its time.
pub(super) const BEHIND_THE_BACK: Duration = Duration::from_secs(60);

/// The time that the other side asked for.
pub(super) fn refused_for() -> Duration {
    millis(REFUSED_FOR)
}
