//! One request through the layer: passed through, or read whole, claimed, and given to the service inside, which runs to its
//! end even if the client goes away.

use std::any::Any;
use std::fmt;
use std::mem;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, Request, Response, Uri, request};
use http_body_util::BodyExt;

use super::Guarding;
use crate::http::rules::Asks;
use crate::http::{Body, Dialect, NoAnswer, Received, body, exchange};
use crate::ledger::Claim;

/// The service that [`IdempotencyLayer`](super::IdempotencyLayer) makes.
pub struct Idempotency<S, B = Body> {
    inner: S,
    guarding: Guarding,
    body: fn(Body) -> B,
}

impl<S, B> Idempotency<S, B> {
    pub(super) fn new(inner: S, guarding: Guarding, body: fn(Body) -> B) -> Self {
        Self { inner, guarding, body }
    }
}

impl<S: Clone, B> Clone for Idempotency<S, B> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), guarding: self.guarding.clone(), body: self.body }
    }
}

impl<S, B> fmt::Debug for Idempotency<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotency").field("rules", &self.guarding.rules).finish_non_exhaustive()
    }
}

impl<S, B, Incoming, Outgoing> tower_service::Service<Request<Incoming>> for Idempotency<S, B>
where
    S: tower_service::Service<Request<B>, Response = Response<Outgoing>, Error: Into<body::Error> + Send>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
    B: Send + 'static,
    Incoming: http_body::Body<Data = Bytes, Error: Into<body::Error>> + Send + 'static,
    Outgoing: http_body::Body<Data = Bytes, Error: Into<body::Error> + Send> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        // The service that reported ready is called; its clone has not reported ready.
        let clone = self.inner.clone();
        let request_guard = RequestGuard {
            inner: mem::replace(&mut self.inner, clone),
            guarding: self.guarding.clone(),
            body: self.body,
        };
        Box::pin(request_guard.answer(request))
    }
}

/// One request, with the service that is ready for it.
struct RequestGuard<S, B> {
    inner: S,
    guarding: Guarding,
    body: fn(Body) -> B,
}

impl<S, B, Outgoing> RequestGuard<S, B>
where
    S: tower_service::Service<Request<B>, Response = Response<Outgoing>, Error: Into<body::Error> + Send>
        + Send
        + 'static,
    S::Future: Send + 'static,
    B: Send + 'static,
    Outgoing: http_body::Body<Data = Bytes, Error: Into<body::Error> + Send> + Send + 'static,
{
    async fn answer<Incoming>(mut self, request: Request<Incoming>) -> Result<Response<Body>, S::Error>
    where
        Incoming: http_body::Body<Data = Bytes, Error: Into<body::Error>> + Send + 'static,
    {
        let (parts, incoming) = request.into_parts();
        let rules = &self.guarding.rules;
        let dialect = Dialect::of(rules.profile, &parts.headers);
        let key = match rules.asks(&parts) {
            Ok(Asks::Guard(key)) => key,
            Ok(Asks::Nothing) => {
                let body = (self.body)(incoming.map_err(Into::into).boxed_unsync());
                let response = self.inner.call(Request::from_parts(parts, body)).await?;
                return Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()));
            }
            Err(problem) => return Ok(problem.response(dialect)),
        };
        // Before the body is read: a request without a tenant is refused.
        let tenant = match (self.guarding.tenant)(&parts) {
            Ok(tenant) => tenant,
            Err(problem) => return Ok(problem.response(dialect)),
        };
        let (body, trailers) = match body::read_request(incoming, rules.request_limit, rules.body_timeout).await {
            Ok(received) => received,
            Err(problem) => return Ok(problem.response(dialect)),
        };
        Ok(self.guard(Received { tenant, parts, body }, trailers, key).await)
    }

    async fn guard(self, mut received: Received, trailers: Option<HeaderMap>, key: Option<String>) -> Response<Body> {
        let Self { inner, guarding, body: make } = self;
        // Two routers with different prefixes must not share an operation, so the target as the client wrote it counts. The
        // service inside sees the target that it would see without this layer.
        let original = original_target(&received.parts);
        let shown = mem::replace(&mut received.parts.uri, original);
        exchange(&guarding.ledger, &guarding.rules, received, key, move |mut request, claim| {
            *request.uri_mut() = shown;
            call_caught(inner, request.map(|body| make(body::with_trailers(body, trailers))), claim)
        })
        .await
    }
}

/// The target as the client wrote it.
fn original_target(parts: &request::Parts) -> Uri {
    #[cfg(feature = "axum")]
    if let Some(axum::extract::OriginalUri(uri)) = parts.extensions.get() {
        return uri.clone();
    }
    parts.uri.clone()
}

/// Calls the service. If it panics or fails, the outcome is unknown.
async fn call_caught<S, B>(mut inner: S, mut request: Request<B>, claim: Option<Claim>) -> Result<S::Response, NoAnswer>
where
    S: tower_service::Service<Request<B>, Error: Into<body::Error>>,
{
    if let Some(claim) = claim {
        request.extensions_mut().insert(claim);
    }
    // The service itself may panic too, before it has returned its future.
    let ended = AssertUnwindSafe(async move { inner.call(request).await }).catch_unwind().await;
    match ended {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) => Err(NoAnswer::Lost(format!("the handler failed: {}", error.into()))),
        Err(panic) => {
            let what = panic_message(panic.as_ref());
            tracing::error!("a handler panicked under its claim: {what}");
            Err(NoAnswer::Lost(format!("the handler panicked: {what}")))
        }
    }
}

/// The message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it did not say why")
}
