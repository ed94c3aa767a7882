//! How an attempt ends: in a closure under `run`, or in the hands of somebody who kept the claim.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onceward::core::record::{State, Status};
use onceward::{Claim, Done, Error, Failure, OnError, Operation, Reach};
use tokio::sync::oneshot;

use super::life::{Caller, Kept, Standing, Told};
use super::play::{BEHIND_THE_BACK, Held, REFUSED_FOR, Walk, outcome, refused_for};
use super::scene::{KEEP_LIMIT, Who};

/// How the work of a closure ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Succeed,
    TooLarge,
    Final,
    NotSent,
    Refused,
    Unknown,
    Unclassified,
    Panic,
    Leave,
}

/// What a closure does.
#[derive(Clone, Debug)]
struct Part {
    ending: Ending,
    /// It marks `sent`, if it is one that does.
    sends: bool,
    /// The other side, asked first, knows of an earlier attempt.
    found: bool,
    text: String,
}

/// What the closure saw.
#[derive(Clone, Debug)]
struct Ran {
    attempt: u32,
    probe_first: bool,
    key: String,
}

impl Walk {
    /// A closure under a guard.
    pub(super) async fn run(&mut self) -> Result<(), String> {
        let who = self.somebody();
        let caller = who.caller(&mut self.dice);
        let operation = self.operation(who, caller);
        let (holder, now) = (self.draw(), self.scene.now());
        let ending = self.dice.weighted(&[
            (6, Ending::Succeed),
            (1, Ending::TooLarge),
            (1, Ending::Final),
            (2, Ending::NotSent),
            (1, Ending::Refused),
            (3, Ending::Unknown),
            (2, Ending::Unclassified),
            (1, Ending::Panic),
            (1, Ending::Leave),
        ]);
        let length = if ending == Ending::TooLarge { KEEP_LIMIT + 1 } else { 1 };
        let text = format!("v{holder}{}", "x".repeat(length));
        let part = Part { ending, sends: caller.marks && !self.dice.one_in(3), found: self.dice.one_in(2), text };
        let expected = self.expected(who, now, caller, holder);
        let (result, ran) = perform(&operation, &part).await;
        let Told::Run { attempt, generation, probe_first } = expected else {
            if let Some(ran) = ran {
                return Err(format!("{who}: attempt {} ran, instead of {expected:?}", ran.attempt));
            }
            let found = answered(who, result)?;
            return self.compare_answer(who, &expected, &found);
        };
        let Some(ran) = ran else { return Err(format!("{who}: {result:?} instead of {expected:?}")) };
        let found = Told::Run { attempt: ran.attempt, generation, probe_first: ran.probe_first };
        self.compare(who, &Told::Run { attempt, generation, probe_first }, &found)?;
        self.passed_on(who, generation, &ran.key)?;
        self.ended(who, holder, &part, probe_first, result)?;
        if matches!(part.ending, Ending::Panic | Ending::Leave) && !(probe_first && part.found) {
            self.settled_behind_the_back(who, &operation).await?;
        }
        Ok(())
    }

    /// A value from `run` has no time of expiry to compare if it is a failure.
    fn compare_answer(&mut self, who: Who, expected: &Told, found: &Told) -> Result<(), String> {
        match (expected, found) {
            (Told::Replay { outcome, .. }, Told::Replay { outcome: same, expires_at: 0 }) if outcome == same => Ok(()),
            (Told::InFlight { .. }, Told::InFlight { .. }) => Ok(()),
            _ => self.compare(who, expected, found),
        }
    }

