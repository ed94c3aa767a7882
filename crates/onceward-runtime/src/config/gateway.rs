//! `[gateway]` and its routes. The doc comments here become the reference page.

use schemars::JsonSchema;
use serde::Deserialize;

use super::certificate::CertificateFiles;
use super::secret::Secret;
use super::values::{KeyWindow, Length, ListenAddress, Size};

/// The HTTP gateway: a reverse proxy that forwards requests to upstreams.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Gateway {
    /// The address to listen on. Port 0 picks a free port.
    #[schemars(extend("x-type" = "address", "x-default" = "`\"127.0.0.1:8080\"`"))]
    pub listen: Option<ListenAddress>,
    /// Host names to accept in `Host` and `Origin`, in addition to `localhost` and loopback addresses: names without scheme and
    /// port, or `"*"` for any. On a loopback address all others are refused; on other addresses they are checked only if hosts
    /// are listed here.
    #[schemars(extend("x-type" = "list of names", "x-default" = "`[]`"))]
    pub allow_hosts: Option<Vec<String>>,
    /// Maximum number of open connections. Further connections wait to be accepted.
    #[schemars(extend("x-type" = "number", "x-default" = "`10000`"))]
    pub max_connections: Option<std::num::NonZeroU32>,
    /// Serve TLS with this certificate chain and private key (PEM files).
    #[schemars(extend("x-type" = "table of `chain` and `key`", "x-default" = "no TLS"))]
    pub tls: Option<CertificateFiles>,
    /// Additional CA certificates for https upstreams, as a PEM file.
    #[schemars(extend("x-type" = "path", "x-default" = "none"))]
    pub upstream_ca: Option<String>,
    /// The routes. The first route whose path matches is used.
    #[schemars(extend("x-type" = "tables", "x-default" = "required"))]
    pub route: Vec<Route>,
}

