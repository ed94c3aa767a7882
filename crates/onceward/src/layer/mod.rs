//! A Tower layer for axum, tonic and any other stack: requests are guarded in the process that serves them, with the same
//! rules and the same answers as behind the gateway.
//!
//! - `service`: one request through the layer.
//! - `extract` (feature `axum`): the claim, handed to a handler.
//!
//! ```
//! # use onceward::Ledger;
//! use onceward::layer::IdempotencyLayer;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onceward::store::Error> {
//! let ledger = Ledger::open("memory:").await?; // or a file, which survives a crash
//! let layer: IdempotencyLayer = IdempotencyLayer::new(ledger).honours_key(true);
//! # let _ = layer;
//! # Ok(()) }
//! ```

#[cfg(feature = "axum")]
mod extract;
mod service;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Method, StatusCode, request};
use onceward_core::policy::{Policy, Tier};

use crate::Ledger;
use crate::http::rules::{KeyFrom, KeyMode};
use crate::http::tenant::Names;
use crate::http::{Body, KeyFormat, Problem, Profile, Rules, tenant};

#[cfg(feature = "axum")]
pub use extract::NoClaim;
pub use service::Idempotency;

/// The advice to those whose credential changes.
const OTHER_TENANT: &str = "Name the tenant by a claim that stays the same, with `tenant`.";

type TenantOf = dyn Fn(&request::Parts) -> Result<String, Problem> + Send + Sync;

/// Makes the requests of a service safe to retry. Cheap to clone.
///
/// Guards POST and PATCH; everything else passes by untouched, and streams. Keys belong to a tenant, so that one customer
/// can neither hit nor see what another has done: unless told otherwise that is a hash of the header `Authorization`, and
/// a request without it gets 401.
///
/// A guarded request is read whole before the service sees it, and runs in a task of its own: it comes to its end although
/// the client goes away, and its retry gets the outcome. A handler that panics leaves a doubt.
///
/// The service inside is called with a [`Body`] of this crate, which axum and tonic take as it is. For one that wants a
/// body of its own, see [`IdempotencyLayer::into_body`].
pub struct IdempotencyLayer<B = Body> {
    guarding: Guarding,
    body: fn(Body) -> B,
}

/// All that a service needs to know.
#[derive(Clone)]
struct Guarding {
    ledger: Ledger,
    rules: Arc<Rules>,
    tenant: Arc<TenantOf>,
}

impl IdempotencyLayer {
    /// Guards with the default rules: profile `ietf`, a key is required, and the tenant is the credential.
    pub fn new(ledger: Ledger) -> Self {
        let tenant: Arc<TenantOf> = Arc::new(|parts| tenant::of_authorization(parts, &Names::default(), OTHER_TENANT));
        Self { guarding: Guarding { ledger, rules: Arc::new(Rules::default()), tenant }, body: |body| body }
    }
}

impl<B> IdempotencyLayer<B> {
    /// All rules at once. What was set before is replaced.
    #[must_use]
    pub fn rules(mut self, rules: Rules) -> Self {
        self.guarding.rules = Arc::new(rules);
        self
    }

    fn change(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(Arc::make_mut(&mut self.guarding.rules));
        self
    }

    /// Whose rules the API follows.
    #[must_use]
    pub fn profile(self, profile: Profile) -> Self {
        self.change(|rules| rules.profile = profile)
    }

    /// Whether a request has to have a key. For [`KeyMode::Derived`], see also [`IdempotencyLayer::derived`].
    #[must_use]
    pub fn key_mode(self, mode: KeyMode) -> Self {
        self.change(|rules| rules.key_mode = mode)
    }

    /// Makes keys from requests that have none, each of which holds for a window of time after it is done.
    #[must_use]
    pub fn derived(self, window: Duration) -> Self {
        self.change(|rules| *rules = rules.clone().derived(window))
    }

    /// The header that holds the key: `PayPal-Request-Id`, for example.
    #[must_use]
    pub fn key_header(self, name: HeaderName) -> Self {
        self.change(|rules| rules.key_from = KeyFrom::Header(name))
    }

