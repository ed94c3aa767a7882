//! Outgoing requests: which addresses are dialled, and what is known about a request after each kind of failure.

mod certificates;
mod http1;
mod http2;
mod pooling;
mod private;
mod rebinding;
mod servers;
mod tls;
mod vectors;

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use onceward_runtime::egress::{
    AddressRules, Client, Limits, NotSent, Request, Resolve, Resolving, Response, Sent, Settings, Trust, Unknown,
};

/// Long enough for a busy machine; no test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

/// For tests that wait until a time-out.
const SHORT: Duration = Duration::from_millis(300);

/// Answers from a list: the first lookup of a name gets the first answer, and so on; the last one stays.
#[derive(Default)]
struct Names {
    answers: HashMap<String, Vec<Vec<IpAddr>>>,
    lookups: AtomicUsize,
}

impl Names {
    fn new(names: &[(&str, &[&[&str]])]) -> Arc<Self> {
        let parse = |answer: &&[&str]| answer.iter().map(|address| address.parse().unwrap()).collect();
        let entry = |(name, answers): &(&str, &[&[&str]])| ((*name).to_owned(), answers.iter().map(parse).collect());
        Arc::new(Self { answers: names.iter().map(entry).collect(), lookups: AtomicUsize::new(0) })
    }

    fn lookups(&self) -> usize {
        self.lookups.load(Ordering::SeqCst)
    }
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a> {
        let number = self.lookups.fetch_add(1, Ordering::SeqCst);
        let answers = self.answers.get(name);
        let answer = answers.and_then(|answers| answers.get(number).or(answers.last()).cloned());
        Box::pin(async { answer.ok_or_else(|| io::Error::other("unknown name")) })
    }
}

/// Without certificates: for sinks without TLS.
static NO_TRUST: LazyLock<Trust> = LazyLock::new(|| Trust::load(false, None).unwrap());

/// Private addresses permitted, and no name known.
fn settings() -> Settings {
    let rules = AddressRules { allow_private: true, allowed_hosts: None };
    let limits = Limits { total: PATIENCE, ..Limits::default() };
    Settings { rules, limits, resolver: Arc::new(Names::default()), ..Settings::new(NO_TRUST.clone()) }
}

fn client() -> Client {
    Client::new(settings()).unwrap()
}

fn impatient() -> Client {
    let mut settings = settings();
    settings.limits.total = SHORT;
    Client::new(settings).unwrap()
}

fn post(url: impl Into<String>, body: impl Into<Bytes>) -> Request {
    Request { method: Method::POST, url: url.into(), headers: HeaderMap::new(), body: body.into(), timeout: None }
}

fn get(url: impl Into<String>) -> Request {
    Request { method: Method::GET, ..post(url, "") }
}

#[track_caller]
fn answered(sent: Sent) -> Response {
    match sent {
        Sent::Answered(answer) => answer,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn not_sent(sent: Sent) -> NotSent {
    match sent {
        Sent::NotSent(why) => why,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn unknown(sent: Sent) -> Unknown {
    match sent {
        Sent::Unknown(why) => why,
        other => panic!("{other:?}"),
    }
}
