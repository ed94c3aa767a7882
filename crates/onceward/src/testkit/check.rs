//! From a tool to its report: which scenarios there are for it, and how each of them is played.

use std::fmt;
use std::future::IntoFuture;
use std::rc::Rc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use super::bench::Bench;
use super::place::Place;
use super::provider::Trouble;
use super::report::{Line, Report};
use super::scenario::{Kind, Scenario};
use super::stage::{Play, Stop, Trial, play};
use super::step::{Moment, Side, Step, named};
use crate::clock::ManualClock;

/// How often a call is repeated unless something else is said: the first repeat, and the repeat of a repeat.
const REPEATS: usize = 3;

/// How many calls are made at once unless something else is said.
const AT_ONCE: usize = 8;

/// How often a call is repeated after something went wrong.
const RETRIES: usize = 2;

/// How long the first repeat waits, so that a key with the time of day in it, in whole seconds, is another one by then.
const PAUSE: Duration = Duration::from_millis(1100);

/// How long a call may take. A file on a busy disk can take several seconds for a write.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is tried unless something else is said. A pause past the lease is left out: where a doubt is probed and the
/// provider honours no keys, nothing can protect from it.
const USUAL: [Kind; 6] = [Kind::Repeats, Kind::AtOnce, Kind::LostAnswer, Kind::Refused, Kind::GivenUp, Kind::Killed];

type Open<'a> = dyn Fn(ManualClock) -> LocalBoxFuture<'a, Place> + 'a;
type Call<'a> = dyn Fn(Bench) -> LocalBoxFuture<'a, Result<(), String>> + 'a;

/// A tool under test.
pub(super) struct Tool<'a> {
    pub(super) name: String,
    pub(super) call: Box<Call<'a>>,
}

impl<'a> Tool<'a> {
    pub(super) fn new<T, E, W>(name: &str, tool: impl Fn(Bench) -> W + 'a) -> Self
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

/// How tools are tried.
#[derive(Clone)]
pub(super) struct Options<'a> {
    pub(super) repeats: usize,
    pub(super) at_once: usize,
    pub(super) retries: usize,
    pub(super) pause: Duration,
    pub(super) patience: Duration,
    pub(super) kinds: Vec<Kind>,
    pub(super) place: Rc<Open<'a>>,
    pub(super) place_name: String,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            repeats: REPEATS,
            at_once: AT_ONCE,
            retries: RETRIES,
            pause: PAUSE,
            patience: PATIENCE,
            kinds: USUAL.to_vec(),
            place: Rc::new(|clock| async { Place::in_memory(clock) }.boxed_local()),
            place_name: "memory".to_owned(),
        }
    }
}

/// A check of one tool that is being put together; `.await` makes it.
#[must_use = "nothing is tried until it is awaited"]
pub struct Check<'a> {
    tool: Tool<'a>,
    options: Options<'a>,
}

/// Checks a tool: calls it again and again, at once, with a provider that loses its answer, and with a crash at every
/// step, and reports how often its effect happened. See the [module](crate::testkit) for an example.
pub fn check<'a, T, E, W>(name: &str, tool: impl Fn(Bench) -> W + 'a) -> Check<'a>
where
    E: fmt::Display,
    W: Future<Output = Result<T, E>> + 'a,
{
    Check { tool: Tool::new(name, tool), options: Options::default() }
}

