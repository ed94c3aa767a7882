//! The scenarios of `spec/vectors/decisions.json` through the SQL functions, beside the transition function: each step is decided
//! by both on the same record, and must give the same answer and the same record.
//!
//! The functions insert or report. Where the transition function takes over a claim that lapsed or is in doubt, they must report
//! instead, and the step is then made by the transition function.

use std::sync::Arc;
use std::time::Duration;

use onceward::clock::ManualClock;
use onceward::core::decide::{
    Begin, Command, CommandResult, Decision, Enqueue, LeaseEntry, Resolution, Take, Undelivered, Write, decide,
};
use onceward::core::fingerprint::{self, Fingerprint};
use onceward::core::name::{Identity, Key, Operation, Tenant};
use onceward::core::outbox::{Destination, Entry};
use onceward::core::outcome::{Outcome, Verdict};
use onceward::core::policy::{Effect, InDoubt, Terms};
use onceward::core::record::{Draft, Fence, Record, Seen, State};
use onceward::core::time::Timestamp;
use onceward::store::postgres::Postgres;
use onceward::store::{Inserted, Replace, Replaced, Store};
use serde_json::Value;

use super::server::Database;

/// 2026-01-01, from which the times of the scenarios count.
const START: i64 = 1_767_225_600_000;

/// Lets a table replace the clock of the database.
pub(super) const TEST_CLOCK: &str = "CREATE TABLE public.test_clock (at timestamptz); \
    CREATE OR REPLACE FUNCTION onceward.this_moment() RETURNS timestamptz LANGUAGE sql STABLE AS \
    $$ SELECT at FROM public.test_clock $$";

pub(super) const LEASE: Duration = Duration::from_millis(3000);

/// The steps that the functions make, and those that are made by the transition function in between.
const BY_FUNCTIONS: [&str; 4] = ["begin", "finish", "release", "enqueue"];
const IN_BETWEEN: [&str; 11] = [
    "sent",
    "renew",
    "doubt",
    "overdue",
    "expire",
    "lease",
    "undelivered",
    "not_found",
    "requeue",
    "cancel",
    "resolve",
];

/// What a step of a function may contain.
const MEMBERS: [&str; 20] = [
    "at",
    "do",
    "who",
    "request",
    "not_before",
    "delay",
    "payload",
    "body",
    "verdict",
    "expect",
    "status",
    "attempt",
    "since",
    "retry_after",
    "created",
    "in_doubt",
    "deliver_within",
    "keeps_payload",
    "due",
    "has_payload",
];

/// What a step in between may not contain: there are no items of streams, no ids of claims and no owners here.
const LEFT_OUT: [&str; 5] = ["item", "claim", "key", "owner_gone", "too_large"];

#[tokio::test(flavor = "multi_thread")]
async fn the_functions_decide_as_the_transition_function_does() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    database.run(TEST_CLOCK).await.unwrap();
    let vectors: Value = serde_json::from_str(include_str!("../../../../../spec/vectors/decisions.json")).unwrap();
    let (mut scenarios, mut steps) = (0, 0);
    for scenario in vectors["scenarios"].as_array().unwrap().iter().filter(|scenario| applies(scenario)) {
        let clock = ManualClock::default();
        let store = Postgres::open_with(&database.url, Some(Arc::new(clock.clone()))).await.unwrap();
        let mut world = World { database: &database, store, clock, fences: Vec::new(), name: &scenario["name"] };
        for step in scenario["steps"].as_array().unwrap() {
            steps += usize::from(world.step(&scenario["terms"], step).await);
        }
        world.store.close().await;
        database.run("TRUNCATE onceward.intent, onceward.audit, onceward.tenant_count").await.unwrap();
        scenarios += 1;
    }
    println!("{steps} steps of {scenarios} scenarios through the functions");
    assert!(scenarios >= 75 && steps >= 190, "too few scenarios apply: {steps} steps of {scenarios}");
}

/// Whether all steps of a scenario are about direct calls and the outbox, without ids of claims, streams and deliveries.
fn applies(scenario: &Value) -> bool {
    let terms = scenario["terms"].as_object().unwrap();
    terms.keys().all(|name| ["in_doubt", "retention", "tombstone", "effect", "max_attempts"].contains(&name.as_str()))
        && terms.get("in_doubt").is_none_or(|in_doubt| in_doubt != "tell")
        && scenario["steps"].as_array().unwrap().iter().all(|step| {
            let verb = step["do"].as_str().unwrap();
            let mut members = step.as_object().unwrap().keys().map(String::as_str);
            match BY_FUNCTIONS.contains(&verb) {
                true => members.all(|name| MEMBERS.contains(&name)),
                false => IN_BETWEEN.contains(&verb) && !members.any(|name| LEFT_OUT.contains(&name)),
            }
        })
}

