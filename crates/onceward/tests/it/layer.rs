//! The Tower layer inside a server: claims in handlers, panics, clients that disconnect, and other layers around it. Its
//! responses are tested with the table of HTTP cases that it shares with the gateway.

use std::convert::Infallible;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderName, Response, StatusCode};
use axum::middleware::{self, Next};
use axum::routing::post;
use http_body_util::BodyExt;
use onceward::core::policy::StoreDown;
use onceward::http::Rules;
use onceward::http::body::read_all;
use onceward::layer::IdempotencyLayer;
use onceward::{Claim, Ledger, Policy};
use tower::{Layer, Service, ServiceExt};

use crate::faulty::FaultyStore;
use crate::{Effects, eventually};

async fn ledger() -> Ledger {
    Ledger::open("memory:").await.unwrap()
}

fn keyed_post(path: &str, key: &str) -> Request {
    let request = axum::http::Request::post(path).header("authorization", "Bearer sk_7");
    request.header("idempotency-key", key).body(Body::from("{}")).unwrap()
}

/// The status, whether it is a replay, and the body.
async fn answer<B>(response: Response<B>) -> (u16, bool, String)
where
    B: axum::body::HttpBody<Data = bytes::Bytes, Error: Into<onceward::http::body::Error>>,
{
    let (parts, body) = response.into_parts();
    let (bytes, _) = read_all(body, 1 << 20).await.unwrap();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    (parts.status.as_u16(), parts.headers.contains_key("idempotent-replayed"), text)
}

#[tokio::test]
async fn a_handler_gets_its_claim() {
    let handler = |claim: Claim| async move { format!("{} {}", claim.attempt(), claim.downstream_key()) };
    let app = Router::new().route("/charges", post(handler)).layer(IdempotencyLayer::new(ledger().await));
    let (status, replayed, first) = answer(app.clone().oneshot(keyed_post("/charges", "k")).await.unwrap()).await;
    assert_eq!((status, replayed), (200, false));
    assert!(first.starts_with("1 ") && first.len() > 20, "{first}");
    assert_eq!(answer(app.oneshot(keyed_post("/charges", "k")).await.unwrap()).await, (200, true, first));
}

/// A guarded retry has the same downstream key as the unguarded run; otherwise the downstream would treat it as a new request.
#[tokio::test]
async fn an_unguarded_run_and_its_guarded_retry_have_the_same_downstream_key() {
    let name = HeaderName::from_static("x-once");
    let handler = |headers: axum::http::HeaderMap| async move { headers["x-once"].to_str().unwrap().to_owned() };
    let store = FaultyStore::new();
    let policy = Policy { store_down: StoreDown::Open, ..Policy::default() };
    let rules = Rules { downstream_key: Some(name), policy: policy.into(), ..Rules::default() };
    let layer = IdempotencyLayer::with_rules(Ledger::builder().on(store.clone()), rules);
    let app = Router::new().route("/charges", post(handler)).layer(layer);
    store.set_down(true);
    let (_, _, unguarded) = answer(app.clone().oneshot(keyed_post("/charges", "k")).await.unwrap()).await;
    store.set_down(false);
    let (_, replayed, guarded) = answer(app.oneshot(keyed_post("/charges", "k")).await.unwrap()).await;
    assert_eq!((replayed, guarded), (false, unguarded));
}

#[tokio::test]
async fn without_the_layer_there_is_no_claim_and_the_response_says_so() {
    let handler = |_: Claim| async {};
    let maybe = |claim: Option<Claim>| async move { claim.is_some().to_string() };
    let bare = Router::new().route("/charges", post(handler)).route("/maybe", post(maybe));
    let (status, _, text) = answer(bare.clone().oneshot(keyed_post("/charges", "k")).await.unwrap()).await;
    assert_eq!(status, 500);
    assert!(text.contains("not behind IdempotencyLayer"), "{text}");
    assert_eq!(answer(bare.clone().oneshot(keyed_post("/maybe", "k")).await.unwrap()).await.2, "false");
    let guarded = bare.route_layer(IdempotencyLayer::new(ledger().await));
    assert_eq!(answer(guarded.oneshot(keyed_post("/maybe", "k")).await.unwrap()).await.2, "true");
}

