//! One request at a time over an HTTP/1.1 connection.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout, timeout_at};

use super::client::Limits;
use super::driver::{Collected, Driver, Exchange};
use super::sent::{self, Lost};

/// How long a connection may take after an answer to become ready for the next request: a turn of its task, unless the server
/// answered before it had read the request. Such a connection is closed.
const READY_TIMEOUT: Duration = Duration::from_millis(100);

/// A connection. Closed on drop.
pub(super) struct Http1 {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: Driver,
}

impl Http1 {
    pub(super) async fn start(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        limits: &Limits,
    ) -> Result<Self, hyper::Error> {
        let mut builder = http1::Builder::new();
        builder.max_header_size(limits.head_bytes).max_buf_size(limits.head_bytes.max(super::client::LEAST_HEAD));
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, driver: Driver::start(connection) })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.sender.is_closed() || self.driver.has_ended()
    }

    /// Whether the connection is ready for another request.
    pub(super) async fn is_reusable(&mut self) -> bool {
        matches!(timeout(READY_TIMEOUT, self.sender.ready()).await, Ok(Ok(())))
    }

    pub(super) async fn exchange(
        &mut self,
        request: http::Request<Full<Bytes>>,
        limit: usize,
        deadline: Instant,
    ) -> Exchange {
        let response = match timeout_at(deadline, self.sender.try_send_request(request)).await {
            Ok(Ok(response)) => response,
            // The request is given back only if the task of the connection never took it from its queue, and this is the only
            // place from which it is written. Everything else proves nothing: the server may close the connection just as the
            // request is being written.
            Ok(Err(error)) if error.message().is_some() => return Exchange::Returned,
            Ok(Err(error)) => return Exchange::Lost(Lost::Connection(reason(error.error())), None),
            Err(_) => return Exchange::Lost(Lost::TimedOut, None),
        };
        read(response, limit, deadline).await
    }
}

async fn read(response: Response<Incoming>, limit: usize, deadline: Instant) -> Exchange {
    let unframed = is_unframed(&response);
    let (parts, mut body) = response.into_parts();
    let (status, headers) = (parts.status, parts.headers);
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Exchange::Lost(Lost::Switched, Some(status));
    }
    let mut collected = Collected::new(limit);
    while !collected.cut {
        match timeout_at(deadline, body.frame()).await {
            Ok(Some(Ok(frame))) => frame.data_ref().into_iter().for_each(|data| collected.add(data)),
            Ok(Some(Err(error))) => return Exchange::Lost(Lost::Body(reason(&error)), Some(status)),
            Ok(None) => break,
            Err(_) => return Exchange::Lost(Lost::BodyTimedOut, Some(status)),
        }
    }
    let (body, cut) = collected.freeze();
    Exchange::Answered(sent::Response { status, headers, body, cut, unframed })
}

/// Whether a response ends only with its connection (RFC 9112, 6.3).
fn is_unframed(response: &Response<Incoming>) -> bool {
    let headers = response.headers();
    let is_framed = headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING);
    !is_framed && !response.body().is_end_stream()
}

/// The error with its causes. They name what went wrong in the protocol or the system, and repeat nothing of the message.
fn reason(error: &hyper::Error) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
