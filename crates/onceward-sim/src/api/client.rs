//! One client of the API: it asks for the claim, acts, and reports the result, each until it is answered; or it dies in
//! between.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::Address;
use crate::kills::judge::Response;
use crate::kills::{HELD, KillRun, Options, web};
use crate::rng::Rng;

/// The operation of every intent.
const OPERATION: &str = "charge";

/// How often a client asks for one key before it gives up on it.
const TRIES: u64 = 6;

/// How often it reports its result until that is written: a server is back in less time.
const PERSISTENCE: u64 = 100;

/// A short lease, so that the claims of dead clients lapse within the run.
const LEASE_MILLIS: u64 = 1500;

/// How often the last question is repeated while a lease has yet to lapse, and the pause between.
const LAST_TRIES: u64 = 60;
const LAST_PAUSE: Duration = Duration::from_millis(100);

/// The longest that a client waits for an answer.
const LONGEST: Duration = Duration::from_secs(10);

/// What a client does with its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    /// Acts and finishes.
    Finish,
    /// Acts and dies.
    Die,
    /// Dies before it acts.
    Vanish,
    /// Is refused downstream, and releases the claim, the first time.
    Release,
    /// Acts, and does not know whether it did.
    Doubt,
}

impl Behaviour {
    fn of(run: &KillRun, key: &str, attempt: u64) -> (Self, Duration) {
        let mut rng = Rng::of(&[run.options.seed, 3, Options::number(key)]);
        if key == HELD && !run.effects.is_calm() {
            return (Self::Die, Duration::ZERO);
        }
        let weights = [(40, Self::Finish), (2, Self::Die), (2, Self::Vanish), (6, Self::Release), (3, Self::Doubt)];
        let (behaviour, time) = (rng.weighted(&weights), Duration::from_millis(rng.below(20)));
        match behaviour {
            _ if run.effects.is_calm() => (Self::Finish, Duration::ZERO),
            Self::Release if attempt > 1 => (Self::Finish, time),
            behaviour => (behaviour, time),
        }
    }
}

/// How a doubt is settled as done: with the value that clients read.
pub(super) fn as_value(value: &str) -> (&'static str, String) {
    ("--value", json!(value).to_string())
}

/// Makes calls until it is over.
pub(super) async fn live(caller: u64, run: Arc<KillRun>, address: Address, stopped: Arc<AtomicBool>) {
    let mut rng = Rng::of(&[run.options.seed, 5, caller]);
    while !stopped.load(Ordering::SeqCst) {
        let key = run.judge.pick(&mut rng);
        for _ in 0..TRIES {
            let response = ask(&run, &address, &key).await;
            run.judge.record(&key, &response);
            if !response.should_retry() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(rng.below(25))).await;
        }
    }
}

/// The last question: the claim of a dead client has to lapse first.
pub(super) async fn ask_at_last(run: &KillRun, address: &Address, key: String) -> Response {
    let mut response = Response::Nothing;
    for _ in 0..LAST_TRIES {
        response = ask(run, address, &key).await;
        if !response.should_retry() {
            break;
        }
        tokio::time::sleep(LAST_PAUSE).await;
    }
    response
}

/// A client acts and dies; once its lease has lapsed, another one asks.
pub(super) async fn end_opening_scenario(run: &KillRun, address: &Address) {
    ask(run, address, HELD).await;
    tokio::time::sleep(Duration::from_millis(LEASE_MILLIS) + LAST_PAUSE).await;
    run.end_opening_scenario(&ask(run, address, HELD).await);
}

/// From begin to the end of the work.
async fn ask(run: &KillRun, address: &Address, key: &str) -> Response {
    let begin = json!({ "operation": OPERATION, "key": key, "lease_ms": LEASE_MILLIS, "wait_ms": 200 });
    let begun = match post(address, "/v1/begin", &begin).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    match begun["decision"].as_str().unwrap_or_default() {
        "acquired" => work(run, address, key, &begun).await,
        "replay" => match value(&begun["outcome"]) {
            Some(value) => Response::Done(value),
            None => Response::Wrong(begun.to_string()),
        },
        "in_flight" | "try_again" => Response::Busy,
        "in_doubt" => Response::Doubt,
        _ => Response::Wrong(begun.to_string()),
    }
}

/// The value in an outcome.
fn value(outcome: &Value) -> Option<String> {
    serde_json::from_str(outcome["body"]["text"].as_str()?).ok()
}

async fn work(run: &KillRun, address: &Address, key: &str, begun: &Value) -> Response {
    let (behaviour, time) = Behaviour::of(run, key, begun["attempt"].as_u64().unwrap_or(1));
    let mut report = json!({ "operation": OPERATION, "key": key, "fence": begun["fence"] });
    match behaviour {
        Behaviour::Vanish => return Response::Nothing,
        Behaviour::Release => {
            return match persist(address, "/v1/release", &report).await {
                Response::Done(_) => Response::Refused,
                response => response,
            };
        }
        _ => tokio::time::sleep(time).await,
    }
    let value = effect(key);
    run.effects.happen(key, &value);
    match behaviour {
        Behaviour::Die => Response::Nothing,
        Behaviour::Doubt => match persist(address, "/v1/doubt", &report).await {
            Response::Done(_) => Response::Nothing,
            response => response,
        },
        _ => {
            let body = json!({ "text": json!(value).to_string() });
            report["outcome"] = json!({ "verdict": "success", "status": 200, "body": body });
            match persist(address, "/v1/finish", &report).await {
                Response::Done(_) => Response::Done(value),
                response => response,
            }
        }
    }
}

/// The value of an effect: different each time.
fn effect(key: &str) -> String {
    static TIMES: AtomicU64 = AtomicU64::new(0);
    format!("{key} effect {}", TIMES.fetch_add(1, Ordering::SeqCst))
}

/// Reports the result until it is written. `Done` means that it is.
async fn persist(address: &Address, path: &str, report: &Value) -> Response {
    for _ in 0..PERSISTENCE {
        match post(address, path, report).await {
            Ok(answer) if answer["result"] == "written" => return Response::Done(String::new()),
            // The answer to an earlier release may have been lost, and then the claim is gone.
            Ok(answer) if answer["result"] == "stale" && path == "/v1/release" => return Response::Refused,
            Ok(answer) => return Response::Wrong(format!("{path}: {answer}")),
            Err(Response::Nothing) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(response) => return response,
        }
    }
    Response::Nothing
}

async fn post(address: &Address, path: &str, body: &Value) -> Result<Value, Response> {
    let at = address.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or(Response::Nothing)?;
    let asked = tokio::time::timeout(LONGEST, web::ask(&at, path, &[], Some(body.to_string()))).await;
    let Ok(Ok((status, _, text))) = asked else { return Err(Response::Nothing) };
    if !status.is_success() {
        return Err(Response::Wrong(format!("{path}: {status} {text}")));
    }
    serde_json::from_str(&text).map_err(|error| Response::Wrong(format!("{path}: {error}")))
}
