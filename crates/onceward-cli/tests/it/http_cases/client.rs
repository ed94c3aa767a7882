//! A client with one connection per request, which it may close at any moment.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::case::{Expect, TestRequest};

/// Only a failing case waits this long.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// A response, and whether its body is complete.
pub(super) struct ClientResponse {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    pub(super) whole: bool,
}

/// Sends a request and reads the whole response. `seen` gets each piece.
pub(super) async fn send(
    address: SocketAddr,
    sent: TestRequest,
    mut seen: impl FnMut(&[u8]),
) -> Result<ClientResponse, String> {
    let exchange = async {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
        // Ends with this future, so that a dropped client really disconnects.
        let mut connections = JoinSet::new();
        connections.spawn(connection);
        let mut request = Request::builder().method(sent.method).uri(sent.path).header("host", "localhost");
        for (name, value) in &sent.headers {
            request = request.header(*name, value.as_slice());
        }
        // A body that is shorter than its declared length does not end.
        let whole = !sent.headers.iter().any(|(name, _)| *name == "content-length");
        let rest = futures_util::stream::pending::<Result<Frame<Bytes>, Infallible>>();
        let body = match (whole, Bytes::from(sent.body)) {
            (true, body) => Full::new(body).boxed(),
            (false, body) => {
                let frames = futures_util::stream::iter([Ok(Frame::data(body))]).chain(rest);
                BodyExt::boxed(StreamBody::new(frames))
            }
        };
        let request = request.body(body).map_err(|error| error.to_string())?;
        let response = sender.send_request(request).await.map_err(|error| format!("no response: {error}"))?;
        let (parts, mut incoming): (_, Incoming) = response.into_parts();
        let (mut body, mut whole) = (Vec::new(), true);
        while let Some(frame) = incoming.frame().await {
            match frame.map(|frame| frame.into_data()) {
                Ok(Ok(data)) => {
                    seen(&data);
                    body.extend_from_slice(&data);
                }
                Ok(Err(_)) => {}
                Err(_) => {
                    whole = false;
                    break;
                }
            }
        }
        Ok(ClientResponse { status: parts.status.as_u16(), headers: parts.headers, body, whole })
    };
    tokio::time::timeout(RESPONSE_TIMEOUT, exchange).await.unwrap_or_else(|_| Err("the response timed out".to_owned()))
}

impl ClientResponse {
    /// The differences from the expected response.
    pub(super) fn faults(&self, expect: &Expect) -> Vec<String> {
        let mut faults = Vec::new();
        let mut check = |holds: bool, what: String| {
            if !holds {
                faults.push(what);
            }
        };
        check(self.status == expect.status, format!("status {} instead of {}", self.status, expect.status));
        let replayed = self.headers.get("idempotent-replayed").is_some_and(|value| value == "true");
        check(replayed == expect.replayed, format!("replayed: {replayed}"));
        if expect.replayed {
            check(
                self.headers.contains_key("idempotency-expires"),
                "the header Idempotency-Expires is missing".to_owned(),
            );
        }
        let is_problem = self.text("content-type").as_deref() == Some("application/problem+json");
        check(is_problem == expect.problem.is_some(), format!("is a problem document: {is_problem}"));
        check(self.whole == (expect.body.is_some() || expect.problem.is_some()), format!("whole: {}", self.whole));
        if let Some(body) = &expect.body {
            check(
                self.body == *body,
                format!("a different body, of {} bytes instead of {}", self.body.len(), body.len()),
            );
        }
        for (name, value) in &expect.headers {
            let found = self.text(name);
            let fits = found.as_deref().is_some_and(|found| *value == "*" || found == *value);
            check(fits, format!("{name} is {found:?} instead of {value}"));
        }
        for name in &expect.absent {
            check(!self.headers.contains_key(*name), format!("{name} is present"));
        }
        if let Some(kind) = expect.problem {
            let members: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
            let named = format!("/.well-known/onceward/problems/{}", kind.name());
            check(members["type"] == named, format!("type {} instead of {named}", members["type"]));
            check(members["status"] == self.status, "the member status differs from the status".to_owned());
            for (name, value) in &expect.members {
                let found = members.get(*name).map(|found| found.as_str().map_or(found.to_string(), str::to_owned));
                let fits = found.as_deref().is_some_and(|found| *value == "*" || found == *value);
                check(fits, format!("member {name} is {found:?} instead of {value}"));
            }
        }
        if !faults.is_empty() {
            let shown = String::from_utf8_lossy(&self.body[..self.body.len().min(300)]).into_owned();
            faults.push(format!("in {} {:?} {shown}", self.status, self.headers));
        }
        faults
    }

    fn text(&self, name: &str) -> Option<String> {
        self.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    }
}
