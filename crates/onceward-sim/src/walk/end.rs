//! How an attempt ends: in a closure under `run`, or later by a caller that kept its claim.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onceward::core::record::{State, Status};
use onceward::{CallBuilder, Claim, Done, Error, Failure, OnError, WriteResult};
use tokio::sync::oneshot;

use super::oracle::{Caller, Response, Standing, Value};
use super::run::{BACKGROUND_TIMEOUT, HeldClaim, REFUSED_FOR, Walk, outcome, refused_for};
use super::setup::{IntentId, KEEP_LIMIT};

/// How the work of a closure ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkEnd {
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
struct ClosureWork {
    ending: WorkEnd,
    /// It marks `sent`, if its caller marks.
    sends: bool,
    /// A probe finds an earlier attempt downstream.
    found: bool,
    text: String,
}

/// What the closure observed.
#[derive(Clone, Debug)]
struct Observed {
    attempt: u32,
    probe_first: bool,
    key: String,
}

impl Walk {
    /// A closure under a guard.
    pub(super) async fn run(&mut self) -> Result<(), String> {
        let id = self.pick_intent();
        let caller = id.caller(&mut self.rng);
        let operation = self.operation(id, caller);
        let (holder, now) = (self.draw(), self.setup.now());
        let ending = self.rng.weighted(&[
            (6, WorkEnd::Succeed),
            (1, WorkEnd::TooLarge),
            (1, WorkEnd::Final),
            (2, WorkEnd::NotSent),
            (1, WorkEnd::Refused),
            (3, WorkEnd::Unknown),
            (2, WorkEnd::Unclassified),
            (1, WorkEnd::Panic),
            (1, WorkEnd::Leave),
        ]);
        let length = if ending == WorkEnd::TooLarge { KEEP_LIMIT + 1 } else { 1 };
        let text = format!("v{holder}{}", "x".repeat(length));
        let work = ClosureWork { ending, sends: caller.marks && !self.rng.one_in(3), found: self.rng.one_in(2), text };
        let expected = self.expected(id, now, caller, holder);
        let (result, ran) = perform(&operation, &work).await;
        let Response::Run { attempt, generation, probe_first } = expected else {
            if let Some(ran) = ran {
                return Err(format!("{id}: attempt {} ran, instead of {expected:?}", ran.attempt));
            }
            let found = answered(id, result)?;
            return self.compare_answer(id, &expected, &found);
        };
        let Some(ran) = ran else { return Err(format!("{id}: {result:?} instead of {expected:?}")) };
        let found = Response::Run { attempt: ran.attempt, generation, probe_first: ran.probe_first };
        self.compare(id, &Response::Run { attempt, generation, probe_first }, &found)?;
        self.check_downstream_key(id, generation, &ran.key)?;
        self.ended(id, holder, &work, probe_first, result)?;
        if matches!(work.ending, WorkEnd::Panic | WorkEnd::Leave) && !(probe_first && work.found) {
            self.settled_in_background(id, &operation).await?;
        }
        Ok(())
    }

    /// A failure that `run` returns has no time of expiry to compare.
    fn compare_answer(&mut self, id: IntentId, expected: &Response, found: &Response) -> Result<(), String> {
        match (expected, found) {
            (Response::Replay { outcome, .. }, Response::Replay { outcome: same, expires_at: 0 })
                if outcome == same =>
            {
                Ok(())
            }
            (Response::InFlight { .. }, Response::InFlight { .. }) => Ok(()),
            _ => self.compare(id, expected, found),
        }
    }

