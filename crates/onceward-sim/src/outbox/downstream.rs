//! The downstream: it has effects, and sometimes refuses or loses answers. What it does follows from the key and the number
//! of the request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::entry_kind::{ACTED, ASKED, EntryKind, STEP};
use crate::kills::HELD_FOR;
use crate::rng::Rng;

/// The header with the downstream key.
pub const KEY_HEADER: &str = "idempotency-key";

/// How often the downstream cannot say whether an attempt happened, under keys that begin with [`ASKED`].
const UNKNOWN_LOOK_UPS: u64 = 3;

/// What has happened under one key.
#[derive(Clone, Debug, Default)]
pub struct Story {
    /// The requests that have arrived.
    pub requests: u64,
    /// How often it was asked for what happened.
    pub look_ups: u64,
    /// The downstream keys of all requests.
    pub keys: BTreeSet<String>,
    /// The downstream key of each effect.
    pub effects: Vec<String>,
}

/// The operation and the key of an entry.
pub type EntryName = (String, String);

/// What the downstream does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    Answer,
    /// Takes a while.
    Dawdle,
    /// Refuses, having done nothing.
    Refuse,
    /// Breaks the connection, having done nothing.
    Break,
    /// Has its effect, and breaks the connection.
    LoseAnswer,
    /// Has its effect, and does not answer.
    HoldBack,
}

/// The downstream, on its own port.
#[derive(Debug)]
pub struct Downstream {
    pub port: u16,
    seed: u64,
    stories: Mutex<BTreeMap<EntryName, Story>>,
    is_calm: AtomicBool,
}

/// The connection breaks on purpose.
#[derive(Debug, thiserror::Error)]
#[error("broken on purpose")]
struct BrokenDownstream;

impl Downstream {
    /// Listens until the harness ends.
    pub async fn start(seed: u64) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let downstream = Arc::new(Self { port, seed, stories: Mutex::default(), is_calm: AtomicBool::new(false) });
        let this = Arc::clone(&downstream);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let this = Arc::clone(&this);
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let this = Arc::clone(&this);
                        async move { this.answer(request).await }
                    });
                    // A broken connection is expected.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        downstream
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<EntryName, Story>> {
        self.stories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that happened.
    pub fn stories(&self) -> BTreeMap<EntryName, Story> {
        self.locked().clone()
    }

    /// What has happened under one key.
    pub fn story(&self, kind: EntryKind, key: &str) -> Story {
        self.locked().get(&(kind.operation().to_owned(), key.to_owned())).cloned().unwrap_or_default()
    }

    /// From now on every request is answered.
    pub fn calm_down(&self) {
        self.is_calm.store(true, Ordering::SeqCst);
    }

    /// One line of progress.
    pub fn line(&self) -> String {
        let stories = self.locked();
        let effects: usize = stories.values().map(|story| story.effects.len()).sum();
        format!("{} entries have arrived, {effects} effects", stories.len())
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, BrokenDownstream> {
        let mut parts = request.uri().path().trim_start_matches('/').splitn(2, '/').map(str::to_owned);
        let (Some(operation), Some(key)) = (parts.next(), parts.next()) else {
            return Ok(said(StatusCode::NOT_FOUND, String::new()));
        };
        let header = request.headers().get(KEY_HEADER).and_then(|value| value.to_str().ok());
        let downstream_key = header.unwrap_or_default().to_owned();
        if request.method() == Method::GET {
            return Ok(self.look_up(operation, key, &downstream_key));
        }
        let behaviour = self.behaviour(&operation, &key, &downstream_key);
        match behaviour {
            Behaviour::Refuse => return Ok(said(StatusCode::TOO_MANY_REQUESTS, "later".to_owned())),
            Behaviour::Break => return Err(BrokenDownstream),
            Behaviour::Dawdle => tokio::time::sleep(Duration::from_millis(30)).await,
            _ => {}
        }
        self.act(&operation, &key, downstream_key);
        match behaviour {
            Behaviour::LoseAnswer => Err(BrokenDownstream),
            Behaviour::HoldBack => {
                tokio::time::sleep(HELD_FOR).await;
                Err(BrokenDownstream)
            }
            _ => Ok(said(StatusCode::OK, value(&operation, &key))),
        }
    }

    fn behaviour(&self, operation: &str, key: &str, downstream_key: &str) -> Behaviour {
        let mut stories = self.locked();
        let story = stories.entry((operation.to_owned(), key.to_owned())).or_default();
        story.requests += 1;
        story.keys.insert(downstream_key.to_owned());
        let number = story.requests;
        if self.is_calm.load(Ordering::SeqCst) {
            return Behaviour::Answer;
        }
        match key {
            _ if key.starts_with(ACTED) && number == 1 => Behaviour::HoldBack,
            _ if key.starts_with(ASKED) && number == 1 => Behaviour::LoseAnswer,
            _ if key.starts_with(STEP) && number == 1 => Behaviour::Refuse,
            _ if key.starts_with(STEP) && number == 2 => Behaviour::Break,
            _ if [ACTED, ASKED, STEP].iter().any(|start| key.starts_with(start)) => Behaviour::Answer,
            _ => {
                let index: u64 = key.trim_start_matches("k-").parse().unwrap_or(0);
                let choices = [
                    (12, Behaviour::Answer),
                    (3, Behaviour::Dawdle),
                    (2, Behaviour::Refuse),
                    (1, Behaviour::Break),
                    (1, Behaviour::LoseAnswer),
                ];
                Rng::of(&[self.seed, 3, index, operation.len() as u64, number]).weighted(&choices)
            }
        }
    }

    fn act(&self, operation: &str, key: &str, downstream_key: String) {
        let mut stories = self.locked();
        let story = stories.entry((operation.to_owned(), key.to_owned())).or_default();
        let honours = EntryKind::named(operation).is_some_and(EntryKind::honours_keys);
        if !(honours && story.effects.contains(&downstream_key)) {
            story.effects.push(downstream_key);
        }
    }

    fn look_up(&self, operation: String, key: String, downstream_key: &str) -> Response<Full<Bytes>> {
        let text = value(&operation, &key);
        let mut stories = self.locked();
        let is_asked = key.starts_with(ASKED);
        let story = stories.entry((operation, key)).or_default();
        story.look_ups += 1;
        match story.effects.iter().any(|effect| effect == downstream_key) {
            _ if is_asked && story.look_ups <= UNKNOWN_LOOK_UPS => said(StatusCode::BAD_GATEWAY, String::new()),
            true => said(StatusCode::OK, text),
            false => said(StatusCode::NOT_FOUND, String::new()),
        }
    }
}

/// The answer to a request that has its effect.
pub fn value(operation: &str, key: &str) -> String {
    format!("\"{operation} {key} is delivered\"")
}

fn said(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response
}
