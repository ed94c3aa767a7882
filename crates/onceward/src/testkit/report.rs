//! The result of a check: one line for each scenario, and the cause of each failure.

use super::call_result::CallResult;
use super::cause::Cause;
use super::runner::ScenarioRun;
use super::scenario::Scenario;
use super::scenario_log::{LogEntry, LogEvent};
use super::verdict::{Verdict, judge};

/// The result of a check of one tool. Its text is a table.
#[derive(Clone, Debug)]
pub struct Report {
    tool: String,
    store: String,
    lines: Vec<ScenarioReport>,
}

/// The result of one scenario: one line of the report.
#[derive(Clone, Debug)]
pub struct ScenarioReport {
    scenario: Scenario,
    results: Vec<CallResult>,
    least: usize,
    most: usize,
    verdict: Verdict,
    cause: Option<Cause>,
    description: String,
}

impl ScenarioReport {
    pub(super) fn of(scenario: Scenario, run: &ScenarioRun, undisturbed: &ScenarioRun) -> Self {
        let (tally, verdict, cause) = judge(&scenario, run, undisturbed);
        let description = describe(run, verdict, tally.of.as_deref());
        Self {
            scenario,
            results: run.results.clone(),
            least: tally.least,
            most: tally.most,
            verdict,
            cause,
            description,
        }
    }

    pub(super) fn not_tried(scenario: Scenario) -> Self {
        let (results, description) = (Vec::new(), String::new());
        Self { scenario, results, least: 0, most: 0, verdict: Verdict::NotTried, cause: None, description }
    }

    /// The scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// How each call ended, in the order in which they began.
    pub fn results(&self) -> &[CallResult] {
        &self.results
    }

    /// How often the effect happened. For a tool with several effects: the one that happened most often.
    pub fn happened(&self) -> usize {
        self.most
    }

    /// How often the effect happened that happened least often.
    pub(super) fn least(&self) -> usize {
        self.least
    }

    /// How often a call got the stored outcome.
    pub fn replayed(&self) -> usize {
        self.count(|result| matches!(result, CallResult::Replayed | CallResult::ReplayedFailure))
    }

    /// How often a call was refused because the intent is in doubt.
    pub fn held(&self) -> usize {
        self.count(|result| *result == CallResult::Held)
    }

    /// How often a call was refused for another reason, mostly because the intent was in flight.
    pub fn refused(&self) -> usize {
        self.count(|result| matches!(result, CallResult::Refused(_)))
    }

    /// How often the tool failed.
    pub fn failed(&self) -> usize {
        self.count(|result| matches!(result, CallResult::Failed(_) | CallResult::Panicked(_) | CallResult::TimedOut))
    }

    /// Whether the intent is in doubt at the end of the scenario: the last repeat was refused for that reason.
    pub fn ends_held(&self) -> bool {
        self.results.last() == Some(&CallResult::Held)
    }

    /// The verdict on the scenario.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Why the scenario failed, if it did.
    pub fn cause(&self) -> Option<&Cause> {
        self.cause.as_ref()
    }

    /// A sentence about what happened.
    pub(super) fn description(&self) -> &str {
        &self.description
    }

    fn count(&self, is: impl Fn(&CallResult) -> bool) -> usize {
        self.results.iter().filter(|result| is(result)).count()
    }
}

/// Describes what happened in which calls.
fn describe(run: &ScenarioRun, verdict: Verdict, of: Option<&str>) -> String {
    let errors = || {
        let errors = run.results.iter().enumerate().filter_map(|(index, result)| match result {
            CallResult::Failed(error) | CallResult::Refused(error) | CallResult::Panicked(error) => {
                Some(format!("; call {} failed: {error}", index + 1))
            }
            _ => None,
        });
        errors.collect::<String>()
    };
    match verdict {
        Verdict::Again => {
            let calls: Vec<_> =
                run.log.iter().filter(|entry| is_new_effect(entry, of)).map(|entry| entry.call).collect();
            let of = of.map(|of| format!("\"{of}\" ")).unwrap_or_default();
            format!("{of}happened {} times, in {}", calls.len(), call_list(&calls))
        }
        Verdict::Never => format!("it never happened{}", errors()),
        Verdict::Panicked => format!("it panicked{}", errors()),
        Verdict::TimedOut => "it did not return in time".to_owned(),
        Verdict::Once | Verdict::Held | Verdict::NotDone | Verdict::NotTried => String::new(),
    }
}

fn is_new_effect(entry: &LogEntry, of: Option<&str>) -> bool {
    matches!(&entry.event, LogEvent::Effect(effect) if effect.is_new && of.is_none_or(|of| effect.what == of))
}

/// `call 1`; `calls 1 and 2`; `calls 1, 2 and 3`.
fn call_list(calls: &[usize]) -> String {
    let mut calls = calls.to_vec();
    calls.dedup();
    let numbers: Vec<_> = calls.iter().map(usize::to_string).collect();
    match &numbers[..] {
        [] => "no call".to_owned(),
        [one] => format!("call {one}"),
        [first @ .., last] => format!("calls {} and {last}", first.join(", ")),
    }
}

impl Report {
    pub(super) fn new(tool: &str, store: &str, lines: Vec<ScenarioReport>) -> Self {
        Self { tool: tool.to_owned(), store: store.to_owned(), lines }
    }

    /// The name of the tool.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The name of the store.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// The scenarios.
    pub fn lines(&self) -> &[ScenarioReport] {
        &self.lines
    }

    /// The scenarios in which the effect happened more than once, or never happened without the caller knowing.
    pub fn violations(&self) -> impl Iterator<Item = &ScenarioReport> {
        self.lines.iter().filter(|line| line.verdict.is_broken())
    }

    /// Whether the effect never happened more than once, and happened once in every scenario where that can be known.
    pub fn is_once(&self) -> bool {
        self.violations().next().is_none()
    }

    /// How often the effect happened in the scenario where it happened most often.
    pub fn most(&self) -> usize {
        self.lines.iter().map(ScenarioReport::happened).max().unwrap_or_default()
    }

    /// In how many scenarios the intent is in doubt at the end, so that an operator has to settle it.
    pub fn held(&self) -> usize {
        self.lines.iter().filter(|line| line.ends_held()).count()
    }

    /// Panics with the report unless the effect happens once: never more than once in any scenario, and exactly once except
    /// where the intent is held in doubt because the outcome is unknown.
    #[track_caller]
    pub fn assert_once(self) -> Self {
        let is_once = self.is_once();
        self.expect(is_once, "its effect must happen once")
    }

    /// Panics with the report if the effect happens more than `times` times in any scenario.
    #[track_caller]
    pub fn assert_at_most(self, times: usize) -> Self {
        let most = self.most();
        self.expect(
            most <= times,
            &format!("its effect must happen at most {times} times, and it happened {most} times"),
        )
    }

    /// Panics with the report unless the intent ends in doubt in exactly this many scenarios. A tool whose provider honours
    /// keys, or can be probed, is never held: `assert_held(0)`.
    #[track_caller]
    pub fn assert_held(self, scenarios: usize) -> Self {
        let held = self.held();
        let demand = format!("it must be held in doubt in {scenarios} scenarios, and it was held in {held}");
        self.expect(held == scenarios, &demand)
    }

    // A test reports a failed expectation with a panic.
    #[allow(clippy::panic)]
    #[track_caller]
    fn expect(self, holds: bool, demand: &str) -> Self {
        if !holds {
            panic!("{}: {demand}\n\n{self}", self.tool);
        }
        self
    }
}