    /// Tells the oracle about the end, and checks what the caller got.
    fn ended(
        &mut self,
        id: IntentId,
        holder: u64,
        work: &ClosureWork,
        probe_first: bool,
        result: Option<Result<Done<String>, Error>>,
    ) -> Result<(), String> {
        let now = self.setup.now();
        let on_error = id.kind().on_error;
        let value = Value { success: true, text: work.text.clone() };
        let oracle = self.oracle(id);
        if probe_first && work.found {
            oracle.finish(now, holder, (work.ending != WorkEnd::TooLarge).then(|| value.clone()));
            return told_value(id, &value.text, &result);
        }
        if probe_first {
            oracle.not_found(now, holder);
        }
        if work.sends {
            oracle.sent(now, holder);
        }
        let failure = Value { success: false, ..value.clone() };
        match work.ending {
            WorkEnd::Succeed => oracle.finish(now, holder, Some(value.clone())),
            WorkEnd::TooLarge => oracle.finish(now, holder, None),
            WorkEnd::Final => oracle.finish(now, holder, Some(failure)),
            WorkEnd::NotSent => oracle.release(now, holder, 0),
            WorkEnd::Refused => oracle.release(now, holder, REFUSED_FOR),
            WorkEnd::Unknown | WorkEnd::Panic | WorkEnd::Leave => oracle.doubt(now, holder),
            WorkEnd::Unclassified => match on_error {
                _ if work.sends => oracle.doubt(now, holder),
                OnError::Classify | OnError::Retry => oracle.release(now, holder, 0),
                OnError::Doubt => oracle.doubt(now, holder),
                OnError::Keep => oracle.finish(now, holder, Some(failure)),
            },
        };
        match work.ending {
            WorkEnd::Succeed | WorkEnd::TooLarge => told_value(id, &value.text, &result),
            WorkEnd::Panic | WorkEnd::Leave => Ok(()),
            _ => match result {
                Some(Err(Error::Failed { replayed: false, .. })) => Ok(()),
                other => Err(format!("{id}: the failure of {:?} was returned as {other:?}", work.ending)),
            },
        }
    }

    /// Ends a claim that was kept, perhaps long after its lease.
    pub(super) async fn end_held(&mut self, held: HeldClaim) -> Result<(), String> {
        let HeldClaim { id, holder, caller, guard } = held;
        let now = self.setup.now();
        if self.oracle(id).may_be_swept(now, holder) {
            let seen = self.operation(id, caller).get().await.map_err(|error| error.to_string())?;
            if seen.is_none() {
                self.oracle(id).swept();
            }
        }
        if caller.marks && self.rng.one_in(2) {
            let expected = self.oracle(id).sent(now, holder);
            let held = guard.claim().sent().await.is_ok();
            if held != expected {
                return Err(format!("{id}: `sent` of an owner that is {} held: {held}", superseded(!expected)));
            }
        }
        let value = self.value();
        let end = self.rng.below(4);
        let (expected, reach) = match end {
            0 => (self.oracle(id).finish(now, holder, Some(value.clone())), guard.finish(outcome(&value)).await),
            1 => (self.oracle(id).release(now, holder, REFUSED_FOR), guard.release(refused_for(), None).await),
            2 => (self.oracle(id).doubt(now, holder), guard.doubt(None).await),
            _ => {
                let expected = self.oracle(id).doubt(now, holder);
                drop(guard);
                let operation = self.operation(id, caller);
                return if expected { self.settled_in_background(id, &operation).await } else { Ok(()) };
            }
        };
        let held = reach.map_err(|error| format!("{id}: {error}"))? == WriteResult::Written;
        if held != expected {
            return Err(format!("{id}: the write of an owner that is {} held: {held}", superseded(!expected)));
        }
        self.tally.late += u64::from(!expected);
        if end == 0 && !expected {
            return self.is_in_the_trail(id, caller, &value.text).await;
        }
        Ok(())
    }

    /// The outcome of a superseded owner changes nothing, and stays in the audit trail.
    async fn is_in_the_trail(&mut self, id: IntentId, caller: Caller, value: &str) -> Result<(), String> {
        let seen = self.operation(id, caller).get().await.map_err(|error| error.to_string())?;
        // Without its record, the trail cannot be found.
        let Some(intent) = seen else { return Ok(()) };
        let notes = intent.trail.iter().filter_map(|entry| entry.event.note.as_deref());
        match notes.into_iter().any(|note| note.contains(value)) {
            true => Ok(()),
            false => Err(format!("{id}: the late outcome {value} is not in the audit trail")),
        }
    }

