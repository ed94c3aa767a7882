//! The payment provider, a process of its own: charges, keeps its books, and misbehaves as planned.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::client::Receipt;
use super::plan::{Fault, Payment, Plan};
use super::wire::{ProviderSays, say};
use super::world::World;

/// A charge is a hundred bytes; whatever is longer is not one.
const LONGEST_REQUEST: usize = 4096;

/// The arguments of the process that plays the provider.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[arg(long)]
    world: World,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    payments: u32,
    /// Everything that it says goes into this file as well.
    #[arg(long)]
    log: Option<PathBuf>,
}

/// Plays the provider until standard input is closed, so that it never outlives the demo.
pub(crate) async fn run(args: Args) -> u8 {
    match serve(args).await {
        Ok(()) => 0,
        Err(error) => {
            let _ = writeln!(io::stderr().lock(), "{error}");
            super::SOFTWARE
        }
    }
}

async fn serve(args: Args) -> io::Result<()> {
    let log = args.log.map(|path| File::options().create(true).append(true).open(path)).transpose()?;
    let plan = Plan::new(args.seed, args.payments);
    let provider = Arc::new(Provider { world: args.world, plan, books: Mutex::default(), log });
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    provider.say(ProviderSays::Listening { address: listener.local_addr()? });
    let orphaned = super::child::orphaned();
    tokio::pin!(orphaned);
    loop {
        let (stream, _) = tokio::select! {
            accepted = listener.accept() => accepted?,
            () = &mut orphaned => return Ok(()),
        };
        let provider = Arc::clone(&provider);
        tokio::spawn(async move {
            let service = service_fn(|request| Arc::clone(&provider).answer(request));
            // A dropped line and a client that has given up both end as an error here: that is the show.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[error("the line is dropped, as planned")]
struct LineDropped;

struct Provider {
    world: World,
    plan: Plan,
    books: Mutex<Books>,
    log: Option<File>,
}

#[derive(Default)]
struct Books {
    charges: BTreeMap<usize, Vec<Receipt>>,
    requests: HashMap<usize, u32>,
    keys: HashMap<String, Receipt>,
}

impl Provider {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Answer, LineDropped> {
        match (request.method(), request.uri().path()) {
            (&Method::POST, "/v1/charges") => self.charge(request).await,
            (&Method::GET, "/v1/charges") => Ok(self.look_up(request.uri().query().unwrap_or_default())),
            _ => Ok(refuse(StatusCode::NOT_FOUND)),
        }
    }

    fn look_up(&self, query: &str) -> Answer {
        let Some(number) = query.strip_prefix("invoice=").and_then(|invoice| self.plan.number(invoice)) else {
            return refuse(StatusCode::BAD_REQUEST);
        };
        let books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let charges = books.charges.get(&number).cloned().unwrap_or_default();
        json(StatusCode::OK, &charges)
    }

    async fn charge(self: Arc<Self>, request: Request<Incoming>) -> Result<Answer, LineDropped> {
        let key = request.headers().get("idempotency-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
        let Ok(body) = Limited::new(request.into_body(), LONGEST_REQUEST).collect().await else {
            return Ok(refuse(StatusCode::PAYLOAD_TOO_LARGE));
        };
        let Ok(payment) = serde_json::from_slice::<Payment>(&body.to_bytes()) else {
            return Ok(refuse(StatusCode::BAD_REQUEST));
        };
        let Some(number) = self.plan.number(&payment.invoice) else { return Ok(refuse(StatusCode::NOT_FOUND)) };
        let fault = self.plan.fault(number, self.count_request(number));
        if fault == Some(Fault::LineDropped) {
            self.say(ProviderSays::Dropped { invoice: payment.invoice });
            return Err(LineDropped);
        }
        let receipt = self.book(number, &payment, key);
        match fault {
            None | Some(Fault::LineDropped) => Ok(json(StatusCode::CREATED, &receipt)),
            Some(Fault::LateAnswer) => {
                let late = Late { provider: self, invoice: payment.invoice };
                let mut answer = Response::new(UnsyncBoxBody::new(late));
                *answer.status_mut() = StatusCode::ACCEPTED;
                Ok(answer)
            }
            Some(Fault::AgentKilled) => {
                self.say(ProviderSays::KillAgent { invoice: payment.invoice });
                std::future::pending().await
            }
        }
    }

    fn count_request(&self, number: usize) -> u32 {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let requests = books.requests.entry(number).or_default();
        *requests += 1;
        *requests
    }

    /// Takes the money, unless the key shows that it has been taken.
    fn book(&self, number: usize, payment: &Payment, key: Option<String>) -> Receipt {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let key = key.filter(|_| self.world.honours_keys());
        if let Some(receipt) = key.as_ref().and_then(|key| books.keys.get(key)) {
            self.say(ProviderSays::KnewKey { invoice: receipt.invoice.clone(), receipt: receipt.id.clone() });
            return receipt.clone();
        }
        let charges = books.charges.entry(number).or_default();
        let receipt = Receipt {
            id: self.plan.receipt(number, charges.len()),
            invoice: payment.invoice.clone(),
            cents: payment.cents,
        };
        charges.push(receipt.clone());
        if let Some(key) = key {
            books.keys.insert(key, receipt.clone());
        }
        self.say(ProviderSays::Charged {
            invoice: receipt.invoice.clone(),
            receipt: receipt.id.clone(),
            cents: receipt.cents,
        });
        receipt
    }

    fn say(&self, event: ProviderSays) {
        if let Some(mut log) = self.log.as_ref() {
            let _ = say(&mut log, &event);
        }
        // Without a driver that listens there is nobody to tell, and standard input ends this process.
        let _ = say(&mut io::stdout().lock(), &event);
    }
}

/// A receipt that is ready only when nobody wants it any more: the connection is dropped with it.
struct Late {
    provider: Arc<Provider>,
    invoice: String,
}

impl Body for Late {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.provider.say(ProviderSays::TooLate { invoice: std::mem::take(&mut self.invoice) });
    }
}

fn json(status: StatusCode, value: &impl serde::Serialize) -> Answer {
    let Ok(body) = serde_json::to_vec(value) else { return refuse(StatusCode::INTERNAL_SERVER_ERROR) };
    let mut answer = Response::new(UnsyncBoxBody::new(Full::from(body)));
    *answer.status_mut() = status;
    answer
}

fn refuse(status: StatusCode) -> Answer {
    let mut answer = Response::new(UnsyncBoxBody::new(Full::default()));
    *answer.status_mut() = status;
    answer
}
