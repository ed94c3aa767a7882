//! A caller: makes its calls one after the other, and writes down what it was told, and when.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onceward::core::decide::{Decision, Resolution};
use onceward::core::outcome::{Body, Outcome};
use onceward::{Begun, Call, Claim, Done, Error, Failure, Guard, Ledger, Reach};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::gate::{ACTOR, Shared};
use super::history::Moment;
use super::plan::{Act, End, Plan, Verb, Word, Work, call};

/// What a caller was told.
#[derive(Debug)]
pub enum Told {
    /// It got the claim; this is the attempt.
    Claimed(u32),
    /// It did not.
    Decided(Decision),
    /// Its own end of the claim, and whether that was written.
    Ended(End, String, Reach),
    /// What `run` returned.
    Ran(Result<Done<String>, Error>),
    /// An error of begin, or of an end by hand.
    Failed(Error),
    /// Nothing that has to be judged.
    Nothing,
}

/// What was asked and answered.
#[derive(Debug)]
pub struct Exchange {
    pub actor: usize,
    pub act: Act,
    pub call: Call,
    pub asked: Moment,
    pub answered: Moment,
    pub told: Told,
}

/// An effect, as the other side sees it.
#[derive(Clone, Debug)]
pub struct Happened {
    pub intent: usize,
    pub at: Moment,
    /// How and when the attempt ended, as its own work knows; `None` while it runs, and when it was dropped.
    pub end: Option<(End, Moment)>,
}

/// What all callers write down.
#[derive(Debug, Default)]
pub struct Notes {
    pub exchanges: Vec<Exchange>,
    pub effects: Vec<Happened>,
    /// Every call that was begun, also by those who were dropped.
    pub calls: Vec<Call>,
    /// Calls that are under way, which the schedule may drop.
    pub running: Vec<AbortHandle>,
    pub dropped: u64,
    values: u64,
}

/// What a caller needs.
#[derive(Clone)]
pub struct Stage {
    pub shared: Arc<Shared>,
    pub ledgers: Vec<Ledger>,
    pub plan: Arc<Plan>,
    pub notes: Arc<Mutex<Notes>>,
}

impl Stage {
    pub fn notes(&self) -> std::sync::MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moment(&self) -> Moment {
        let now = self.shared.now();
        self.shared.traffic().history.moment(now)
    }

    /// All calls of one caller. Each begins when the schedule says so, and may be dropped at any moment.
    pub async fn play(self, actor: usize) {
        for act in self.plan.acts[actor].clone() {
            self.shared.pass(false).await;
            let stage = self.clone();
            let one = tokio::spawn(ACTOR.scope(actor, async move { stage.perform(actor, act).await }));
            self.notes().running.push(one.abort_handle());
            if one.await.is_err() {
                self.notes().dropped += 1;
            }
            self.shared.traffic().asleep.retain(|one| one.actor != actor);
        }
    }

    async fn perform(&self, actor: usize, act: Act) {
        let ledger = &self.ledgers[act.ledger];
        let Ok(call) = call(ledger, actor, act, self.plan.policies[act.intent]) else { return };
        self.notes().calls.push(call.clone());
        let scene = Scene { stage: self, actor, act, call };
        match act.verb {
            Verb::Run(work) => scene.run(ledger, work).await,
            Verb::Begin(work) => scene.begin(ledger, Some(work), work.takes).await,
            Verb::Drop(takes) => scene.begin(ledger, None, takes).await,
            Verb::Resolve(word) => scene.resolve(ledger, word).await,
            Verb::Purge => {
                let _ = ledger.purge(10).await;
            }
        }
    }
}

struct Scene<'a> {
    stage: &'a Stage,
    actor: usize,
    act: Act,
    call: Call,
}