    /// A dropped guard writes its doubt in the background: waits for that.
    async fn settled_in_background(&mut self, id: IntentId, operation: &CallBuilder) -> Result<(), String> {
        let now = self.setup.now();
        let expected = match self.oracle(id).standing(now) {
            Standing::InDoubt => "in_doubt",
            _ => "open",
        };
        let started = Instant::now();
        let mut found = "absent";
        // A claim that has lapsed reads as settled before the write is there.
        let mut is_written = false;
        while !is_written && started.elapsed() < BACKGROUND_TIMEOUT {
            let seen = operation.get().await.map_err(|error| error.to_string())?;
            let Some(intent) = seen else { break };
            found = intent.status().map_or("absent", Status::as_str);
            is_written = !matches!(intent.seen.record.state, State::Leased(_));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if is_written && found == expected {
            return Ok(());
        }
        Err(format!("{id}: the work was dropped while it ran, and its status is {found} instead of {expected}"))
    }
}

fn superseded(is: bool) -> &'static str {
    if is { "superseded" } else { "not superseded" }
}

fn told_value(id: IntentId, text: &str, result: &Option<Result<Done<String>, Error>>) -> Result<(), String> {
    match result {
        Some(Ok(done)) if done.value == text && !done.replayed => Ok(()),
        other => Err(format!("{id}: the value {text} was returned as {other:?}")),
    }
}

/// Runs the closure. Returns no result when it panicked or was dropped while it ran.
async fn perform(
    operation: &CallBuilder,
    work: &ClosureWork,
) -> (Option<Result<Done<String>, Error>>, Option<Observed>) {
    let ran: Arc<Mutex<Option<Observed>>> = Arc::default();
    let (leave, left) = oneshot::channel();
    let (operation, work, seen) = (operation.clone(), work.clone(), Arc::clone(&ran));
    let running = tokio::spawn(async move {
        let work = |claim| async move {
            let result = work.act(&claim, &seen).await;
            if work.ending == WorkEnd::Leave && !(claim.probe_first() && work.found) {
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
    let ran = ran.lock().expect("no thread panics while it holds the lock").clone();
    (result, ran)
}

impl ClosureWork {
    async fn act(&self, claim: &Claim, seen: &Mutex<Option<Observed>>) -> Result<String, Failure> {
        *seen.lock().expect("no thread panics while it holds the lock") = Some(Observed {
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
            WorkEnd::Succeed | WorkEnd::TooLarge | WorkEnd::Leave => Ok(text),
            WorkEnd::Final => Err(Failure::permanent(text)),
            WorkEnd::NotSent => Err(Failure::not_sent(text)),
            WorkEnd::Refused => Err(Failure::refused(text, Some(refused_for()))),
            WorkEnd::Unknown => Err(Failure::unknown(text)),
            WorkEnd::Unclassified => Err(std::io::Error::other(text).into()),
            WorkEnd::Panic => panic!("as planned"),
        }
    }
}

/// Translates a result into a response of the oracle.
fn answered(id: IntentId, result: Option<Result<Done<String>, Error>>) -> Result<Response, String> {
    let Some(result) = result else { return Err(format!("{id}: it panicked or was dropped without running")) };
    Ok(match result {
        Ok(done) => Response::Replay {
            outcome: Value { success: true, text: done.value },
            expires_at: done.expires_at.map_or(0, |at| at.as_millis()),
        },
        Err(Error::Failed { failure, replayed: true, .. }) => {
            Response::Replay { outcome: Value { success: false, text: failure.message().to_owned() }, expires_at: 0 }
        }
        Err(Error::InFlight { .. }) => Response::InFlight { running: true },
        Err(Error::InDoubt { .. }) => Response::InDoubt,
        Err(Error::Mismatch { .. }) => Response::Mismatch,
        Err(Error::OutcomeNotKept { .. }) => Response::NotKept,
        Err(other) => return Err(format!("{id}: unexpected error: {other}")),
    })
}