    /// What the end means for the oracle, and whether the caller was told so.
    fn ended(
        &mut self,
        who: Who,
        holder: u64,
        part: &Part,
        probe_first: bool,
        result: Option<Result<Done<String>, Error>>,
    ) -> Result<(), String> {
        let now = self.scene.now();
        let on_error = who.kind().on_error;
        let value = Kept { success: true, text: part.text.clone() };
        let life = self.life(who);
        if probe_first && part.found {
            life.finish(now, holder, (part.ending != Ending::TooLarge).then(|| value.clone()));
            return told_value(who, &value.text, &result);
        }
        if probe_first {
            life.not_found(now, holder);
        }
        if part.sends {
            life.sent(now, holder);
        }
        let failure = Kept { success: false, ..value.clone() };
        match part.ending {
            Ending::Succeed => life.finish(now, holder, Some(value.clone())),
            Ending::TooLarge => life.finish(now, holder, None),
            Ending::Final => life.finish(now, holder, Some(failure)),
            Ending::NotSent => life.release(now, holder, 0),
            Ending::Refused => life.release(now, holder, REFUSED_FOR),
            Ending::Unknown | Ending::Panic | Ending::Leave => life.doubt(now, holder),
            Ending::Unclassified => match on_error {
                _ if part.sends => life.doubt(now, holder),
                OnError::Classify | OnError::Retry => life.release(now, holder, 0),
                OnError::Doubt => life.doubt(now, holder),
                OnError::Keep => life.finish(now, holder, Some(failure)),
            },
        };
        match part.ending {
            Ending::Succeed | Ending::TooLarge => told_value(who, &value.text, &result),
            Ending::Panic | Ending::Leave => Ok(()),
            _ => match result {
                Some(Err(Error::Failed { replayed: false, .. })) => Ok(()),
                other => Err(format!("{who}: the failure of {:?} came back as {other:?}", part.ending)),
            },
        }
    }

    /// Ends a claim that was kept, perhaps long after its lease.
    pub(super) async fn end_held(&mut self, held: Held) -> Result<(), String> {
        let Held { who, holder, caller, guard } = held;
        let now = self.scene.now();
        if self.life(who).may_be_swept(now, holder) {
            let seen = self.operation(who, caller).get().await.map_err(|error| error.to_string())?;
            if seen.is_none() {
                self.life(who).swept();
            }
        }
        if caller.marks && self.dice.one_in(2) {
            let expected = self.life(who).sent(now, holder);
            let held = guard.claim().sent().await.is_ok();
            if held != expected {
                return Err(format!("{who}: `sent` of an owner that is {} held: {held}", superseded(!expected)));
            }
        }
        let value = self.value();
        let end = self.dice.below(4);
        let (expected, reach) = match end {
            0 => (self.life(who).finish(now, holder, Some(value.clone())), guard.finish(outcome(&value)).await),
            1 => (self.life(who).release(now, holder, REFUSED_FOR), guard.release(refused_for(), None).await),
            2 => (self.life(who).doubt(now, holder), guard.doubt(None).await),
            _ => {
                let expected = self.life(who).doubt(now, holder);
                drop(guard);
                let operation = self.operation(who, caller);
                return if expected { self.settled_behind_the_back(who, &operation).await } else { Ok(()) };
            }
        };
        let held = reach.map_err(|error| format!("{who}: {error}"))? == Reach::Written;
        if held != expected {
            return Err(format!("{who}: the write of an owner that is {} held: {held}", superseded(!expected)));
        }
        self.tally.late += u64::from(!expected);
        if end == 0 && !expected {
            return self.is_in_the_trail(who, caller, &value.text).await;
        }
        Ok(())
    }

    /// A late outcome changes nothing, and is not forgotten either.
    async fn is_in_the_trail(&mut self, who: Who, caller: Caller, value: &str) -> Result<(), String> {
        let seen = self.operation(who, caller).get().await.map_err(|error| error.to_string())?;
        // With its record gone, nothing leads to the trail.
        let Some(intent) = seen else { return Ok(()) };
        let notes = intent.trail.iter().filter_map(|entry| entry.event.note.as_deref());
        match notes.into_iter().any(|note| note.contains(value)) {
            true => Ok(()),
            false => Err(format!("{who}: the late outcome {value} is not in the audit trail")),
        }
    }

