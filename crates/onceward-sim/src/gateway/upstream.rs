//! The upstream: it has effects, and sometimes loses their answers. What it does with a request follows from its key,
//! so that a run can be repeated. If it remembers keys, it answers a known key without a second effect until it forgets
//! it.

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
use super::judge::Judge;
use crate::rng::Rng;

/// Keys that begin like this lose the answer to their first request, after its effect.
pub const LOSES_FIRST: &str = "lost-";

/// What the upstream does with a request.
#[derive(Clone, Copy, Debug)]
enum Behaviour {
    Answer,
    /// Takes a while.
    Dawdle,
    /// Refuses, having done nothing.
    Refuse,
    /// Fails for good, having done nothing.
    Fail,
    /// Has its effect, and a proxy in between loses the answer.
    LoseAnswer,
    /// Has its effect, and the connection breaks.
    Break,
}

/// The upstream, on its own port.
pub struct Upstream {
    pub port: u16,
}

impl Upstream {
    /// Listens until the harness ends.
    pub async fn start(judge: Arc<Judge>, options: &Options) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let options = options.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (judge, options) = (Arc::clone(&judge), options.clone());
                tokio::spawn(async move {
                    let service = service_fn(move |request| answer(Arc::clone(&judge), options.clone(), request));
                    // A broken connection is expected.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { port }
    }
}

/// The connection breaks on purpose.
#[derive(Debug, thiserror::Error)]
#[error("broken on purpose")]
struct Broken;

async fn answer(
    judge: Arc<Judge>,
    options: Options,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Broken> {
    let key = request.headers().get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default().to_owned();
    let number: u64 = key.trim_start_matches("k-").parse().unwrap_or(0);
    let arrival = judge.arrived(&key);
    let mut rng = Rng::of(&[options.common.seed, 3, number, arrival]);
    let behaviour = match key.strip_prefix(LOSES_FIRST) {
        Some(_) if arrival == 0 => Behaviour::Break,
        Some(_) => Behaviour::Answer,
        None => rng.weighted(&[
            (12, Behaviour::Answer),
            (4, Behaviour::Dawdle),
            (2, Behaviour::Refuse),
            (1, Behaviour::Fail),
            (1, Behaviour::LoseAnswer),
            (1, Behaviour::Break),
        ]),
    };
    match behaviour {
        Behaviour::Refuse => return Ok(said(StatusCode::TOO_MANY_REQUESTS, "later".to_owned())),
        // An upstream that remembers the key repeats its answer.
        Behaviour::Fail if !(options.memory.is_some() && judge.effects(&key) > 0) => {
            return Ok(said(StatusCode::INTERNAL_SERVER_ERROR, format!("failed {key}")));
        }
        Behaviour::Dawdle => tokio::time::sleep(Duration::from_millis(rng.below(60))).await,
        _ => {}
    }
    let effect = judge.happened(&key);
    match behaviour {
        Behaviour::LoseAnswer => Ok(said(StatusCode::BAD_GATEWAY, "lost".to_owned())),
        Behaviour::Break => Err(Broken),
        _ => Ok(said(StatusCode::OK, format!("{key} effect {effect}"))),
    }
}

fn said(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response
}
