//! Checks one tool: chooses its scenarios, runs each of them, and builds the report.

use std::fmt;
use std::future::IntoFuture;
use std::rc::Rc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use super::bench::TestBench;
use super::provider::Fault;
use super::report::{Report, ScenarioReport};
use super::runner::{Plan, ScenarioRun, Stop, run};
use super::scenario::{Scenario, ScenarioKind};
use super::step::{Side, Step, StepKind, named};
use super::test_store::TestStore;
use crate::clock::ManualClock;

/// The default number of calls one after the other: the first call, a repeat, and the repeat of a repeat.
const DEFAULT_REPEATS: usize = 3;

/// The default number of concurrent calls.
const DEFAULT_AT_ONCE: usize = 8;

/// The default number of repeats after a disturbed call.
const DEFAULT_RETRIES: usize = 2;

/// The default wait before the first repeat: long enough for a key that contains the time in whole seconds to change.
const DEFAULT_PAUSE: Duration = Duration::from_millis(1100);

/// The default timeout of a call. On a busy disk a write can take several seconds.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// The default kinds of scenarios. A pause longer than the lease is not among them: if a doubt is probed and the provider does
/// not honour keys, nothing can protect against it.
const DEFAULT_KINDS: [ScenarioKind; 6] = [
    ScenarioKind::Repeats,
    ScenarioKind::AtOnce,
    ScenarioKind::LostAnswer,
    ScenarioKind::Refused,
    ScenarioKind::GivenUp,
    ScenarioKind::Killed,
];

type OpenStore<'a> = dyn Fn(ManualClock) -> LocalBoxFuture<'a, TestStore> + 'a;
type CallTool<'a> = dyn Fn(TestBench) -> LocalBoxFuture<'a, Result<(), String>> + 'a;

/// A tool under test.
pub(super) struct Tool<'a> {
    pub(super) name: String,
    pub(super) call: Box<CallTool<'a>>,
}

impl<'a> Tool<'a> {
    pub(super) fn new<T, E, W>(name: &str, tool: impl Fn(TestBench) -> W + 'a) -> Self
    where
        E: fmt::Display,
        W: Future<Output = Result<T, E>> + 'a,
    {
        let call = move |bench| {
            let work = tool(bench);
            async move { work.await.map(drop).map_err(|error| error.to_string()) }.boxed_local()
        };
        Self { name: name.to_owned(), call: Box::new(call) }
    }
}

/// How tools are checked.
#[derive(Clone)]
pub(super) struct Options<'a> {
    pub(super) repeats: usize,
    pub(super) at_once: usize,
    pub(super) retries: usize,
    pub(super) pause: Duration,
    pub(super) timeout: Duration,
    pub(super) kinds: Vec<ScenarioKind>,
    pub(super) open_store: Rc<OpenStore<'a>>,
    pub(super) store_name: String,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            repeats: DEFAULT_REPEATS,
            at_once: DEFAULT_AT_ONCE,
            retries: DEFAULT_RETRIES,
            pause: DEFAULT_PAUSE,
            timeout: DEFAULT_TIMEOUT,
            kinds: DEFAULT_KINDS.to_vec(),
            open_store: Rc::new(|clock| async { TestStore::in_memory(clock) }.boxed_local()),
            store_name: "memory".to_owned(),
        }
    }
}

/// A check of one tool, with its settings. `.await` runs it.
#[must_use = "the check runs only when it is awaited"]
pub struct Check<'a> {
    tool: Tool<'a>,
    options: Options<'a>,
}

/// Checks a tool: calls it repeatedly, concurrently, with a provider whose response is lost, and with a crash at every step, and
/// reports how often its effect happened. See the [module](crate::testkit) for an example.
pub fn check<'a, T, E, W>(name: &str, tool: impl Fn(TestBench) -> W + 'a) -> Check<'a>
where
    E: fmt::Display,
    W: Future<Output = Result<T, E>> + 'a,
{
    Check { tool: Tool::new(name, tool), options: Options::default() }
}