struct World<'a> {
    database: &'a Database,
    store: Postgres,
    clock: ManualClock,
    /// The fences that the functions gave to the callers.
    fences: Vec<(char, Fence)>,
    name: &'a Value,
}

impl World<'_> {
    /// Makes a step. Returns whether a function made it.
    async fn step(&mut self, terms: &Value, step: &Value) -> bool {
        let now = Timestamp::from_millis(START + step["at"].as_i64().unwrap());
        self.clock.set(now);
        set_clock(self.database, now).await;
        let seen = self.store.get(identity().digest()).await.unwrap();
        let who = step["who"].as_str().and_then(|who| who.chars().next()).unwrap_or('-');
        let command = self.command(terms, step, who, seen.as_ref());
        let transition = decide(seen.as_ref(), &command);
        let verb = step["do"].as_str().unwrap();
        if !BY_FUNCTIONS.contains(&verb) {
            self.write(seen.as_ref(), transition.write).await;
            return false;
        }
        let expected = answer_of(&transition.answer, seen.as_ref());
        let found = self.call(terms, step, verb, who).await;
        let place = format!("{}: {verb} at {}", self.name, step["at"]);
        assert_eq!(found.0, expected, "{place}");
        if expected == "lapsed" || expected == "taken over" || expected == "in_doubt" {
            // Only the ledger takes over.
            self.write(seen.as_ref(), transition.write).await;
            return true;
        }
        if let Some(fence) = found.1 {
            self.fences.retain(|(owner, _)| *owner != who);
            self.fences.push((who, fence));
        }
        let after = self.store.get(identity().digest()).await.unwrap().map(|seen| seen.record);
        let wanted = match transition.write {
            Write::Insert(draft) | Write::Replace(draft) => Some(draft.stamp(now)),
            _ => seen.map(|seen| seen.record),
        };
        assert_eq!(after.map(without_fence), wanted.map(without_fence), "{place}");
        true
    }

    fn fence(&self, who: char) -> Fence {
        let known = self.fences.iter().find(|(owner, _)| *owner == who).map(|(_, fence)| *fence);
        known.unwrap_or(Fence::from_bits(u128::from(u32::from(who))))
    }

    fn command(&self, given: &Value, step: &Value, who: char, current: Option<&Seen>) -> Command {
        let fence = self.fence(who);
        let mut terms = terms(given);
        if let Some(in_doubt) = step.get("in_doubt").filter(|_| current.is_some()) {
            terms.in_doubt = serde_json::from_value(in_doubt.clone()).unwrap();
        }
        let is = |name: &str, default: bool| step[name].as_bool().unwrap_or(default);
        let (marks_sent, probes) = (is("marks_sent", false), is("probes", true));
        let take = Take { fence, lease: LEASE, marks_sent, probes, owner: None, claim: None };
        let version = step["version"].as_u64().or(current.map(|seen| seen.record.version)).unwrap_or_default();
        let duration = |name: &str| Duration::from_millis(step[name].as_u64().unwrap_or_default());
        match step["do"].as_str().unwrap() {
            "begin" => Command::Begin(Begin {
                identity: identity(),
                key_digest: None,
                fingerprint: request(step),
                // A direct call has no number of attempts.
                terms: Terms { max_attempts: None, ..terms },
                take,
                again: Default::default(),
            }),
            "enqueue" => Command::Enqueue(Enqueue {
                identity: identity(),
                key_digest: None,
                fingerprint: request(step),
                terms,
                payload: step["payload"].as_str().unwrap_or_default().to_owned().into(),
                entry: Entry {
                    deliver_within: step["deliver_within"].as_u64().map(Duration::from_millis),
                    keeps_payload: is("keeps_payload", false),
                    ..Entry::default()
                },
                delay: duration("delay"),
            }),
            "lease" => {
                let sink = step["sink"].as_str().unwrap_or("primary");
                let destination = Destination { sink: sink.to_owned(), key: format!("{sink}-") };
                Command::Lease(LeaseEntry { take, destination })
            }
            "undelivered" => Command::Undelivered(Undelivered {
                fence,
                may_have_happened: is("may_have_happened", false),
                retry_in: duration("retry_in"),
                after: serde_json::from_value(step["after"].clone()).unwrap_or_default(),
                error: None,
            }),
            "not_found" => Command::NotFound { fence },
            "requeue" => Command::Requeue { version, fresh_key: is("fresh_key", false) },
            "cancel" => Command::Cancel { version },
            "resolve" => Command::Resolve {
                version,
                fence,
                resolution: match step["resolution"].as_str().unwrap() {
                    "happened" => Resolution::Happened(outcome(step)),
                    "did_not_happen" => Resolution::DidNotHappen,
                    "reset" => Resolution::Reset,
                    _ => Resolution::Force,
                },
            },
            "finish" => Command::Finish { fence, outcome: outcome(step) },
            "release" => Command::Release { fence, not_before: duration("not_before"), error: None },
            "sent" => Command::Sent { fence, lease: LEASE },
            "renew" => Command::Renew { fence, lease: LEASE },
            "doubt" => Command::Doubt { fence, error: None },
            "overdue" => Command::Overdue { fence, lease: LEASE, error: None },
            "expire" => Command::Expire,
            other => panic!("unknown step: {other}"),
        }
    }

    /// Calls the function of a step. Returns its decision, and the fence that it gave.
    async fn call(&self, given: &Value, step: &Value, verb: &str, who: char) -> (String, Option<Fence>) {
        let terms = terms(given);
        let in_doubt = step["in_doubt"].as_str().or(given["in_doubt"].as_str()).unwrap_or("hold");
        let kept = match terms.retention {
            None => "tier => 'forever', tombstone => '20 s'".to_owned(),
            Some(kept) => {
                format!("retention => '{} ms', tombstone => '{} ms'", kept.as_millis(), terms.tombstone.as_millis())
            }
        };
        let policy =
            format!("fingerprint => '\\x{}', {kept}, in_doubt => '{in_doubt}'", request(step).digest().to_hex());
        let fence = hex(self.fence(who));
        let text = |name: &str| step[name].as_str().unwrap_or_default().replace('\'', "''");
        let millis = |name: &str| step[name].as_u64().unwrap_or_default();
        let sql = match verb {
            "begin" => {
                format!("SELECT decision, fence::text FROM onceward.claim('charge', 'k', lease => '3 s', {policy})")
            }
            "enqueue" => format!(
                "SELECT decision, NULL FROM onceward.enqueue('charge', 'k', '{}', delay => '{} ms', \
                 deliver_within => {} * interval '1 ms', keep_payload => {}, max_attempts => {}, {policy})",
                text("payload"),
                millis("delay"),
                or_null(&step["deliver_within"]),
                step["keeps_payload"].as_bool().unwrap_or(false),
                or_null(&given["max_attempts"]),
            ),
            "finish" => format!(
                "SELECT 'accepted', onceward.finish('charge', 'k', '{fence}', '{}', 'text/plain', 0, '{}')::text",
                text("body"),
                step["verdict"].as_str().unwrap_or("success")
            ),
            _ => format!(
                "SELECT 'accepted', onceward.release('charge', 'k', '{fence}', NULL, '{} ms')::text",
                millis("not_before")
            ),
        };
        match self.database.run(&sql).await {
            Ok(rows) => {
                let fence = rows[0][1].as_deref().filter(|text| !text.is_empty());
                (rows[0][0].clone().unwrap(), fence.map(fence_of))
            }
            Err(error) => match error.code().map(|code| code.code().to_owned()).as_deref() {
                Some("OW003") => ("stale".to_owned(), None),
                _ => panic!("{}: {verb}: {error:?}", self.name),
            },
        }
    }

    async fn write(&self, seen: Option<&Seen>, write: Write) {
        match write {
            Write::Insert(draft) => {
                assert!(matches!(self.store.insert(draft, None).await.unwrap(), Inserted::Created { .. }));
            }
            Write::Replace(draft) => self.replace(seen.unwrap(), draft).await,
            Write::Remove => drop(self.store.purge(1).await.unwrap()),
            Write::None => {}
        }
    }

    async fn replace(&self, seen: &Seen, draft: Draft) {
        let replaced = self.store.replace(Replace::of(&seen.record, draft)).await.unwrap();
        assert!(matches!(replaced, Replaced::Written { .. }), "{}", self.name);
    }
}