    /// What is written behind a caller's back is there soon.
    async fn settled_behind_the_back(&mut self, who: Who, operation: &Operation) -> Result<(), String> {
        let now = self.scene.now();
        let expected = match self.life(who).standing(now) {
            Standing::InDoubt => "in_doubt",
            _ => "open",
        };
        let started = Instant::now();
        let mut found = "absent";
        // A claim that has lapsed looks settled before it is.
        let mut is_written = false;
        while !is_written && started.elapsed() < BEHIND_THE_BACK {
            let seen = operation.get().await.map_err(|error| error.to_string())?;
            let Some(intent) = seen else { break };
            found = intent.status().map_or("absent", Status::as_str);
            is_written = !matches!(intent.seen.record.state, State::Leased(_));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if is_written && found == expected {
            return Ok(());
        }
        Err(format!("{who}: the work was dropped in the middle, and it stands as {found} instead of {expected}"))
    }
}

fn superseded(is: bool) -> &'static str {
    if is { "superseded" } else { "not superseded" }
}

fn told_value(who: Who, text: &str, result: &Option<Result<Done<String>, Error>>) -> Result<(), String> {
    match result {
        Some(Ok(done)) if done.value == text && !done.replayed => Ok(()),
        other => Err(format!("{who}: the value {text} came back as {other:?}")),
    }
}

/// Runs the closure. No result when it panicked or was left in the middle.
async fn perform(operation: &Operation, part: &Part) -> (Option<Result<Done<String>, Error>>, Option<Ran>) {
    let ran: Arc<Mutex<Option<Ran>>> = Arc::default();
    let (leave, left) = oneshot::channel();
    let (operation, part, seen) = (operation.clone(), part.clone(), Arc::clone(&ran));
    let running = tokio::spawn(async move {
        let work = |claim| async move {
            let result = part.act(&claim, &seen).await;
            if part.ending == Ending::Leave && !(claim.probe_first() && part.found) {
                let _ = leave.send(());
                std::future::pending::<()>().await;
            }
            result
        };
        tokio::select! {
            result = operation.run(work) => Some(result),
            Ok(()) = left => None,
        }
    });
    let result = running.await.unwrap_or(None);
    let ran = ran.lock().expect("nobody panics with it").clone();
    (result, ran)
}

impl Part {
    async fn act(&self, claim: &Claim, seen: &Mutex<Option<Ran>>) -> Result<String, Failure> {
        *seen.lock().expect("nobody panics with it") = Some(Ran {
            attempt: claim.attempt(),
            probe_first: claim.probe_first(),
            key: claim.downstream_key().to_owned(),
        });
        if claim.probe_first() {
            if self.found {
                return Ok(self.text.clone());
            }
            claim.not_found().await?;
        }
        if self.sends {
            claim.sent().await?;
        }
        let text = self.text.clone();
        match self.ending {
            Ending::Succeed | Ending::TooLarge | Ending::Leave => Ok(text),
            Ending::Final => Err(Failure::last(text)),
            Ending::NotSent => Err(Failure::not_sent(text)),
            Ending::Refused => Err(Failure::refused(text, Some(refused_for()))),
            Ending::Unknown => Err(Failure::unknown(text)),
            Ending::Unclassified => Err(std::io::Error::other(text).into()),
            Ending::Panic => panic!("as planned"),
        }
    }
}

/// An answer in the oracle's words.
fn answered(who: Who, result: Option<Result<Done<String>, Error>>) -> Result<Told, String> {
    let Some(result) = result else { return Err(format!("{who}: it panicked or was left, and did not run")) };
    Ok(match result {
        Ok(done) => Told::Replay {
            outcome: Kept { success: true, text: done.value },
            expires_at: done.expires_at.map_or(0, |at| at.as_millis()),
        },
        Err(Error::Failed { failure, replayed: true, .. }) => {
            Told::Replay { outcome: Kept { success: false, text: failure.message().to_owned() }, expires_at: 0 }
        }
        Err(Error::InFlight { .. }) => Told::InFlight { running: true },
        Err(Error::InDoubt { .. }) => Told::InDoubt,
        Err(Error::Mismatch { .. }) => Told::Mismatch,
        Err(Error::OutcomeNotKept { .. }) => Told::NotKept,
        Err(other) => return Err(format!("{who}: nobody should be told: {other}")),
    })
}
