//! The kinds of problems: their names, titles, statuses and advice.

use http::StatusCode;

/// Which problem it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The route requires a key, and the request has none.
    KeyMissing,
    /// The key is malformed.
    KeyMalformed,
    /// The body does not have the format of its content type.
    BodyMalformed,
    /// The body is over the limit.
    BodyTooLarge,
    /// The credential that identifies the tenant is missing.
    NoCredential,
    /// The credential that identifies the tenant is not accepted.
    BadCredential,
    /// The upstream, which identifies the tenant, did not name it.
    TenantUnknown,
    /// The key is derived, and an unlisted cookie may identify the caller.
    CookieNotListed,
    /// Another caller is working on the same intent.
    InFlight,
    /// The running attempt that the client waited for was released without an effect.
    AttemptFailed,
    /// An earlier attempt may have taken effect.
    InDoubt,
    /// The key was used with a different request.
    Mismatch,
    /// Two intents have one derived key.
    Collision,
    /// The request is done, and its response is not kept.
    NotKept,
    /// The intent is queued for the courier.
    Queued,
    /// All delivery attempts are used up.
    Dead,
    /// The ledger cannot be reached.
    StoreDown,
    /// The upstream could not be reached; nothing was sent.
    Unreachable,
    /// The upstream was reached and did not respond.
    NoAnswer,
    /// The upstream did not respond in time.
    TimedOut,
    /// The request is invalid.
    BadRequest,
    /// The body of the request did not arrive in time; nothing was begun.
    TooSlow,
    /// The host or the origin of the request is not allowed.
    WrongHost,
    /// No route is configured for this path.
    NoRoute,
    /// Too many requests, or too many bytes, at once.
    Overloaded,
    /// The tenant has reached its quota of records, and this key is new.
    Quota,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 26] = [
        Self::KeyMissing,
        Self::KeyMalformed,
        Self::BodyMalformed,
        Self::BodyTooLarge,
        Self::NoCredential,
        Self::BadCredential,
        Self::TenantUnknown,
        Self::CookieNotListed,
        Self::InFlight,
        Self::AttemptFailed,
        Self::InDoubt,
        Self::Mismatch,
        Self::Collision,
        Self::NotKept,
        Self::Queued,
        Self::Dead,
        Self::StoreDown,
        Self::Unreachable,
        Self::NoAnswer,
        Self::TimedOut,
        Self::BadRequest,
        Self::TooSlow,
        Self::WrongHost,
        Self::NoRoute,
        Self::Overloaded,
        Self::Quota,
    ];

    /// The last segment of the problem's `type`.
    pub fn name(self) -> &'static str {
        self.texts().0
    }

    /// The title, one line.
    pub fn title(self) -> &'static str {
        self.texts().1
    }

    /// What the problem means and what to do about it.
    pub fn advice(self) -> &'static str {
        self.texts().2
    }

    /// The HTTP status.
    pub fn status(self) -> StatusCode {
        match self {
            Self::KeyMissing | Self::KeyMalformed | Self::BodyMalformed | Self::CookieNotListed | Self::BadRequest => {
                StatusCode::BAD_REQUEST
            }
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NoCredential | Self::BadCredential => StatusCode::UNAUTHORIZED,
            Self::InFlight | Self::AttemptFailed | Self::InDoubt | Self::Collision | Self::Queued | Self::Dead => {
                StatusCode::CONFLICT
            }
            Self::Mismatch => StatusCode::UNPROCESSABLE_ENTITY,
            Self::NotKept => StatusCode::GONE,
            Self::StoreDown | Self::TenantUnknown | Self::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unreachable | Self::NoAnswer => StatusCode::BAD_GATEWAY,
            Self::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::WrongHost => StatusCode::MISDIRECTED_REQUEST,
            Self::NoRoute => StatusCode::NOT_FOUND,
            Self::Quota => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// Whether a retry with the same key may help; `None` where the status says so.
    pub(super) fn should_retry(self) -> Option<bool> {
        match self {
            Self::InFlight
            | Self::AttemptFailed
            | Self::StoreDown
            | Self::TenantUnknown
            | Self::Unreachable
            | Self::TooSlow
            | Self::Overloaded => Some(true),
            Self::InDoubt | Self::Mismatch | Self::Collision | Self::NotKept | Self::Queued | Self::Dead => Some(false),
            _ => None,
        }
    }

    fn texts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::KeyMissing => (
                "key-missing",
                "An idempotency key is required",
                "Send a key that names this request in the header Idempotency-Key, and send the same key with every retry.",
            ),
            Self::KeyMalformed => (
                "key-malformed",
                "The idempotency key is malformed",
                "A key has 1 to 255 visible ASCII characters, bare or as a quoted string, in one header line.",
            ),
            Self::BodyMalformed => (
                "body-malformed",
                "The body cannot be read",
                "The key is derived from the body, so the body has to be valid JSON with the fields that identify the intent.",
            ),
            Self::BodyTooLarge => (
                "body-too-large",
                "The body is too large",
                "Onceward buffers the body of a guarded request before it forwards it, up to a limit. The operator can raise the limit.",
            ),
            Self::NoCredential => (
                "no-credential",
                "Missing credentials",
                "Keys belong to a tenant. Send the credential that this route requires.",
            ),
            Self::BadCredential => (
                "bad-credential",
                "Invalid credentials",
                "A replay does not reach the upstream, so Onceward itself has to be able to verify the credential.",
            ),
            Self::TenantUnknown => (
                "tenant-unknown",
                "The upstream did not identify the tenant",
                "Keys belong to a tenant, and this route asks the upstream which tenant a credential belongs to. Nothing was done. Try again with the same key after Retry-After.",
            ),
            Self::CookieNotListed => (
                "cookie-not-listed",
                "A cookie may identify the caller",
                "The key is derived from the request, so equal requests of two users would have the same key. Ask the operator to list Cookie in identity_headers if it identifies callers, or in ignored_headers if it does not. A request that sends its own idempotency key needs neither.",
            ),
            Self::InFlight => (
                "in-flight",
                "The same request is in progress or may not start yet",
                "Send the request again with the same key after Retry-After to get its outcome.",
            ),
            Self::AttemptFailed => (
                "attempt-failed",
                "The running attempt had no effect",
                "Another attempt of the same request was running, failed and changed nothing. Try again with the same key.",
            ),
            Self::InDoubt => (
                "in-doubt",
                "The outcome is unknown",
                "An attempt may have taken effect, and its response was lost. Do not try again with another key: check at the upstream whether it happened, then settle it with `onceward resolve`.",
            ),
            Self::Mismatch => (
                "mismatch",
                "The key was used with a different request",
                "A key belongs to one request. Use a new key for a different request.",
            ),
            Self::Collision => (
                "collision",
                "Two intents have the same derived key",
                "This should never happen. Nothing was done. Please report it.",
            ),
            Self::NotKept => (
                "not-kept",
                "The request is done, but its response is not kept",
                "The request took effect and will not run again. Its response was too large to keep, or has expired. Look up the result at the upstream.",
            ),
            Self::Queued => (
                "queued",
                "The request is queued for delivery",
                "The courier will deliver it. Ask for the outcome later.",
            ),
            Self::Dead => (
                "dead",
                "All delivery attempts failed",
                "None of them took effect. The request runs again only when an operator requeues it.",
            ),
            Self::StoreDown => (
                "store-down",
                "The ledger cannot be reached",
                "Without the ledger Onceward cannot know whether this request was done before, so nothing was done. Try again with the same key.",
            ),
            Self::Unreachable => {
                ("unreachable", "The upstream cannot be reached", "Nothing was sent. Try again with the same key.")
            }
            Self::NoAnswer => (
                "no-answer",
                "The upstream did not respond",
                "The request was sent and may have taken effect. Retry with the same key to learn its state.",
            ),
            Self::TimedOut => (
                "timed-out",
                "The upstream did not respond in time",
                "The request was sent and may have taken effect. Retry with the same key to learn its state.",
            ),
            Self::BadRequest => ("bad-request", "The request is invalid", "The detail says what is wrong with it."),
            Self::TooSlow => (
                "too-slow",
                "The request did not arrive in time",
                "Timed out reading the body, so nothing was begun. Try again with the same key.",
            ),
            Self::WrongHost => (
                "wrong-host",
                "This host or origin is not allowed",
                "A gateway on a loopback address accepts only the names of this machine, so that a web page cannot reach it through a host name of its own (DNS rebinding). The operator can allow more hosts with --allow-host, or allow_hosts in [gateway].",
            ),
            Self::NoRoute => ("no-route", "No route for this path", "The gateway has no upstream for this path."),
            Self::Overloaded => (
                "overloaded",
                "Too many requests at once",
                "Nothing was done. Try again with the same key after Retry-After.",
            ),
            Self::Quota => (
                "quota",
                "The tenant has reached its quota of records",
                "Nothing was done. Keys that are already recorded keep working. A new key is accepted when older records of this tenant have expired. Try again with the same key after Retry-After, or ask the operator to raise records_per_tenant.",
            ),
        }
    }
}