/// The settings of a check, for one tool and for several.
macro_rules! settings {
    ($type:ident) => {
        impl<'a> $type<'a> {
            /// The number of calls one after the other. Default: 3.
            pub fn repeats(mut self, times: usize) -> Self {
                self.options.repeats = times;
                self
            }

            /// The number of concurrent calls. Default: 8.
            pub fn at_once(mut self, times: usize) -> Self {
                self.options.at_once = times;
                self
            }

            /// How often a call is repeated after a disturbed one. Default: 2.
            pub fn retries(mut self, times: usize) -> Self {
                self.options.retries = times;
                self
            }

            /// How long the kit waits before the first repeat, in real time. Default: a little over a second, so that a
            /// key that contains the time in seconds is detected.
            pub fn pause(mut self, pause: Duration) -> Self {
                self.options.pause = pause;
                self
            }

            /// How long a call may take. Default: 30 seconds.
            pub fn timeout(mut self, timeout: Duration) -> Self {
                self.options.timeout = timeout;
                self
            }

            /// Runs only these kinds of scenarios.
            pub fn only(mut self, kinds: impl IntoIterator<Item = $crate::testkit::ScenarioKind>) -> Self {
                self.options.kinds = kinds.into_iter().collect();
                self
            }

            /// Also pauses the process at every step until its lease is over and another process has repeated the call, and
            /// then lets it continue.
            pub fn with_pauses(mut self) -> Self {
                self.options.kinds.push($crate::testkit::ScenarioKind::Paused);
                self
            }

            /// Uses this store instead of one in memory. `open` makes an empty store for each scenario. If the store takes
            /// its time from the given clock, leases lapse without waiting; otherwise the kit makes them short.
            pub fn on_store<P, O>(mut self, name: &str, open: impl Fn($crate::clock::ManualClock) -> O + 'a) -> Self
            where
                P: Into<$crate::testkit::TestStore>,
                O: Future<Output = P> + 'a,
            {
                self.options.store_name = name.to_owned();
                self.options.open_store = std::rc::Rc::new(move |clock| {
                    let opening = open(clock);
                    futures_util::FutureExt::boxed_local(async move { opening.await.into() })
                });
                self
            }
        }
    };
}
pub(super) use settings;

settings!(Check);

impl<'a> IntoFuture for Check<'a> {
    type Output = Report;
    type IntoFuture = LocalBoxFuture<'a, Report>;

    fn into_future(self) -> Self::IntoFuture {
        async move { report(&self.tool, &self.options).await }.boxed_local()
    }
}

impl fmt::Debug for Check<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check").field("tool", &self.tool.name).finish_non_exhaustive()
    }
}

/// Runs every scenario of a tool.
pub(super) async fn report<'a>(tool: &Tool<'a>, options: &Options<'a>) -> Report {
    let undisturbed = run(tool, options, Plan::Repeats(1)).await;
    let first = ScenarioReport::of(Scenario::Once, &undisturbed, &undisturbed);
    let goes_on = !first.verdict().is_broken();
    let mut lines = vec![first];
    // If one undisturbed call does not have exactly one effect, the other scenarios have nothing to compare with.
    if goes_on {
        for (scenario, plan) in scenarios(options, &undisturbed) {
            let line = match plan {
                Some(plan) => line(scenario, &run(tool, options, plan).await, &undisturbed),
                None => ScenarioReport::not_tried(scenario),
            };
            lines.push(line);
        }
    }
    Report::new(&tool.name, &options.store_name, lines)
}

fn line(scenario: Scenario, run: &ScenarioRun, undisturbed: &ScenarioRun) -> ScenarioReport {
    let is_stop = matches!(scenario, Scenario::Killed(_) | Scenario::GivenUp(_) | Scenario::Paused(_));
    if is_stop && run.stopped_at.is_none() {
        return ScenarioReport::not_tried(scenario);
    }
    ScenarioReport::of(scenario, run, undisturbed)
}

/// Every scenario for a tool whose undisturbed call is known, and the plan to run it.
fn scenarios(options: &Options<'_>, undisturbed: &ScenarioRun) -> Vec<(Scenario, Option<Plan>)> {
    let steps = named(undisturbed.trace.clone());
    let requests: Vec<_> = steps.iter().filter(|step| is_effect(step, Side::Before)).collect();
    let mut all = vec![
        (Scenario::Repeats(options.repeats), Some(Plan::Repeats(options.repeats))),
        (Scenario::AtOnce(options.at_once), Some(Plan::AtOnce(options.at_once))),
    ];
    for fault in [Fault::LosesResponse, Fault::Refuses] {
        let scenario = |of: Option<String>| match fault {
            Fault::LosesResponse => Scenario::LostAnswer { of },
            Fault::Refuses => Scenario::Refused { of },
        };
        let tried = requests.iter().enumerate();
        all.extend(tried.map(|(at, step)| (scenario(step.of.clone()), Some(Plan::Fault(at, fault)))));
        if requests.is_empty() {
            all.push((scenario(None), None));
        }
    }
    for stop in [Stop::GivenUp, Stop::Killed, Stop::Paused] {
        let scenario = match stop {
            Stop::GivenUp => Scenario::GivenUp,
            Stop::Killed => Scenario::Killed,
            Stop::Paused => Scenario::Paused,
        };
        let tried = steps.iter().cloned().enumerate();
        all.extend(tried.map(|(at, step)| (scenario(step), Some(Plan::Stop(at, stop)))));
    }
    all.retain(|(scenario, _)| scenario.kind().is_none_or(|kind| options.kinds.contains(&kind)));
    all
}

fn is_effect(step: &Step, side: Side) -> bool {
    step.kind == StepKind::Effect && step.side == side
}
