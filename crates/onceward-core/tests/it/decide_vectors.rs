//! Runs the scenarios in `spec/vectors/decisions.json` through the transition function.

// The harness `onceward-sim vectors` includes this file too, by its path.
#[path = "decide_vectors/record_map.rs"]
mod record_map;

use std::collections::BTreeMap;
use std::time::Duration;

use onceward_core::claim::ClaimId;
use onceward_core::decide::{
    Again, Begin, BeginItem, Command, CommandResult, Decision, Enqueue, LeaseEntry, Refusal, Resolution, Take,
    Transition, Undelivered, Write, decide,
};
use onceward_core::fingerprint::{self, Fingerprint};
use onceward_core::hash::{Digest, digest};
use onceward_core::name::{self, Identity, Key, Operation, Tenant};
use onceward_core::outbox::{AfterAttempt, Destination, Entry, Priority};
use onceward_core::outcome::{Body, Outcome, Verdict};
use onceward_core::policy::{Effect, InDoubt, Terms};
use onceward_core::record::{Fence, Record, Seen};
use onceward_core::stream::{DEFAULT_START, Item, Stream};
use onceward_core::time::Timestamp;
use serde::{Deserialize, Deserializer};

use record_map::RecordMap;

#[derive(Deserialize)]
struct DecisionVectors {
    scenarios: Vec<DecisionScenario>,
}

#[derive(Deserialize)]
struct DecisionScenario {
    name: String,
    terms: ScenarioTerms,
    steps: Vec<ScenarioStep>,
}

/// The terms that a scenario sets; the defaults are in the README.
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ScenarioTerms {
    effect: Effect,
    in_doubt: InDoubt,
    retention: Option<u64>,
    tombstone: u64,
    honours_key_for: u64,
    max_attempts: Option<u32>,
    after_delivery: Option<u64>,
}

