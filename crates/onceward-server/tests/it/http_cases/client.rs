//! A client: one connection for each request, which it may drop at any moment.

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

use super::case::{Expect, Sent};

/// Only a failing case waits this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// An answer, and whether its body came to its end.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    pub(super) whole: bool,
}

/// Sends a request and reads all that comes. `seen` is told each piece.
pub(super) async fn send(address: SocketAddr, sent: Sent, mut seen: impl FnMut(&[u8])) -> Result<Answer, String> {
    let exchange = async {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
        // Ends with this future, so that a client that is dropped is really gone.
        let mut connections = JoinSet::new();
        connections.spawn(connection);
        let mut request = Request::builder().method(sent.method).uri(sent.path).header("host", "localhost");
        for (name, value) in &sent.headers {
            request = request.header(*name, value.as_slice());
        }
        // What is shorter than it says has no end.
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
        let response = sender.send_request(request).await.map_err(|error| format!("no answer: {error}"))?;
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
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body, whole })
    };
    tokio::time::timeout(PATIENCE, exchange).await.unwrap_or_else(|_| Err("no answer for too long".to_owned()))
}

impl Answer {
    /// What is not as expected.
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
            check(self.headers.contains_key("idempotency-expires"), "it does not say until when it is kept".to_owned());
        }
        let is_problem = self.text("content-type").as_deref() == Some("application/problem+json");
        check(is_problem == expect.problem.is_some(), format!("a problem of ours: {is_problem}"));
        check(self.whole == (expect.body.is_some() || expect.problem.is_some()), format!("whole: {}", self.whole));
        if let Some(body) = &expect.body {
            check(self.body == *body, format!("another body, of {} bytes instead of {}", self.body.len(), body.len()));
        }
        for (name, value) in &expect.headers {
            let found = self.text(name);
            let fits = found.as_deref().is_some_and(|found| *value == "*" || found == *value);
            check(fits, format!("{name} is {found:?} instead of {value}"));
        }
        for name in &expect.absent {
            check(!self.headers.contains_key(*name), format!("{name} is there"));
        }
        if let Some(kind) = expect.problem {
            let members: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
            let named = format!("/.well-known/onceward/problems/{}", kind.name());
            check(members["type"] == named, format!("type {} instead of {named}", members["type"]));
            check(members["status"] == self.status, "its status is not that of the answer".to_owned());
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
