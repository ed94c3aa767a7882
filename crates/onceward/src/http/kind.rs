//! The kinds of problems: their names, statuses and advice.

use http::StatusCode;

/// What a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A key is required and there is none.
    KeyMissing,
    /// What should be a key is none.
    KeyMalformed,
    /// The body cannot be read as what it says it is.
    BodyMalformed,
    /// The body is over the limit.
    BodyTooLarge,
    /// The credential that says whose request it is is missing.
    NoCredential,
    /// What says whose request it is cannot be believed.
    BadCredential,
    /// The upstream, which knows whose request it is, did not say.
    TenantUnknown,
    /// A key is derived, and a cookie may say whose request it is.
    CookieNotListed,
    /// Somebody is doing it at this moment.
    InFlight,
    /// The attempt that was waited for was given back.
    AttemptFailed,
    /// An attempt may have happened.
    InDoubt,
    /// The key came with another request.
    Mismatch,
    /// Two intents have one derived key.
    Collision,
    /// It is done, and its answer is not kept.
    NotKept,
    /// It waits for the courier.
    Queued,
    /// All attempts are used up.
    Dead,
    /// The ledger cannot be reached.
    StoreDown,
    /// The other side was not reached; nothing was sent.
    Unreachable,
    /// The other side was reached, and did not answer.
    NoAnswer,
    /// The other side did not answer in time.
    TimedOut,
    /// The request itself is wrong.
    BadRequest,
    /// The body of the request did not come in time; nothing was begun.
    TooSlow,
    /// It asks for a host, or comes from an origin, that is not allowed.
    WrongHost,
    /// Nothing is configured for this path.
    NoRoute,
    /// More at once than is allowed.
    Overloaded,
    /// The tenant has as many records as it may have, and this key is a new one.
    Quota,
}

impl Kind {
    /// All of them.
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

    /// The last part of its type.
    pub fn name(self) -> &'static str {
        self.words().0
    }

    /// One line.
    pub fn title(self) -> &'static str {
        self.words().1
    }

    /// What it means and what to do, for the page.
    pub fn advice(self) -> &'static str {
        self.words().2
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

    /// Whether the same request with the same key may help; `None` where the status says it.
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

    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::KeyMissing => (
                "key-missing",
                "An idempotency key is required",
                "Send a key that names what you want, in the header Idempotency-Key, and the same key with every retry of it.",
            ),
            Self::KeyMalformed => (
                "key-malformed",
                "The idempotency key is malformed",
                "A key has 1 to 255 visible ASCII characters, bare or as a quoted string, in one header line.",
            ),
            Self::BodyMalformed => (
                "body-malformed",
                "The body cannot be read",
                "The key is made from the body, so the body has to be the JSON that its content type promises, with the fields that make the intent.",
            ),
            Self::BodyTooLarge => (
                "body-too-large",
                "The body is over the limit",
                "A guarded request is read whole before it is passed on, up to a limit that the operator can raise.",
            ),
            Self::NoCredential => (
                "no-credential",
                "Missing credentials",
                "Keys belong to a tenant. Send the credential that this route names.",
            ),
            Self::BadCredential => (
                "bad-credential",
                "The credential is not accepted",
                "A replay is answered without asking the other side, so the credential has to be one that can be trusted here.",
            ),
            Self::TenantUnknown => (
                "tenant-unknown",
                "The upstream did not say whose request this is",
                "Keys belong to a tenant, and this route asks the upstream for it. Nothing was done. Try again with the same key after Retry-After.",
            ),
            Self::CookieNotListed => (
                "cookie-not-listed",
                "A cookie may say whose request this is",
                "The key is made from the request, and equal requests of two users would be one. The operator lists Cookie in identity_headers if it tells callers apart, or in ignored_headers if it does not. A request with an idempotency key of its own needs neither.",
            ),
            Self::InFlight => (
                "in-flight",
                "The same request is being worked on",
                "Ask again with the same key after Retry-After: you will get its outcome.",
            ),
            Self::AttemptFailed => (
                "attempt-failed",
                "The attempt that you waited for did nothing",
                "It was given back. Try again with the same key.",
            ),
            Self::InDoubt => (
                "in-doubt",
                "It is not known whether this happened",
                "An attempt may have taken effect and its answer was lost. Do not try again under another key: find out at the other side, then settle it with `onceward resolve`.",
            ),
            Self::Mismatch => (
                "mismatch",
                "The key was used with another request",
                "One key means one request. A different request needs a key of its own.",
            ),
            Self::Collision => (
                "collision",
                "Two intents have the same derived key",
                "This should never happen. Nothing was done. Please report it.",
            ),
            Self::NotKept => (
                "not-kept",
                "It is done, but its answer is not kept",
                "The request took effect and will not run again. Its answer was too large to keep, or has expired. Look at the other side for the result.",
            ),
            Self::Queued => ("queued", "It waits to be delivered", "The courier will do it. Ask again later."),
            Self::Dead => (
                "dead",
                "All attempts are used up",
                "None of them took effect. It runs again only when an operator puts it back.",
            ),
            Self::StoreDown => (
                "store-down",
                "The ledger cannot be reached",
                "Without it nobody can tell whether this was done before, so nothing was done. Try again with the same key.",
            ),
            Self::Unreachable => {
                ("unreachable", "The other side cannot be reached", "Nothing was sent. Try again with the same key.")
            }
            Self::NoAnswer => (
                "no-answer",
                "The other side did not answer",
                "The request was sent and may have taken effect. A retry with the same key tells what is known.",
            ),
            Self::TimedOut => (
                "timed-out",
                "The other side did not answer in time",
                "The request was sent and may have taken effect. A retry with the same key tells what is known.",
            ),
            Self::BadRequest => ("bad-request", "The request is wrong", "The detail says what is wrong with it."),
            Self::TooSlow => (
                "too-slow",
                "The request did not arrive in time",
                "Its body was waited for in vain, so nothing was begun. Try again with the same key.",
            ),
            Self::WrongHost => (
                "wrong-host",
                "This host or origin is not allowed",
                "A gateway on a loopback address answers only to names of this machine, so that no page in a browser can reach it under a name of its own. The operator can allow more hosts with --allow-host, or allow_hosts in [gateway].",
            ),
            Self::NoRoute => ("no-route", "There is no such route", "The gateway has no upstream for this path."),
            Self::Overloaded => {
                ("overloaded", "Too much at once", "Nothing was done. Try again with the same key after Retry-After.")
            }
            Self::Quota => (
                "quota",
                "The tenant has reached its quota of records",
                "Nothing was done. Keys that are recorded already go on working; a new key is accepted again when older records of this tenant have expired. Try again with the same key after Retry-After, or ask the operator to raise records_per_tenant.",
            ),
        }
    }
}
