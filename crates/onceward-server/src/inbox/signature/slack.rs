//! Slack: `X-Slack-Signature: v0=HEX`, an HMAC-SHA-256 of `v0:SECONDS:BODY` with the seconds of `X-Slack-Request-Timestamp`. The
//! Events API sends JSON with an `event_id`; commands and buttons send forms without one.

use http::HeaderName;
use onceward::core::json::Pointer;
use onceward_runtime::config::{HmacEncoding, HmacHash, Signing};

use super::event::{self, EventId};
use super::headers::{malformed, required};
use super::{ReceivedWebhook, Refused, Verified, mac, signed_time};

const HEADER: HeaderName = HeaderName::from_static("x-slack-signature");

const TIME_HEADER: HeaderName = HeaderName::from_static("x-slack-request-timestamp");

/// Slack's challenges have about 50 characters. It is sent back, so it has a limit.
const MAX_CHALLENGE: usize = 1024;

pub(super) fn verify(signing: &Signing, webhook: &ReceivedWebhook<'_>) -> Result<Verified, Refused> {
    let header = required(webhook.headers, &HEADER)?;
    let signature = header.strip_prefix("v0=").ok_or_else(|| malformed(&HEADER, "it is not `v0=…`"))?;
    let time = required(webhook.headers, &TIME_HEADER)?;
    let at = signed_time::check(&TIME_HEADER, time, webhook.now, signing.tolerance)?;
    let signatures: Vec<_> = mac::decoded(HmacEncoding::Hex, signature).into_iter().collect();
    let message = [b"v0:", time.as_bytes(), b":", webhook.body];
    mac::check(HmacHash::Sha256, &signing.secrets, &message, &signatures)?;
    if !webhook.body.trim_ascii_start().starts_with(b"{") {
        return event::with_body(webhook.body, None, Some(at));
    }
    let text = |pointer: &str| match Pointer::parse(pointer) {
        Ok(pointer) => event::text_in(webhook.body, &pointer),
        Err(_) => Ok(None),
    };
    match (text("/type")?.as_deref(), text("/event_id")?) {
        (Some("url_verification"), _) => {
            let challenge = text("/challenge")?.filter(|challenge| challenge.len() <= MAX_CHALLENGE);
            let challenge = challenge.ok_or_else(|| Refused::NoEventId { pointer: "/challenge".to_owned() })?;
            let verified = event::with_body(webhook.body, None, Some(at))?;
            Ok(Verified { challenge: Some(challenge), ..verified })
        }
        (_, Some(id)) => Ok(event::with_signed_id(EventId::new(&id)?, Some(at))),
        (Some("event_callback"), None) => Err(Refused::NoEventId { pointer: "/event_id".to_owned() }),
        (_, None) => event::with_body(webhook.body, None, Some(at)),
    }
}
