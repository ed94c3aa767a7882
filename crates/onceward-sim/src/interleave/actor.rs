//! A caller: makes its calls one after the other, and records each answer with its time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onceward::core::decide::{Decision, Resolution};
use onceward::core::outcome::{Body, Outcome};
use onceward::{Begun, Call, Claim, Done, Error, Failure, Guard, Ledger, StartOptions, Started, WriteResult};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::gate::{ACTOR, SharedStore};
use super::history::Moment;
use super::plan::{CallKind, End, OperatorChoice, Plan, PlannedCall, Work, call};

/// The answer to a caller.
#[derive(Debug)]
pub enum Response {
    /// It got the claim; this is the attempt.
    Claimed(u32),
    /// It did not get the claim.
    Decided(Decision),
    /// It ended its claim; whether that was written.
    Ended(End, String, WriteResult),
    /// What `run` returned.
    Ran(Result<Done<String>, Error>),
    /// An error of begin, or of ending the claim without `run`.
    Failed(Error),
    /// Nothing to judge.
    Nothing,
}

/// A question and its answer.
#[derive(Debug)]
pub struct Exchange {
    pub actor: usize,
    pub planned: PlannedCall,
    pub call: Call,
    pub asked: Moment,
    pub answered: Moment,
    pub response: Response,
}

/// An effect, as the downstream sees it.
#[derive(Clone, Debug)]
pub struct Effect {
    pub intent: usize,
    pub at: Moment,
    /// How and when the attempt ended; `None` while it runs, and when it was dropped.
    pub end: Option<(End, Moment)>,
}

/// What all callers record.
#[derive(Debug, Default)]
pub struct Log {
    pub exchanges: Vec<Exchange>,
    pub effects: Vec<Effect>,
    /// Every call that was begun, also of callers that were dropped.
    pub calls: Vec<Call>,
    /// Calls in progress, which the schedule may drop.
    pub running: Vec<AbortHandle>,
    pub dropped: u64,
    values: u64,
}

/// What a caller needs.
#[derive(Clone)]
pub struct Context {
    pub shared: Arc<SharedStore>,
    pub ledgers: Vec<Ledger>,
    pub plan: Arc<Plan>,
    pub log: Arc<Mutex<Log>>,
}

impl Context {
    pub fn log(&self) -> std::sync::MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moment(&self) -> Moment {
        let now = self.shared.now();
        self.shared.traffic().history.moment(now)
    }

    /// Makes all calls of one caller. The schedule starts each one, and may drop it at any moment.
    pub async fn play(self, actor: usize) {
        for planned in self.plan.planned_calls[actor].clone() {
            self.shared.pass(false).await;
            let context = self.clone();
            let one = tokio::spawn(ACTOR.scope(actor, async move { context.perform(actor, planned).await }));
            self.log().running.push(one.abort_handle());
            if one.await.is_err() {
                self.log().dropped += 1;
            }
            self.shared.traffic().asleep.retain(|one| one.actor != actor);
        }
    }

    async fn perform(&self, actor: usize, planned: PlannedCall) {
        let ledger = &self.ledgers[planned.ledger];
        let Ok(call) = call(ledger, actor, planned, self.plan.policies[planned.intent]) else { return };
        self.log().calls.push(call.clone());
        let in_progress = CallInProgress { context: self, actor, planned, call };
        match planned.kind {
            CallKind::Run(work) => in_progress.run(ledger, work).await,
            CallKind::Begin(work) => in_progress.begin(ledger, Some(work), work.takes).await,
            CallKind::Drop(takes) => in_progress.begin(ledger, None, takes).await,
            CallKind::Resolve(choice) => in_progress.resolve(ledger, choice).await,
            CallKind::Purge => {
                let _ = ledger.purge(10).await;
            }
        }
    }
}

struct CallInProgress<'a> {
    context: &'a Context,
    actor: usize,
    planned: PlannedCall,
    call: Call,
}

