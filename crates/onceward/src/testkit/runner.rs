//! Runs one scenario: a new store, a clock, a provider, and calls of the tool that may be interrupted.

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

use super::bench::{ScenarioState, TestBench};
use super::call_result::{CallResult, ToolEnd};
use super::check::{Options, Tool};
use super::process::Process;
use super::provider::{Behaviour, Fault};
use super::recording_store::SHORT_LEASE;
use super::scenario_log::LogEntry;
use super::step::Step;
use crate::clock::{Clock, ManualClock};

/// How long the provider takes in concurrent calls: long enough for all of them to begin.
const OVERLAP: Duration = Duration::from_millis(20);

/// How long a process may take to record that its caller has gone away. Only a tool that never gives up its claim takes that
/// long.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// How often the kit polls for this.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// What happened in a scenario.
#[derive(Debug)]
pub(super) struct ScenarioRun {
    /// How each call ended, in the order in which the calls began.
    pub(super) results: Vec<CallResult>,
    /// How often each effect happened.
    pub(super) happened: BTreeMap<String, usize>,
    pub(super) log: Vec<LogEntry>,
    /// The steps of the first process.
    pub(super) trace: Vec<Step>,
    /// The step at which the first process was stopped, if it got that far.
    pub(super) stopped_at: Option<Step>,
}

/// How a scenario is run. A number is the step or request at which the first call is disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    Repeats(usize),
    AtOnce(usize),
    Fault(usize, Fault),
    Stop(usize, Stop),
}

/// What happens to a process that is stopped at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Killed,
    GivenUp,
    Paused,
}

type RunningCall<'a> = LocalBoxFuture<'a, ToolEnd>;

/// How far a call got.
enum CallProgress {
    Returned(ToolEnd),
    /// Its process has stopped. Code that cannot wait may have returned nevertheless.
    Stopped(Option<ToolEnd>),
    TimedOut,
}

struct Runner<'a, 'o> {
    tool: &'o Tool<'a>,
    options: &'o Options<'a>,
    state: ScenarioState,
    keep: Box<dyn Any>,
    /// The store takes its time from the kit's clock.
    follows_clock: bool,
    calls: Cell<usize>,
    /// Calls whose process is dead. They are dropped after everything is counted: a dead process cleans nothing up.
    frozen: RefCell<Vec<RunningCall<'a>>>,
}

/// Runs one scenario on its own store.
pub(super) async fn run<'a>(tool: &Tool<'a>, options: &Options<'a>, plan: Plan) -> ScenarioRun {
    let runner = Runner::new(tool, options).await;
    let process = Arc::new(match plan {
        Plan::Stop(at, stop) => Process::stopped_at(Some(at), stop == Stop::Killed),
        _ => Process::undisturbed(),
    });
    let results = match plan {
        Plan::Repeats(times) => runner.repeats(&process, times).await,
        Plan::AtOnce(times) => runner.at_once(&process, times).await,
        Plan::Fault(at, fault) => runner.with_fault(&process, at, fault).await,
        Plan::Stop(_, Stop::Killed) => runner.killed(&process).await,
        Plan::Stop(_, Stop::GivenUp) => runner.given_up(&process).await,
        Plan::Stop(_, Stop::Paused) => runner.paused(&process).await,
    };
    runner.finish(&process, results).await
}

impl<'a, 'o> Runner<'a, 'o> {
    async fn new(tool: &'o Tool<'a>, options: &'o Options<'a>) -> Self {
        let clock = ManualClock::default();
        let test_store = (options.open_store)(clock.clone()).await;
        let follows_clock = test_store.store.now() == Some(clock.now());
        let state = ScenarioState { store: test_store.store, clock, log: Arc::default(), effects: Arc::default() };
        let (calls, frozen) = (Cell::new(0), RefCell::default());
        Self { tool, options, state, keep: test_store.keep, follows_clock, calls, frozen }
    }

    /// Counts the effects and cleans up.
    async fn finish(self, process: &Process, results: Vec<CallResult>) -> ScenarioRun {
        let happened = self.state.effects.happened();
        let log = self.state.log.entries();
        self.frozen.borrow_mut().clear();
        process.end();
        self.state.store.close().await;
        drop(self.keep);
        ScenarioRun { results, happened, log, trace: process.trace(), stopped_at: process.stop_step() }
    }

    async fn repeats(&self, process: &Arc<Process>, times: usize) -> Vec<CallResult> {
        let mut results = Vec::new();
        for number in 0..times {
            if number == 1 {
                sleep(self.options.pause).await;
            }
            results.push(self.call(process, Behaviour::default()).await);
        }
        results
    }

    async fn at_once(&self, process: &Arc<Process>, times: usize) -> Vec<CallResult> {
        let behaviour = Behaviour { takes: OVERLAP, ..Behaviour::default() };
        join_all((0..times).map(|_| self.call(process, behaviour))).await
    }