impl Default for ScenarioTerms {
    fn default() -> Self {
        Self {
            effect: Effect::External,
            in_doubt: InDoubt::Hold,
            retention: Some(10_000),
            tombstone: 20_000,
            honours_key_for: 86_400_000,
            max_attempts: None,
            after_delivery: None,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioStep {
    at: i64,
    #[serde(rename = "do")]
    verb: String,
    who: Option<char>,
    /// The caller whose fence is granted, if it is not this one.
    fence_of: Option<char>,
    claim: Option<String>,
    key: Option<String>,
    item: Option<u64>,
    start: Option<u64>,
    #[serde(default)]
    stops: bool,
    #[serde(default)]
    marks_sent: bool,
    /// Callers in the vectors probe when they are asked to, unless a vector says otherwise.
    #[serde(default = "yes")]
    probes: bool,
    #[serde(default)]
    owner_gone: bool,
    effect: Option<Effect>,
    in_doubt: Option<InDoubt>,
    honours_key_for: Option<u64>,
    request: Option<String>,
    key_digest: Option<String>,
    not_before: Option<u64>,
    delay: Option<u64>,
    deliver_within: Option<u64>,
    #[serde(default)]
    keeps_payload: bool,
    sink: Option<String>,
    #[serde(default)]
    may_have_happened: bool,
    retry_in: Option<u64>,
    #[serde(default)]
    after: AfterAttempt,
    payload: Option<String>,
    version: Option<u64>,
    resolution: Option<String>,
    again: Option<Again>,
    #[serde(default, deserialize_with = "given")]
    after_delivery: Option<Option<u64>>,
    arrived: Option<bool>,
    #[serde(default)]
    fresh_key: bool,
    body: Option<String>,
    too_large: Option<u64>,
    #[serde(default = "success")]
    verdict: Verdict,
    expect: String,
    status: Option<String>,
    attempt: Option<u32>,
    generation: Option<u32>,
    probe_first: Option<bool>,
    since: Option<i64>,
    retry_after: Option<u64>,
    created: Option<bool>,
    expected: Option<u64>,
    expected_is: Option<String>,
    /// The sink in the record after the step.
    goes_to: Option<String>,
    /// When the courier looks at the record after the step; `null` is never.
    #[serde(default, deserialize_with = "given_time")]
    due: Option<Option<i64>>,
    /// Whether the record has a payload after the step.
    has_payload: Option<bool>,
}

fn fence_of(who: char) -> Fence {
    Fence::from_bits(u128::from(u32::from(who)))
}

/// A value that is present, even if it is `null`.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// The same for a time.
fn given_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<i64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

fn yes() -> bool {
    true
}

fn success() -> Verdict {
    Verdict::Success
}

const LEASE: Duration = Duration::from_millis(3000);

fn terms(given: &ScenarioTerms) -> Terms {
    Terms {
        effect: given.effect,
        in_doubt: given.in_doubt,
        retention: given.retention.map(Duration::from_millis),
        tombstone: Duration::from_millis(given.tombstone),
        honours_key_for: Duration::from_millis(given.honours_key_for),
        max_attempts: given.max_attempts,
        after_delivery: given.after_delivery.map(Duration::from_millis),
    }
}

fn stream() -> Stream {
    Stream {
        tenant: Tenant::default(),
        operation: Operation::new("charge").unwrap(),
        name: name::Stream::new("k").unwrap(),
    }
}

impl ScenarioStep {
    fn identity(&self) -> Identity {
        let key = Key::new(self.key.as_deref().unwrap_or("k")).unwrap();
        let Stream { tenant, operation, .. } = stream();
        Identity { tenant, operation, key }
    }

    fn item(&self, begin: Begin) -> Option<BeginItem> {
        let item = Item { stream: stream(), number: self.item?, start: self.start.unwrap_or(DEFAULT_START) };
        Some(BeginItem { begin: Begin { identity: item.stream.head(), ..begin }, item })
    }

    fn fence(&self) -> Fence {
        fence_of(self.who.unwrap_or('-'))
    }

    fn fingerprint(&self) -> Fingerprint {
        fingerprint::of_arguments([self.request.as_deref().unwrap_or("the request")])
    }

    fn key_digest(&self) -> Option<Digest> {
        self.key_digest.as_ref().map(|text| digest(text.as_bytes()))
    }

    fn outcome(&self) -> Outcome {
        let mut outcome = Outcome::of(self.verdict, "text/plain", self.body.clone().unwrap_or_default());
        if let Some(size) = self.too_large {
            outcome.body = Body::TooLarge { size, digest: digest(b"too large") };
        }
        outcome
    }

    fn take(&self) -> Take {
        Take {
            fence: self.fence(),
            lease: LEASE,
            marks_sent: self.marks_sent,
            probes: self.probes,
            owner: None,
            claim: self.claim.as_ref().map(|id| ClaimId::new(b"", id)),
        }
    }

    fn entry(&self) -> Entry {
        Entry {
            priority: Priority::Normal,
            deliver_within: self.deliver_within.map(Duration::from_millis),
            keeps_payload: self.keeps_payload,
            destination: None,
        }
    }

    /// The downstream key of a sink in the vectors is its name and a dash.
    fn destination(&self) -> Destination {
        let sink = self.sink.as_deref().unwrap_or("primary");
        Destination { sink: sink.to_owned(), key: format!("{sink}-") }
    }

    fn command(&self, given: &ScenarioTerms, current: Option<&Record>) -> Command {
        let fence = self.fence();
        let version = self.version.or(current.map(|record| record.version)).unwrap_or_default();
        // The first call of a scenario writes the terms as they are; a later caller may have others.
        let terms = match current {
            None => terms(given),
            Some(_) => terms(&ScenarioTerms {
                effect: self.effect.unwrap_or(given.effect),
                in_doubt: self.in_doubt.unwrap_or(given.in_doubt),
                honours_key_for: self.honours_key_for.unwrap_or(given.honours_key_for),
                after_delivery: self.after_delivery.unwrap_or(given.after_delivery),
                ..given.clone()
            }),
        };
        match self.verb.as_str() {
            "begin" => {
                let begin = Begin {
                    identity: self.identity(),
                    key_digest: self.key_digest(),
                    fingerprint: self.fingerprint(),
                    terms,
                    take: self.take(),
                    again: self.again.unwrap_or_default(),
                };
                self.item(begin.clone()).map_or(Command::Begin(begin), Command::BeginItem)
            }
            "enqueue" => Command::Enqueue(Enqueue {
                identity: self.identity(),
                key_digest: self.key_digest(),
                fingerprint: self.fingerprint(),
                terms,
                payload: self.payload.clone().unwrap_or_default().into(),
                entry: self.entry(),
                delay: Duration::from_millis(self.delay.unwrap_or_default()),
            }),
            "lease" => Command::Lease(LeaseEntry { take: self.take(), destination: self.destination() }),
            "undelivered" => Command::Undelivered(Undelivered {
                fence,
                may_have_happened: self.may_have_happened,
                retry_in: Duration::from_millis(self.retry_in.unwrap_or_default()),
                after: self.after,
                error: None,
            }),
            "cancel" => Command::Cancel { version },
            "sent" => Command::Sent { fence, lease: LEASE },
            "renew" => Command::Renew { fence, lease: LEASE },
            "finish" => Command::Finish { fence, outcome: self.outcome() },
            "release" => Command::Release {
                fence,
                not_before: Duration::from_millis(self.not_before.unwrap_or_default()),
                error: None,
            },
            "withdraw" => Command::Withdraw { fence, error: None },
            "doubt" => Command::Doubt { fence, error: None },
            "overdue" => Command::Overdue { fence, lease: LEASE, error: None },
            "delivered" => Command::Delivered {
                fence,
                arrived: self.arrived.expect("a delivery says whether the response arrived"),
            },
            "give_back" => Command::GiveBack { fence, version, error: None },
            "not_found" => Command::NotFound { fence },
            "resolve" => Command::Resolve {
                version,
                fence,
                resolution: match self.resolution.as_deref() {
                    Some("happened") => Resolution::Happened(self.outcome()),
                    Some("did_not_happen") => Resolution::DidNotHappen,
                    Some("reset") => Resolution::Reset,
                    Some("force") => Resolution::Force,
                    other => panic!("unknown resolution: {other:?}"),
                },
            },
            "expire" => Command::Expire,
            "requeue" => Command::Requeue { version, fresh_key: self.fresh_key },
            other => panic!("unknown command: {other}"),
        }
    }

    /// Checks what the record holds for the courier.
    fn check_entry(&self, record: Option<&Record>, place: &str) {
        let destination = record.and_then(|record| record.entry.as_ref()?.destination.clone());
        if let Some(sink) = &self.goes_to {
            let expected = Destination { sink: sink.clone(), key: format!("{sink}-") };
            assert_eq!(destination, Some(expected), "{place}: destination");
        }
        let due = record.and_then(|record| record.due().map(|due| due.as_millis()));
        check(self.due, due, place, "due");
        check(self.has_payload, record.is_some_and(|record| record.payload.is_some()), place, "has_payload");
    }

    fn check(&self, answer: &CommandResult, place: &str) {
        assert_eq!(name(answer), self.expect, "{place}: answer {answer:?}");
        match answer {
            CommandResult::Decision(Decision::Acquired(acquired)) => {
                assert_eq!(acquired.fence, self.fence_of.map_or(self.fence(), fence_of), "{place}: fence");
                check(self.attempt, acquired.attempt, place, "attempt");
                check(self.generation, acquired.generation, place, "generation");
                check(self.probe_first, acquired.probe_first, place, "probe_first");
            }
            CommandResult::Decision(Decision::Replay { outcome, .. }) => {
                assert_eq!(outcome, &self.outcome(), "{place}: outcome");
            }
            CommandResult::Decision(Decision::InDoubt { since }) => {
                check(self.since, since.as_millis(), place, "since")
            }
            CommandResult::Decision(Decision::InFlight { retry_after, .. }) => {
                check(self.retry_after, retry_after.as_millis() as u64, place, "retry_after");
            }
            CommandResult::Decision(Decision::Queued { created }) => check(self.created, *created, place, "created"),
            CommandResult::Decision(Decision::OutOfOrder { expected, given, status }) => {
                assert_eq!(Some(*given), self.item, "{place}: given");
                assert_eq!(Some(*expected), self.expected, "{place}: expected");
                assert_eq!(status.map(|status| status.as_str()), self.expected_is.as_deref(), "{place}: expected_is");
            }
            _ => {}
        }
    }
}

fn check<T: PartialEq + std::fmt::Debug>(expected: Option<T>, found: T, place: &str, what: &str) {
    if let Some(expected) = expected {
        assert_eq!(found, expected, "{place}: {what}");
    }
}

fn name(answer: &CommandResult) -> String {
    let name = match answer {
        CommandResult::Accepted => "accepted",
        CommandResult::Stale { contradicts: false } => "stale",
        CommandResult::Stale { contradicts: true } => "contradiction",
        CommandResult::Refused(Refusal::Absent) => "refused:absent",
        CommandResult::Refused(Refusal::Running) => "refused:running",
        CommandResult::Refused(Refusal::Changed) => "refused:changed",
        CommandResult::Refused(Refusal::NotSent) => "refused:not_sent",
        CommandResult::Refused(Refusal::NothingToDo(status)) => return format!("refused:{}", status.as_str()),
        CommandResult::Archived => "archived",
        CommandResult::Decision(decision) => match decision {
            Decision::Acquired(_) => "acquired",
            Decision::Replay { .. } => "replay",
            Decision::InFlight { .. } => "in_flight",
            Decision::InDoubt { .. } => "in_doubt",
            Decision::Mismatch => "mismatch",
            Decision::Collision => "collision",
            Decision::MixedUse => "mixed_use",
            Decision::OutOfOrder { .. } => "out_of_order",
            Decision::OutcomeNotKept { .. } => "not_kept",
            Decision::Queued { .. } => "queued",
            Decision::Dead => "dead",
            other => panic!("no name for {other:?}"),
        },
    };
    name.to_owned()
}

/// Runs one scenario.
fn run(scenario: &DecisionScenario) {
    let mut records = RecordMap::default();
    for (number, step) in scenario.steps.iter().enumerate() {
        let place = format!("{}, step {number} at {} ({})", scenario.name, step.at, step.verb);
        let head = stream().head().digest();
        // Only a begin uses the head even if the stream is past the item; the head refers it to the item.
        let id = if step.verb == "begin" && step.item.is_some() { head } else { records.record_of(step) };
        let current = records.seen(id, step).map(|seen| seen.record);
        let command = step.command(&scenario.terms, current.as_ref());
        let answer = records.apply(id, step, &command, &place);
        if step.stops {
            assert_eq!(step.expect, "stopped", "{place}");
        } else {
            step.check(&answer, &place);
        }
        let record = records.seen(records.record_of(step), step).map(|seen| seen.record);
        step.check_entry(record.as_ref(), &place);
        if let Some(status) = &step.status {
            let standing = records.seen(records.record_of(step), step).and_then(|seen| seen.standing());
            let found = standing.map_or("absent", |standing| standing.status().as_str());
            assert_eq!(found, status, "{place}: status");
        }
    }
}

fn scenarios() -> Vec<DecisionScenario> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/vectors/decisions.json");
    let text = std::fs::read_to_string(path).unwrap();
    serde_json::from_str::<DecisionVectors>(&text).unwrap().scenarios
}

/// Runs all scenarios. The harness in `onceward-sim` calls this too.
pub(crate) fn run_all() {
    scenarios().iter().for_each(run);
}

#[test]
fn every_scenario_has_the_expected_result() {
    run_all();
}

#[test]
fn the_scenarios_cover_every_command_and_every_answer() {
    let (mut verbs, mut answers) = (BTreeMap::new(), BTreeMap::new());
    for step in scenarios().into_iter().flat_map(|scenario| scenario.steps) {
        *verbs.entry(step.verb).or_insert(0) += 1;
        *answers.entry(step.expect).or_insert(0) += 1;
    }
    let commands = "begin cancel delivered doubt enqueue expire finish give_back lease not_found overdue release renew requeue resolve sent undelivered withdraw";
    assert_eq!(verbs.keys().map(String::as_str).collect::<Vec<_>>(), commands.split(' ').collect::<Vec<_>>());
    for answer in [
        "accepted",
        "acquired",
        "collision",
        "contradiction",
        "dead",
        "in_doubt",
        "in_flight",
        "mismatch",
        "mixed_use",
        "not_kept",
        "out_of_order",
        "queued",
        "refused:absent",
        "refused:changed",
        "refused:running",
        "replay",
        "stale",
    ] {
        assert!(answers.contains_key(answer), "no scenario has the answer {answer}");
    }
}
