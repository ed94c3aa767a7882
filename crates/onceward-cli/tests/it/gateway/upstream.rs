//! An upstream that responds as a test says, and counts its requests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(super) type Error = Box<dyn std::error::Error + Send + Sync>;
pub(super) type Body = UnsyncBoxBody<Bytes, Error>;

pub(super) struct TestUpstream {
    pub(super) address: SocketAddr,
    reached: watch::Sender<usize>,
    task: JoinHandle<()>,
}

impl TestUpstream {
    /// Responds to each request with the result of `answer`.
    pub(super) async fn start<A, F>(answer: A) -> Self
    where
        A: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (reached, answer) = (watch::Sender::new(0), Arc::new(answer));
        let counted = reached.clone();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (answer, counted) = (Arc::clone(&answer), counted.clone());
                let service = service_fn(move |request| {
                    counted.send_modify(|reached| *reached += 1);
                    let answered = answer(request);
                    async move { Ok::<_, Infallible>(answered.await) }
                });
                tokio::spawn(async move {
                    let protocol = hyper::server::conn::http1::Builder::new();
                    let _ = protocol.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { address, reached, task }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn effects(&self) -> usize {
        *self.reached.borrow()
    }

    pub(super) async fn wait_for(&self, effects: usize) {
        self.reached.subscribe().wait_for(|reached| *reached >= effects).await.unwrap();
    }
}

impl Drop for TestUpstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A body of this many pieces, without a known length.
pub(super) fn pieces(piece: Bytes, number: usize) -> Body {
    let frames = futures_util::stream::iter(0..number).map(move |_| Ok(Frame::data(piece.clone())));
    StreamBody::new(frames).boxed_unsync()
}
