//! The names in `onceward.toml`, as they are written. Their comments are the reference page.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::api::Api;
use super::gateway::Gateway;
use super::mcp::Mcp;
use super::secret::Secret;
use super::words::{Dedup, Effect, InDoubt, Length, OnError, Retention, Size, StoreDown, Tier};

/// All of the file.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct File {
    /// Where the ledger is: a file path, or `file:PATH`. A relative path starts from the folder of this
    /// file, so that every caller of one configuration shares one ledger. `--store` and `ONCEWARD_STORE` outrank it.
    #[schemars(extend("x-type" = "string", "x-default" = "`onceward.db` in the working directory"))]
    pub(crate) store: Option<String>,
    /// Where a secret is with which tenants that are made from credentials are named: `"env:NAME"` or `"file:PATH"`, at least
    /// 16 characters. Without it such a tenant is a plain SHA-256 of the credential, and whoever reads the ledger can confirm a
    /// guess of a weak one. With another secret every credential is another tenant, and its retries are new intents.
    #[schemars(extend("x-type" = "place of a secret", "x-default" = "none"))]
    pub(crate) tenant_secret: Option<Secret>,
    /// Limits on what the ledger takes in: `[limits]`.
    #[schemars(extend("x-type" = "table", "x-default" = "none"))]
    pub(crate) limits: Limits,
    /// One table for each operation, by its name: `[operation.charge_payment]`. Names with other characters than
    /// letters, digits, `_` and `-` are quoted: `[operation."POST /v1/charges"]`.
    #[schemars(extend("x-type" = "tables", "x-default" = "none"))]
    pub(crate) operation: BTreeMap<String, Operation>,
    /// The HTTP API: `[api]`.
    #[schemars(extend("x-type" = "table", "x-default" = "on `127.0.0.1:8787` without tokens, if nothing else is to be served"))]
    pub(crate) api: Option<Api>,
    /// The HTTP gateway, which `onceward serve` starts.
    #[schemars(extend("x-type" = "table", "x-default" = "none"))]
    pub(crate) gateway: Option<Gateway>,
    /// The MCP gateway: `[mcp]`.
    #[schemars(extend("x-type" = "table", "x-default" = "none"))]
    pub(crate) mcp: Mcp,
}

/// Limits on what the ledger takes in.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Limits {
    /// How many records each tenant may have. A new key over the limit is refused with 429 and runs nothing. Nothing is
    /// evicted: recorded keys go on working, and places become free as records expire. Tombstones do not count.
    #[schemars(extend("x-type" = "number", "x-default" = "no limit"))]
    pub(crate) records_per_tenant: Option<u64>,
}