pub(super) async fn set_clock(database: &Database, now: Timestamp) {
    let at = format!(
        "TRUNCATE public.test_clock; INSERT INTO public.test_clock VALUES ('epoch'::timestamptz + {} * interval '1 ms')",
        now.as_millis()
    );
    database.run(&at).await.unwrap();
}

/// The function's answer to what the transition function answers.
pub(super) fn answer_of(answer: &CommandResult, seen: Option<&Seen>) -> String {
    let state = seen.map(|seen| &seen.record.state);
    let name = match answer {
        CommandResult::Accepted => "accepted",
        CommandResult::Stale { .. } | CommandResult::Refused(_) => "stale",
        CommandResult::Decision(Decision::Acquired(_)) => match state {
            Some(State::Leased(_))
                if seen.is_some_and(|seen| seen.record.doubt_since.is_none() && is_claimed(seen)) =>
            {
                // An expired record does not count as a claim.
                if seen.is_some_and(|seen| seen.standing().is_none()) { "acquired" } else { "lapsed" }
            }
            Some(State::Leased(_) | State::InDoubt { .. }) => "in_doubt",
            _ => "acquired",
        },
        CommandResult::Decision(Decision::Replay { .. }) => "replay",
        CommandResult::Decision(Decision::InFlight { .. }) => "in_flight",
        CommandResult::Decision(Decision::InDoubt { .. }) => "in_doubt",
        CommandResult::Decision(Decision::Mismatch) => "mismatch",
        CommandResult::Decision(Decision::Collision) => "collision",
        CommandResult::Decision(Decision::OutcomeNotKept { .. }) => "outcome_not_kept",
        CommandResult::Decision(Decision::Queued { created: true }) => "created",
        CommandResult::Decision(Decision::Queued { created: false }) => "queued",
        CommandResult::Decision(Decision::Dead) => "dead",
        other => panic!("no such answer of a function: {other:?}"),
    };
    // Work that lapsed before it was sent is open for the outbox too, and only the ledger takes it over.
    if name == "created" && seen.is_some_and(|seen| is_claimed(seen) && seen.standing().is_some()) {
        return "lapsed".to_owned();
    }
    name.to_owned()
}

