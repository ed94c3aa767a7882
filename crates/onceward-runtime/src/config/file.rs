//! The top level of `onceward.toml`. The doc comments here become the reference page.

use std::collections::BTreeMap;

use onceward::StoreUrl;
use schemars::JsonSchema;
use serde::Deserialize;

use super::api::Api;
use super::gateway::Gateway;
use super::inbox::Inbox;
use super::mcp::Mcp;
use super::route::Sink;
use super::secret::Secret;
use super::values::{Dedup, Effect, InDoubt, Length, OnError, Retention, Size, StoreDown, Tier};

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct File {
    /// Where the ledger is: a file path, `file:PATH`, `postgres://…`, `redis://…`, `rediss://…`, `redis+sentinel://…` or
    /// `redis+cluster://…`. A relative path starts at the folder of this file, so that all users of one configuration share one
    /// ledger. A password in a URL is a reference: `env:NAME` or `file:PATH`. `--store` and `ONCEWARD_STORE` override it.
    #[schemars(extend("x-type" = "string", "x-default" = "`onceward.db` in the working directory"))]
    #[schemars(with = "Option<String>")]
    pub store: Option<StoreUrl>,
    /// Further stores, by name: `[stores.fast]`. An operation is kept in one of them with `store = "fast"`.
    #[schemars(extend("x-type" = "tables", "x-default" = "none"))]
    pub stores: BTreeMap<String, NamedStore>,
    /// Where to read the secret that hides credentials in tenant names: `"env:NAME"` or `"file:PATH"`, at least 16 characters.
    /// Without it, a tenant that is derived from a credential is a plain SHA-256 of it, and a reader of the ledger can confirm
    /// a guess of a weak credential. Changing the secret changes these tenants, so retries become new intents.
    #[schemars(extend("x-type" = "reference to a secret", "x-default" = "none"))]
    pub tenant_secret: Option<Secret>,
    /// Limits on what the ledger accepts: `[limits]`.
    #[schemars(extend("x-type" = "table", "x-default" = "none"))]
    pub limits: Limits,
    /// One table per operation: `[operation.charge_payment]`. Quote a name that contains anything but letters, digits, `_`
    /// and `-`: `[operation."POST /v1/charges"]`.
    #[schemars(extend("x-type" = "tables", "x-default" = "none"))]
    pub operation: BTreeMap<String, Operation>,
    /// The places to which the courier delivers queued entries, by name: `[sink.stripe]`. An operation is delivered to one of
    /// them with `sink = "stripe"`.
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    #[schemars(extend("x-type" = "tables", "x-default" = "none"))]
    pub sink: BTreeMap<String, Sink>,
    /// The HTTP API: `[api]`.
    #[schemars(extend("x-type" = "table", "x-default" = "on `127.0.0.1:8787` without tokens, if the file configures no other server"))]
    pub api: Option<Api>,
    /// Webhooks to receive, on the address of the API: `[[inbox]]`.
    #[schemars(with = "Vec<serde_json::Value>")]
    #[schemars(extend("x-type" = "tables", "x-default" = "none"))]
    pub inbox: Vec<Inbox>,
    /// The HTTP gateway, started by `onceward serve`: `[gateway]`.
    #[schemars(extend("x-type" = "table", "x-default" = "none"))]
    pub gateway: Option<Gateway>,
    /// The MCP gateway: `[mcp]`.
    #[schemars(extend("x-type" = "table", "x-default" = "none"))]
    pub mcp: Mcp,
}

/// A store with a name.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(super) struct NamedStore {
    /// Where it is, as in `store` at the top level.
    #[schemars(extend("x-type" = "string", "x-default" = "required"))]
    #[schemars(with = "String")]
    pub url: StoreUrl,
}

/// Limits on what the ledger accepts.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Limits {
    /// Maximum number of records per tenant. Over the limit, a new key gets 429 and nothing runs. Records are never evicted:
    /// recorded keys keep working, and space becomes free as records expire. Tombstones do not count. Each store counts for
    /// itself: with named stores, a tenant may have this many records in each of them.
    #[schemars(extend("x-type" = "number", "x-default" = "no limit"))]
    pub records_per_tenant: Option<u64>,
}

