//! A Tower layer for axum, tonic and any other stack: guards requests in the process that serves them, with the same rules
//! and the same answers as the gateway.
//!
//! - `service`: one request through the layer.
//! - `extract` (feature `axum`): the claim as an argument of a handler.
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
use crate::http::tenant::TenantNames;
use crate::http::{Body, KeyFormat, Problem, Profile, Rules, tenant};

#[cfg(feature = "axum")]
pub use extract::NoClaim;
pub use service::Idempotency;

/// The advice for clients whose credential changes.
const TENANT_HINT: &str = "Name the tenant by a claim that stays the same, with `tenant`.";

type TenantOf = dyn Fn(&request::Parts) -> Result<String, Problem> + Send + Sync;

/// Makes the requests of a service safe to retry. Cheap to clone.
///
/// Guards POST and PATCH; every other request passes through unchanged, and streams. Keys belong to a tenant, so that one
/// customer can neither hit nor see the keys of another. Unless configured otherwise, the tenant is a hash of the header
/// `Authorization`, and a request without it gets 401.
///
/// A guarded request is read whole before the service sees it. It runs to its end even if the client goes away, and the
/// client's retry gets the outcome. A handler that panics leaves a doubt.
///
/// The order of the builder methods does not matter, except that the last one wins where two set the same thing.
/// [`tier`](Self::tier), [`wait`](Self::wait) and [`honours_key`](Self::honours_key) take precedence over
/// [`policy`](Self::policy).
///
/// The service inside is called with a [`Body`] of this crate, which axum and tonic accept as it is. For a service that
/// wants another type of body, see [`IdempotencyLayer::into_body`].
pub struct IdempotencyLayer<B = Body> {
    guarding: Guarding,
    chosen: Chosen,
    body: fn(Body) -> B,
}

/// Settings that take precedence over the policy, in whichever order they are given.
#[derive(Clone, Copy, Default)]
struct Chosen {
    tier: Option<Tier>,
    wait: Option<Duration>,
    honours_key: Option<bool>,
}

/// The configuration of a service.
#[derive(Clone)]
struct Guarding {
    ledger: Ledger,
    rules: Arc<Rules>,
    tenant: Arc<TenantOf>,
}

impl IdempotencyLayer {
    /// Guards with the default rules: profile `ietf`, a key is required, and the tenant is the credential.
    pub fn new(ledger: Ledger) -> Self {
        Self::with_rules(ledger, Rules::default())
    }

    /// Guards with these rules.
    pub fn with_rules(ledger: Ledger, rules: Rules) -> Self {
        let tenant: Arc<TenantOf> =
            Arc::new(|parts| tenant::of_authorization(parts, &TenantNames::default(), TENANT_HINT));
        let guarding = Guarding { ledger, rules: Arc::new(rules), tenant };
        Self { guarding, chosen: Chosen::default(), body: |body| body }
    }
}

impl<B> IdempotencyLayer<B> {
    fn change(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(Arc::make_mut(&mut self.guarding.rules));
        self
    }

    fn choose(mut self, choose: impl FnOnce(&mut Chosen)) -> Self {
        choose(&mut self.chosen);
        self.apply_chosen()
    }

    fn apply_chosen(self) -> Self {
        let Chosen { tier, wait, honours_key } = self.chosen;
        self.change(|rules| {
            let policy = Arc::make_mut(&mut rules.policy);
            policy.tier = tier.or(policy.tier);
            policy.wait = wait.unwrap_or(policy.wait);
            if let Some(honours) = honours_key {
                *rules = rules.clone().honours_key(honours);
            }
        })
    }

    /// The profile that the API follows.
    #[must_use]
    pub fn profile(self, profile: Profile) -> Self {
        self.change(|rules| rules.profile = profile)
    }

    /// Whether a request has to have a key. For [`KeyMode::Derived`], see also [`IdempotencyLayer::derived`].
    #[must_use]
    pub fn key_mode(self, mode: KeyMode) -> Self {
        self.change(|rules| rules.key_mode = mode)
    }

    /// Derives a key from a request that has none. It holds for a window of time after the request is done.
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

    /// The format of a client's key: a request whose key does not fit gets 400.
    #[must_use]
    pub fn key_format(self, format: KeyFormat) -> Self {
        self.change(|rules| rules.key_format = Some(format))
    }