#[tokio::test]
async fn a_handler_that_panics_leaves_the_intent_in_doubt() {
    let effects = Effects::default();
    let counted = effects.clone();
    let handler = move || {
        let attempt = counted.happen();
        async move { if attempt == 1 { panic!("out of paper") } else { "printed" } }
    };
    let (one, other) = (ledger().await, ledger().await);
    let app = |layer: IdempotencyLayer| Router::new().route("/print", post(handler.clone())).layer(layer);
    let held = app(IdempotencyLayer::new(one));
    let (status, _, text) = answer(held.clone().oneshot(keyed_post("/print", "k")).await.unwrap()).await;
    assert_eq!((status, text.contains("no-answer"), text.contains("paper")), (502, true, false), "{text}");
    let (status, _, text) = answer(held.oneshot(keyed_post("/print", "k")).await.unwrap()).await;
    assert_eq!((status, text.contains("in-doubt"), effects.count()), (409, true, 1), "{text}");

    effects.0.store(0, std::sync::atomic::Ordering::SeqCst);
    let honoured = app(IdempotencyLayer::new(other).honours_key(true));
    assert_eq!(answer(honoured.clone().oneshot(keyed_post("/print", "k")).await.unwrap()).await.0, 502);
    let again = answer(honoured.oneshot(keyed_post("/print", "k")).await.unwrap()).await;
    assert_eq!((again, effects.count()), ((200, false, "printed".to_owned()), 2));
}

#[tokio::test]
async fn a_response_whose_body_panics_is_aborted_and_the_intent_is_in_doubt() {
    let handler = || async {
        let pieces = (0..3).map(|piece| if piece == 2 { panic!("torn") } else { Ok::<_, Infallible>("piece") });
        Body::from_stream(futures_util::stream::iter(pieces))
    };
    let app = Router::new().route("/print", post(handler)).layer(IdempotencyLayer::new(ledger().await));
    let response = app.clone().oneshot(keyed_post("/print", "k")).await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(read_all(response.into_body(), 1 << 20).await.is_err());
    let mut again = String::new();
    eventually("the doubt is reported", async || {
        let (status, _, text) = answer(app.clone().oneshot(keyed_post("/print", "k")).await.unwrap()).await;
        again = text;
        status == 409 && again.contains("in-doubt")
    })
    .await;
}

#[tokio::test]
async fn a_request_whose_client_gave_up_is_finished_and_its_retry_gets_the_response() {
    let effects = Effects::default();
    let counted = effects.clone();
    let handler = || async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        counted.happen().to_string()
    };
    let app = Router::new().route("/charges", post(handler)).layer(IdempotencyLayer::new(ledger().await));
    let gave_up = tokio::time::timeout(Duration::from_millis(50), app.clone().oneshot(keyed_post("/charges", "k")))
        .await
        .is_err();
    assert!(gave_up);
    let again = answer(app.oneshot(keyed_post("/charges", "k")).await.unwrap()).await;
    assert_eq!((again, effects.count()), ((200, true, "1".to_owned()), 1));
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_cut_off_and_the_response_is_kept() {
    const PIECES: usize = 100;
    let effects = Effects::default();
    let counted = effects.clone();
    let handler = move || async move {
        counted.happen();
        let pieces = (0..PIECES).map(|_| Ok::<_, Infallible>("piece"));
        Body::from_stream(futures_util::stream::iter(pieces))
    };
    let rules = Rules { reader_patience: Duration::from_millis(100), ..Rules::default() };
    let layer = IdempotencyLayer::with_rules(ledger().await, rules);
    let app = Router::new().route("/events", post(handler)).layer(layer);
    let unread = app.clone().oneshot(keyed_post("/events", "k")).await.unwrap();
    assert_eq!(unread.status(), 200);
    let again = answer(app.oneshot(keyed_post("/events", "k")).await.unwrap()).await;
    assert_eq!((again, effects.count()), ((200, true, "piece".repeat(PIECES)), 1));
    assert!(read_all(unread.into_body(), 1 << 20).await.is_err(), "a truncated response was accepted as complete");
}

#[tokio::test]
async fn an_endless_response_is_not_read_forever_after_its_client_is_gone() {
    let read = Effects::default();
    let counted = read.clone();
    let handler = move || async move {
        let pieces = futures_util::stream::unfold(counted, |counted| async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            counted.happen();
            Some((Ok::<_, Infallible>("tick"), counted))
        });
        Body::from_stream(pieces)
    };
    let rules = Rules { unread_for: Duration::from_millis(200), ..Rules::default() };
    let layer = IdempotencyLayer::with_rules(ledger().await, rules).wait(Duration::ZERO);
    let app = Router::new().route("/events", post(handler)).layer(layer);
    let mut events = app.clone().oneshot(keyed_post("/events", "k")).await.unwrap().into_body();
    // It continues as long as the client reads it.
    let from = std::time::Instant::now();
    while from.elapsed() < Duration::from_millis(500) {
        assert!(events.frame().await.unwrap().is_ok());
    }
    drop(events);
    eventually("the doubt is reported", async || {
        let (status, _, text) = answer(app.clone().oneshot(keyed_post("/events", "k")).await.unwrap()).await;
        status == 409 && text.contains("in-doubt")
    })
    .await;
    let ended = read.count();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(read.count(), ended, "the body is no longer read");
}