/// One route of the gateway.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Route {
    /// The path to match. A `*` at the end matches anything; elsewhere it matches one segment.
    #[schemars(extend("x-type" = "string", "x-default" = "`\"/*\"`"))]
    pub path: Option<String>,
    /// The upstream: `http://`, `https://`, or `h2c://` for HTTP/2 without TLS (gRPC). A path in the URL is put in front of the
    /// path of the request.
    #[schemars(extend("x-type" = "URL", "x-default" = "required"))]
    pub upstream: Option<String>,
    /// The idempotency rules that the API follows.
    #[schemars(extend("x-default" = "`\"ietf\"`"))]
    pub profile: Option<Profile>,
    /// The methods to guard. Requests with other methods pass through unguarded.
    #[schemars(extend("x-type" = "list of methods", "x-default" = "`[\"POST\", \"PATCH\"]`"))]
    pub methods: Option<Vec<String>>,
    /// Whether a guarded request needs a key.
    #[schemars(extend("x-default" = "`\"required\"`"))]
    pub key_mode: Option<KeyMode>,
    /// Where to find the client's key: `header:NAME`, or `body:POINTER` for a field of a JSON body.
    #[schemars(extend("x-type" = "string", "x-default" = "`\"header:Idempotency-Key\"`"))]
    pub key_from: Option<String>,
    /// The required form of client keys: `uuid`, `ulid`, `pattern:REGEX` (must match the whole key), or `entropy:BITS` (minimum,
    /// estimated). Other keys get 400. Published in `/.well-known/idempotency`.
    #[schemars(extend("x-type" = "string", "x-default" = "1 to 255 visible ASCII characters"))]
    pub key_format: Option<String>,
    /// Which tenant a request belongs to: `whoami:PATH#POINTER` (GET PATH on the upstream with the caller's credentials and take
    /// the subject at this JSON pointer; recommended), `authorization` (a hash of the credential; only for API keys that do not
    /// change, see the guide for its limits), `token` (an `[[api.token]]` in the header `Onceward-Token` or as a bearer token),
    /// `jwt:CLAIM` (a claim of a token that is verified with `jwt_key`), `header:NAME` (only from `trusted_peers`), or
    /// `fixed:NAME`.
    #[schemars(extend("x-type" = "string", "x-default" = "`\"authorization\"`"))]
    pub tenant: Option<String>,
    /// The key to verify JWTs with: `env:NAME` or `file:PATH` of a key set (JWKS), a public key in PEM form, or a shared
    /// secret.
    #[schemars(extend("x-type" = "string", "x-default" = "none"))]
    pub jwt_key: Option<Secret>,
    /// The required audience of JWTs.
    #[schemars(extend("x-type" = "string", "x-default" = "any"))]
    pub jwt_audience: Option<String>,
    /// The required issuer of JWTs.
    #[schemars(extend("x-type" = "string", "x-default" = "any"))]
    pub jwt_issuer: Option<String>,
    /// Proxies in front of the gateway. `header:NAME`, `X-Forwarded-Proto` and `X-Forwarded-Host` are trusted only when they
    /// come from these networks.
    #[schemars(extend("x-type" = "list of networks", "x-default" = "this machine"))]
    pub trusted_peers: Option<Vec<String>>,
    /// The operation whose policy and recipe apply: `[operation.NAME]`. Without one: tier `standard`, and the whole request
    /// identifies the intent.
    #[schemars(extend("x-type" = "string", "x-default" = "none"))]
    pub operation: Option<String>,
    /// Whether the upstream deduplicates by key itself. If so, a request with an unknown outcome is sent again with the same
    /// key, unless the operation's `in_doubt` says otherwise.
    #[schemars(extend("x-type" = "boolean", "x-default" = "`false`"))]
    pub honours_key: Option<bool>,
    /// Send a key made by the gateway to the upstream in this header, in place of the client's key: `header:NAME`.
    #[schemars(extend("x-type" = "string", "x-default" = "the client's key, unchanged"))]
    pub downstream_key: Option<String>,
    /// Response statuses that prove that the upstream did nothing.
    #[schemars(extend("x-type" = "list of statuses", "x-default" = "`[]`"))]
    pub refusals: Option<Vec<u16>>,
    /// Headers that must be the same on every repeat, in addition to method, path, query, content type and body. `host` is the
    /// host in the client's request, in any HTTP version.
    #[schemars(extend("x-type" = "list of names", "x-default" = "`[]`"))]
    pub compared_headers: Option<Vec<String>>,
    /// Headers that distinguish callers, such as `Cookie`. A digest of their values becomes part of the tenant.
    #[schemars(extend("x-type" = "list of names", "x-default" = "`[]`"))]
    pub identity_headers: Option<Vec<String>>,
    /// Headers that do not distinguish callers. With derived keys, a request with a `Cookie` that is in neither list gets
    /// 400.
    #[schemars(extend("x-type" = "list of names", "x-default" = "`[]`"))]
    pub ignored_headers: Option<Vec<String>>,
    /// How long a repeat waits for the running request.
    #[schemars(extend("x-type" = "duration", "x-default" = "the operation's, or `\"20s\"`"))]
    pub wait: Option<Length>,
    /// The status for a repeat while its request is running, or before the upstream's `Retry-After` has passed: `409`, or `425`
    /// for clients that treat 409 as final.
    #[schemars(extend("x-type" = "number", "x-default" = "`409`"))]
    pub in_flight_status: Option<u16>,
    /// How long a derived key is held after its request is done. `causal`: until the response is delivered, or 10 minutes if it
    /// was not; an equal request after the delivery is a new one.
    #[schemars(extend("x-type" = "duration or `causal`", "x-default" = "`\"10m\"`"))]
    pub window: Option<KeyWindow>,
    /// How long to wait for the upstream's response, and for the next part of the response to a guarded request. After that,
    /// the outcome is unknown.
    #[schemars(extend("x-type" = "duration", "x-default" = "`\"5m\"`"))]
    pub timeout: Option<Length>,
    /// How long to wait for the body of a guarded request. After that, the client gets 408 and nothing runs.
    #[schemars(extend("x-type" = "duration", "x-default" = "`\"1m\"`"))]
    pub body_timeout: Option<Length>,
    /// Whether to accept encoded slashes and backslashes in paths (`%2F`, `%5C`, `\\`). `"allow"` forwards them unchanged if the
    /// decoded path matches the same route; all others get 400.
    #[schemars(extend("x-default" = "`\"refuse\"`"))]
    pub encoded_slashes: Option<EncodedSlashes>,
    /// Maximum size of a guarded request.
    #[schemars(extend("x-type" = "bytes", "x-default" = "`\"1MiB\"`"))]
    pub request_limit: Option<Size>,
}

/// How to treat encoded slashes in paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EncodedSlashes {
    /// Refuse them: an upstream that decodes them could see a path of another route.
    Refuse,
    /// Forward them if the decoded path matches the same route.
    Allow,
}

/// The idempotency rules that an API follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Profile {
    /// The IETF draft: failures are kept like successes.
    #[default]
    Ietf,
    /// Stripe's rules: failures are kept like successes.
    Stripe,
    /// The Agentic Commerce Protocol: its own error codes, and 5xx responses are not kept.
    Acp,
}

/// Whether a guarded request needs a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum KeyMode {
    /// Refuse a request without a key.
    #[default]
    Required,
    /// Pass a request without a key through unguarded.
    Optional,
    /// Derive a missing key from the request: by the operation's recipe, or from the whole request.
    Derived,
}
