//! Profiles: how the idempotency protocols of different APIs differ.

use http::HeaderName;
use serde::{Deserialize, Serialize};

use super::problem::Kind;

/// The idempotency protocol that an API follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// The IETF draft: a failure is kept like a success.
    #[default]
    Ietf,
    /// Stripe's v1 API: a failure is kept like a success.
    Stripe,
    /// The Agentic Commerce Protocol: every request needs a key, problems carry the protocol's codes, and no 5xx is kept.
    Acp,
}

impl Profile {
    /// Whether a 500 from the upstream is kept as the final response.
    pub fn keeps_server_errors(self) -> bool {
        match self {
            Self::Ietf | Self::Stripe => true,
            Self::Acp => false,
        }
    }

    /// Headers that say, besides the credential, for which account a request is.
    pub fn compared_headers(self) -> &'static [HeaderName] {
        static STRIPE: [HeaderName; 2] =
            [HeaderName::from_static("stripe-account"), HeaderName::from_static("stripe-context")];
        match self {
            Self::Stripe => &STRIPE,
            Self::Ietf | Self::Acp => &[],
        }
    }

    /// The protocol's own code for a problem, in addition to its type.
    pub fn code(self, kind: Kind) -> Option<&'static str> {
        match (self, kind) {
            (Self::Acp, Kind::KeyMissing | Kind::KeyMalformed) => Some("idempotency_key_required"),
            (Self::Acp, Kind::Mismatch) => Some("idempotency_conflict"),
            (Self::Acp, Kind::InFlight | Kind::InDoubt | Kind::AttemptFailed) => Some("idempotency_in_flight"),
            (Self::Stripe, Kind::Mismatch | Kind::KeyMalformed | Kind::KeyMissing) => Some("idempotency_error"),
            _ => None,
        }
    }

    /// The type of the `error` member, for protocols whose clients expect one.
    pub fn error(self, kind: Kind) -> Option<&'static str> {
        match (self, kind) {
            (Self::Stripe, Kind::Mismatch | Kind::KeyMalformed | Kind::KeyMissing) => Some("idempotency_error"),
            (Self::Stripe, kind) if kind.status().is_server_error() => Some("api_error"),
            (Self::Stripe, _) => Some("invalid_request_error"),
            (Self::Ietf | Self::Acp, _) => None,
        }
    }
}
