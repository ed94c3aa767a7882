//! Where a scenario is played: a fresh store, a clock, a world, and calls of the tool that may be cut short.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, join_all};
use tokio::time::{sleep, timeout};

use onceward_core::record::Status;

use super::answer::{Answer, Ended};
use super::bench::{Bench, Shared};
use super::check::{Options, Tool};
use super::life::Life;
use super::log::Entry;
use super::provider::{Manner, Trouble};
use super::step::Step;
use super::watched::SHORT_LEASE;
use crate::clock::{Clock, ManualClock};

/// How long a call takes at the provider while others are made at the same time: long enough for all of them to begin.
const OVERLAP: Duration = Duration::from_millis(20);

/// How long a process is given to write down that its caller has gone away. Only a tool that never lets go of its claim
/// takes that long.
const LONGEST_SETTLING: Duration = Duration::from_secs(5);

/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(2);

/// What came of a scenario.
#[derive(Debug)]
pub(super) struct Trial {
    /// How each call ended, in the order in which the calls began.
    pub(super) answers: Vec<Answer>,
    /// How often each effect happened.
    pub(super) happened: BTreeMap<String, usize>,
    pub(super) log: Vec<Entry>,
    /// The steps of the first process.
    pub(super) trace: Vec<Step>,
    /// Where the first process was to be stopped, if it came that far.
    pub(super) stopped_at: Option<Step>,
}

/// What to do with the first call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Play {
    Repeats(usize),
    AtOnce(usize),
    Trouble(usize, Trouble),
    Stop(usize, Stop),
}

/// What happens to a process that is stopped at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Killed,
    GivenUp,
    Paused,
}

type Running<'a> = LocalBoxFuture<'a, Ended>;

/// How far a call got.
enum Met {
    Ended(Ended),
    /// Its process has stopped. Code that cannot wait may have come to its end all the same.
    Stopped(Option<Ended>),
    Late,
}

struct Stage<'a, 'o> {
    tool: &'o Tool<'a>,
    options: &'o Options<'a>,
    shared: Shared,
    keep: Box<dyn Any>,
    /// The store takes its time from the kit's clock.
    follows: bool,
    calls: Cell<usize>,
    /// Calls whose process is dead. They are dropped when everything is counted: a dead process cleans nothing up.
    frozen: RefCell<Vec<Running<'a>>>,
}

/// Plays one scenario on a store of its own.
pub(super) async fn play<'a>(tool: &Tool<'a>, options: &Options<'a>, play: Play) -> Trial {
    let stage = Stage::set(tool, options).await;
    let life = Arc::new(match play {
        Play::Stop(at, stop) => Life::stopped_at(Some(at), stop == Stop::Killed),
        _ => Life::undisturbed(),
    });
    let answers = match play {
        Play::Repeats(times) => stage.repeats(&life, times).await,
        Play::AtOnce(times) => stage.at_once(&life, times).await,
        Play::Trouble(at, trouble) => stage.trouble(&life, at, trouble).await,
        Play::Stop(_, Stop::Killed) => stage.killed(&life).await,
        Play::Stop(_, Stop::GivenUp) => stage.given_up(&life).await,
        Play::Stop(_, Stop::Paused) => stage.paused(&life).await,
    };
    stage.strike(&life, answers).await
}

impl<'a, 'o> Stage<'a, 'o> {
    async fn set(tool: &'o Tool<'a>, options: &'o Options<'a>) -> Self {
        let clock = ManualClock::default();
        let place = (options.place)(clock.clone()).await;
        let follows = place.store.now() == Some(clock.now());
        let shared = Shared { store: place.store, clock, log: Arc::default(), world: Arc::default() };
        let (calls, frozen) = (Cell::new(0), RefCell::default());
        Self { tool, options, shared, keep: place.keep, follows, calls, frozen }
    }

    /// Counts, and clears everything away.
    async fn strike(self, life: &Life, answers: Vec<Answer>) -> Trial {
        let happened = self.shared.world.happened();
        let log = self.shared.log.entries();
        self.frozen.borrow_mut().clear();
        life.bury();
        self.shared.store.close().await;
        drop(self.keep);
        Trial { answers, happened, log, trace: life.trace(), stopped_at: life.stopping_place() }
    }

    async fn repeats(&self, life: &Arc<Life>, times: usize) -> Vec<Answer> {
        let mut answers = Vec::new();
        for number in 0..times {
            if number == 1 {
                sleep(self.options.pause).await;
            }
            answers.push(self.call(life, Manner::default()).await);
        }
        answers
    }

