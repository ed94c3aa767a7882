//! Standard Webhooks: `webhook-signature: v1,BASE64`, an HMAC-SHA-256 of `ID.SECONDS.BODY` with `webhook-id` and
//! `webhook-timestamp`; several signatures are separated by spaces. Svix sends the same with `svix-` in the names.

use http::HeaderName;
use onceward_runtime::config::{HmacEncoding, HmacHash, Signing};

use super::event::{self, EventId};
use super::headers::{malformed, required};
use super::mac::MAX_SIGNATURES;
use super::{ReceivedWebhook, Refused, Verified, mac, signed_time};

/// The names of the headers.
struct HeaderNames {
    id: HeaderName,
    time: HeaderName,
    signature: HeaderName,
}

const STANDARD: HeaderNames = HeaderNames {
    id: HeaderName::from_static("webhook-id"),
    time: HeaderName::from_static("webhook-timestamp"),
    signature: HeaderName::from_static("webhook-signature"),
};

const SVIX: HeaderNames = HeaderNames {
    id: HeaderName::from_static("svix-id"),
    time: HeaderName::from_static("svix-timestamp"),
    signature: HeaderName::from_static("svix-signature"),
};

pub(super) fn verify(signing: &Signing, webhook: &ReceivedWebhook<'_>) -> Result<Verified, Refused> {
    let is_svix = !webhook.headers.contains_key(&STANDARD.signature) && webhook.headers.contains_key(&SVIX.signature);
    let names = if is_svix { SVIX } else { STANDARD };
    let signatures = parsed(&names.signature, required(webhook.headers, &names.signature)?)?;
    let id = required(webhook.headers, &names.id)?;
    // With a dot, a part of a genuine id or body could be passed off as the time.
    if id.contains('.') {
        return Err(malformed(&names.id, "an id has no `.`"));
    }
    let time = required(webhook.headers, &names.time)?;
    let at = signed_time::check(&names.time, time, webhook.now, signing.tolerance)?;
    let message = [id.as_bytes(), b".", time.as_bytes(), b".", webhook.body];
    mac::check(HmacHash::Sha256, &signing.secrets, &message, &signatures)?;
    Ok(event::with_signed_id(EventId::new(id)?, Some(at)))
}

/// Only `v1` counts; `v1a` is made with a key pair.
fn parsed(header: &HeaderName, text: &str) -> Result<Vec<Vec<u8>>, Refused> {
    let mut signatures = Vec::new();
    for (number, item) in text.split(' ').enumerate() {
        if number >= MAX_SIGNATURES {
            return Err(malformed(header, "it has too many signatures"));
        }
        let (version, signature) = item.split_once(',').ok_or_else(|| malformed(header, "it is not `v1,…`"))?;
        if version == "v1" {
            signatures.extend(mac::decoded(HmacEncoding::Base64, signature));
        }
    }
    Ok(signatures)
}
