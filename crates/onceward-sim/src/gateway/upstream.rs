//! The upstream: it has effects, and sometimes loses their answers. What it does with a request follows from its key, so
//! that a run can be made again. One that remembers keys answers a known key without a second effect, until it forgets it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::Options;
use super::book::Book;
use crate::dice::Dice;

/// Keys that begin like this lose the answer to their first request, after its effect.
pub const LOSES_FIRST: &str = "lost-";

/// What the upstream does with a request.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Answer,
    /// Takes a while.
    Dawdle,
    /// Says that it did nothing.
    Refuse,
    /// Fails for good, having done nothing.
    Fail,
    /// Has its effect, and somebody in between loses the answer.
    LoseAnswer,
    /// Has its effect, and the connection breaks.
    Break,
}

/// The upstream, on a port of its own.
pub struct Upstream {
    pub port: u16,
}

impl Upstream {
    /// Listens for as long as the harness lives.
    pub async fn start(book: Arc<Book>, options: &Options) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let options = options.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (book, options) = (Arc::clone(&book), options.clone());
                tokio::spawn(async move {
                    let service = service_fn(move |request| answer(Arc::clone(&book), options.clone(), request));
                    // A broken connection is part of the play.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { port }
    }
}

/// The connection is to break.
#[derive(Debug, thiserror::Error)]
#[error("broken on purpose")]
struct Broken;

async fn answer(
    book: Arc<Book>,
    options: Options,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Broken> {
    let key = request.headers().get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default().to_owned();
    let number: u64 = key.trim_start_matches("k-").parse().unwrap_or(0);
    let arrival = book.arrived(&key);
    let mut dice = Dice::of(&[options.common.seed, 3, number, arrival]);
    let deed = match key.strip_prefix(LOSES_FIRST) {
        Some(_) if arrival == 0 => Deed::Break,
        Some(_) => Deed::Answer,
        None => dice.weighted(&[
            (12, Deed::Answer),
            (4, Deed::Dawdle),
            (2, Deed::Refuse),
            (1, Deed::Fail),
            (1, Deed::LoseAnswer),
            (1, Deed::Break),
        ]),
    };
    match deed {
        Deed::Refuse => return Ok(said(StatusCode::TOO_MANY_REQUESTS, "later".to_owned())),
        // What is done is done: an upstream that remembers keys says so again.
        Deed::Fail if !(options.memory.is_some() && book.effects(&key) > 0) => {
            return Ok(said(StatusCode::INTERNAL_SERVER_ERROR, format!("failed {key}")));
        }
        Deed::Dawdle => tokio::time::sleep(Duration::from_millis(dice.below(60))).await,
        _ => {}
    }
    let effect = book.happened(&key);
    match deed {
        Deed::LoseAnswer => Ok(said(StatusCode::BAD_GATEWAY, "lost".to_owned())),
        Deed::Break => Err(Broken),
        _ => Ok(said(StatusCode::OK, format!("{key} effect {effect}"))),
    }
}

fn said(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response
}
