//! The layer around a real tonic server, called by a real client: gRPC statuses and trailers.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut};
use futures_util::stream::{self, BoxStream};
use onceward::Ledger;
use onceward::layer::IdempotencyLayer;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{NamedService, ServerStreamingService, UnaryService};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Response, Status};
use tower::Service;

use crate::Effects;

/// Messages are plain strings, so that no code has to be generated.
#[derive(Clone, Copy)]
struct StringCodec;

impl Codec for StringCodec {
    type Encode = String;
    type Decode = String;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for StringCodec {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, item: String, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(item.as_bytes());
        Ok(())
    }
}

impl Decoder for StringCodec {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        let bytes = from.copy_to_bytes(from.remaining());
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }
}

/// A service whose first response has the status that the message names; later ones succeed.
#[derive(Clone, Default)]
struct ChargeService(Effects);

impl ChargeService {
    fn charge(&self, message: &str) -> Result<String, Status> {
        let attempt = self.0.happen();
        let code = Code::from(message.parse::<i32>().unwrap_or(0));
        if attempt == 1 && code != Code::Ok {
            Err(Status::new(code, "told so"))
        } else {
            Ok(format!("charge {attempt}"))
        }
    }
}

impl UnaryService<String> for ChargeService {
    type Response = String;
    type Future = std::future::Ready<Result<Response<String>, Status>>;

    fn call(&mut self, request: Request<String>) -> Self::Future {
        std::future::ready(self.charge(request.get_ref()).map(Response::new))
    }
}

impl ServerStreamingService<String> for ChargeService {
    type Response = String;
    type ResponseStream = BoxStream<'static, Result<String, Status>>;
    type Future = std::future::Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<String>) -> Self::Future {
        let pieces = [Ok("begun".to_owned()), self.charge(request.get_ref())];
        std::future::ready(Ok(Response::new(Box::pin(stream::iter(pieces)))))
    }
}

impl NamedService for ChargeService {
    const NAME: &'static str = "pay.ChargeService";
}

impl Service<axum::http::Request<tonic::body::Body>> for ChargeService {
    type Response = axum::http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: axum::http::Request<tonic::body::Body>) -> Self::Future {
        let charges = self.clone();
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(StringCodec);
            Ok(match request.uri().path() {
                "/pay.ChargeService/Charge" => grpc.unary(charges, request).await,
                _ => grpc.server_streaming(charges, request).await,
            })
        })
    }
}

struct TestServer {
    client: tonic::client::Grpc<Channel>,
    charges: ChargeService,
}

async fn serve() -> TestServer {
    let charges = ChargeService::default();
    let layer = IdempotencyLayer::new(Ledger::open("memory:").await.unwrap());
    let listener = std::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    let accepted = stream::unfold(listener, |listener| async move {
        let stream = listener.accept().await.map(|(stream, _)| stream);
        Some((stream, listener))
    });
    let server = Server::builder().layer(layer).add_service(charges.clone());
    tokio::spawn(server.serve_with_incoming(accepted));
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    TestServer { client: tonic::client::Grpc::new(channel), charges }
}

fn asking(message: &str, key: &str) -> Request<String> {
    let mut request = Request::new(message.to_owned());
    request.metadata_mut().insert("authorization", "Bearer sk_7".parse().unwrap());
    if !key.is_empty() {
        request.metadata_mut().insert("idempotency-key", key.parse().unwrap());
    }
    request
}

impl TestServer {
    /// The message, and whether it is a replay.
    async fn charge(&mut self, message: &str, key: &str) -> Result<(String, bool), Status> {
        self.client.ready().await.unwrap();
        let path = axum::http::uri::PathAndQuery::from_static("/pay.ChargeService/Charge");
        let response = self.client.unary(asking(message, key), path, StringCodec).await?;
        let replayed = response.metadata().contains_key("idempotent-replayed");
        Ok((response.into_inner(), replayed))
    }

    /// All messages of a stream, and how it ended.
    async fn watch(&mut self, message: &str, key: &str) -> (Vec<String>, Code) {
        self.client.ready().await.unwrap();
        let path = axum::http::uri::PathAndQuery::from_static("/pay.ChargeService/Watch");
        let mut messages = Vec::new();
        let mut stream = match self.client.server_streaming(asking(message, key), path, StringCodec).await {
            Ok(response) => response.into_inner(),
            Err(status) => return (messages, status.code()),
        };
        loop {
            match stream.message().await {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => return (messages, Code::Ok),
                Err(status) => return (messages, status.code()),
            }
        }
    }

