//! Runs the vectors for retries, which `spec/vectors/README.md` explains.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use onceward_core::breaker::{self, Breaker, Health, Permit, State, Ticket};
use onceward_core::record::Fence;
use onceward_core::retry::backoff::{self, Failed, Limit, Next};
use onceward_core::retry::budget::{self, Account, Withdrawal};
use onceward_core::retry::http_status::{self, Downstream, Verdict};
use onceward_core::retry::retry_after;
use onceward_core::time::Timestamp;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RetryVectors {
    #[serde(rename = "about")]
    _about: String,
    retry_after: Vec<HeaderCase>,
    statuses: Vec<StatusCase>,
    delays: Vec<DelayCase>,
    next: Vec<NextCase>,
    breaker: Vec<BreakerScenario>,
    budget: Vec<BudgetScenario>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HeaderCase {
    name: String,
    value: String,
    date: Option<String>,
    now: i64,
    wait: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatusCase {
    name: String,
    status: u16,
    retry_after: Option<u64>,
    #[serde(default)]
    refusals: Vec<u16>,
    #[serde(default)]
    honours_key: bool,
    #[serde(default = "yes")]
    keeps_server_errors: bool,
    #[serde(default)]
    redirects_are_answers: bool,
    verdict: Verdict,
    health: Health,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DelayCase {
    name: String,
    attempt: u32,
    base: u64,
    cap: u64,
    retry_after: Option<u64>,
    random: String,
    ceiling: u64,
    wait: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NextCase {
    name: String,
    attempts: u32,
    age: u64,
    retry_after: Option<u64>,
    key_known_for: Option<u64>,
    deadline: Option<u64>,
    max_attempts: u32,
    random: String,
    next: ExpectedNext,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ExpectedNext {
    After(u64),
    GiveUp(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BreakerScenario {
    name: String,
    settings: BreakerSettings,
    steps: Vec<BreakerStep>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BreakerSettings {
    failures: u32,
    recovery: u64,
    trial: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BreakerStep {
    at: i64,
    #[serde(rename = "do")]
    verb: String,
    attempt: Option<char>,
    by: Option<String>,
    expect: String,
    retry_after: Option<u64>,
    state: Option<String>,
    failures: Option<u32>,
    record: Option<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BudgetScenario {
    name: String,
    settings: BudgetSettings,
    steps: Vec<BudgetStep>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BudgetSettings {
    percent: u32,
    per_second: u32,
    burst: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BudgetStep {
    at: i64,
    #[serde(rename = "do")]
    verb: String,
    times: u32,
    expect: Option<String>,
    retry_after: Option<u64>,
}

fn yes() -> bool {
    true
}

fn bits(hex: &str) -> u64 {
    u64::from_str_radix(hex, 16).unwrap()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap()
}

fn vectors() -> RetryVectors {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/vectors/retry.json");
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("retry.json: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("retry.json: {error}"))
}

#[test]
fn every_retry_after_is_read_as_expected() {
    let cases = vectors().retry_after;
    assert!(cases.len() >= 36);
    for case in cases {
        let found = retry_after::parse(&case.value, case.date.as_deref(), Timestamp::from_millis(case.now));
        assert_eq!(found.map(millis), case.wait, "{}", case.name);
    }
}

#[test]
fn every_status_is_judged_as_expected() {
    let cases = vectors().statuses;
    assert!(cases.len() >= 111);
    for case in cases {
        let downstream = Downstream {
            refusals: &case.refusals,
            honours_key: case.honours_key,
            keeps_server_errors: case.keeps_server_errors,
            redirects_are_answers: case.redirects_are_answers,
        };
        let verdict = http_status::judge(case.status, case.retry_after.map(Duration::from_millis), &downstream);
        assert_eq!(verdict, case.verdict, "{}", case.name);
        assert_eq!(http_status::health(case.status, verdict), case.health, "{}", case.name);
    }
}

#[test]
fn every_wait_is_as_long_as_expected() {
    let cases = vectors().delays;
    assert!(cases.len() >= 35);
    for case in cases {
        let settings = backoff::Settings {
            base: Duration::from_millis(case.base),
            cap: Duration::from_millis(case.cap),
            ..backoff::Settings::default()
        };
        assert_eq!(millis(backoff::ceiling(case.attempt, &settings)), case.ceiling, "{}", case.name);
        let later = case.retry_after.map(Duration::from_millis);
        assert_eq!(
            millis(backoff::wait(case.attempt, &settings, later, bits(&case.random))),
            case.wait,
            "{}",
            case.name
        );
    }
}

#[test]
fn retries_stop_where_expected() {
    let cases = vectors().next;
    assert!(cases.len() >= 15);
    for case in cases {
        let settings = backoff::Settings {
            max_attempts: case.max_attempts,
            deadline: case.deadline.map(Duration::from_millis),
            ..backoff::Settings::default()
        };
        let failed = Failed {
            attempts: case.attempts,
            age: Duration::from_millis(case.age),
            retry_after: case.retry_after.map(Duration::from_millis),
            key_known_for: case.key_known_for.map(Duration::from_millis),
        };
        let expected = match case.next {
            ExpectedNext::After(wait) => Next::After(Duration::from_millis(wait)),
            ExpectedNext::GiveUp(limit) => Next::GiveUp(match limit.as_str() {
                "attempts" => Limit::Attempts,
                "deadline" => Limit::Deadline,
                "key_forgotten" => Limit::KeyForgotten,
                other => panic!("unknown limit: {other}"),
            }),
        };
        assert_eq!(backoff::next(&failed, &settings, bits(&case.random)), expected, "{}", case.name);
    }
}

/// A breaker, and the attempts that have a ticket.
#[derive(Default)]
struct BreakerRun {
    breaker: Breaker,
    tickets: BTreeMap<char, Ticket>,
}

impl BreakerRun {
    /// Performs a step, and names its answer.
    fn perform(&mut self, step: &BreakerStep, settings: &breaker::Settings) -> &'static str {
        let now = Timestamp::from_millis(step.at);
        let ticket = step.attempt.and_then(|attempt| self.tickets.get(&attempt).copied());
        let ticket = || ticket.unwrap_or(Ticket::Trial(fence(step)));
        let by = step.by.as_deref().unwrap_or_default();
        let written = match step.verb.as_str() {
            "ask" => return self.ask(step, now),
            "begin_trial" => self.breaker.begin_trial(fence(step), settings, now),
            "working" => self.breaker.ended(ticket(), Health::Working, settings, now),
            "failing" => self.breaker.ended(ticket(), Health::Failing, settings, now),
            "gave_up" => self.breaker.gave_up(ticket(), now),
            "force_open" => self.breaker.forced_open(by, now),
            "force_closed" => self.breaker.forced_closed(by, now),
            "reset" => self.breaker.reset(),
            other => panic!("unknown verb: {other}"),
        };
        let Some(next) = written else { return "nothing" };
        assert_eq!(next.version, self.breaker.version + 1, "versions rise by one");
        self.breaker = next;
        "written"
    }

    fn ask(&mut self, step: &BreakerStep, now: Timestamp) -> &'static str {
        match self.breaker.permits(now) {
            Permit::Allowed(ticket) => {
                self.tickets.extend(step.attempt.map(|attempt| (attempt, ticket)));
                "allowed"
            }
            Permit::Trial => "trial",
            Permit::Refused { retry_after } => {
                assert_eq!(Some(millis(retry_after)), step.retry_after, "retry_after at {}", step.at);
                "refused"
            }
        }
    }

    fn state(&self) -> (&'static str, Option<u32>) {
        match self.breaker.state {
            State::Closed { failures } => ("closed", Some(failures)),
            State::Open { .. } => ("open", None),
            State::HalfOpen { .. } => ("half_open", None),
            State::ForcedOpen { .. } => ("forced_open", None),
            State::ForcedClosed { .. } => ("forced_closed", None),
        }
    }
}

fn fence(step: &BreakerStep) -> Fence {
    Fence::from_bits(u128::from(u32::from(step.attempt.expect("a trial has a name"))))
}

#[test]
fn every_breaker_scenario_goes_as_expected() {
    let scenarios = vectors().breaker;
    assert!(scenarios.len() >= 23);
    for scenario in scenarios {
        let settings = breaker::Settings {
            failures: scenario.settings.failures,
            recovery: Duration::from_millis(scenario.settings.recovery),
            trial: Duration::from_millis(scenario.settings.trial),
        };
        let mut run = BreakerRun::default();
        for (index, step) in scenario.steps.iter().enumerate() {
            let place = format!("{}, step {}", scenario.name, index + 1);
            assert_eq!(run.perform(step, &settings), step.expect, "{place}");
            let (state, failures) = run.state();
            assert!(step.state.as_deref().is_none_or(|expected| expected == state), "{place}: {state}");
            assert!(step.failures.is_none() || step.failures == failures, "{place}: {failures:?}");
            let json = serde_json::to_value(&run.breaker).unwrap();
            assert!(step.record.as_ref().is_none_or(|expected| *expected == json), "{place}: {json}");
            assert_eq!(serde_json::from_value::<Breaker>(json).unwrap(), run.breaker, "{place}");
        }
    }
}

#[test]
fn every_budget_scenario_goes_as_expected() {
    let scenarios = vectors().budget;
    assert!(scenarios.len() >= 9);
    for scenario in scenarios {
        let BudgetSettings { percent, per_second, burst } = scenario.settings;
        let settings = budget::Settings { percent, per_second, burst };
        let start = Timestamp::from_millis(scenario.steps[0].at);
        let mut account = Account::full(&settings, start);
        for (index, step) in scenario.steps.iter().enumerate() {
            let place = format!("{}, step {}", scenario.name, index + 1);
            let now = Timestamp::from_millis(step.at);
            for _ in 0..step.times {
                match step.verb.as_str() {
                    "first_attempt" => account.first_attempt(&settings, now),
                    "give_back" => account.give_back(&settings),
                    "retry" => {
                        let (name, wait) = match account.withdraw(&settings, now) {
                            Withdrawal::Granted => ("granted", None),
                            Withdrawal::Refused { retry_after } => ("refused", Some(millis(retry_after))),
                        };
                        assert_eq!((Some(name), wait), (step.expect.as_deref(), step.retry_after), "{place}");
                    }
                    other => panic!("unknown verb: {other}"),
                }
            }
        }
    }
}