    /// Which methods are guarded.
    #[must_use]
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.change(|rules| rules.methods = methods.into_iter().collect())
    }

    /// The policy. Its `wait` is how long a repeat waits for the running request.
    #[must_use]
    pub fn policy(self, policy: Policy) -> Self {
        self.change(|rules| rules.policy = Arc::new(policy)).apply_chosen()
    }

    /// How much is at stake: sets retention and tombstone. The rest of the policy stays as it is.
    #[must_use]
    pub fn tier(self, tier: Tier) -> Self {
        self.choose(|chosen| chosen.tier = Some(tier))
    }

    /// How long a repeat waits for the running request.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        self.choose(|chosen| chosen.wait = Some(wait))
    }

    /// Whether the handler passes [`Claim::downstream_key`](crate::Claim::downstream_key) on to a downstream that honours
    /// keys. If so, an attempt whose outcome is unknown may be tried again; if not, it is held.
    #[must_use]
    pub fn honours_key(self, honours: bool) -> Self {
        self.choose(|chosen| chosen.honours_key = Some(honours))
    }

    /// The status of a repeat while its request runs: 409, or 425 for clients that take 409 for final.
    #[must_use]
    pub fn in_flight_status(self, status: StatusCode) -> Self {
        self.change(|rules| rules.in_flight_status = status)
    }

    /// Headers that tell callers apart, such as `Cookie`: their values are part of the tenant.
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

    /// Names the tenant of a request. It is called before a replay, which the handler never sees: so a layer outside of this
    /// one, or the function itself, must have checked the credential.
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
        self.tenant(|parts| tenant::of_authorization(parts, &TenantNames::default(), TENANT_HINT))
    }

    /// Puts all requests into one tenant. Only where all callers may see each other's answers: behind a service of your own,
    /// or for inbound webhooks.
    #[must_use]
    pub fn tenant_fixed(self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.tenant(move |_| Ok(name.clone()))
    }

    /// Calls the service inside with another type of body, made from ours. For axum's own layers between this one and the
    /// routes: `.into_body(axum::body::Body::new)`.
    #[must_use]
    pub fn into_body<Other>(self, body: fn(Body) -> Other) -> IdempotencyLayer<Other> {
        IdempotencyLayer { guarding: self.guarding, chosen: self.chosen, body }
    }
}

impl<B> Clone for IdempotencyLayer<B> {
    fn clone(&self) -> Self {
        Self { guarding: self.guarding.clone(), chosen: self.chosen, body: self.body }
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

#[cfg(test)]
mod tests {
    use onceward_core::policy::InDoubt;

    use super::*;

    type Setter = fn(IdempotencyLayer) -> IdempotencyLayer;

    /// Every order of these settings.
    fn orders(settings: &[Setter]) -> Vec<Vec<Setter>> {
        if settings.is_empty() {
            return vec![Vec::new()];
        }
        let mut all = Vec::new();
        for first in 0..settings.len() {
            let mut rest = settings.to_vec();
            let setting = rest.remove(first);
            all.extend(orders(&rest).into_iter().map(|order| [vec![setting], order].concat()));
        }
        all
    }

    #[tokio::test]
    async fn the_order_of_the_settings_does_not_matter() {
        let ledger = Ledger::open("memory:").await.unwrap();
        let settings: [Setter; 5] = [
            |layer| layer.honours_key(true),
            |layer| layer.tier(Tier::Payment),
            |layer| layer.wait(Duration::from_secs(3)),
            |layer| layer.policy(Policy { keep_limit: 7, wait: Duration::from_secs(9), ..Policy::default() }),
            |layer| layer.profile(Profile::Stripe),
        ];
        let orders = orders(&settings);
        assert_eq!(orders.len(), 120);
        for order in orders {
            let layer = order.iter().fold(IdempotencyLayer::new(ledger.clone()), |layer, setting| setting(layer));
            let rules = &layer.guarding.rules;
            let policy = &rules.policy;
            assert_eq!((policy.in_doubt, rules.honours), (InDoubt::Retry, true));
            assert_eq!((policy.tier, policy.wait), (Some(Tier::Payment), Duration::from_secs(3)));
            assert_eq!((policy.keep_limit, rules.profile), (7, Profile::Stripe));
        }
    }

    #[tokio::test]
    async fn a_tier_keeps_what_was_said_before_it() {
        let ledger = Ledger::open("memory:").await.unwrap();
        let layer = IdempotencyLayer::new(ledger).honours_key(true).tier(Tier::Payment);
        assert_eq!(layer.guarding.rules.policy.in_doubt, InDoubt::Retry);
        assert_eq!(layer.guarding.rules.policy.wait, crate::http::rules::DEFAULT_WAIT);
    }
}
