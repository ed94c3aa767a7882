//! `[gateway]` and its routes, as they are written. Their comments are the reference page.

use schemars::JsonSchema;
use serde::Deserialize;

use super::certificate::CertificateFiles;
use super::secret::Secret;
use super::words::{Address, KeyWindow, Length, Size};

/// The HTTP gateway: listens, and takes requests to upstreams.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Gateway {
    /// Where it listens. Port 0 takes a free one.
    #[schemars(extend("x-type" = "address", "x-default" = "`\"127.0.0.1:8080\"`"))]
    pub(crate) listen: Option<Address>,
    /// Hosts that it answers to besides `localhost` and loopback addresses, and whose pages may call it: names without scheme
    /// and port, or `"*"` for any. On a loopback address every other `Host` and `Origin` is refused; on other addresses they
    /// are checked only where hosts are listed here.
    #[schemars(extend("x-type" = "list of names", "x-default" = "`[]`"))]
    pub(crate) allow_hosts: Option<Vec<String>>,
    /// How many connections may be open at a time. More wait to be accepted.
    #[schemars(extend("x-type" = "number", "x-default" = "`10000`"))]
    pub(crate) max_connections: Option<std::num::NonZeroU32>,
    /// The certificate chain and the private key with which TLS is served, as PEM files.
    #[schemars(extend("x-type" = "table of `chain` and `key`", "x-default" = "no TLS"))]
    pub(crate) tls: Option<CertificateFiles>,
    /// Certificates that are believed of https upstreams besides those that the system knows, as a PEM file.
    #[schemars(extend("x-type" = "path", "x-default" = "none"))]
    pub(crate) upstream_ca: Option<String>,
    /// The routes, in order: the first whose path fits is taken.
    #[schemars(extend("x-type" = "tables", "x-default" = "required"))]
    pub(crate) route: Vec<Route>,
}