impl Scene<'_> {
    fn note(&self, asked: Moment, told: Told) {
        let answered = self.stage.moment();
        let Self { actor, act, ref call, .. } = *self;
        self.stage.notes().exchanges.push(Exchange { actor, act, call: call.clone(), asked, answered, told });
    }

    async fn run(&self, ledger: &Ledger, work: Work) {
        let asked = self.stage.moment();
        let ran = match ledger.begin(&self.call).await {
            Err(error) => Err(error),
            Ok(begun) => match ledger.wait_for(&self.call, begun, self.call.policy.wait).await {
                Err(error) => Err(error),
                Ok(Begun::Answered(decision)) => return self.note(asked, Told::Decided(decision)),
                Ok(Begun::Acquired(guard)) => {
                    self.note(asked, Told::Claimed(guard.claim().attempt()));
                    guard.run(|claim| self.work(claim, work)).await
                }
            },
        };
        self.note(asked, Told::Ran(ran));
    }

    /// The work itself. Its effect takes place after `sent`, in the middle of the time that it takes.
    async fn work(&self, claim: Claim, work: Work) -> Result<String, Failure> {
        sleep(work.takes / 2).await;
        if self.act.marks_sent {
            claim.sent().await?;
        }
        let effect = self.happen();
        sleep(work.takes / 2).await;
        self.is_over(effect, work.end);
        match work.end {
            End::Done => Ok(self.value()),
            End::NotSent => Err(Failure::not_sent(self.value())),
            End::Refused => Err(Failure::refused(self.value(), Some(Duration::from_millis(15)))),
            End::Final => Err(Failure::last(self.value())),
            End::Unknown => Err(Failure::unknown(self.value())),
        }
    }

    fn happen(&self) -> usize {
        let happened = Happened { intent: self.act.intent, at: self.stage.moment(), end: None };
        let mut notes = self.stage.notes();
        notes.effects.push(happened);
        notes.effects.len() - 1
    }

    fn is_over(&self, effect: usize, end: End) {
        let now = self.stage.moment();
        self.stage.notes().effects[effect].end = Some((end, now));
    }

    /// A text that comes once in a schedule.
    fn value(&self) -> String {
        let mut notes = self.stage.notes();
        notes.values += 1;
        format!("value {}", notes.values)
    }

    async fn begin(&self, ledger: &Ledger, work: Option<Work>, takes: Duration) {
        let asked = self.stage.moment();
        let guard = match ledger.begin(&self.call).await {
            Ok(Begun::Acquired(guard)) => guard,
            Ok(Begun::Answered(decision)) => return self.note(asked, Told::Decided(decision)),
            Err(error) => return self.note(asked, Told::Failed(error)),
        };
        self.note(asked, Told::Claimed(guard.claim().attempt()));
        let claim = guard.claim();
        sleep(takes / 2).await;
        if self.act.marks_sent && claim.sent().await.is_err() {
            return;
        }
        let effect = self.happen();
        sleep(takes / 2).await;
        // Dropped here, without a word.
        let Some(work) = work else { return };
        self.is_over(effect, work.end);
        self.end(guard, work.end).await;
    }

    async fn end(&self, guard: Guard, end: End) {
        let (asked, value) = (self.stage.moment(), self.value());
        let ended = match end {
            End::Done => guard.finish(Outcome::success(json(&value))).await,
            End::Final => guard.finish(Outcome::failure(json(&value))).await,
            End::NotSent | End::Refused => guard.release(Duration::ZERO, Some(&value)).await,
            End::Unknown => guard.doubt(Some(&value)).await,
        };
        match ended {
            Ok(reach) => self.note(asked, Told::Ended(end, value, reach)),
            Err(error) => self.note(asked, Told::Failed(error)),
        }
    }

    async fn resolve(&self, ledger: &Ledger, word: Word) {
        let identity = &self.call.identity;
        let Ok(Some(intent)) = ledger.get(identity).await else { return };
        let resolution = match word {
            Word::Happened => Resolution::Happened(Outcome::success(json(&self.value()))),
            Word::DidNotHappen => Resolution::DidNotHappen,
            Word::Reset => Resolution::Reset,
        };
        let asked = self.stage.moment();
        let version = intent.seen.record.version;
        if ledger.resolve(identity, version, resolution, Some("somebody"), None).await.is_ok() {
            self.note(asked, Told::Nothing);
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
