//! Any other header with an HMAC of the body, or of a time and the body, as `[inbox.hmac]` describes it.

use onceward_runtime::config::{HmacHeader, Signing};

use super::event::{self, EventId};
use super::headers::{malformed, required};
use super::{ReceivedWebhook, Refused, Verified, mac, signed_time};

pub(super) fn verify(
    scheme: &HmacHeader,
    signing: &Signing,
    webhook: &ReceivedWebhook<'_>,
) -> Result<Verified, Refused> {
    let header = required(webhook.headers, &scheme.header)?;
    let signature = header
        .strip_prefix(scheme.prefix.as_str())
        .ok_or_else(|| malformed(&scheme.header, "it does not begin with the configured prefix"))?;
    let signatures: Vec<_> = mac::decoded(scheme.encoding, signature).into_iter().collect();
    let at = match &scheme.timestamp {
        Some(timestamp) => {
            let time = required(webhook.headers, &timestamp.header)?;
            let at = signed_time::check(&timestamp.header, time, webhook.now, signing.tolerance)?;
            let message = [time.as_bytes(), timestamp.separator.as_bytes(), webhook.body];
            mac::check(scheme.hash, &signing.secrets, &message, &signatures)?;
            Some(at)
        }
        None => {
            mac::check(scheme.hash, &signing.secrets, &[webhook.body], &signatures)?;
            None
        }
    };
    match &scheme.id {
        Some(pointer) => {
            let id = EventId::in_body(webhook.body, pointer)?;
            Ok(event::with_signed_id(id, at))
        }
        None => event::with_body(webhook.body, None, at),
    }
}
