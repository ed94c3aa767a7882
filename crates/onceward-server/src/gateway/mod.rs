//! The HTTP gateway: a reverse proxy that makes any API safe to retry.
//!
//! - `route`: which requests go where, and how they are guarded.
//! - `configured`: routes as `onceward.toml` has them.
//! - `tenant`: whose request it is. `jwt`: tokens that say so. `whoami`: upstreams that say so.
//! - `upstream`: taking a request to the other side. `failure`: what its failure proves.
//! - `trust`: whose certificates are believed. `tunnel`: connections that become another protocol.
//! - `stalled`: answers that stop in the middle.
//! - `headers`: what belongs to a connection and not to a request.
//! - `own`: the paths of the gateway itself, under `/.well-known/`.

mod configured;
mod failure;
pub(crate) mod headers;
mod jwt;
mod own;
mod route;
mod stalled;
mod tenant;
mod trust;
mod tunnel;
mod upstream;
mod whoami;

use std::sync::Arc;

use http::header::CONNECTION;
use http::{HeaderName, HeaderValue, Request, Response, request};
use hyper::body::Incoming;
use onceward::Ledger;
use onceward::http::body;
use onceward::http::room::Room;
use onceward::http::rules::Asks;
use onceward::http::{Body, Dialect, Kind, Problem, Profile, Received, exchange};

use crate::hosts::{Hosts, Refused};
use crate::listener::Peer;

use stalled::Unstalled;

pub(crate) use route::{Route, Routes, one_spelling, unreached};
pub(crate) use tenant::{CREDENTIALS, Tenant};
pub(crate) use tunnel::Tunnels;
pub(crate) use upstream::{Upstreams, address, boxed, streamed};

/// How long a client of gRPC waits.
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The memory that all guarded requests take together until they are sent: some thousands of common ones, and less than what
/// the smallest servers have.
pub(crate) const ROOM: usize = 512 * 1024 * 1024;

/// A gateway that is ready to answer.
pub(crate) struct Gateway {
    ledger: Ledger,
    routes: Routes,
    hosts: Hosts,
    upstreams: Upstreams,
    tunnels: Tunnels,
    room: Room,
}

impl Gateway {
    pub(crate) fn new(ledger: Ledger, routes: Routes, hosts: Hosts, upstreams: Upstreams, room: Room) -> Self {
        Self { ledger, routes, hosts, upstreams, tunnels: Tunnels::new(), room }
    }

    /// Resolves when no connection is left that has become another protocol.
    pub(crate) async fn closed(&self) {
        self.tunnels.closed().await;
    }

    /// Answers one request.
    pub(crate) async fn answer(self: Arc<Self>, request: Request<Incoming>, peer: Peer) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        let dialect = Dialect::of(Profile::default(), &parts.headers);
        if let Some(wrong) = headers::wrong(&parts) {
            let mut refused = Problem::because(Kind::BadRequest, wrong).response(dialect);
            // What comes behind it may be part of it, if somebody in between reads it in another way.
            refused.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            return refused;
        }
        if let Some(refused) = self.hosts.refusal(&parts) {
            return wrong_host(refused).response(dialect);
        }
        if own::is_ours(parts.uri.path()) {
            return Box::pin(own::answer(&self.ledger, &self.routes, &parts)).await;
        }
        let Some(route) = self.routes.find(parts.uri.path()) else {
            return Problem::new(Kind::NoRoute).response(dialect);
        };
        if self.routes.is_refused(&route, parts.uri.path()) {
            let detail = "The path has an encoded slash or a backslash, which some servers take for a slash. A route can allow \
                          them with encoded_slashes = \"allow\", for paths that stay on it when they are decoded.";
            return Problem::because(Kind::BadRequest, detail).response(dialect);
        }
        match route.rules.asks(&parts) {
            Err(problem) => problem.response(Dialect::of(route.rules.profile, &parts.headers)),
            Ok(Asks::Nothing) => {
                route.tenant.strip(&mut parts.headers);
                // In boxes: an idle connection keeps room for whatever answers its next request, and both are large.
                Box::pin(self.pass(&route, parts, body, peer)).await
            }
            Ok(Asks::Guard(key)) => Box::pin(self.guard(&route, parts, body, peer, key)).await,
        }
    }

    /// Streams a request through that nothing guards.
    async fn pass(&self, route: &Arc<Route>, mut parts: request::Parts, body: Incoming, peer: Peer) -> Response<Body> {
        let dialect = Dialect::of(route.rules.profile, &parts.headers);
        let asked = match self.tunnels.asked(&mut parts) {
            // HTTP/2 has no such thing.
            Ok(asked) => asked.filter(|_| !upstream::is_h2c(&route.upstream)),
            Err(problem) => return problem.response(dialect),
        };
        let request = Request::from_parts(parts, upstream::streamed(body));
        match (self.upstreams.send(route, request, peer, asked.as_ref()).await, asked) {
            (Ok(response), Some(asked)) => asked.answered(response),
            (Ok(response), None) => response.map(upstream::boxed),
            (Err(missing), _) => onceward::http::exchange::without_answer(&missing, dialect),
        }
    }

    async fn guard(
        &self,
        route: &Arc<Route>,
        mut parts: request::Parts,
        body: Incoming,
        peer: Peer,
        key: Option<String>,
    ) -> Response<Body> {
        let dialect = Dialect::of(route.rules.profile, &parts.headers);
        // First: who is nobody need not be listened to.
        let tenant = match route.tenant.resolve(&parts, peer, &self.upstreams, route).await {
            Ok(tenant) => tenant,
            Err(problem) => return problem.response(dialect),
        };
        route.tenant.strip(&mut parts.headers);
        let (limit, time) = (route.rules.request_limit, route.rules.body_timeout);
        let (body, trailers) = match body::received_in(&self.room, body, limit, time).await {
            Ok(received) => received,
            Err(problem) => return problem.response(dialect),
        };
        // A server of gRPC ends a call when its client's time is over. Here it is to come to its end, so that the retry
        // gets its outcome.
        parts.headers.remove(GRPC_TIMEOUT);
        let trailers = trailers.and_then(|trailers| headers::behind(trailers, &route.rules));
        let (upstreams, to) = (self.upstreams.clone(), Arc::clone(route));
        let received = Received { tenant, parts, body };
        exchange(&self.ledger, &route.rules, received, key, move |request, _claim| async move {
            let request = request.map(|body| body::ended(body, trailers));
            let answer = upstreams.send(&to, request, peer, None).await?;
            Ok(answer.map(|body| Unstalled::of(body, to.timeout)))
        })
        .await
    }
}

/// The host itself is not repeated: the text may be shown by a page.
fn wrong_host(refused: Refused) -> Problem {
    let what = match refused {
        Refused::Host => "The request asks for a host that is not allowed",
        Refused::Origin => "The request comes from a page whose origin is not allowed",
    };
    let how = "The operator can allow it with --allow-host NAME, or with allow_hosts in [gateway].";
    Problem::because(Kind::WrongHost, format!("{what}. {how}"))
}
