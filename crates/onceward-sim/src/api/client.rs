//! One client of the API: it asks for the claim, acts, and says what came of it, each until it is answered; or it dies on the
//! way.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::Address;
use crate::dice::Dice;
use crate::kills::book::Told;
use crate::kills::{HELD, Options, Stage, web};

/// The operation of every intent.
const OPERATION: &str = "charge";

/// How often a client asks for one key before it gives up on it.
const TRIES: u64 = 6;

/// How often it says what came of its work, until it is told that this is written: a server is back in less time.
const PERSISTENCE: u64 = 100;

/// A short lease, so that what dead clients held lapses within the run.
const LEASE_MILLIS: u64 = 1500;

/// How often the last question is put while a lease has yet to lapse, and how long to wait in between.
const LAST_TRIES: u64 = 60;
const LAST_PAUSE: Duration = Duration::from_millis(100);

/// No caller waits longer for an answer.
const LONGEST: Duration = Duration::from_secs(10);

/// What a client does with its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    /// Acts and finishes.
    Finish,
    /// Acts and is never heard of again.
    Die,
    /// Is gone before it acts.
    Vanish,
    /// Is refused by the other side, and gives the claim back, the first time.
    Release,
    /// Acts, and does not know whether it did.
    Doubt,
}

impl Deed {
    fn of(stage: &Stage, key: &str, attempt: u64) -> (Self, Duration) {
        let mut dice = Dice::of(&[stage.options.seed, 3, Options::number(key)]);
        if key == HELD && !stage.effects.is_calm() {
            return (Self::Die, Duration::ZERO);
        }
        let weights = [(40, Self::Finish), (2, Self::Die), (2, Self::Vanish), (6, Self::Release), (3, Self::Doubt)];
        let (deed, time) = (dice.weighted(&weights), Duration::from_millis(dice.below(20)));
        match deed {
            _ if stage.effects.is_calm() => (Self::Finish, Duration::ZERO),
            Self::Release if attempt > 1 => (Self::Finish, time),
            deed => (deed, time),
        }
    }
}

/// How a doubt is settled as done: with the value that clients read.
pub(super) fn as_value(value: &str) -> (&'static str, String) {
    ("--value", json!(value).to_string())
}

/// Makes calls until it is over.
pub(super) async fn live(caller: u64, stage: Arc<Stage>, address: Address, over: Arc<AtomicBool>) {
    let mut dice = Dice::of(&[stage.options.seed, 5, caller]);
    while !over.load(Ordering::SeqCst) {
        let key = stage.book.pick(&mut dice);
        for _ in 0..TRIES {
            let told = ask(&stage, &address, &key).await;
            stage.book.told(&key, &told);
            if !told.is_to_be_asked_again() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(dice.below(25))).await;
        }
    }
}

/// The last question: what a dead client held has to lapse first.
pub(super) async fn ask_at_last(stage: &Stage, address: &Address, key: String) -> Told {
    let mut told = Told::Nothing;
    for _ in 0..LAST_TRIES {
        told = ask(stage, address, &key).await;
        if !told.is_to_be_asked_again() {
            break;
        }
        tokio::time::sleep(LAST_PAUSE).await;
    }
    told
}

/// A client acts and dies; once its lease has lapsed, another one asks.
pub(super) async fn first_scene(stage: &Stage, address: &Address) {
    ask(stage, address, HELD).await;
    tokio::time::sleep(Duration::from_millis(LEASE_MILLIS) + LAST_PAUSE).await;
    stage.first_scene(&ask(stage, address, HELD).await);
}

/// From begin to the end of the work.
async fn ask(stage: &Stage, address: &Address, key: &str) -> Told {
    let begin = json!({ "operation": OPERATION, "key": key, "lease_ms": LEASE_MILLIS, "wait_ms": 200 });
    let begun = match post(address, "/v1/begin", &begin).await {
        Ok(begun) => begun,
        Err(told) => return told,
    };
    match begun["decision"].as_str().unwrap_or_default() {
        "acquired" => work(stage, address, key, &begun).await,
        "replay" => match value(&begun["outcome"]) {
            Some(value) => Told::Done(value),
            None => Told::Wrong(begun.to_string()),
        },
        "in_flight" | "try_again" => Told::Busy,
        "in_doubt" => Told::Doubt,
        _ => Told::Wrong(begun.to_string()),
    }
}

/// The value that an outcome holds.
fn value(outcome: &Value) -> Option<String> {
    serde_json::from_str(outcome["body"]["text"].as_str()?).ok()
}

async fn work(stage: &Stage, address: &Address, key: &str, begun: &Value) -> Told {
    let (deed, time) = Deed::of(stage, key, begun["attempt"].as_u64().unwrap_or(1));
    let mut report = json!({ "operation": OPERATION, "key": key, "fence": begun["fence"] });
    match deed {
        Deed::Vanish => return Told::Nothing,
        Deed::Release => {
            return match persist(address, "/v1/release", &report).await {
                Told::Done(_) => Told::Refused,
                told => told,
            };
        }
        _ => tokio::time::sleep(time).await,
    }
    let value = effect(key);
    stage.effects.happen(key, &value);
    match deed {
        Deed::Die => Told::Nothing,
        Deed::Doubt => match persist(address, "/v1/doubt", &report).await {
            Told::Done(_) => Told::Nothing,
            told => told,
        },
        _ => {
            let body = json!({ "text": json!(value).to_string() });
            report["outcome"] = json!({ "verdict": "success", "status": 200, "body": body });
            match persist(address, "/v1/finish", &report).await {
                Told::Done(_) => Told::Done(value),
                told => told,
            }
        }
    }
}

/// The value of an effect: another one for each time.
fn effect(key: &str) -> String {
    static TIMES: AtomicU64 = AtomicU64::new(0);
    format!("{key} effect {}", TIMES.fetch_add(1, Ordering::SeqCst))
}

/// Says what came of the work until it is written. `Done` means that it is.
async fn persist(address: &Address, path: &str, report: &Value) -> Told {
    for _ in 0..PERSISTENCE {
        match post(address, path, report).await {
            Ok(answer) if answer["result"] == "written" => return Told::Done(String::new()),
            // The answer to an earlier release may have been lost, and then the claim is not there any more.
            Ok(answer) if answer["result"] == "stale" && path == "/v1/release" => return Told::Refused,
            Ok(answer) => return Told::Wrong(format!("{path}: {answer}")),
            Err(Told::Nothing) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(told) => return told,
        }
    }
    Told::Nothing
}

async fn post(address: &Address, path: &str, body: &Value) -> Result<Value, Told> {
    let at = address.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or(Told::Nothing)?;
    let asked = tokio::time::timeout(LONGEST, web::ask(&at, path, &[], Some(body.to_string()))).await;
    let Ok(Ok((status, _, text))) = asked else { return Err(Told::Nothing) };
    if !status.is_success() {
        return Err(Told::Wrong(format!("{path}: {status} {text}")));
    }
    serde_json::from_str(&text).map_err(|error| Told::Wrong(format!("{path}: {error}")))
}