    async fn with_fault(&self, process: &Arc<Process>, at: usize, fault: Fault) -> Vec<CallResult> {
        let behaviour = Behaviour { fault: Some((at, fault)), ..Behaviour::default() };
        let first = self.call(process, behaviour).await;
        self.wait_until_idle(process).await;
        self.then_repeats(first).await
    }

    async fn killed(&self, process: &Arc<Process>) -> Vec<CallResult> {
        let (call, mut running) = self.start(process, Behaviour::default(), !self.follows_clock);
        let first = match self.wait_for(process, &mut running).await {
            CallProgress::Stopped(_) => CallResult::Interrupted,
            progress => self.result(call, progress),
        };
        self.frozen.borrow_mut().push(running);
        self.then_repeats(first).await
    }

    async fn given_up(&self, process: &Arc<Process>) -> Vec<CallResult> {
        let (call, mut running) = self.start(process, Behaviour::default(), false);
        let first = match self.wait_for(process, &mut running).await {
            CallProgress::Stopped(_) => CallResult::Interrupted,
            progress => self.result(call, progress),
        };
        drop(running);
        process.resume();
        self.wait_until_idle(process).await;
        self.then_repeats(first).await
    }

    async fn paused(&self, process: &Arc<Process>) -> Vec<CallResult> {
        let (call, mut running) = self.start(process, Behaviour::default(), !self.follows_clock);
        let progress = self.wait_for(process, &mut running).await;
        self.lapse().await;
        let second = self.call(&Arc::new(Process::undisturbed()), Behaviour::default()).await;
        process.resume();
        let progress = match progress {
            CallProgress::Stopped(None) => self.wait_for(process, &mut running).await,
            CallProgress::Stopped(Some(returned)) => CallProgress::Returned(returned),
            progress => progress,
        };
        let first = self.result(call, progress);
        drop(running);
        self.wait_until_idle(process).await;
        let third = self.call(&Arc::new(Process::undisturbed()), Behaviour::default()).await;
        vec![first, second, third]
    }

    /// After the first call: lets its lease lapse, and repeats the call in a new process.
    async fn then_repeats(&self, first: CallResult) -> Vec<CallResult> {
        self.lapse().await;
        let process = Arc::new(Process::undisturbed());
        let mut results = vec![first];
        for _ in 0..self.options.retries {
            results.push(self.call(&process, Behaviour::default()).await);
        }
        results
    }

    async fn call(&self, process: &Arc<Process>, behaviour: Behaviour) -> CallResult {
        let (call, mut running) = self.start(process, behaviour, false);
        let progress = self.wait_for(process, &mut running).await;
        self.result(call, progress)
    }

    fn start(&self, process: &Arc<Process>, behaviour: Behaviour, shortens_leases: bool) -> (usize, RunningCall<'a>) {
        let call = self.calls.get() + 1;
        self.calls.set(call);
        let running = (self.tool.call)(TestBench::new(&self.state, process, call, behaviour, shortens_leases));
        let ended = AssertUnwindSafe(running).catch_unwind();
        (call, ended.map(|ended| ended.map_or_else(ToolEnd::Panicked, ToolEnd::Returned)).boxed_local())
    }

    async fn wait_for(&self, process: &Process, running: &mut RunningCall<'a>) -> CallProgress {
        tokio::select! {
            biased;
            () = process.stopped() => CallProgress::Stopped(None),
            returned = timeout(self.options.timeout, running) => match returned {
                Ok(returned) if process.is_stopped() => CallProgress::Stopped(Some(returned)),
                Ok(returned) => CallProgress::Returned(returned),
                Err(_) => CallProgress::TimedOut,
            },
        }
    }

    fn result(&self, call: usize, progress: CallProgress) -> CallResult {
        match progress {
            CallProgress::Returned(returned) | CallProgress::Stopped(Some(returned)) => {
                CallResult::of(call, returned, &self.state.log.entries())
            }
            CallProgress::Stopped(None) => CallResult::Interrupted,
            CallProgress::TimedOut => CallResult::TimedOut,
        }
    }

    /// Lets every lease lapse.
    async fn lapse(&self) {
        if self.follows_clock {
            self.state.clock.advance(self.state.log.longest_wait() + Duration::from_millis(1));
        } else {
            // A remote store may round its times, so this is well beyond the lease itself.
            sleep(SHORT_LEASE + Duration::from_millis(50)).await;
        }
    }

    /// Waits until a process has finished its writes. If it never does, only its lease ends its claim.
    async fn wait_until_idle(&self, process: &Process) {
        let settled = async {
            loop {
                sleep(POLL_INTERVAL).await;
                let running = self.state.store.counts(None).await.map(|counts| counts.of(Status::Running));
                if process.is_idle() && running.unwrap_or_default() == 0 {
                    return;
                }
            }
        };
        let _ = timeout(SETTLE_TIMEOUT, settled).await;
    }
}
