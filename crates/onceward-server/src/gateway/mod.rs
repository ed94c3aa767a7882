//! The HTTP gateway: a reverse proxy that makes any API safe to retry.
//!
//! - `well_known`: the paths of the gateway itself, under `/.well-known/`.
//! - `stall_timeout`: ends responses that stop in the middle.
//!
//! Routes, tenants and upstream connections are in `onceward_runtime::proxy`.

mod stall_timeout;
mod well_known;

use std::sync::Arc;

use http::header::CONNECTION;
use http::{HeaderName, HeaderValue, Request, Response, request};
use hyper::body::Incoming;
use onceward::Ledger;
use onceward::http::body;
use onceward::http::body_memory::BodyMemory;
use onceward::http::rules::Asks;
use onceward::http::{Body, Dialect, Kind, Problem, Profile, Received, exchange};

use onceward_runtime::net::host_check::{HostCheck, HostRefusal};
use onceward_runtime::net::listener::Peer;
use onceward_runtime::proxy::{Route, Routes, Tunnels, Upstreams, boxed, headers, is_h2c, streamed};

use stall_timeout::StallTimeout;

/// The deadline of a gRPC client.
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Memory for all guarded requests together until they are sent: enough for some thousands of common ones, and less than the
/// smallest servers have.
pub const MAX_BUFFERED_BYTES: usize = 512 * 1024 * 1024;

/// The gateway as seen by one worker thread.
pub struct Gateway {
    ledger: Ledger,
    routes: Routes,
    hosts: HostCheck,
    upstreams: Upstreams,
    tunnels: Tunnels,
    room: BodyMemory,
}

impl Gateway {
    pub fn new(ledger: Ledger, routes: Routes, hosts: HostCheck, upstreams: Upstreams, room: BodyMemory) -> Self {
        Self { ledger, routes, hosts, upstreams, tunnels: Tunnels::default(), room }
    }

    /// Waits until no connection with another protocol is open.
    pub async fn closed(&self) {
        self.tunnels.closed().await;
    }

    /// Handles one request.
    pub async fn answer(self: Arc<Self>, request: Request<Incoming>, peer: Peer) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        let dialect = Dialect::of(Profile::default(), &parts.headers);
        if let Some(reason) = headers::ambiguity(&parts) {
            let mut refused = Problem::because(Kind::BadRequest, reason).response(dialect);
            // The bytes after it may be part of it in the view of a proxy in between.
            refused.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            return refused;
        }
        if let Some(refused) = self.hosts.refusal(&parts) {
            return wrong_host(refused).response(dialect);
        }
        if well_known::is_ours(parts.uri.path()) {
            return Box::pin(well_known::answer(&self.ledger, &self.routes, &parts)).await;
        }
        let Some(route) = self.routes.find(parts.uri.path()) else {
            return Problem::new(Kind::NoRoute).response(dialect);
        };
        if self.routes.is_refused(&route, parts.uri.path()) {
            let detail = "The path contains an encoded slash or a backslash, which some servers treat as a slash. A route can allow \
              them with encoded_slashes = \"allow\" if the decoded path matches the same route.";
            return Problem::because(Kind::BadRequest, detail).response(dialect);
        }
        match route.rules.asks(&parts) {
            Err(problem) => problem.response(Dialect::of(route.rules.profile, &parts.headers)),
            Ok(Asks::Nothing) => {
                route.tenant.strip(&mut parts.headers);
                // Boxed: an idle connection reserves memory for the future of its next request, and both are large.
                Box::pin(self.pass(&route, parts, body, peer)).await
            }
            Ok(Asks::Guard(key)) => Box::pin(self.guard(&route, parts, body, peer, key)).await,
        }
    }

    /// Streams an unguarded request to the upstream.
    async fn pass(&self, route: &Arc<Route>, mut parts: request::Parts, body: Incoming, peer: Peer) -> Response<Body> {
        let dialect = Dialect::of(route.rules.profile, &parts.headers);
        let upgrade = match self.tunnels.requested(&mut parts) {
            // HTTP/2 has no upgrades.
            Ok(upgrade) => upgrade.filter(|_| !is_h2c(&route.upstream)),
            Err(problem) => return problem.response(dialect),
        };
        let request = Request::from_parts(parts, streamed(body));
        match (self.upstreams.send(route, request, peer, upgrade.as_ref()).await, upgrade) {
            (Ok(response), Some(upgrade)) => upgrade.complete(response),
            (Ok(response), None) => response.map(boxed),
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
        // First: the body of an unauthenticated client is not read.
        let tenant = match route.tenant.resolve(&parts, peer, &self.upstreams, route).await {
            Ok(tenant) => tenant,
            Err(problem) => return problem.response(dialect),
        };
        route.tenant.strip(&mut parts.headers);
        let (limit, time) = (route.rules.request_limit, route.rules.body_timeout);
        let (body, trailers) = match body::read_request_within(&self.room, body, limit, time).await {
            Ok(received) => received,
            Err(problem) => return problem.response(dialect),
        };
        // A gRPC server ends a call at the client's deadline. Here the call runs to its end, so that the retry gets its
        // outcome.
        parts.headers.remove(GRPC_TIMEOUT);
        let trailers = trailers.and_then(|trailers| headers::allowed_trailers(trailers, &route.rules));
        let (upstreams, to) = (self.upstreams.clone(), Arc::clone(route));
        let received = Received { tenant, parts, body };
        exchange(
            self.ledger.named(route.store.as_deref()),
            &route.rules,
            received,
            key,
            move |request, _claim| async move {
                let request = request.map(|body| body::with_trailers(body, trailers));
                let answer = upstreams.send(&to, request, peer, None).await?;
                Ok(answer.map(|body| StallTimeout::new(body, to.timeout)))
            },
        )
        .await
    }
}

/// Does not repeat the host: a web page might show the text.
fn wrong_host(refused: HostRefusal) -> Problem {
    let what = match refused {
        HostRefusal::Host => "The host of the request is not allowed",
        HostRefusal::Origin => "The request comes from a web page whose origin is not allowed",
    };
    let how = "The operator can allow it with --allow-host NAME, or with allow_hosts in [gateway].";
    Problem::because(Kind::WrongHost, format!("{what}. {how}"))
}
