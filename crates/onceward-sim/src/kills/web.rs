//! One HTTP request on a new connection.

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Why there is no answer.
pub type NoResponse = Box<dyn std::error::Error + Send + Sync>;

/// Sends a body, and waits for the whole answer. Without a body it is a GET.
pub async fn ask(
    address: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<String>,
) -> Result<(StatusCode, HeaderMap, String), NoResponse> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        let _ = connection.await;
    });
    let mut request = Request::builder().method(if body.is_some() { "POST" } else { "GET" }).uri(path);
    request = request.header("host", address).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(body.unwrap_or_default())))?;
    let (head, body) = sender.send_request(request).await?.into_parts();
    let text = String::from_utf8_lossy(&body.collect().await?.to_bytes()).into_owned();
    Ok((head.status, head.headers, text))
}
