//! Requests over an HTTP/2 connection, several at a time.
//!
//! This uses `h2` and not hyper: hyper reports the error of the connection for a request whose stream has just been opened when
//! GOAWAY arrives, also if the server may process that stream. Here the answer future of a stream reports only that stream.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use h2::client::{self, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout_at};

use super::client::Limits;
use super::driver::{Collected, Driver, Exchange};
use super::sent::{Lost, Response};
use crate::proxy::failure::is_unprocessed;

/// How many bytes a server may send before they are read, for one stream and for all of a connection. Answers are small.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// A connection, shared by its requests. Closed when the last of them ends.
#[derive(Clone)]
pub(super) struct Http2 {
    sender: SendRequest<Bytes>,
    driver: Arc<Driver>,
}

impl Http2 {
    pub(super) async fn start(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        limits: &Limits,
    ) -> Result<Self, String> {
        let mut builder = client::Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX));
        let (sender, connection) = builder.handshake(stream).await.map_err(|error| reason(&error))?;
        Ok(Self { sender, driver: Arc::new(Driver::start(connection)) })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.driver.has_ended()
    }

    /// Whether only the pool holds it.
    pub(super) fn is_idle(&self) -> bool {
        Arc::strong_count(&self.driver) == 1
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.driver, &other.driver)
    }

    pub(super) async fn exchange(
        &self,
        request: http::Request<()>,
        body: Bytes,
        limit: usize,
        deadline: Instant,
    ) -> Exchange {
        // Until a stream is open, the request is nowhere but here.
        let mut sender = match timeout_at(deadline, self.sender.clone().ready()).await {
            Ok(Ok(sender)) => sender,
            Ok(Err(_)) => return Exchange::Returned,
            Err(_) => return Exchange::Late,
        };
        // On failure, h2 has removed the stream before it queued a frame of it.
        let Ok((response, stream)) = sender.send_request(request, body.is_empty()) else { return Exchange::Returned };
        let mut answer = std::pin::pin!(read(response, limit, deadline));
        // A server may answer before it has read the body. If sending fails, the answer says why.
        tokio::select! {
            biased;
            answer = &mut answer => answer,
            () = send_body(stream, body) => answer.await,
        }
    }
}

async fn send_body(mut stream: SendStream<Bytes>, mut body: Bytes) {
    while !body.is_empty() {
        stream.reserve_capacity(body.len());
        let Some(Ok(room)) = poll_fn(|context| stream.poll_capacity(context)).await else { return };
        let piece = body.split_to(room.min(body.len()));
        if !piece.is_empty() && stream.send_data(piece, body.is_empty()).is_err() {
            return;
        }
    }
}

async fn read(response: ResponseFuture, limit: usize, deadline: Instant) -> Exchange {
    let response = match timeout_at(deadline, response).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) if is_unprocessed(&error) => return Exchange::Unprocessed(reason(&error)),
        Ok(Err(error)) => return Exchange::Lost(Lost::Connection(reason(&error)), None),
        Err(_) => return Exchange::Lost(Lost::TimedOut, None),
    };
    let (parts, stream) = response.into_parts();
    match timeout_at(deadline, read_body(stream, limit)).await {
        Ok(Ok((body, cut))) => {
            Exchange::Answered(Response { status: parts.status, headers: parts.headers, body, cut, unframed: false })
        }
        // Also if it says that the stream was refused: there was the beginning of an answer.
        Ok(Err(error)) => Exchange::Lost(Lost::Body(reason(&error)), Some(parts.status)),
        Err(_) => Exchange::Lost(Lost::BodyTimedOut, Some(parts.status)),
    }
}

async fn read_body(mut stream: RecvStream, limit: usize) -> Result<(Bytes, bool), h2::Error> {
    let mut collected = Collected::new(limit);
    while let Some(data) = stream.data().await {
        let data = data?;
        collected.add(&data);
        if collected.cut {
            break;
        }
        stream.flow_control().release_capacity(data.len())?;
    }
    Ok(collected.freeze())
}

/// Without the debug data of GOAWAY, which the server can fill with anything.
fn reason(error: &h2::Error) -> String {
    match (error.reason(), error.get_io()) {
        (Some(reason), _) if error.is_go_away() => format!("GOAWAY: {reason}"),
        (Some(reason), _) => format!("the stream was reset: {reason}"),
        (None, Some(error)) => error.to_string(),
        (None, None) => "an HTTP/2 error".to_owned(),
    }
}