fn is_claimed(seen: &Seen) -> bool {
    use onceward::core::record::Phase;
    matches!(&seen.record.state, State::Leased(lease) if lease.phase == Phase::Claimed)
}

pub(super) fn identity() -> Identity {
    Identity { tenant: Tenant::default(), operation: Operation::new("charge").unwrap(), key: Key::new("k").unwrap() }
}

/// The terms of a scenario. Whether the effect really commits with the record is not known to the functions.
fn terms(given: &Value) -> Terms {
    let millis = |name: &str, default: u64| Duration::from_millis(given[name].as_u64().unwrap_or(default));
    let forever = given.get("retention").is_some_and(Value::is_null);
    Terms {
        effect: Effect::External,
        in_doubt: given.get("in_doubt").map_or(InDoubt::Hold, |name| serde_json::from_value(name.clone()).unwrap()),
        retention: (!forever).then(|| millis("retention", 10_000)),
        tombstone: millis("tombstone", 20_000),
        honours_key_for: Duration::from_secs(86_400),
        max_attempts: given["max_attempts"].as_u64().map(|most| u32::try_from(most).unwrap()),
        after_delivery: None,
    }
}

fn or_null(number: &Value) -> String {
    number.as_u64().map_or("NULL".to_owned(), |number| number.to_string())
}

fn request(step: &Value) -> Fingerprint {
    fingerprint::of_arguments([step["request"].as_str().unwrap_or("the request")])
}

fn outcome(step: &Value) -> Outcome {
    let verdict = match step["verdict"].as_str() {
        Some("failure") => Verdict::Failure,
        _ => Verdict::Success,
    };
    Outcome::of(verdict, "text/plain", step["body"].as_str().unwrap_or_default().to_owned())
}

/// The record with the fence that only its function knows replaced.
pub(super) fn without_fence(mut record: Record) -> Record {
    let none = Fence::from_bits(0);
    match &mut record.state {
        State::Leased(lease) => lease.fence = none,
        State::InDoubt { fence, .. } | State::Done { fence, .. } => *fence = none,
        _ => {}
    }
    record
}

fn hex(fence: Fence) -> String {
    fence.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn fence_of(text: &str) -> Fence {
    let digits = text.replace('-', "");
    Fence::from_bits(u128::from_str_radix(&digits, 16).unwrap())
}