    async fn at_once(&self, life: &Arc<Life>, times: usize) -> Vec<Answer> {
        let manner = Manner { takes: OVERLAP, ..Manner::default() };
        join_all((0..times).map(|_| self.call(life, manner))).await
    }

    async fn trouble(&self, life: &Arc<Life>, at: usize, trouble: Trouble) -> Vec<Answer> {
        let manner = Manner { trouble: Some((at, trouble)), ..Manner::default() };
        let first = self.call(life, manner).await;
        self.quiet(life).await;
        self.and_repeats(first).await
    }

    async fn killed(&self, life: &Arc<Life>) -> Vec<Answer> {
        let (call, mut running) = self.start(life, Manner::default(), !self.follows);
        let first = match self.meet(life, &mut running).await {
            Met::Stopped(_) => Answer::Cut,
            met => self.answer(call, met),
        };
        self.frozen.borrow_mut().push(running);
        self.and_repeats(first).await
    }

    async fn given_up(&self, life: &Arc<Life>) -> Vec<Answer> {
        let (call, mut running) = self.start(life, Manner::default(), false);
        let first = match self.meet(life, &mut running).await {
            Met::Stopped(_) => Answer::Cut,
            met => self.answer(call, met),
        };
        drop(running);
        life.resume();
        self.quiet(life).await;
        self.and_repeats(first).await
    }

    async fn paused(&self, life: &Arc<Life>) -> Vec<Answer> {
        let (call, mut running) = self.start(life, Manner::default(), !self.follows);
        let met = self.meet(life, &mut running).await;
        self.lapse().await;
        let second = self.call(&Arc::new(Life::undisturbed()), Manner::default()).await;
        life.resume();
        let met = match met {
            Met::Stopped(None) => self.meet(life, &mut running).await,
            Met::Stopped(Some(ended)) => Met::Ended(ended),
            met => met,
        };
        let first = self.answer(call, met);
        drop(running);
        self.quiet(life).await;
        let third = self.call(&Arc::new(Life::undisturbed()), Manner::default()).await;
        vec![first, second, third]
    }

    /// What follows when the first call is over, one way or another: its lease lapses, and a new process repeats it.
    async fn and_repeats(&self, first: Answer) -> Vec<Answer> {
        self.lapse().await;
        let life = Arc::new(Life::undisturbed());
        let mut answers = vec![first];
        for _ in 0..self.options.retries {
            answers.push(self.call(&life, Manner::default()).await);
        }
        answers
    }

    async fn call(&self, life: &Arc<Life>, manner: Manner) -> Answer {
        let (call, mut running) = self.start(life, manner, false);
        let met = self.meet(life, &mut running).await;
        self.answer(call, met)
    }

    fn start(&self, life: &Arc<Life>, manner: Manner, shortens: bool) -> (usize, Running<'a>) {
        let call = self.calls.get() + 1;
        self.calls.set(call);
        let running = (self.tool.call)(Bench::new(&self.shared, life, call, manner, shortens));
        (call, AssertUnwindSafe(running).catch_unwind().boxed_local())
    }

    async fn meet(&self, life: &Life, running: &mut Running<'a>) -> Met {
        tokio::select! {
            biased;
            () = life.stopped() => Met::Stopped(None),
            ended = timeout(self.options.patience, running) => match ended {
                Ok(ended) if life.is_stopped() => Met::Stopped(Some(ended)),
                Ok(ended) => Met::Ended(ended),
                Err(_) => Met::Late,
            },
        }
    }

    fn answer(&self, call: usize, met: Met) -> Answer {
        match met {
            Met::Ended(ended) | Met::Stopped(Some(ended)) => Answer::of(call, ended, &self.shared.log.entries()),
            Met::Stopped(None) => Answer::Cut,
            Met::Late => Answer::Silent,
        }
    }

    /// Lets every lease come to its end.
    async fn lapse(&self) {
        if self.follows {
            self.shared.clock.advance(self.shared.log.longest_wait() + Duration::from_millis(1));
        } else {
            // A store elsewhere may round its times, so this is well beyond the lease itself.
            sleep(SHORT_LEASE + Duration::from_millis(50)).await;
        }
    }

    /// Waits until a process has written what it still had to write. One that never does is left to its lease.
    async fn quiet(&self, life: &Life) {
        let settled = async {
            loop {
                sleep(LOOK).await;
                let running = self.shared.store.counts(None).await.map(|counts| counts.of(Status::Running));
                if life.is_idle() && running.unwrap_or_default() == 0 {
                    return;
                }
            }
        };
        let _ = timeout(LONGEST_SETTLING, settled).await;
    }
}
