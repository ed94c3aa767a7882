//! Detects truncated responses among those that end when their connection closes. Such a response has no length, so a normal
//! end looks like a connection that was closed too early; only the content can tell them apart.

use std::io::{ErrorKind, Read};

use flate2::read::MultiGzDecoder;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde::de::IgnoredAny;

use super::fingerprint;

/// The limit for decompressing a body. The end of a body that decompresses to more is not checked.
const MAX_DECOMPRESSED: u64 = 8 * 1024 * 1024;

/// Marks a response whose body has neither a length nor chunks: it ends when the upstream closes the connection. A surface
/// that reads responses from a connection puts this into the response's extensions.
#[derive(Clone, Copy, Debug)]
pub struct CloseDelimited;

/// Whether the body stops in the middle of the content that its headers announce: incomplete JSON, or compressed data without
/// its end. Other content cannot be checked and counts as whole, because HTTP/1.0 servers end every response this way.
pub fn is_truncated(headers: &HeaderMap, body: &[u8]) -> bool {
    let encoding = headers.get(CONTENT_ENCODING).map(|value| value.as_bytes().trim_ascii().to_ascii_lowercase());
    match encoding.as_deref() {
        None | Some(b"" | b"identity") => is_truncated_json(headers, body),
        Some(b"gzip" | b"x-gzip") => {
            let mut decompressed = Vec::new();
            match MultiGzDecoder::new(body).take(MAX_DECOMPRESSED).read_to_end(&mut decompressed) {
                Ok(_) if decompressed.len() as u64 == MAX_DECOMPRESSED => false,
                Ok(_) => is_truncated_json(headers, &decompressed),
                Err(error) => error.kind() == ErrorKind::UnexpectedEof,
            }
        }
        Some(_) => false,
    }
}

fn is_truncated_json(headers: &HeaderMap, body: &[u8]) -> bool {
    let text = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let is_json = match headers.get(CONTENT_TYPE).map(|value| value.to_str().unwrap_or_default()) {
        Some(kind) => fingerprint::is_json(fingerprint::essence(kind)) && is_utf8(kind),
        // Without a content type, judge by the first character.
        None => matches!(text.trim_ascii_start().first(), Some(b'{' | b'[')),
    };
    if !is_json {
        return false;
    }
    // A sequence of JSON values is complete too: some APIs stream them under this type.
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<IgnoredAny>().peekable();
    // Any error other than an early end means that the JSON is invalid, not that it was truncated.
    values.peek().is_none() || values.any(|value| value.is_err_and(|error| error.is_eof() || is_at_end(&error, text)))
}

/// Whether the parser failed at the last byte: it reports a number that ends in `2.` as invalid and not as unfinished.
fn is_at_end(error: &serde_json::Error, text: &[u8]) -> bool {
    let last = text.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let lines = text.iter().filter(|byte| **byte == b'\n').count() + 1;
    error.line() == lines && error.column() >= last.len()
}

/// Whether the content type names no charset other than UTF-8 or ASCII.
fn is_utf8(kind: &str) -> bool {
    let mut parameters = kind.split(';').skip(1).filter_map(|parameter| parameter.trim().split_once('='));
    let charset = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("charset"));
    charset.is_none_or(|(_, value)| {
        let value = value.trim().trim_matches('"');
        ["utf-8", "utf8", "us-ascii"].iter().any(|known| known.eq_ignore_ascii_case(value))
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn truncated(kind: Option<&str>, encoding: Option<&str>, body: &[u8]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in [(CONTENT_TYPE, kind), (CONTENT_ENCODING, encoding)] {
            if let Some(value) = value {
                headers.insert(name, value.parse().unwrap());
            }
        }
        is_truncated(&headers, body)
    }

    #[test]
    fn json_that_stops_in_the_middle_is_truncated() {
        let json = Some("application/json");
        let whole = br#"{"id": "ch_1", "paid": true, "lines": [1, 2.5]}"#;
        assert!(!truncated(json, None, whole));
        for length in 0..whole.len() {
            assert!(truncated(json, None, &whole[..length]), "{length}");
        }
        assert!(truncated(Some("application/problem+json; charset=UTF-8"), None, b"{"));
        assert!(truncated(None, None, b" {\"id\""));
        for (kind, body) in [
            (json, &b"\xef\xbb\xbf{}\n"[..]),
            (json, b"{\"a\":1}\n{\"a\":2}\n"),
            (json, b"not JSON at all"),
            (json, b"12"),
            (Some("application/json; charset=utf-16"), b"{\0"),
            (Some("text/plain"), b"{"),
            (Some("text/event-stream"), b"data: {"),
            (None, b"charged"),
            (None, b""),
        ] {
            assert!(!truncated(kind, None, body), "{kind:?} {body:?}");
        }
    }

    #[test]
    fn compressed_data_without_its_end_is_truncated() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(b"charged, and many more words about it").unwrap();
        let whole = encoder.finish().unwrap();
        assert!(!truncated(Some("text/plain"), Some("gzip"), &whole));
        for length in 1..whole.len() {
            assert!(truncated(Some("text/plain"), Some("gzip"), &whole[..length]), "{length}");
        }
        assert!(!truncated(Some("text/plain"), Some("br"), &whole[..5]));
    }
}
