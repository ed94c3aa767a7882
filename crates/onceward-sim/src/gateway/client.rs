//! Callers that retry as real ones do: the same key again after a lost connection, a 409 or a 5xx.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use http::StatusCode;

use super::book::{Book, Told};
use super::process::Addresses;
use crate::dice::Dice;
use crate::kills::web;

/// How often a caller tries one request before it gives up on it.
const TRIES: u64 = 6;

/// Some callers lose patience in the middle.
const PATIENCE: Duration = Duration::from_millis(40);

/// Last questions at once, and how often one is put while the answer is that another request is under way.
const LAST_QUESTIONS: usize = 8;
const LAST_TRIES: u64 = 40;
const LAST_PAUSE: Duration = Duration::from_millis(100);

/// No caller waits longer for an answer.
const LONGEST: Duration = Duration::from_secs(10);

/// Makes requests until it is over: new ones mostly, and now and then one that somebody made before.
pub async fn live(caller: u64, seed: u64, book: Arc<Book>, addresses: Addresses, over: Arc<AtomicBool>) {
    let mut dice = Dice::of(&[seed, 5, caller]);
    while !over.load(Ordering::SeqCst) {
        let key = book.pick(&mut dice);
        for _ in 0..TRIES {
            let patience = if dice.one_in(5) { PATIENCE } else { LONGEST };
            book.asked(&key);
            match tokio::time::timeout(patience, ask(&addresses, &key, &mut dice)).await {
                Ok(Ok(told)) => {
                    let again = told.is_to_be_asked_again();
                    book.told(&key, told);
                    if !again {
                        break;
                    }
                }
                Ok(Err(_)) | Err(_) => book.unheard(),
            }
            tokio::time::sleep(Duration::from_millis(dice.below(25))).await;
        }
    }
}

/// Asks for everything once more: what was acknowledged is told again, and nothing is under way for ever.
pub async fn ask_again(book: &Book, addresses: &Addresses) {
    let questions = book.keys().into_iter().map(|key| async move {
        let mut told = None;
        for _ in 0..LAST_TRIES {
            book.asked(&key);
            told = match tokio::time::timeout(LONGEST, ask(addresses, &key, &mut Dice::of(&[1]))).await {
                Ok(Ok(told)) => Some(told),
                Ok(Err(_)) | Err(_) => None,
            };
            if !told.as_ref().is_none_or(Told::is_to_be_asked_again) {
                break;
            }
            tokio::time::sleep(LAST_PAUSE).await;
        }
        match told {
            Some(told) => book.told_at_the_end(&key, &told),
            None => book.violation(format!("{key}: no answer at the end")),
        }
    });
    futures_util::stream::iter(questions).buffer_unordered(LAST_QUESTIONS).collect::<()>().await;
}

/// One request, on a connection of its own.
pub async fn ask(addresses: &Addresses, key: &str, dice: &mut Dice) -> Result<Told, web::Lost> {
    let at = addresses.pick(dice).ok_or("nobody listens")?;
    let body = format!("{{\"order\":\"{key}\"}}");
    let (status, headers, text) = web::ask(&at, "/v1/charges", &[("idempotency-key", key)], Some(body)).await?;
    let problem = headers.get("content-type").is_some_and(|kind| kind.as_bytes().ends_with(b"problem+json"));
    let kind = problem.then(|| text.rsplit("/problems/").next().unwrap_or_default().to_owned());
    let kind = kind.map(|kind| kind.split('"').next().unwrap_or_default().to_owned());
    let replayed = headers.contains_key("idempotent-replayed");
    Ok(match (status, kind) {
        (_, Some(kind)) => Told::Problem(kind),
        (StatusCode::OK, None) => Told::Done { text, replayed },
        (StatusCode::INTERNAL_SERVER_ERROR, None) => Told::Failed { text, replayed },
        (status, None) => Told::Passed(status.as_u16()),
    })
}