#[tokio::test]
async fn routers_with_different_prefixes_do_not_share_keys() {
    let layer = IdempotencyLayer::new(ledger().await);
    let router = |name: &'static str| {
        let handler = move |request: Request| async move { format!("{name} {}", request.uri().path()) };
        Router::new().route("/charges", post(handler)).layer(layer.clone())
    };
    let app = Router::new().nest("/eu", router("eu")).nest("/us", router("us"));
    for (path, text) in [("/eu/charges", "eu /charges"), ("/us/charges", "us /charges")] {
        let fresh = answer(app.clone().oneshot(keyed_post(path, "k")).await.unwrap()).await;
        assert_eq!(fresh, (200, false, text.to_owned()));
    }
}

#[tokio::test]
async fn customers_do_not_share_keys_and_a_request_without_a_tenant_is_refused() {
    let effects = Effects::default();
    let counted = effects.clone();
    let handler = || async move { counted.happen().to_string() };
    let app = Router::new().route("/charges", post(handler)).layer(IdempotencyLayer::new(ledger().await));
    let send = async |credential: Option<&str>| {
        let mut request = keyed_post("/charges", "k");
        request.headers_mut().remove("authorization");
        if let Some(credential) = credential {
            request.headers_mut().insert("authorization", credential.parse().unwrap());
        }
        answer(app.clone().oneshot(request).await.unwrap()).await
    };
    assert_eq!(send(Some("Bearer sk_7")).await, (200, false, "1".to_owned()));
    assert_eq!(send(Some("Bearer sk_8")).await, (200, false, "2".to_owned()));
    assert_eq!(send(Some("Bearer sk_7")).await, (200, true, "1".to_owned()));
    assert_eq!(send(None).await.0, 401);
    let (status, _, text) = send(Some("Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln")).await;
    assert_eq!((status, text.contains("Name the tenant by a claim")), (401, true), "{text}");
    assert_eq!(effects.count(), 2);
}

#[tokio::test]
async fn the_body_of_an_unguarded_request_is_not_buffered() {
    let layer = IdempotencyLayer::new(ledger().await).request_limit(10);
    let handler = |body: String| async move { body.len().to_string() };
    let app = Router::new().route("/files", axum::routing::put(handler).post(handler)).layer(layer);
    let put = axum::http::Request::put("/files").body(Body::from("x".repeat(1000))).unwrap();
    assert_eq!(answer(app.clone().oneshot(put).await.unwrap()).await, (200, false, "1000".to_owned()));
    let mut post = keyed_post("/files", "k");
    *post.body_mut() = Body::from("x".repeat(1000));
    assert_eq!(answer(app.oneshot(post).await.unwrap()).await.0, 413);
}

#[tokio::test]
async fn a_stack_with_its_own_body_type_gets_that_type() {
    let guard = IdempotencyLayer::new(ledger().await).into_body(Body::new);
    let marked = async |request: Request, next: Next| {
        let mut response = next.run(request).await;
        response.headers_mut().insert("x-inside", "1".parse().unwrap());
        response
    };
    let stack = tower::ServiceBuilder::new().layer(guard).layer(middleware::from_fn(marked));
    let app = Router::new().route("/charges", post(async |body: String| body)).layer(stack);
    for replayed in [false, true] {
        let response = app.clone().oneshot(keyed_post("/charges", "k")).await.unwrap();
        assert_eq!(response.headers()["x-inside"], "1");
        assert_eq!(answer(response).await, (200, replayed, "{}".to_owned()));
    }
}

/// A service that panics if it is called before `poll_ready`, as some do. A clone has to be polled again.
#[derive(Default)]
struct NeedsPollReady(bool);

impl Clone for NeedsPollReady {
    fn clone(&self) -> Self {
        Self(false)
    }
}

impl<B> Service<axum::http::Request<B>> for NeedsPollReady {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0 = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: axum::http::Request<B>) -> Self::Future {
        assert!(std::mem::take(&mut self.0), "called before poll_ready");
        std::future::ready(Ok(Response::new(Body::from("done"))))
    }
}

#[tokio::test]
async fn the_service_that_was_polled_ready_is_the_one_that_is_called() {
    let mut service = IdempotencyLayer::new(ledger().await).layer(NeedsPollReady::default());
    for key in ["one", "two"] {
        let ready = ServiceExt::<Request>::ready(&mut service).await.unwrap();
        let response = ready.call(keyed_post("/", key)).await.unwrap();
        assert_eq!(answer(response).await, (StatusCode::OK.as_u16(), false, "done".to_owned()));
    }
}