/// The settings that a check of one tool and a check of several have in common.
macro_rules! settings {
    ($type:ident) => {
        impl<'a> $type<'a> {
            /// How many calls one after the other; 3 unless something else is said.
            pub fn repeats(mut self, times: usize) -> Self {
                self.options.repeats = times;
                self
            }

            /// How many calls at once; 8 unless something else is said.
            pub fn at_once(mut self, times: usize) -> Self {
                self.options.at_once = times;
                self
            }

            /// How often a call is repeated after something went wrong; twice unless something else is said.
            pub fn retries(mut self, times: usize) -> Self {
                self.options.retries = times;
                self
            }

            /// How long the first repeat waits in real time: a little over a second unless something else is said, so
            /// that a key with the second in it is found out.
            pub fn pause(mut self, pause: Duration) -> Self {
                self.options.pause = pause;
                self
            }

            /// How long a call may take; 30 seconds unless something else is said.
            pub fn patience(mut self, patience: Duration) -> Self {
                self.options.patience = patience;
                self
            }

            /// Tries only these kinds of scenario.
            pub fn only(mut self, kinds: impl IntoIterator<Item = $crate::testkit::Kind>) -> Self {
                self.options.kinds = kinds.into_iter().collect();
                self
            }

            /// Also pauses the process at every step until its lease is over and another has repeated the call, and then
            /// lets it go on.
            pub fn with_pauses(mut self) -> Self {
                self.options.kinds.push($crate::testkit::Kind::Paused);
                self
            }

            /// Plays on this store instead of one in memory. `open` makes a fresh, empty one for each scenario. If it
            /// takes its time from the clock that it is given, leases lapse without waiting; otherwise they are kept
            /// short.
            pub fn on_store<P, O>(mut self, name: &str, open: impl Fn($crate::clock::ManualClock) -> O + 'a) -> Self
            where
                P: Into<$crate::testkit::Place>,
                O: Future<Output = P> + 'a,
            {
                self.options.place_name = name.to_owned();
                self.options.place = std::rc::Rc::new(move |clock| {
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

/// Plays every scenario that there is for a tool.
pub(super) async fn report<'a>(tool: &Tool<'a>, options: &Options<'a>) -> Report {
    let undisturbed = play(tool, options, Play::Repeats(1)).await;
    let first = Line::of(Scenario::Once, &undisturbed, &undisturbed);
    let goes_on = !first.verdict().is_broken();
    let mut lines = vec![first];
    // Without one effect in one call there is nothing to compare with.
    if goes_on {
        for (scenario, how) in scenarios(options, &undisturbed) {
            let line = match how {
                Some(how) => line(scenario, &play(tool, options, how).await, &undisturbed),
                None => Line::not_tried(scenario),
            };
            lines.push(line);
        }
    }
    Report::new(&tool.name, &options.place_name, lines)
}

fn line(scenario: Scenario, trial: &Trial, undisturbed: &Trial) -> Line {
    let is_stop = matches!(scenario, Scenario::Killed(_) | Scenario::GivenUp(_) | Scenario::Paused(_));
    if is_stop && trial.stopped_at.is_none() {
        return Line::not_tried(scenario);
    }
    Line::of(scenario, trial, undisturbed)
}

/// Every scenario for a tool whose undisturbed call is known, and how it is played.
fn scenarios(options: &Options<'_>, undisturbed: &Trial) -> Vec<(Scenario, Option<Play>)> {
    let steps = named(undisturbed.trace.clone());
    let requests: Vec<_> = steps.iter().filter(|step| is_effect(step, Side::Before)).collect();
    let mut all = vec![
        (Scenario::Repeats(options.repeats), Some(Play::Repeats(options.repeats))),
        (Scenario::AtOnce(options.at_once), Some(Play::AtOnce(options.at_once))),
    ];
    for trouble in [Trouble::LosesAnswer, Trouble::Refuses] {
        let scenario = |of: Option<String>| match trouble {
            Trouble::LosesAnswer => Scenario::LostAnswer { of },
            Trouble::Refuses => Scenario::Refused { of },
        };
        let tried = requests.iter().enumerate();
        all.extend(tried.map(|(at, step)| (scenario(step.of.clone()), Some(Play::Trouble(at, trouble)))));
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
        all.extend(tried.map(|(at, step)| (scenario(step), Some(Play::Stop(at, stop)))));
    }
    all.retain(|(scenario, _)| scenario.kind().is_none_or(|kind| options.kinds.contains(&kind)));
    all
}

fn is_effect(step: &Step, side: Side) -> bool {
    step.moment == Moment::Effect && step.side == side
}