/// One route of the gateway.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Route {
    /// The path. `*` at the end stands for anything, and elsewhere for one segment.
    #[schemars(extend("x-type" = "string", "x-default" = "`\"/*\"`"))]
    pub(crate) path: Option<String>,
    /// Where its requests go: `http://`, `https://`, or `h2c://` for HTTP/2 without TLS, as gRPC has it; with a path that
    /// comes before the request's if there is one.
    #[schemars(extend("x-type" = "URL", "x-default" = "required"))]
    pub(crate) upstream: Option<String>,
    /// Whose rules the API follows.
    #[schemars(extend("x-default" = "`\"ietf\"`"))]
    pub(crate) profile: Option<Profile>,
    /// Which methods are guarded. All others pass by.
    #[schemars(extend("x-type" = "list of methods", "x-default" = "`[\"POST\", \"PATCH\"]`"))]
    pub(crate) methods: Option<Vec<String>>,
    /// Whether a guarded request needs a key.
    #[schemars(extend("x-default" = "`\"required\"`"))]
    pub(crate) key_mode: Option<KeyMode>,
    /// Where the client's key is: `header:NAME`, or `body:POINTER` for a field of a JSON body.
    #[schemars(extend("x-type" = "string", "x-default" = "`\"header:Idempotency-Key\"`"))]
    pub(crate) key_from: Option<String>,
    /// What a client's key has to look like: `uuid`, `ulid`, `pattern:REGEX` (for the whole key), or `entropy:BITS` (at least so
    /// many, by an estimate). A key that does not fit gets 400. Published in `/.well-known/idempotency`.
    #[schemars(extend("x-type" = "string", "x-default" = "1 to 255 visible ASCII characters"))]
    pub(crate) key_format: Option<String>,
    /// Whose request it is: `whoami:PATH#POINTER` (the subject at this JSON pointer in the upstream's answer to a GET of PATH
    /// with the caller's credentials; recommended), `authorization` (a hash of the credential; for API keys that stay the
    /// same, see the guide for what it does not protect from), `token` (one of
    /// `[[api.token]]`, in the header `Onceward-Token` or as the bearer), `jwt:CLAIM` (of a token that is verified with
    /// `jwt_key`), `header:NAME` (from `trusted_peers`), or `fixed:NAME`.
    #[schemars(extend("x-type" = "string", "x-default" = "`\"authorization\"`"))]
    pub(crate) tenant: Option<String>,
    /// What tokens are verified with: `env:NAME` or `file:PATH` with a set of keys (JWKS), a public key as PEM, or a
    /// shared secret.
    #[schemars(extend("x-type" = "string", "x-default" = "none"))]
    pub(crate) jwt_key: Option<Secret>,
    /// The audience that a token must have.
    #[schemars(extend("x-type" = "string", "x-default" = "any"))]
    pub(crate) jwt_audience: Option<String>,
    /// The issuer that a token must have.
    #[schemars(extend("x-type" = "string", "x-default" = "any"))]
    pub(crate) jwt_issuer: Option<String>,
    /// Proxies in front: from whom `header:NAME` is taken, and `X-Forwarded-Proto` and `X-Forwarded-Host` are passed on as
    /// they are.
    #[schemars(extend("x-type" = "list of networks", "x-default" = "this machine"))]
    pub(crate) trusted_peers: Option<Vec<String>>,
    /// The operation whose policy and recipe hold here: `[operation.NAME]`. Without one: tier `standard`, the whole
    /// request.
    #[schemars(extend("x-type" = "string", "x-default" = "none"))]
    pub(crate) operation: Option<String>,
    /// The upstream remembers keys itself. Then what is unknown is sent again with the same key, unless the operation's
    /// `in_doubt` says otherwise.
    #[schemars(extend("x-type" = "boolean", "x-default" = "`false`"))]
    pub(crate) honours_key: Option<bool>,
    /// Sends a key of our own to the upstream in this header, instead of the client's: `header:NAME`.
    #[schemars(extend("x-type" = "string", "x-default" = "the client's key, unchanged"))]
    pub(crate) downstream_key: Option<String>,
    /// Statuses with which this upstream proves that nothing happened.
    #[schemars(extend("x-type" = "list of statuses", "x-default" = "`[]`"))]
    pub(crate) refusals: Option<Vec<u16>>,
    /// Headers that must agree when a key comes again, besides method, path, query, type and body. `host` is the host that
    /// the client asked for, in any version of HTTP.
    #[schemars(extend("x-type" = "list of names", "x-default" = "`[]`"))]
    pub(crate) compared_headers: Option<Vec<String>>,
    /// Headers that tell callers apart, such as `Cookie`: a digest of their values becomes part of the tenant.
    #[schemars(extend("x-type" = "list of names", "x-default" = "`[]`"))]
    pub(crate) identity_headers: Option<Vec<String>>,
    /// Headers that do not tell callers apart. Where a key is derived, a request with a `Cookie` that is in neither list is
    /// refused with 400.
    #[schemars(extend("x-type" = "list of names", "x-default" = "`[]`"))]
    pub(crate) ignored_headers: Option<Vec<String>>,
    /// How long a repeat waits for the running one.
    #[schemars(extend("x-type" = "duration", "x-default" = "the operation's, or `\"20s\"`"))]
    pub(crate) wait: Option<Length>,
    /// The status that a repeat gets while its request runs, or before the upstream wants to be asked again: `409`, or `425` for
    /// clients that take 409 for final.
    #[schemars(extend("x-type" = "number", "x-default" = "`409`"))]
    pub(crate) in_flight_status: Option<u16>,
    /// How long a derived key holds after its request is done. `causal`: until the answer was delivered, and for 10 minutes
    /// where it was not; the same request after the answer is a new one.
    #[schemars(extend("x-type" = "duration or `causal`", "x-default" = "`\"10m\"`"))]
    pub(crate) window: Option<KeyWindow>,
    /// How long the upstream may take to answer, and to go on with the answer to a guarded request. What takes longer is
    /// unknown.
    #[schemars(extend("x-type" = "duration", "x-default" = "`\"5m\"`"))]
    pub(crate) timeout: Option<Length>,
    /// How long the body of a guarded request may take to arrive. Who is slower gets 408, and nothing is begun.
    #[schemars(extend("x-type" = "duration", "x-default" = "`\"1m\"`"))]
    pub(crate) body_timeout: Option<Length>,
    /// Whether paths may have encoded slashes and backslashes (`%2F`, `%5C`, `\\`). `"allow"` passes them on as they came, where
    /// the decoded path belongs to the same route; they are refused with 400 otherwise.
    #[schemars(extend("x-default" = "`\"refuse\"`"))]
    pub(crate) encoded_slashes: Option<EncodedSlashes>,
    /// The largest guarded request.
    #[schemars(extend("x-type" = "bytes", "x-default" = "`\"1MiB\"`"))]
    pub(crate) request_limit: Option<Size>,
}

/// What becomes of encoded slashes in paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EncodedSlashes {
    /// They are refused: an upstream that decodes them would see a path of another route.
    Refuse,
    /// They are passed on where the decoded path belongs to the same route.
    Allow,
}

/// Whose rules an API follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Profile {
    /// The draft of the IETF: failures are kept like successes.
    #[default]
    Ietf,
    /// Stripe's API: the same.
    Stripe,
    /// The Agentic Commerce Protocol: codes of its own, and no 5xx is kept.
    Acp,
}

/// Whether a guarded request needs a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum KeyMode {
    /// Without one it is refused.
    #[default]
    Required,
    /// Without one it passes by unguarded.
    Optional,
    /// Without one it is made from the request: by the operation's recipe, or from all of it.
    Derived,
}
