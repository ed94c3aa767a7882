//! Responses say whether their outcome was recorded, and only then promise a replay.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, Response};
use axum::routing::post;
use futures_util::stream;
use onceward::clock::ManualClock;
use onceward::core::decide::Resolution;
use onceward::core::policy::{Policy, StoreDown};
use onceward::http::body::read_all;
use onceward::layer::IdempotencyLayer;
use onceward::{Ledger, Outcome};
use tower::ServiceExt;

use crate::every_timed_ledger;
use crate::faulty::FaultyStore;

/// The headers, the body and the trailers.
async fn charged(app: Router) -> (HeaderMap, String, HeaderMap) {
    let request: Request =
        axum::http::Request::post("/charges").header("idempotency-key", "k").body(Body::from("{}")).unwrap();
    let (parts, body) = app.oneshot(request).await.unwrap().into_parts();
    let (bytes, trailers) = read_all(body, 1 << 20).await.unwrap();
    (parts.headers, String::from_utf8(bytes.to_vec()).unwrap(), trailers.unwrap_or_default())
}

fn app<F>(ledger: Ledger, is_streamed: bool, meanwhile: impl Fn() -> F + Clone + Send + Sync + 'static) -> Router
where
    F: Future<Output = ()> + Send,
{
    app_with(ledger, is_streamed, Policy::default(), meanwhile)
}

fn app_with<F>(
    ledger: Ledger,
    is_streamed: bool,
    policy: Policy,
    meanwhile: impl Fn() -> F + Clone + Send + Sync + 'static,
) -> Router
where
    F: Future<Output = ()> + Send,
{
    let handler = move || async move {
        meanwhile().await;
        let pieces = stream::iter(["char", "ged"].map(Ok::<_, std::convert::Infallible>));
        Response::new(if is_streamed { Body::from_stream(pieces) } else { Body::from("charged") })
    };
    let once = IdempotencyLayer::new(ledger).tenant_fixed("default").policy(policy);
    Router::new().route("/charges", post(handler)).layer(once)
}

/// What a response says about its record, in its headers or trailers.
fn record_headers(head: &HeaderMap, trailers: &HeaderMap) -> (bool, Option<String>) {
    let recorded = head.get("idempotency-recorded").or(trailers.get("idempotency-recorded"));
    let expires = head.contains_key("idempotency-expires") || trailers.contains_key("idempotency-expires");
    (expires, recorded.map(|value| value.to_str().unwrap().to_owned()))
}

/// An operator settles the request while its owner still works on it.
async fn superseded(ledger: Ledger, clock: ManualClock) {
    clock.advance(Duration::from_secs(3600));
    let call = ledger.operation("POST /charges").key("k");
    let identity = call.call().unwrap().identity;
    let version = call.get().await.unwrap().unwrap().seen.record.version;
    let happened = Resolution::Happened(Outcome::success("by hand"));
    ledger.resolve(&identity, version, happened, None, None).await.unwrap();
}

#[tokio::test]
async fn a_superseded_owner_does_not_promise_a_replay() {
    for is_streamed in [false, true] {
        for (ledger, clock, _folder) in every_timed_ledger().await {
            let settling = ledger.clone();
            let app = app(ledger, is_streamed, move || superseded(settling.clone(), clock.clone()));
            let (head, body, trailers) = charged(app.clone()).await;
            assert_eq!(body, "charged");
            assert_eq!(
                record_headers(&head, &trailers),
                (false, Some("false".to_owned())),
                "{is_streamed} {head:?} {trailers:?}"
            );
            let (head, body, _) = charged(app).await;
            assert_eq!((body.as_str(), head.contains_key("idempotent-replayed")), ("by hand", true));
            assert!(!head.contains_key("idempotency-recorded"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_could_not_be_recorded_says_so() {
    for is_streamed in [false, true] {
        let store = FaultyStore::new();
        let breaking = Arc::clone(&store);
        let app = app(Ledger::builder().on(store), is_streamed, move || {
            breaking.set_down(true);
            async {}
        });
        let (head, body, trailers) = charged(app).await;
        assert_eq!(body, "charged");
        assert_eq!(
            record_headers(&head, &trailers),
            (false, Some("false".to_owned())),
            "{is_streamed} {head:?} {trailers:?}"
        );
    }
}

#[tokio::test]
async fn a_recorded_response_says_until_when_it_is_kept() {
    for is_streamed in [false, true] {
        for (ledger, _, _folder) in every_timed_ledger().await {
            let (head, _, trailers) = charged(app(ledger, is_streamed, || async {})).await;
            assert_eq!(record_headers(&head, &trailers), (true, None), "{is_streamed}");
        }
    }
}

#[tokio::test]
async fn a_response_without_a_record_says_so() {
    for is_streamed in [false, true] {
        let store = FaultyStore::new();
        store.set_down(true);
        let policy = Policy { store_down: StoreDown::Open, ..Policy::default() };
        let app = app_with(Ledger::builder().on(store), is_streamed, policy, || async {});
        let (head, body, trailers) = charged(app).await;
        assert_eq!(body, "charged");
        assert_eq!(record_headers(&head, &trailers), (false, Some("false".to_owned())), "{is_streamed}");
    }
}
