//! Whether an answer that ends with its connection was cut off. Such an answer has no length, so that its end cannot be told
//! from a connection that was closed too early; what it holds may tell.

use std::io::{ErrorKind, Read};

use flate2::read::MultiGzDecoder;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde::de::IgnoredAny;

use super::fingerprint;

/// A compressed body is unfolded only as far as this; of one that unfolds to more the end is not looked at.
const LARGEST_UNFOLDED: u64 = 8 * 1024 * 1024;

/// Marks an answer whose body has neither a length nor chunks: it ends when the upstream closes the connection. A surface
/// that reads answers from a connection puts it into the answer's extensions.
#[derive(Clone, Copy, Debug)]
pub struct CloseDelimited;

/// Whether the body stops in the middle of what its head says it is: JSON that is not complete, or compressed data without
/// its end. Of anything else nothing is known, and HTTP/1.0 servers end every answer so.
pub(super) fn is_cut_off(headers: &HeaderMap, body: &[u8]) -> bool {
    let encoding = headers.get(CONTENT_ENCODING).map(|value| value.as_bytes().trim_ascii().to_ascii_lowercase());
    match encoding.as_deref() {
        None | Some(b"" | b"identity") => is_cut_off_json(headers, body),
        Some(b"gzip" | b"x-gzip") => {
            let mut unfolded = Vec::new();
            match MultiGzDecoder::new(body).take(LARGEST_UNFOLDED).read_to_end(&mut unfolded) {
                Ok(_) if unfolded.len() as u64 == LARGEST_UNFOLDED => false,
                Ok(_) => is_cut_off_json(headers, &unfolded),
                Err(error) => error.kind() == ErrorKind::UnexpectedEof,
            }
        }
        Some(_) => false,
    }
}

fn is_cut_off_json(headers: &HeaderMap, body: &[u8]) -> bool {
    let text = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let is_json = match headers.get(CONTENT_TYPE).map(|value| value.to_str().unwrap_or_default()) {
        Some(kind) => fingerprint::is_json(fingerprint::essence(kind)) && is_utf8(kind),
        // Without a type, it is what it looks like.
        None => matches!(text.trim_ascii_start().first(), Some(b'{' | b'[')),
    };
    if !is_json {
        return false;
    }
    // Several values in a row are complete too: some APIs stream them under this type.
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<IgnoredAny>().peekable();
    // Anything but an early end is an answer that is wrong, and not one that was cut off.
    values.peek().is_none() || values.any(|value| value.is_err_and(|error| error.is_eof() || is_at_end(&error, text)))
}

/// Whether the parser stumbled over the last byte: a number that ends in `2.` is called invalid, and not unfinished.
fn is_at_end(error: &serde_json::Error, text: &[u8]) -> bool {
    let last = text.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let lines = text.iter().filter(|byte| **byte == b'\n').count() + 1;
    error.line() == lines && error.column() >= last.len()
}

/// Whether a content type says nothing of another encoding of its text.
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

    fn cut_off(kind: Option<&str>, encoding: Option<&str>, body: &[u8]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in [(CONTENT_TYPE, kind), (CONTENT_ENCODING, encoding)] {
            if let Some(value) = value {
                headers.insert(name, value.parse().unwrap());
            }
        }
        is_cut_off(&headers, body)
    }

    #[test]
    fn json_that_stops_in_the_middle_was_cut_off() {
        let json = Some("application/json");
        let whole = br#"{"id": "ch_1", "paid": true, "lines": [1, 2.5]}"#;
        assert!(!cut_off(json, None, whole));
        for length in 0..whole.len() {
            assert!(cut_off(json, None, &whole[..length]), "{length}");
        }
        assert!(cut_off(Some("application/problem+json; charset=UTF-8"), None, b"{"));
        assert!(cut_off(None, None, b" {\"id\""));
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
            assert!(!cut_off(kind, None, body), "{kind:?} {body:?}");
        }
    }

    #[test]
    fn compressed_data_without_its_end_was_cut_off() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(b"charged, and many more words about it").unwrap();
        let whole = encoder.finish().unwrap();
        assert!(!cut_off(Some("text/plain"), Some("gzip"), &whole));
        for length in 1..whole.len() {
            assert!(cut_off(Some("text/plain"), Some("gzip"), &whole[..length]), "{length}");
        }
        assert!(!cut_off(Some("text/plain"), Some("br"), &whole[..5]));
    }
}
