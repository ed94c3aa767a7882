//! Reads signed headers. A header that occurs twice is refused: a proxy, this server and the provider could each take
//! another one.

use http::{HeaderMap, HeaderName};

use super::Refused;

/// The longest signed header: a few signatures of at most 128 characters.
const MAX_LENGTH: usize = 4096;

/// The only value of a header that must be there.
pub(super) fn required<'a>(headers: &'a HeaderMap, header: &HeaderName) -> Result<&'a str, Refused> {
    optional(headers, header)?.ok_or_else(|| Refused::MissingHeader { header: header.clone() })
}

/// The only value of a header, if it is there.
pub(super) fn optional<'a>(headers: &'a HeaderMap, header: &HeaderName) -> Result<Option<&'a str>, Refused> {
    let mut values = headers.get_all(header).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Refused::RepeatedHeader { header: header.clone() });
    }
    if value.len() > MAX_LENGTH {
        return Err(malformed(header, "it is too long"));
    }
    value.to_str().map(Some).map_err(|_| malformed(header, "it contains other characters than visible ASCII"))
}

pub(super) fn malformed(header: &HeaderName, what: &'static str) -> Refused {
    Refused::Malformed { header: header.clone(), what }
}
