//! What a check found: one line for each scenario, and for what went wrong, why and what to do.

use std::fmt::{self, Write as _};

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
        self.count(|answer| matches!(answer, Answer::Failed(_) | Answer::Silent))
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

    fn count(&self, is: impl Fn(&Answer) -> bool) -> usize {
        self.answers.iter().filter(|answer| is(answer)).count()
    }

    fn cells(&self) -> [String; 6] {
        if self.verdict == Verdict::NotTried {
            return std::array::from_fn(|_| "-".to_owned());
        }
        let happened =
            if self.least == self.most { self.most.to_string() } else { format!("{} to {}", self.least, self.most) };
        let [calls, replayed, held, refused, failed] =
            [self.answers.len(), self.replayed(), self.held(), self.refused(), self.failed()].map(|n| n.to_string());
        [calls, happened, replayed, held, refused, failed]
    }
}

/// What happened when, in words.
fn story(trial: &Trial, verdict: Verdict, of: Option<&str>) -> String {
    match verdict {
        Verdict::Again => {
            let acts = trial.log.iter().filter_map(|Entry { call, event }| match event {
                Event::Acted(acted) if acted.anew && of.is_none_or(|of| acted.what == of) => Some((call, &acted.what)),
                _ => None,
            });
            let acts: Vec<_> = acts.map(|(call, what)| format!("\"{what}\" in call {call}")).collect();
            format!("happened {} times: {}", acts.len(), acts.join(", "))
        }
        Verdict::Never => {
            let errors = trial.answers.iter().enumerate().filter_map(|(index, answer)| match answer {
                Answer::Failed(error) | Answer::Refused(error) => Some(format!("; call {} said: {error}", index + 1)),
                _ => None,
            });
            format!("never happened{}", errors.collect::<String>())
        }
        _ => "gave no answer".to_owned(),
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

const HEADINGS: [&str; 6] = ["calls", "happened", "replayed", "held", "refused", "failed"];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let broken = self.violations().count();
        let (tool, store, all) = (&self.tool, &self.store, self.lines.len());
        match broken {
            0 => writeln!(f, "{tool} on {store}: {all} scenarios, none broken")?,
            _ => writeln!(f, "{tool} on {store}: {all} scenarios, {broken} BROKEN")?,
        }
        writeln!(f)?;
        let width = self.lines.iter().map(|line| line.scenario.to_string().chars().count()).max().unwrap_or_default();
        let mut row = |name: &str, cells: &[String; 6], verdict: &str| {
            let mut text = format!("  {name:width$}");
            for (cell, heading) in cells.iter().zip(HEADINGS) {
                let column = heading.len();
                write!(text, "  {cell:>column$}")?;
            }
            writeln!(f, "{text}  {verdict}")
        };
        row("", &HEADINGS.map(str::to_owned), "verdict")?;
        for line in &self.lines {
            row(&line.scenario.to_string(), &line.cells(), &line.verdict.to_string())?;
        }
        for (cause, lines) in self.by_cause() {
            writeln!(f)?;
            for line in lines {
                writeln!(f, "  {}: {}: {}", line.verdict, line.scenario, line.story)?;
            }
            writeln!(f, "  -> {cause}")?;
        }
        Ok(())
    }
}

impl Report {
    /// What went wrong, each reason once.
    fn by_cause(&self) -> Vec<(&Cause, Vec<&Line>)> {
        let mut causes: Vec<(&Cause, Vec<&Line>)> = Vec::new();
        for line in &self.lines {
            let Some(cause) = &line.cause else { continue };
            // Keys that differ each time are one reason, not many.
            let is_same = |known: &Cause| std::mem::discriminant(known) == std::mem::discriminant(cause);
            match causes.iter_mut().find(|(known, _)| is_same(known)) {
                Some((_, lines)) => lines.push(line),
                None => causes.push((cause, vec![line])),
            }
        }
        causes
    }
}