    fn effects(&self) -> usize {
        self.charges.0.0.swap(0, Ordering::SeqCst)
    }
}

fn named(status: &Status) -> &str {
    status.metadata().get("onceward-problem").map(|name| name.to_str().unwrap()).unwrap_or_default()
}

#[tokio::test]
async fn a_successful_call_is_replayed_with_its_trailers() {
    let mut served = serve().await;
    assert_eq!(served.charge("0", "k").await.unwrap(), ("charge 1".to_owned(), false));
    assert_eq!(served.charge("0", "k").await.unwrap(), ("charge 1".to_owned(), true));
    assert_eq!(served.effects(), 1);
    let both = (vec!["begun".to_owned(), "charge 1".to_owned()], Code::Ok);
    assert_eq!(served.watch("0", "k").await, both);
    assert_eq!(served.watch("0", "k").await, both);
    assert_eq!(served.effects(), 1);
}

/// What the second call with the same key gets, after the first one got a status.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SecondCall {
    Same,
    Runs,
    Doubt,
}

const STATUSES: [(Code, SecondCall); 16] = [
    (Code::InvalidArgument, SecondCall::Same),
    (Code::NotFound, SecondCall::Same),
    (Code::AlreadyExists, SecondCall::Same),
    (Code::FailedPrecondition, SecondCall::Same),
    (Code::OutOfRange, SecondCall::Same),
    (Code::Unimplemented, SecondCall::Same),
    (Code::Internal, SecondCall::Same),
    (Code::DataLoss, SecondCall::Same),
    (Code::Unauthenticated, SecondCall::Runs),
    (Code::PermissionDenied, SecondCall::Runs),
    (Code::ResourceExhausted, SecondCall::Runs),
    (Code::Aborted, SecondCall::Runs),
    (Code::Cancelled, SecondCall::Doubt),
    (Code::Unknown, SecondCall::Doubt),
    (Code::DeadlineExceeded, SecondCall::Doubt),
    (Code::Unavailable, SecondCall::Doubt),
];

#[tokio::test]
async fn a_status_in_the_headers_decides_what_a_repeat_gets() {
    let mut served = serve().await;
    for (code, second) in STATUSES {
        let message = (code as i32).to_string();
        assert_eq!(served.charge(&message, &message).await.unwrap_err().code(), code);
        let again = served.charge(&message, &message).await;
        match second {
            SecondCall::Same => assert_eq!(again.unwrap_err().code(), code),
            SecondCall::Runs => assert_eq!(again.unwrap(), ("charge 2".to_owned(), false), "{code:?}"),
            SecondCall::Doubt => {
                let status = again.unwrap_err();
                assert_eq!((status.code(), named(&status)), (Code::FailedPrecondition, "in-doubt"), "{code:?}");
            }
        }
        assert_eq!(served.effects(), if second == SecondCall::Runs { 2 } else { 1 }, "{code:?}");
    }
}

#[tokio::test]
async fn a_status_in_the_trailers_decides_what_a_repeat_gets() {
    let mut served = serve().await;
    for (code, second) in STATUSES {
        let message = (code as i32).to_string();
        let begun = || vec!["begun".to_owned()];
        assert_eq!(served.watch(&message, &message).await, (begun(), code));
        let expected = match second {
            SecondCall::Same => (begun(), code),
            SecondCall::Runs => (vec!["begun".to_owned(), "charge 2".to_owned()], Code::Ok),
            SecondCall::Doubt => (Vec::new(), Code::FailedPrecondition),
        };
        assert_eq!(served.watch(&message, &message).await, expected, "{code:?}");
        assert_eq!(served.effects(), if second == SecondCall::Runs { 2 } else { 1 }, "{code:?}");
    }
}

#[tokio::test]
async fn problems_are_reported_as_a_grpc_status() {
    let mut served = serve().await;
    let missing = served.charge("0", "").await.unwrap_err();
    assert_eq!((missing.code(), named(&missing)), (Code::InvalidArgument, "key-missing"));
    assert!(missing.message().contains("idempotency-key"), "{missing}");
    served.charge("0", "k").await.unwrap();
    let mismatch = served.charge("other", "k").await.unwrap_err();
    assert_eq!((mismatch.code(), named(&mismatch)), (Code::InvalidArgument, "mismatch"));
    assert_eq!(mismatch.metadata().get("grpc-retry-pushback-ms").unwrap(), "-1");
    assert_eq!(served.effects(), 1);
}
