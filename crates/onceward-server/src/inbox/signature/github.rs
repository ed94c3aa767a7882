//! GitHub: `X-Hub-Signature-256: sha256=HEX`, an HMAC-SHA-256 of the body. Neither a time nor the id in `X-GitHub-Delivery` is
//! signed, and the older `X-Hub-Signature` with SHA-1 is ignored.

use http::HeaderName;
use onceward_runtime::config::{HmacEncoding, HmacHash, Signing};

use super::event::{self, EventId};
use super::headers::{malformed, optional, required};
use super::{ReceivedWebhook, Refused, Verified, mac};

const HEADER: HeaderName = HeaderName::from_static("x-hub-signature-256");

const ID_HEADER: HeaderName = HeaderName::from_static("x-github-delivery");

pub(super) fn verify(signing: &Signing, webhook: &ReceivedWebhook<'_>) -> Result<Verified, Refused> {
    let header = required(webhook.headers, &HEADER)?;
    let signature = header.strip_prefix("sha256=").ok_or_else(|| malformed(&HEADER, "it is not `sha256=…`"))?;
    let signatures: Vec<_> = mac::decoded(HmacEncoding::Hex, signature).into_iter().collect();
    mac::check(HmacHash::Sha256, &signing.secrets, &[webhook.body], &signatures)?;
    let id = optional(webhook.headers, &ID_HEADER)?.map(EventId::new).transpose()?;
    event::with_body(webhook.body, id, None)
}
