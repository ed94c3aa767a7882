//! Stripe: `Stripe-Signature: t=SECONDS,v1=HEX`, an HMAC-SHA-256 of `SECONDS.BODY`. While a secret is rotated there are several
//! `v1`. The id is in the body.

use http::HeaderName;
use onceward::core::json::Pointer;
use onceward_runtime::config::{HmacEncoding, HmacHash, Signing};

use super::event::{self, EventId};
use super::headers::{malformed, required};
use super::mac::MAX_SIGNATURES;
use super::{ReceivedWebhook, Refused, Verified, mac, signed_time};

const HEADER: HeaderName = HeaderName::from_static("stripe-signature");

const ID: &str = "/id";

/// What the header says.
struct SignatureHeader<'a> {
    time: &'a str,
    signatures: Vec<Vec<u8>>,
}

pub(super) fn verify(signing: &Signing, webhook: &ReceivedWebhook<'_>) -> Result<Verified, Refused> {
    let header = parsed(required(webhook.headers, &HEADER)?)?;
    let at = signed_time::check(&HEADER, header.time, webhook.now, signing.tolerance)?;
    let message = [header.time.as_bytes(), b".", webhook.body];
    mac::check(HmacHash::Sha256, &signing.secrets, &message, &header.signatures)?;
    let pointer = Pointer::parse(ID).map_err(|_| Refused::NoEventId { pointer: ID.to_owned() })?;
    let id = EventId::in_body(webhook.body, &pointer)?;
    Ok(event::with_signed_id(id, Some(at)))
}

/// Only `v1` counts: `v0` is a fake that Stripe sends with test events, and other schemes may be weaker.
fn parsed(text: &str) -> Result<SignatureHeader<'_>, Refused> {
    let mut times = Vec::new();
    let mut signatures = Vec::new();
    for (number, item) in text.split(',').enumerate() {
        if number >= MAX_SIGNATURES {
            return Err(malformed(&HEADER, "it has too many signatures"));
        }
        let (name, value) =
            item.trim_start_matches(' ').split_once('=').ok_or_else(|| malformed(&HEADER, "it is not `t=…,v1=…`"))?;
        match name {
            "t" => times.push(value),
            "v1" => signatures.extend(mac::decoded(HmacEncoding::Hex, value)),
            _ => {}
        }
    }
    match times.as_slice() {
        [time] => Ok(SignatureHeader { time, signatures }),
        _ => Err(malformed(&HEADER, "it must have exactly one time `t=…`")),
    }
}
