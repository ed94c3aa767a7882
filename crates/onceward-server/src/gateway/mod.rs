//! The HTTP gateway: a reverse proxy that makes any API safe to retry.
//!
//! - `route`: which requests go where, and how they are guarded.
//! - `configured`: routes as `onceward.toml` has them.
//! - `tenant`: whose request it is. `jwt`: tokens that say so.
//! - `upstream`: taking a request to the other side, and what its failure proves.
//! - `headers`: what belongs to a connection and not to a request.
//! - `own`: the paths of the gateway itself, under `/.well-known/`.

mod configured;
mod headers;
mod jwt;
mod own;
mod route;
mod tenant;
mod upstream;

use std::sync::Arc;

use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, request};
use hyper::body::Incoming;
use onceward::Ledger;
use onceward::http::body;
use onceward::http::rules::Asks;
use onceward::http::{Body, Kind, Problem, Received, exchange};

use crate::listener::Peer;

pub(crate) use route::{Route, Routes, Timeouts};
pub(crate) use tenant::Tenant;
pub(crate) use upstream::Upstreams;

/// A gateway that is ready to answer.
pub(crate) struct Gateway {
    ledger: Ledger,
    routes: Routes,
    upstreams: Upstreams,
}

impl Gateway {
    pub(crate) fn new(ledger: Ledger, routes: Routes, upstreams: Upstreams) -> Self {
        Self { ledger, routes, upstreams }
    }

    /// Answers one request.
    pub(crate) async fn answer(self: Arc<Self>, request: Request<Incoming>, peer: Peer) -> Response<Body> {
        let (parts, body) = request.into_parts();
        if let Some(wrong) = headers::wrong(&parts) {
            let mut refused = Problem::because(Kind::BadRequest, wrong).response(onceward::http::Profile::default());
            // What comes behind it may be part of it, if somebody in between reads it in another way.
            refused.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            return refused;
        }
        if own::is_ours(parts.uri.path()) {
            return Box::pin(own::answer(&self.ledger, &self.routes, &parts)).await;
        }
        let Some(route) = self.routes.find(parts.uri.path()) else {
            return Problem::new(Kind::NoRoute).response(onceward::http::Profile::default());
        };
        match route.rules.asks(&parts) {
            Err(problem) => problem.response(route.rules.profile),
            // In boxes: an idle connection keeps room for whatever answers its next request, and both of these are large.
            Ok(Asks::Nothing) => Box::pin(self.pass(&route, parts, body, peer)).await,
            Ok(Asks::Guard(key)) => Box::pin(self.guard(&route, parts, body, peer, key)).await,
        }
    }

    /// Streams a request through that nothing guards.
    async fn pass(&self, route: &Arc<Route>, parts: request::Parts, body: Incoming, peer: Peer) -> Response<Body> {
        let body = body::Body::new(http_body_util::BodyExt::map_err(body, Into::into));
        match self.upstreams.send(route, Request::from_parts(parts, body), peer).await {
            Ok(response) => response.map(upstream::boxed),
            Err(missing) => onceward::http::exchange::without_answer(&missing, route.rules.profile),
        }
    }

    async fn guard(
        &self,
        route: &Arc<Route>,
        parts: request::Parts,
        body: Incoming,
        peer: Peer,
        key: Option<String>,
    ) -> Response<Body> {
        let profile = route.rules.profile;
        // First: who is nobody need not be listened to.
        let tenant = match route.tenant.of(&parts, peer) {
            Ok(tenant) => tenant,
            Err(problem) => return problem.response(profile),
        };
        let body = match body::received(body, route.rules.request_limit, route.timeouts.body).await {
            Ok(body) => body,
            Err(problem) => return problem.response(profile),
        };
        let (upstreams, to) = (self.upstreams.clone(), Arc::clone(route));
        let received = Received { tenant, parts, body };
        exchange(&self.ledger, &route.rules, received, key, move |request, _claim| async move {
            upstreams.send(&to, request.map(body::full), peer).await
        })
        .await
    }
}