impl CallInProgress<'_> {
    fn note(&self, asked: Moment, response: Response) {
        let answered = self.context.moment();
        let Self { actor, planned, ref call, .. } = *self;
        self.context.log().exchanges.push(Exchange { actor, planned, call: call.clone(), asked, answered, response });
    }

    async fn run(&self, ledger: &Ledger, work: Work) {
        let asked = self.context.moment();
        let ran = match ledger.start(&self.call, StartOptions::default()).await {
            Err(error) => Err(error),
            Ok(Started::Unguarded { error, .. }) => Err(Error::Store(error)),
            Ok(Started::Answered(decision)) => return self.note(asked, Response::Decided(decision)),
            Ok(Started::Acquired(guard)) => {
                self.note(asked, Response::Claimed(guard.claim().attempt()));
                guard.run(|claim| self.work(claim, work)).await
            }
        };
        self.note(asked, Response::Ran(ran));
    }

    /// The work. Its effect takes place after `sent`, halfway through.
    async fn work(&self, claim: Claim, work: Work) -> Result<String, Failure> {
        sleep(work.takes / 2).await;
        if self.planned.marks_sent {
            claim.sent().await?;
        }
        let effect = self.happen();
        sleep(work.takes / 2).await;
        self.is_over(effect, work.end);
        match work.end {
            End::Done => Ok(self.value()),
            End::NotSent => Err(Failure::not_sent(self.value())),
            End::Refused => Err(Failure::refused(self.value(), Some(Duration::from_millis(15)))),
            End::Final => Err(Failure::permanent(self.value())),
            End::Unknown => Err(Failure::unknown(self.value())),
        }
    }

    fn happen(&self) -> usize {
        let happened = Effect { intent: self.planned.intent, at: self.context.moment(), end: None };
        let mut log = self.context.log();
        log.effects.push(happened);
        log.effects.len() - 1
    }

    fn is_over(&self, effect: usize, end: End) {
        let now = self.context.moment();
        self.context.log().effects[effect].end = Some((end, now));
    }

    /// A text that is used once in a schedule.
    fn value(&self) -> String {
        let mut log = self.context.log();
        log.values += 1;
        format!("value {}", log.values)
    }

    async fn begin(&self, ledger: &Ledger, work: Option<Work>, takes: Duration) {
        let asked = self.context.moment();
        let guard = match ledger.begin(&self.call).await {
            Ok(Begun::Acquired(guard)) => guard,
            Ok(Begun::Answered(decision)) => return self.note(asked, Response::Decided(decision)),
            Err(error) => return self.note(asked, Response::Failed(error)),
        };
        self.note(asked, Response::Claimed(guard.claim().attempt()));
        let claim = guard.claim();
        sleep(takes / 2).await;
        if self.planned.marks_sent && claim.sent().await.is_err() {
            return;
        }
        let effect = self.happen();
        sleep(takes / 2).await;
        // Dropped here, without ending the claim.
        let Some(work) = work else { return };
        self.is_over(effect, work.end);
        self.end(guard, work.end).await;
    }

    async fn end(&self, guard: Guard, end: End) {
        let (asked, value) = (self.context.moment(), self.value());
        let ended = match end {
            End::Done => guard.finish(Outcome::success(json(&value))).await,
            End::Final => guard.finish(Outcome::failure(json(&value))).await,
            End::NotSent | End::Refused => guard.release(Duration::ZERO, Some(&value)).await,
            End::Unknown => guard.doubt(Some(&value)).await,
        };
        match ended {
            Ok(reach) => self.note(asked, Response::Ended(end, value, reach)),
            Err(error) => self.note(asked, Response::Failed(error)),
        }
    }

    async fn resolve(&self, ledger: &Ledger, choice: OperatorChoice) {
        let identity = &self.call.identity;
        let Ok(Some(intent)) = ledger.get(identity).await else { return };
        let resolution = match choice {
            OperatorChoice::Happened => Resolution::Happened(Outcome::success(json(&self.value()))),
            OperatorChoice::DidNotHappen => Resolution::DidNotHappen,
            OperatorChoice::Reset => Resolution::Reset,
        };
        let asked = self.context.moment();
        let version = intent.seen.record.version;
        if ledger.resolve(identity, version, resolution, Some("operator"), None).await.is_ok() {
            self.note(asked, Response::Nothing);
        }
    }
}

/// A text as the body of an outcome.
pub fn json(text: &str) -> String {
    serde_json::Value::String(text.to_owned()).to_string()
}

/// The text in the body of an outcome.
pub fn text(outcome: &Outcome) -> Option<String> {
    match &outcome.body {
        Body::Kept(bytes) => serde_json::from_slice(bytes).ok(),
        Body::TooLarge { .. } => None,
    }
}
