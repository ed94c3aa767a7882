//! The client of the payment provider: charges, and looks up what was charged.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::FusedFuture;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;

use super::plan::Payment;

/// How long the provider may take to show any sign of life. A healthy one needs a millisecond; this only ends the
/// demo on a machine that has stopped working.
const SIGN_OF_LIFE: Duration = Duration::from_secs(20);

/// How long the client waits for the receipt once the provider has begun to answer: this is the time-out that it
/// gives up on. A good answer comes in one piece, so a slow machine cannot turn one into a late one.
const RECEIPT: Duration = Duration::from_millis(300);

/// A wait is counted in this many steps. When the machine stalls, that costs one step and not the whole wait.
const STEPS: u32 = 10;

/// A charge, as the provider knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Receipt {
    /// The provider's name for it.
    pub(super) id: String,
    /// What was paid.
    pub(super) invoice: String,
    /// How much, in cents.
    pub(super) cents: u64,
}

/// Why there is no receipt.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoReceipt {
    /// The provider could not be reached: nothing was sent.
    #[error("the provider cannot be reached: {0}")]
    NotSent(std::io::Error),
    /// The request left, and no answer came: nobody here knows whether it was charged.
    #[error("{0}")]
    NoAnswer(String),
    /// The provider refused.
    #[error("the provider said {0}")]
    Refused(StatusCode),
}

/// Charges, with the key that makes a repeat recognisable to a provider that honours keys.
pub(super) async fn charge(provider: SocketAddr, payment: &Payment, key: Option<&str>) -> Result<Receipt, NoReceipt> {
    let body = serde_json::to_vec(payment).map_err(|error| NoReceipt::NoAnswer(error.to_string()))?;
    let mut request = Request::post("/v1/charges").header("content-type", "application/json");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let answer = exchange(provider, request, body.into()).await?;
    parsed(&answer)
}

/// What the provider has charged for an invoice.
pub(super) async fn charges(provider: SocketAddr, invoice: &str) -> Result<Vec<Receipt>, NoReceipt> {
    let request = Request::get(format!("/v1/charges?invoice={invoice}"));
    let answer = exchange(provider, request, Bytes::new()).await?;
    parsed(&answer)
}

fn parsed<T: serde::de::DeserializeOwned>(answer: &[u8]) -> Result<T, NoReceipt> {
    serde_json::from_slice(answer).map_err(|error| NoReceipt::NoAnswer(format!("an answer without sense: {error}")))
}

/// One request on a connection of its own; giving up closes it.
async fn exchange(
    provider: SocketAddr,
    request: hyper::http::request::Builder,
    body: Bytes,
) -> Result<Bytes, NoReceipt> {
    let lost = |error: hyper::Error| NoReceipt::NoAnswer(format!("the line was dropped: {error}"));
    let stream = tokio::time::timeout(SIGN_OF_LIFE, TcpStream::connect(provider)).await;
    let stream = stream.unwrap_or_else(|late| Err(late.into())).map_err(NoReceipt::NotSent)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
    let mut connection = pin!(connection.fuse());
    let request = request
        .header("host", provider.to_string())
        .header("connection", "close")
        .body(Full::new(body))
        .map_err(|error| NoReceipt::NoAnswer(error.to_string()))?;
    let response = within(SIGN_OF_LIFE, &mut connection, sender.send_request(request)).await?.map_err(lost)?;
    let status = response.status();
    let answer = within(RECEIPT, &mut connection, response.into_body().collect()).await?.map_err(lost)?;
    match status.is_success() {
        true => Ok(answer.to_bytes()),
        false => Err(NoReceipt::Refused(status)),
    }
}

/// Waits for `work`, which needs the connection to make progress. Both are looked at before each look at the clock.
async fn within<C, W>(limit: Duration, connection: &mut Pin<&mut C>, work: W) -> Result<W::Output, NoReceipt>
where
    C: FusedFuture,
    W: Future,
{
    let mut work = pin!(work);
    for _ in 0..STEPS {
        let both = poll_fn(|context| {
            if !connection.is_terminated() {
                let _ = connection.as_mut().poll(context);
            }
            work.as_mut().poll(context)
        });
        if let Ok(done) = tokio::time::timeout(limit / STEPS, both).await {
            return Ok(done);
        }
    }
    Err(NoReceipt::NoAnswer(format!("no answer within {} ms", limit.as_millis())))
}
