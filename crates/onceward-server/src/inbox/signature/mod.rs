//! Whether a webhook is genuine, and which event it is. Pure: headers, body and time come in as arguments.
//!
//! - `refused`: why a webhook is refused. `headers`: reads signed headers, of which there may be only one each.
//! - `mac`: computes MACs and compares them in constant time. `signed_time`: the time of the delivery.
//! - `event`: the id, key and fingerprint of an event.
//! - `stripe`, `github`, `slack`, `standard_webhooks`, `hmac_header`: one file per scheme.

mod event;
mod github;
mod headers;
mod hmac_header;
mod mac;
mod refused;
mod signed_time;
mod slack;
mod standard_webhooks;
mod stripe;

#[cfg(test)]
mod tests;

use http::HeaderMap;
use onceward::core::fingerprint::Fingerprint;
use onceward::core::json;
use onceward::core::name::Key;
use onceward::core::time::Timestamp;
use onceward_runtime::config::{SignatureScheme, Signing};

pub use event::EventId;
pub use refused::Refused;

/// The largest body. It is kept in memory while it is verified, and later parsed as JSON.
pub const MAX_BODY: usize = json::MAX_BYTES;

/// Providers send about 20.
pub const MAX_HEADERS: usize = 100;

/// A webhook as it arrived: nothing in it has been decoded, decompressed or parsed.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedWebhook<'a> {
    pub headers: &'a HeaderMap,
    pub body: &'a [u8],
    pub now: Timestamp,
}

/// A genuine webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The provider's id of the event. Only a signed one identifies it.
    pub event_id: Option<EventId>,
    pub id_is_signed: bool,
    /// Names the event: its signed id, or the digest of the body.
    pub key: Key,
    /// Of the same as the key. The body is left out where there is an id: a redelivered Stripe event differs in
    /// `pending_webhooks`.
    pub fingerprint: Fingerprint,
    /// The signed time of this delivery, which differs between deliveries of one event. GitHub signs none.
    pub at: Option<Timestamp>,
    /// What Slack wants back when an address is set up: answer 200 with this text, and record no event.
    pub challenge: Option<String>,
}

/// Verifies the signature over the raw body, and identifies the event.
pub fn verify(signing: &Signing, webhook: &ReceivedWebhook<'_>) -> Result<Verified, Refused> {
    if webhook.headers.len() > MAX_HEADERS {
        return Err(Refused::TooManyHeaders);
    }
    if webhook.body.len() > MAX_BODY {
        return Err(Refused::BodyTooLarge);
    }
    match &signing.scheme {
        SignatureScheme::Stripe => stripe::verify(signing, webhook),
        SignatureScheme::Github => github::verify(signing, webhook),
        SignatureScheme::Slack => slack::verify(signing, webhook),
        SignatureScheme::StandardWebhooks => standard_webhooks::verify(signing, webhook),
        SignatureScheme::Hmac(header) => hmac_header::verify(header, signing, webhook),
    }
}
