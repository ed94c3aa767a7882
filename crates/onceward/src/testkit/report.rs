//! What a check found: one line for each scenario, and for what went wrong, why.

use super::answer::Answer;
use super::cause::Cause;
use super::log::{Entry, Event};
use super::scenario::Scenario;
use super::stage::Trial;
use super::verdict::{Verdict, judge};

/// What a check of one tool found. Its text is a table.
#[derive(Clone, Debug)]
pub struct Report {
    tool: String,
    store: String,
    lines: Vec<Line>,
}

/// What came of one scenario.
#[derive(Clone, Debug)]
pub struct Line {
    scenario: Scenario,
    answers: Vec<Answer>,
    least: usize,
    most: usize,
    verdict: Verdict,
    cause: Option<Cause>,
    story: String,
}

impl Line {
    pub(super) fn of(scenario: Scenario, trial: &Trial, undisturbed: &Trial) -> Self {
        let (tally, verdict, cause) = judge(&scenario, trial, undisturbed);
        let story = story(trial, verdict, tally.of.as_deref());
        Self { scenario, answers: trial.answers.clone(), least: tally.least, most: tally.most, verdict, cause, story }
    }

    pub(super) fn not_tried(scenario: Scenario) -> Self {
        let (answers, story) = (Vec::new(), String::new());
        Self { scenario, answers, least: 0, most: 0, verdict: Verdict::NotTried, cause: None, story }
    }

    /// What was tried.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// How each call ended, in the order in which they began.
    pub fn answers(&self) -> &[Answer] {
        &self.answers
    }

    /// How often the effect happened; of a tool with several, the one that happened most often.
    pub fn happened(&self) -> usize {
        self.most
    }

    /// The same for the effect that happened least often.
    pub(super) fn least(&self) -> usize {
        self.least
    }

    /// How often a call got the stored outcome.
    pub fn replayed(&self) -> usize {
        self.count(|answer| matches!(answer, Answer::Replayed | Answer::ReplayedFailure))
    }

    /// How often a call was told that it is in doubt.
    pub fn held(&self) -> usize {
        self.count(|answer| *answer == Answer::Held)
    }

    /// How often a call was turned away for another reason: in flight, mostly.
    pub fn refused(&self) -> usize {
        self.count(|answer| matches!(answer, Answer::Refused(_)))
    }

    /// How often the tool failed.
    pub fn failed(&self) -> usize {
        self.count(|answer| matches!(answer, Answer::Failed(_) | Answer::Panicked(_) | Answer::Silent))
    }

    /// Whether the intent is in doubt when the scenario is over: the last repeat was told so.
    pub fn ends_held(&self) -> bool {
        self.answers.last() == Some(&Answer::Held)
    }

    /// What it comes to.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Why it went wrong, if it did.
    pub fn cause(&self) -> Option<&Cause> {
        self.cause.as_ref()
    }

    /// What happened, in words.
    pub(super) fn story(&self) -> &str {
        &self.story
    }

    fn count(&self, is: impl Fn(&Answer) -> bool) -> usize {
        self.answers.iter().filter(|answer| is(answer)).count()
    }
}

/// What happened when, in words.
fn story(trial: &Trial, verdict: Verdict, of: Option<&str>) -> String {
    let said = || {
        let errors = trial.answers.iter().enumerate().filter_map(|(index, answer)| match answer {
            Answer::Failed(error) | Answer::Refused(error) | Answer::Panicked(error) => {
                Some(format!("; call {} said: {error}", index + 1))
            }
            _ => None,
        });
        errors.collect::<String>()
    };
    match verdict {
        Verdict::Again => {
            let calls: Vec<_> = trial.log.iter().filter(|entry| is_anew(entry, of)).map(|entry| entry.call).collect();
            let of = of.map(|of| format!("\"{of}\" ")).unwrap_or_default();
            format!("{of}happened {} times, in {}", calls.len(), listed(&calls))
        }
        Verdict::Never => format!("it never happened{}", said()),
        Verdict::Panicked => format!("it panicked{}", said()),
        Verdict::Silent => "it gave no answer".to_owned(),
        Verdict::Once | Verdict::Held | Verdict::NotDone | Verdict::NotTried => String::new(),
    }
}

fn is_anew(entry: &Entry, of: Option<&str>) -> bool {
    matches!(&entry.event, Event::Acted(acted) if acted.anew && of.is_none_or(|of| acted.what == of))
}

/// `call 1`; `calls 1 and 2`; `calls 1, 2 and 3`.
fn listed(calls: &[usize]) -> String {
    let mut calls = calls.to_vec();
    calls.dedup();
    let words: Vec<_> = calls.iter().map(usize::to_string).collect();
    match &words[..] {
        [] => "no call".to_owned(),
        [one] => format!("call {one}"),
        [first @ .., last] => format!("calls {} and {last}", first.join(", ")),
    }
}

impl Report {
    pub(super) fn new(tool: &str, store: &str, lines: Vec<Line>) -> Self {
        Self { tool: tool.to_owned(), store: store.to_owned(), lines }
    }

    /// Which tool was checked.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// On which store.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// Every scenario.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The scenarios in which the effect happened more than once, or never without anybody being told.
    pub fn violations(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| line.verdict.is_broken())
    }

    /// Whether the effect happened once wherever that can be known, and never more than once.
    pub fn is_once(&self) -> bool {
        self.violations().next().is_none()
    }

    /// The most often that the effect happened in any scenario.
    pub fn most(&self) -> usize {
        self.lines.iter().map(Line::happened).max().unwrap_or_default()
    }

    /// In how many scenarios the intent is in doubt at the end, for somebody to settle.
    pub fn held(&self) -> usize {
        self.lines.iter().filter(|line| line.ends_held()).count()
    }

    /// Panics with the report unless the effect happens once: never more than once in any scenario, and exactly once
    /// except where it is held in doubt because nobody can know.
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

    /// Panics with the report unless the intent ends in doubt in exactly so many scenarios. A tool whose provider
    /// honours keys, or can be asked, is never held: `assert_held(0)`.
    #[track_caller]
    pub fn assert_held(self, scenarios: usize) -> Self {
        let held = self.held();
        let demand = format!("it must be held in doubt in {scenarios} scenarios, and it was held in {held}");
        self.expect(held == scenarios, &demand)
    }

    // A failed expectation is a test's way to say so.
    #[allow(clippy::panic)]
    #[track_caller]
    fn expect(self, holds: bool, demand: &str) -> Self {
        if !holds {
            panic!("{}: {demand}\n\n{self}", self.tool);
        }
        self
    }
}
