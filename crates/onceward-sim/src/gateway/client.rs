//! Clients that retry as real ones do: the same key again after a lost connection, a 409 or a 5xx.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use http::StatusCode;

use super::judge::{Judge, Response};
use super::process::Addresses;
use crate::kills::web;
use crate::rng::Rng;

/// How often a client tries one request before it gives up on it.
const TRIES: u64 = 6;

/// Some clients stop waiting before the answer.
const IN_TIME: Duration = Duration::from_millis(40);

/// The number of last questions at once, and how often one is repeated while another request is in flight.
const LAST_QUESTIONS_AT_ONCE: usize = 8;
const LAST_TRIES: u64 = 40;
const LAST_PAUSE: Duration = Duration::from_millis(100);

/// The longest that a client waits for an answer.
const LONGEST: Duration = Duration::from_secs(10);

/// Makes requests until the run is over: mostly new ones, and now and then one that another client made before.
pub async fn live(caller: u64, seed: u64, judge: Arc<Judge>, addresses: Addresses, stopped: Arc<AtomicBool>) {
    let mut rng = Rng::of(&[seed, 5, caller]);
    while !stopped.load(Ordering::SeqCst) {
        let key = judge.pick(&mut rng);
        for _ in 0..TRIES {
            let timeout = if rng.one_in(5) { IN_TIME } else { LONGEST };
            judge.asked(&key);
            match tokio::time::timeout(timeout, ask(&addresses, &key, &mut rng)).await {
                Ok(Ok(response)) => {
                    let again = response.should_retry();
                    judge.record(&key, response);
                    if !again {
                        break;
                    }
                }
                Ok(Err(_)) | Err(_) => judge.unheard(),
            }
            tokio::time::sleep(Duration::from_millis(rng.below(25))).await;
        }
    }
}

/// Asks for every key again: acknowledged answers are replayed, and no key stays in flight.
pub async fn ask_again(judge: &Judge, addresses: &Addresses) {
    let questions = judge.keys().into_iter().map(|key| async move {
        let mut response = None;
        for _ in 0..LAST_TRIES {
            judge.asked(&key);
            response = match tokio::time::timeout(LONGEST, ask(addresses, &key, &mut Rng::of(&[1]))).await {
                Ok(Ok(response)) => Some(response),
                Ok(Err(_)) | Err(_) => None,
            };
            if !response.as_ref().is_none_or(Response::should_retry) {
                break;
            }
            tokio::time::sleep(LAST_PAUSE).await;
        }
        match response {
            Some(response) => judge.record_last(&key, &response),
            None => judge.violation(format!("{key}: no answer at the end")),
        }
    });
    futures_util::stream::iter(questions).buffer_unordered(LAST_QUESTIONS_AT_ONCE).collect::<()>().await;
}

/// One request on a new connection.
pub async fn ask(addresses: &Addresses, key: &str, rng: &mut Rng) -> Result<Response, web::NoResponse> {
    let at = addresses.pick(rng).ok_or("no gateway listens")?;
    let body = format!("{{\"order\":\"{key}\"}}");
    let (status, headers, text) = web::ask(&at, "/v1/charges", &[("idempotency-key", key)], Some(body)).await?;
    let problem = headers.get("content-type").is_some_and(|kind| kind.as_bytes().ends_with(b"problem+json"));
    let kind = problem.then(|| text.rsplit("/problems/").next().unwrap_or_default().to_owned());
    let kind = kind.map(|kind| kind.split('"').next().unwrap_or_default().to_owned());
    let replayed = headers.contains_key("idempotent-replayed");
    Ok(match (status, kind) {
        (_, Some(kind)) => Response::Problem(kind),
        (StatusCode::OK, None) => Response::Done { text, replayed },
        (StatusCode::INTERNAL_SERVER_ERROR, None) => Response::Failed { text, replayed },
        (status, None) => Response::Passed(status.as_u16()),
    })
}