/// What is configured for an operation. What is absent comes from the tier, or from the surface.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Operation {
    /// How much is at stake: sets `retention` and `tombstone` where they are not given. Where a tier is declared, an error
    /// without a class is a doubt.
    #[schemars(extend("x-default" = "none: kept like `\"standard\"`"))]
    pub(crate) tier: Option<Tier>,
    /// JSON pointers to the fields of the intent that make it the same intent. Without them, all of it does.
    #[schemars(extend("x-type" = "list of JSON pointers", "x-default" = "all of the intent"))]
    pub(crate) key: Option<Vec<String>>,
    /// JSON pointers to fields that must agree whenever the key comes again, and are not identity.
    #[serde(rename = "match")]
    #[schemars(extend("x-type" = "list of JSON pointers", "x-default" = "`[]`"))]
    pub(crate) match_fields: Option<Vec<String>>,
    /// How values of `key` and `match` are made alike: `trim`, `case`, `nfc`, `number`.
    #[schemars(extend("x-type" = "list of words", "x-default" = "`[]`"))]
    pub(crate) normalise: Option<Vec<String>>,
    /// A window of time that is part of the identity: one a day, one a week.
    #[schemars(extend("x-type" = "table", "x-default" = "none"))]
    pub(crate) window: Option<Window>,
    /// Allows `key`, `match` and `window` to name fields such as `timestamp` or `request_id`, which by their names
    /// change from one try to the next.
    #[schemars(extend("x-type" = "boolean", "x-default" = "`false`"))]
    pub(crate) allow_volatile: Option<bool>,
    /// The longest that a run should take. Sizes the lease (three times this) and kills nothing. At most `24h`.
    #[schemars(extend("x-type" = "duration", "x-default" = "`\"60s\"`"))]
    pub(crate) max_runtime: Option<Length>,
    /// How long a run may take before it counts as in doubt although its owner still works on it: then it can be settled. The
    /// owner may still finish it, and until its lease ends no other caller takes over.
    #[schemars(extend("x-type" = "duration", "x-default" = "none; `\"1h\"` for MCP over HTTP"))]
    pub(crate) deadline: Option<Length>,
    /// What happens to an intent whose attempt may or may not have happened.
    #[schemars(extend("x-default" = "`\"hold\"`"))]
    pub(crate) in_doubt: Option<InDoubt>,
    /// What an error without a class means: an exit code, a tool's error, an error in a closure.
    #[schemars(extend("x-default" = "`\"classify\"`"))]
    pub(crate) on_error: Option<OnError>,
    /// Where the effect takes place.
    #[schemars(extend("x-default" = "`\"external\"`"))]
    pub(crate) effect: Option<Effect>,
    /// How long the outcome is kept and replayed, from done. Never less than the window plus 24 hours.
    #[schemars(extend("x-type" = "duration or `\"forever\"`", "x-default" = "by tier; `\"7d\"` for `onceward run` without a tier"))]
    pub(crate) retention: Option<Retention>,
    /// For low stakes, instead of `tier`, `retention` and `tombstone`: the key holds for this long after done, and then
    /// the same intent runs again. There is no tombstone, and `in_doubt` is `"retry"` unless given, however long ago
    /// the crash was. Nothing for money.
    #[schemars(extend("x-type" = "duration", "x-default" = "none"))]
    pub(crate) dedup: Option<Dedup>,
    /// How long the key is held after that, so that a late retry is told "done" and does not run.
    #[schemars(extend("x-type" = "duration", "x-default" = "by tier"))]
    pub(crate) tombstone: Option<Length>,
    /// What happens when the store cannot be reached.
    #[schemars(extend("x-default" = "`\"closed\"`"))]
    pub(crate) store_down: Option<StoreDown>,
    /// How long a repeat waits for a running one.
    #[schemars(extend("x-type" = "duration", "x-default" = "`\"0s\"`; `\"45s\"` for a tool of an MCP server"))]
    pub(crate) wait: Option<Length>,
    /// How long the other side remembers the downstream key, from the first time that it may have seen it. In doubt,
    /// `retry` becomes `hold` afterwards.
    #[schemars(extend("x-type" = "duration", "x-default" = "`\"24h\"`"))]
    pub(crate) honours_key_for: Option<Length>,
    /// The largest outcome that is kept, body and headers together. A larger one is remembered as done, and not shown to repeats. At most `8MiB`.
    #[schemars(extend("x-type" = "bytes: `65536` or `\"64KiB\"`", "x-default" = "`\"256KiB\"`; `\"1MiB\"` for `onceward run`"))]
    pub(crate) keep_limit: Option<Size>,
}

/// A window of time.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct Window {
    /// A JSON pointer to a time in the intent; or `now`, if `allow_now` is set.
    #[schemars(extend("x-type" = "JSON pointer", "x-default" = "required"))]
    pub(crate) of: String,
    /// `day`, `week`, `month`, or a duration.
    #[schemars(extend("x-type" = "word or duration", "x-default" = "required"))]
    pub(crate) every: String,
    /// An IANA time zone, such as `Europe/Berlin`.
    #[serde(default)]
    #[schemars(extend("x-type" = "string", "x-default" = "`\"UTC\"`"))]
    pub(crate) zone: Option<String>,
    /// Allows `of = "now"`. A retry after the window's end is then a new intent.
    #[serde(default)]
    #[schemars(extend("x-type" = "boolean", "x-default" = "`false`"))]
    pub(crate) allow_now: bool,
}

/// Names that are fixed already, and what will bring them.
pub(super) const LATER: [(&str, &str); 1] = [("sink", "the outbox and its courier")];
