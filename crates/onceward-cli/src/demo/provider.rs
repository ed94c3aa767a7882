//! The payment provider, a child process: charges, records its charges, and fails as planned.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method as HttpMethod, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::events::{ProviderEvent, write_event};
use super::plan::{Fault, Method, Payment, Plan};
use super::provider_client::{Receipt, Statement};
use super::world::World;

/// A charge is a hundred bytes; a longer request is not a charge.
const MAX_REQUEST: usize = 4096;

/// How long a charge takes to appear in the lookup. Real providers lag too; it is why a probe needs a settle time.
const LOOKUP_LAG: Duration = Duration::from_millis(400);

/// The arguments of the provider's process.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[arg(long)]
    world: World,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    payments: u32,
    /// Also append every event to this file.
    #[arg(long)]
    log: Option<PathBuf>,
}

/// Runs the provider until standard input is closed, so that it never outlives the demo.
pub(crate) async fn run(args: Args) -> u8 {
    match serve(args).await {
        Ok(()) => 0,
        Err(error) => {
            let _ = writeln!(io::stderr().lock(), "{error}");
            super::EX_SOFTWARE
        }
    }
}

async fn serve(args: Args) -> io::Result<()> {
    let log = args.log.map(|path| File::options().create(true).append(true).open(path)).transpose()?;
    let plan = Plan::new(args.seed, args.payments);
    let provider = Arc::new(Provider { world: args.world, plan, records: Mutex::default(), log });
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    provider.report(ProviderEvent::Listening { address: listener.local_addr()? });
    let driver_gone = super::child::driver_gone();
    tokio::pin!(driver_gone);
    loop {
        let (stream, _) = tokio::select! {
            accepted = listener.accept() => accepted?,
            () = &mut driver_gone => return Ok(()),
        };
        let provider = Arc::clone(&provider);
        tokio::spawn(async move {
            let service = service_fn(|request| Arc::clone(&provider).respond(request));
            // A dropped connection and a client that has timed out both end as an error here, as planned.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

type ProviderResponse = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The planned fault that closes the connection without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the connection is dropped, as planned")]
struct ConnectionDropped;

struct Provider {
    world: World,
    plan: Plan,
    records: Mutex<Records>,
    log: Option<File>,
}

/// What the provider has recorded, by the number of the payment.
#[derive(Default)]
struct Records {
    statements: BTreeMap<usize, Statement>,
    charged_at: HashMap<usize, Instant>,
    requests: HashMap<usize, u32>,
    receipts_by_key: HashMap<String, Receipt>,
}

impl Provider {
    async fn respond(self: Arc<Self>, request: Request<Incoming>) -> Result<ProviderResponse, ConnectionDropped> {
        let asked_for = request.uri().query().and_then(|query| query.strip_prefix("invoice="));
        let number = asked_for.and_then(|invoice| self.plan.number(invoice));
        match (request.method(), request.uri().path(), number) {
            (&HttpMethod::POST, "/v1/charges", _) => self.charge(request).await,
            (&HttpMethod::GET, "/v1/charges", Some(number)) => Ok(self.look_up(number)),
            (&HttpMethod::GET, "/statement", Some(number)) => {
                let statement = self.records().statements.get(&number).cloned();
                Ok(json(StatusCode::OK, &statement.unwrap_or_default()))
            }
            _ => Ok(empty(StatusCode::NOT_FOUND)),
        }
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lookup of the API: card charges that are older than the lag.
    fn look_up(&self, number: usize) -> ProviderResponse {
        let payment = self.plan.payment(number);
        if payment.method != Method::Card {
            return empty(StatusCode::NOT_IMPLEMENTED);
        }
        let mut records = self.records();
        let is_visible = records.charged_at.get(&number).is_some_and(|charged| charged.elapsed() >= LOOKUP_LAG);
        let statement = records.statements.entry(number).or_default();
        let charges = if is_visible { statement.charges.clone() } else { Vec::new() };
        let found = !charges.is_empty();
        *(if found { &mut statement.lookups_found } else { &mut statement.lookups_not_found }) += 1;
        self.report(ProviderEvent::LookedUp { invoice: payment.invoice, found });
        json(StatusCode::OK, &charges)
    }

    async fn charge(self: Arc<Self>, request: Request<Incoming>) -> Result<ProviderResponse, ConnectionDropped> {
        let key = request.headers().get("idempotency-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
        let Ok(body) = Limited::new(request.into_body(), MAX_REQUEST).collect().await else {
            return Ok(empty(StatusCode::PAYLOAD_TOO_LARGE));
        };
        let Ok(payment) = serde_json::from_slice::<Payment>(&body.to_bytes()) else {
            return Ok(empty(StatusCode::BAD_REQUEST));
        };
        let Some(number) = self.plan.number(&payment.invoice) else { return Ok(empty(StatusCode::NOT_FOUND)) };
        let fault = self.plan.fault(number, self.count_request(number));
        if fault == Some(Fault::RequestLost) {
            self.report(ProviderEvent::ConnectionDropped { invoice: payment.invoice });
            return Err(ConnectionDropped);
        }
        let receipt = self.record_charge(number, &payment, key);
        match fault {
            None | Some(Fault::RequestLost) => Ok(json(StatusCode::CREATED, &receipt)),
            Some(Fault::LateAnswer) => {
                let late = LateBody { provider: self, invoice: payment.invoice };
                let mut response = Response::new(UnsyncBoxBody::new(late));
                *response.status_mut() = StatusCode::ACCEPTED;
                Ok(response)
            }
            Some(Fault::AgentKilled) => {
                self.report(ProviderEvent::KillAgent { invoice: payment.invoice });
                std::future::pending().await
            }
        }
    }

    fn count_request(&self, number: usize) -> u32 {
        let mut records = self.records();
        let requests = records.requests.entry(number).or_default();
        *requests += 1;
        *requests
    }

    /// Charges, unless the key shows that this payment was charged before.
    fn record_charge(&self, number: usize, payment: &Payment, key: Option<String>) -> Receipt {
        let mut records = self.records();
        let key = key.filter(|_| self.world.honours_keys());
        if let Some(receipt) = key.as_ref().and_then(|key| records.receipts_by_key.get(key)) {
            let (invoice, id) = (receipt.invoice.clone(), receipt.id.clone());
            self.report(ProviderEvent::KeyRecognised { invoice, receipt: id });
            return receipt.clone();
        }
        let charges = &mut records.statements.entry(number).or_default().charges;
        let receipt = Receipt {
            id: self.plan.receipt(number, charges.len()),
            invoice: payment.invoice.clone(),
            cents: payment.cents,
        };
        charges.push(receipt.clone());
        records.charged_at.insert(number, Instant::now());
        if let Some(key) = key {
            records.receipts_by_key.insert(key, receipt.clone());
        }
        self.report(ProviderEvent::Charged {
            invoice: receipt.invoice.clone(),
            receipt: receipt.id.clone(),
            cents: receipt.cents,
        });
        receipt
    }

    /// Writes an event to the log and to the driver. A driver that is gone ends this process by closing its input.
    fn report(&self, event: ProviderEvent) {
        if let Some(mut log) = self.log.as_ref() {
            let _ = write_event(&mut log, &event);
        }
        let _ = write_event(&mut io::stdout().lock(), &event);
    }
}

/// A response body that never comes: the client times out and closes the connection, which drops this.
struct LateBody {
    provider: Arc<Provider>,
    invoice: String,
}

impl Body for LateBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

impl Drop for LateBody {
    fn drop(&mut self) {
        self.provider.report(ProviderEvent::ClientGaveUp { invoice: std::mem::take(&mut self.invoice) });
    }
}

fn json(status: StatusCode, value: &impl serde::Serialize) -> ProviderResponse {
    let Ok(body) = serde_json::to_vec(value) else { return empty(StatusCode::INTERNAL_SERVER_ERROR) };
    let mut response = Response::new(UnsyncBoxBody::new(Full::from(body)));
    *response.status_mut() = status;
    response
}

fn empty(status: StatusCode) -> ProviderResponse {
    let mut response = Response::new(UnsyncBoxBody::new(Full::default()));
    *response.status_mut() = status;
    response
}
