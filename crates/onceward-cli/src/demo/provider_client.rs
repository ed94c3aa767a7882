//! The client of the payment provider: charges, looks up charges, and reads statements.

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

/// How long the provider may take to connect and to send response headers. A healthy one needs a millisecond; this
/// only ends the demo on a machine that has stopped working.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// How long the client waits for the receipt after the response headers: this is the time-out of the demo's late
/// answers. A good answer arrives in one piece, so a slow machine cannot turn a good answer into a late one.
const BODY_TIMEOUT: Duration = Duration::from_millis(300);

/// A wait is counted in this many steps. A machine that stalls loses one step and not the whole wait.
const STEPS: u32 = 10;

/// A charge in the provider's records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Receipt {
    /// The provider's id of the charge.
    pub(super) id: String,
    /// Which invoice was paid.
    pub(super) invoice: String,
    /// How much, in cents.
    pub(super) cents: u64,
}

/// Everything that the provider has recorded for an invoice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Statement {
    /// All charges.
    pub(super) charges: Vec<Receipt>,
    /// How many lookups found a charge.
    pub(super) lookups_found: usize,
    /// How many lookups found no charge.
    pub(super) lookups_not_found: usize,
}

/// Why there is no receipt.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChargeError {
    /// No connection to the provider: nothing was sent.
    #[error("cannot reach the provider: {0}")]
    NotSent(std::io::Error),
    /// The request was sent and no answer came: whether the provider charged is unknown.
    #[error("{0}")]
    NoAnswer(String),
    /// The provider refused.
    #[error("the provider answered {0}")]
    Refused(StatusCode),
}

/// Charges, with the key by which a provider that honours keys recognises a repeat.
pub(super) async fn charge(provider: SocketAddr, payment: &Payment, key: Option<&str>) -> Result<Receipt, ChargeError> {
    let body = serde_json::to_vec(payment).map_err(|error| ChargeError::NoAnswer(error.to_string()))?;
    let mut request = Request::post("/v1/charges").header("content-type", "application/json");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    parse(&exchange(provider, request, body.into()).await?)
}

/// Looks up the charges of an invoice in the provider's API. It knows card payments only, and may lag.
pub(super) async fn look_up(provider: SocketAddr, invoice: &str) -> Result<Vec<Receipt>, ChargeError> {
    let request = Request::get(format!("/v1/charges?invoice={invoice}"));
    parse(&exchange(provider, request, Bytes::new()).await?)
}

/// Reads the statement for an invoice: what the provider really did. The driver and the person read it; the agent
/// does not.
pub(super) async fn statement(provider: SocketAddr, invoice: &str) -> Result<Statement, ChargeError> {
    let request = Request::get(format!("/statement?invoice={invoice}"));
    parse(&exchange(provider, request, Bytes::new()).await?)
}

fn parse<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, ChargeError> {
    serde_json::from_slice(body).map_err(|error| ChargeError::NoAnswer(format!("unreadable answer: {error}")))
}

/// Sends one request on its own connection; a time-out closes it.
async fn exchange(
    provider: SocketAddr,
    request: hyper::http::request::Builder,
    body: Bytes,
) -> Result<Bytes, ChargeError> {
    let lost = |error: hyper::Error| ChargeError::NoAnswer(format!("the connection was lost: {error}"));
    let stream = tokio::time::timeout(RESPONSE_TIMEOUT, TcpStream::connect(provider)).await;
    let stream = stream.unwrap_or_else(|late| Err(late.into())).map_err(ChargeError::NotSent)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
    let mut connection = pin!(connection.fuse());
    let request = request
        .header("host", provider.to_string())
        .header("connection", "close")
        .body(Full::new(body))
        .map_err(|error| ChargeError::NoAnswer(error.to_string()))?;
    let response = within(RESPONSE_TIMEOUT, &mut connection, sender.send_request(request)).await?.map_err(lost)?;
    let status = response.status();
    let body = within(BODY_TIMEOUT, &mut connection, response.into_body().collect()).await?.map_err(lost)?;
    match status.is_success() {
        true => Ok(body.to_bytes()),
        false => Err(ChargeError::Refused(status)),
    }
}

/// Waits for `work`, which needs the connection to make progress. Both are polled before each look at the clock.
async fn within<C, W>(limit: Duration, connection: &mut Pin<&mut C>, work: W) -> Result<W::Output, ChargeError>
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
    Err(ChargeError::NoAnswer(format!("no answer within {} ms", limit.as_millis())))
}
