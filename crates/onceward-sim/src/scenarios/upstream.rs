//! An upstream that does what the path says. Every request that is not refused is an effect, under its key and
//! credential.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::kills::effects::Effects;

/// Long enough that the process to be killed is dead by then.
const HELD_FOR: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
#[error("broken on purpose")]
struct Broken;

/// Listens until the harness ends, and returns the port.
pub(super) async fn start(effects: &Effects) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let effects = Arc::new(effects.clone());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let effects = Arc::clone(&effects);
            tokio::spawn(async move {
                let service = service_fn(move |request| answer(Arc::clone(&effects), request));
                // Broken connections are expected.
                let _ =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    port
}

async fn answer(effects: Arc<Effects>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Broken> {
    let (head, body) = request.into_parts();
    let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let body = body.collect().await.map_err(|_| Broken)?.to_bytes();
    let credential = text("authorization");
    let value = format!("{credential} {}", String::from_utf8_lossy(&body));
    effects.happen(&text("idempotency-key"), &value);
    let mut response = Response::new(Full::new(Bytes::from(value)));
    match head.uri.path() {
        "/lost" => return Err(Broken),
        "/held" => tokio::time::sleep(HELD_FOR).await,
        "/bad-gateway" => *response.status_mut() = StatusCode::BAD_GATEWAY,
        "/created" => *response.status_mut() = StatusCode::CREATED,
        "/cookie" => {
            response.headers_mut().insert("set-cookie", http::HeaderValue::from_static("session=1"));
        }
        _ => {}
    }
    Ok(response)
}
