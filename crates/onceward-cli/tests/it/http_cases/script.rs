//! The scripted upstream, which replies as a case says and counts its requests. It is a server behind the gateway, and a
//! handler behind the layer.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use super::case::UpstreamReply;

pub(super) type Body = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

pub(super) struct Script {
    replies: Mutex<VecDeque<UpstreamReply>>,
    /// The number of requests so far.
    reached: watch::Sender<usize>,
    /// How many pieces may be sent.
    pub(super) pieces: Arc<Semaphore>,
}

impl Script {
    pub(super) fn new(replies: Vec<UpstreamReply>) -> Arc<Self> {
        Arc::new(Self {
            replies: Mutex::new(replies.into()),
            reached: watch::Sender::new(0),
            pieces: Arc::new(Semaphore::new(1)),
        })
    }

    pub(super) fn effects(&self) -> usize {
        *self.reached.borrow()
    }

    pub(super) async fn wait_for(&self, effects: usize) {
        let mut reached = self.reached.subscribe();
        reached.wait_for(|reached| *reached >= effects).await.unwrap();
    }

    /// The response to one request; `None` for no response.
    pub(super) async fn answer<B>(&self, request: Request<B>) -> Option<Response<Body>>
    where
        B: http_body::Body<Data = Bytes, Error: std::fmt::Debug>,
    {
        let (parts, body) = request.into_parts();
        // Like a real handler, it reads the request.
        body.collect().await.ok()?;
        let reply = self.replies.lock().unwrap().pop_front();
        self.reached.send_modify(|reached| *reached += 1);
        match reply {
            Some(UpstreamReply::Answer { status, headers, body, after }) => {
                tokio::time::sleep(after).await;
                let response = headers
                    .into_iter()
                    .fold(Response::builder().status(status), |response, (name, value)| response.header(name, value));
                Some(
                    response.body(Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync()).unwrap(),
                )
            }
            Some(UpstreamReply::EchoesHeader(name)) => {
                let told = match parts.headers.get(name).map(|value| value.to_str().unwrap()) {
                    Some(key) if key.starts_with("once_v1_") => "ours",
                    Some(key) => key,
                    None => "nothing",
                };
                let body = Full::new(Bytes::from(told.to_owned())).map_err(|never| match never {}).boxed_unsync();
                Some(Response::builder().status(201).body(body).unwrap())
            }
            Some(UpstreamReply::NoResponse) => None,
            Some(UpstreamReply::Stalls) => {
                let frames = stream::iter([Ok(Frame::data(Bytes::from("half")))]).chain(stream::pending());
                let body = StreamBody::new(frames).boxed_unsync();
                Some(Response::builder().header("content-length", "8").body(body).unwrap())
            }
            Some(UpstreamReply::BreaksOff(piece)) => {
                let torn = stream::once(async {
                    // So that the head and the piece have been sent by then.
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    Err("torn".into())
                });
                let frames = stream::iter([Ok(Frame::data(Bytes::from(piece)))]).chain(torn);
                Some(Response::new(StreamBody::new(frames).boxed_unsync()))
            }
            Some(UpstreamReply::Stops(piece)) => {
                let frames = stream::iter([Ok(Frame::data(Bytes::from(piece)))]).chain(stream::pending());
                Some(Response::new(StreamBody::new(frames).boxed_unsync()))
            }
            Some(UpstreamReply::Pieces { content_type, pieces }) => {
                let allowed = Arc::clone(&self.pieces);
                let frames = stream::unfold(pieces.into_iter(), move |mut pieces| {
                    let allowed = Arc::clone(&allowed);
                    async move {
                        let piece = pieces.next()?;
                        allowed.acquire().await.unwrap().forget();
                        Some((Ok(Frame::data(Bytes::from(piece))), pieces))
                    }
                });
                let body = StreamBody::new(frames).boxed_unsync();
                Some(Response::builder().header("content-type", content_type).body(body).unwrap())
            }
            None => Some(Response::builder().status(418).body(Body::default()).unwrap()),
        }
    }
}

/// Serves a script as an upstream, until it is aborted.
pub(super) async fn serve(script: Arc<Script>, listener: TcpListener) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let script = Arc::clone(&script);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let script = Arc::clone(&script);
                async move { script.answer(request).await.ok_or("no response") }
            });
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// The same script as a handler. Without a response it panics, silently.
pub(super) async fn handle(script: Arc<Script>, request: axum::extract::Request) -> Result<Response<Body>, Infallible> {
    match script.answer(request).await {
        Some(response) => Ok(response),
        None => std::panic::resume_unwind(Box::new("no response")),
    }
}
