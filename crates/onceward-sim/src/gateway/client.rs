//! Callers that retry as real ones do: the same key again after a lost connection, a 409 or a 5xx.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::book::{Book, Told};
use super::process::Address;
use crate::dice::Dice;

/// How often a caller tries one request before it gives up on it.
const TRIES: u64 = 6;

/// Some callers lose patience in the middle.
const PATIENCE: Duration = Duration::from_millis(40);

/// Nobody waits longer for an answer.
const LONGEST: Duration = Duration::from_secs(10);

/// Makes requests until it is over: new ones mostly, and now and then one that somebody made before.
pub async fn live(caller: u64, seed: u64, book: Arc<Book>, address: Address, over: Arc<AtomicBool>) {
    let mut dice = Dice::of(&[seed, 5, caller]);
    while !over.load(Ordering::SeqCst) {
        let key = book.pick(&mut dice);
        for _ in 0..TRIES {
            let patience = if dice.one_in(5) { PATIENCE } else { LONGEST };
            match tokio::time::timeout(patience, ask(&address, &key)).await {
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

/// Asks for everything that was acknowledged once more.
pub async fn ask_again(book: &Book, address: &Address) {
    for key in book.acknowledged() {
        match tokio::time::timeout(LONGEST, ask(address, &key)).await {
            Ok(Ok(told)) => book.told_at_the_end(&key, &told),
            other => book.violation(format!("{key}: no answer at the end: {:?}", other.map(|told| told.is_ok()))),
        }
    }
}

/// One request, on a connection of its own.
async fn ask(address: &Address, key: &str) -> Result<Told, Box<dyn std::error::Error + Send + Sync>> {
    let at = address.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let stream = TcpStream::connect(at.ok_or("nobody listens")?).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        let _ = connection.await;
    });
    let body = Full::new(Bytes::from(format!("{{\"order\":\"{key}\"}}")));
    let request = Request::post("/v1/charges")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("idempotency-key", key)
        .body(body)?;
    let (head, body) = sender.send_request(request).await?.into_parts();
    let text = String::from_utf8_lossy(&body.collect().await?.to_bytes()).into_owned();
    let problem = head.headers.get("content-type").is_some_and(|kind| kind.as_bytes().ends_with(b"problem+json"));
    let kind = problem.then(|| text.rsplit("/problems/").next().unwrap_or_default().trim_end_matches("\"}").to_owned());
    let replayed = head.headers.contains_key("idempotent-replayed");
    Ok(match (head.status, kind) {
        (_, Some(kind)) => Told::Problem(kind),
        (StatusCode::OK, None) => Told::Done { text, replayed },
        (StatusCode::INTERNAL_SERVER_ERROR, None) => Told::Failed { text, replayed },
        (status, None) => Told::Passed(status.as_u16()),
    })
}