/// The settings of an operation. Missing fields take their values from the tier or the surface.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Operation {
    /// How much is at stake. Sets the default of `retention` and `tombstone`. With a tier, an error without a class puts the
    /// intent in doubt.
    #[schemars(extend("x-default" = "none: retention as for `\"standard\"`"))]
    pub tier: Option<Tier>,
    /// JSON pointers to the fields that identify the intent. Without them, the whole input identifies it.
    #[schemars(extend("x-type" = "list of JSON pointers", "x-default" = "all of the intent"))]
    pub key: Option<Vec<String>>,
    /// JSON pointers to fields that do not identify the intent but must be the same on every repeat.
    #[serde(rename = "match")]
    #[schemars(extend("x-type" = "list of JSON pointers", "x-default" = "`[]`"))]
    pub match_fields: Option<Vec<String>>,
    /// How to normalise the values of `key` and `match`: `trim`, `case`, `nfc`, `number`.
    #[schemars(extend("x-type" = "list of strings", "x-default" = "`[]`"))]
    pub normalise: Option<Vec<String>>,
    /// A time window that is part of the identity: one intent per day, or per week.
    #[schemars(extend("x-type" = "table", "x-default" = "none"))]
    pub window: Option<Window>,
    /// Allow `key`, `match` and `window` to name fields such as `timestamp` or `request_id`, which usually change with every
    /// attempt.
    #[schemars(extend("x-type" = "boolean", "x-default" = "`false`"))]
    pub allow_volatile: Option<bool>,
    /// Longest expected run time. The lease is three times as long. Does not kill anything. At most `24h`.
    #[schemars(extend("x-type" = "duration", "x-default" = "`\"60s\"`"))]
    pub max_runtime: Option<Length>,
    /// How long a run may take before it counts as in doubt while its owner is still working, so that it can be settled. The
    /// owner may still finish, and no other caller takes over before the lease ends.
    #[schemars(extend("x-type" = "duration", "x-default" = "none; `\"1h\"` for MCP over HTTP, `\"10m\"` for a queued tool"))]
    pub deadline: Option<Length>,
    /// What to do with an intent whose attempt may or may not have happened.
    #[schemars(extend("x-default" = "`\"hold\"`"))]
    pub in_doubt: Option<InDoubt>,
    /// How to treat an error without a class: an exit code, a tool error, an error returned by a closure.
    #[schemars(extend("x-default" = "`\"classify\"`"))]
    pub on_error: Option<OnError>,
    /// Where the effect takes place.
    #[schemars(extend("x-default" = "`\"external\"`"))]
    pub effect: Option<Effect>,
    /// How long the outcome is kept and replayed, counted from the end of the work. At least the window plus 24 hours.
    #[schemars(extend("x-type" = "duration or `\"forever\"`", "x-default" = "by tier; `\"7d\"` for `onceward run` without a tier"))]
    pub retention: Option<Retention>,
    /// For low stakes, in place of `tier`, `retention` and `tombstone`: the key is held for this long after the work is done;
    /// then the same intent runs again. There is no tombstone, and `in_doubt` defaults to `"retry"`, no matter how long ago the
    /// crash was. Not for payments.
    #[schemars(extend("x-type" = "duration", "x-default" = "none"))]
    pub dedup: Option<Dedup>,
    /// How long the key is held after the retention, so that a late retry gets "done" and does not run again.
    #[schemars(extend("x-type" = "duration", "x-default" = "by tier"))]
    pub tombstone: Option<Length>,
    /// The name of the store that keeps this operation: a table in `[stores]`. An operation must stay where its records are: a
    /// server refuses one that lives in another of its stores.
    #[schemars(extend("x-type" = "string", "x-default" = "the store at the top level"))]
    pub store: Option<String>,
    /// Allow `tier = "payment"` in a store that may lose an acknowledged claim, after which a payment may run twice.
    #[schemars(extend("x-type" = "boolean", "x-default" = "`false`"))]
    pub allow_best_effort: Option<bool>,
    /// What to do when the store is unreachable.
    #[schemars(extend("x-default" = "`\"closed\"`"))]
    pub store_down: Option<StoreDown>,
    /// How long a repeat waits for the running call.
    #[schemars(extend("x-type" = "duration", "x-default" = "`\"0s\"`; `\"45s\"` for a tool of an MCP server"))]
    pub wait: Option<Length>,
    /// How long the downstream remembers the downstream key, counted from the first attempt that may have reached it. After
    /// that, `in_doubt = "retry"` acts like `hold`.
    #[schemars(extend("x-type" = "duration", "x-default" = "`\"24h\"`"))]
    pub honours_key_for: Option<Length>,
    /// The largest outcome to keep, body and headers together. A larger one is recorded as done but cannot be replayed. At
    /// most `8MiB`.
    #[schemars(extend("x-type" = "bytes: `65536` or `\"64KiB\"`", "x-default" = "`\"256KiB\"`; `\"1MiB\"` for `onceward run`"))]
    pub keep_limit: Option<Size>,
    /// The name of the sink to which the courier delivers queued entries of this operation: a table in `[sink]`.
    #[schemars(extend("x-type" = "string", "x-default" = "none"))]
    pub sink: Option<String>,
}

/// A time window.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Window {
    /// A JSON pointer to a time in the intent, or `now` if `allow_now` is set.
    #[schemars(extend("x-type" = "JSON pointer", "x-default" = "required"))]
    pub of: String,
    /// `day`, `week`, `month`, or a duration.
    #[schemars(extend("x-type" = "string or duration", "x-default" = "required"))]
    pub every: String,
    /// An IANA time zone, such as `Europe/Berlin`.
    #[serde(default)]
    #[schemars(extend("x-type" = "string", "x-default" = "`\"UTC\"`"))]
    pub zone: Option<String>,
    /// Allow `of = "now"`. A retry after the end of the window is then a new intent.
    #[serde(default)]
    #[schemars(extend("x-type" = "boolean", "x-default" = "`false`"))]
    pub allow_now: bool,
}
