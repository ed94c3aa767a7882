//! An MCP server over HTTP inside the harness. It outlives every gateway, so effects also arrive after a gateway was
//! killed.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::server::{Behaviour, formality, key, value};
use super::{KillRun, response};

/// Listens until the harness ends, and returns the port.
pub(super) async fn start(run: &Arc<KillRun>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let run = Arc::clone(run);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let run = Arc::clone(&run);
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let run = Arc::clone(&run);
                    // A gateway that is killed breaks its connection, and the effect takes place all the same.
                    async move { tokio::spawn(answer_one(run, request)).await.unwrap_or(Err(Broken)) }
                });
                // Broken connections are expected.
                let _ =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    port
}

/// The connection breaks on purpose.
#[derive(Debug, thiserror::Error)]
#[error("broken on purpose")]
struct Broken;

async fn answer_one(run: Arc<KillRun>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Broken> {
    let is_post = request.method() == http::Method::POST;
    let body = request.into_body().collect().await.map_err(|_| Broken)?.to_bytes();
    let Ok(message) = serde_json::from_slice::<Value>(&body) else {
        let status = if is_post { StatusCode::BAD_REQUEST } else { StatusCode::METHOD_NOT_ALLOWED };
        return Ok(said(status, String::new()));
    };
    if message["method"] != "tools/call" {
        return Ok(match formality(&message) {
            Some(response) => said(StatusCode::OK, response.to_string()),
            None => said(StatusCode::ACCEPTED, String::new()),
        });
    }
    let key = key(&message);
    let (behaviour, time) = Behaviour::of(run.options.seed, &key, &run.effects);
    match behaviour {
        Behaviour::Vanish => return Err(Broken),
        Behaviour::Dawdle => tokio::time::sleep(time).await,
        _ => {}
    }
    let value = value(&key);
    run.effects.happen(&key, &value);
    match behaviour {
        Behaviour::Die => return Err(Broken),
        Behaviour::Linger | Behaviour::Hold => tokio::time::sleep(time).await,
        _ => {}
    }
    let response = json!({ "jsonrpc": "2.0", "id": message["id"], "result": response::result(&value) });
    Ok(said(StatusCode::OK, response.to_string()))
}

fn said(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}