    /// The field of the JSON body that holds the key, as a JSON pointer.
    #[must_use]
    pub fn key_in_body(self, pointer: impl Into<String>) -> Self {
        self.change(|rules| rules.key_from = KeyFrom::Body(pointer.into()))
    }

    /// What a client's key has to look like: a key that does not fit gets 400.
    #[must_use]
    pub fn key_format(self, format: KeyFormat) -> Self {
        self.change(|rules| rules.key_format = Some(format))
    }

    /// Which methods are guarded.
    #[must_use]
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.change(|rules| rules.methods = methods.into_iter().collect())
    }

    /// The policy. Its `wait` is how long a repeat waits for the running one.
    #[must_use]
    pub fn policy(self, policy: Policy) -> Self {
        self.change(|rules| rules.policy = Arc::new(policy))
    }

    /// The policy of a tier, with the wait that is set.
    #[must_use]
    pub fn tier(self, tier: Tier) -> Self {
        let wait = self.guarding.rules.policy.wait;
        self.policy(Policy { wait, ..Policy::of(tier) })
    }

    /// How long a repeat waits for the running one.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        self.change(|rules| Arc::make_mut(&mut rules.policy).wait = wait)
    }

    /// The handler passes [`Claim::downstream_key`](crate::Claim::downstream_key) on to somebody who remembers keys: what
    /// is unknown may be done again. To be said after the policy.
    #[must_use]
    pub fn honours_key(self, honours: bool) -> Self {
        self.change(|rules| *rules = rules.clone().honours_key(honours))
    }

    /// The status of a repeat while its request runs: 409, or 425 for clients that take 409 for final.
    #[must_use]
    pub fn in_flight_status(self, status: StatusCode) -> Self {
        self.change(|rules| rules.in_flight_status = status)
    }

    /// Headers that tell callers apart, such as `Cookie`: their values are part of whose request it is.
    #[must_use]
    pub fn identity_headers(self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.change(|rules| rules.identity_headers = names.into_iter().collect())
    }

    /// Headers that do not tell callers apart. Where keys are derived, a `Cookie` that is in neither list is refused.
    #[must_use]
    pub fn ignored_headers(self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.change(|rules| rules.ignored_headers = names.into_iter().collect())
    }

    /// The largest guarded request.
    #[must_use]
    pub fn request_limit(self, bytes: usize) -> Self {
        self.change(|rules| rules.request_limit = bytes)
    }

    /// Says whose request it is. It is asked before a replay, which the handler never sees: what it believes has to be
    /// checked already, by a layer outside of this one or by itself.
    #[must_use]
    pub fn tenant(
        mut self,
        tenant: impl Fn(&request::Parts) -> Result<String, Problem> + Send + Sync + 'static,
    ) -> Self {
        self.guarding.tenant = Arc::new(tenant);
        self
    }

    /// A hash of the header `Authorization`: for API keys that stay the same. This is the default.
    #[must_use]
    pub fn tenant_authorization(self) -> Self {
        self.tenant(|parts| tenant::of_authorization(parts, &Names::default(), OTHER_TENANT))
    }

    /// All requests are of one tenant. Only where all callers may see each other's answers: behind a service of your own,
    /// or for inbound webhooks.
    #[must_use]
    pub fn tenant_fixed(self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.tenant(move |_| Ok(name.clone()))
    }

    /// Hands the service inside a body of another type, made from ours. For axum's own layers between this one and the
    /// routes: `.into_body(axum::body::Body::new)`.
    #[must_use]
    pub fn into_body<Other>(self, body: fn(Body) -> Other) -> IdempotencyLayer<Other> {
        IdempotencyLayer { guarding: self.guarding, body }
    }
}

impl<B> Clone for IdempotencyLayer<B> {
    fn clone(&self) -> Self {
        Self { guarding: self.guarding.clone(), body: self.body }
    }
}

impl<B> fmt::Debug for IdempotencyLayer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer").field("rules", &self.guarding.rules).finish_non_exhaustive()
    }
}

impl<S, B> tower_layer::Layer<S> for IdempotencyLayer<B> {
    type Service = Idempotency<S, B>;

    fn layer(&self, inner: S) -> Self::Service {
        Idempotency::new(inner, self.guarding.clone(), self.body)
    }
}
