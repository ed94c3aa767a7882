//! Reads the key that a client sends in a header: a quoted structured-field string, as the IETF draft says, or a bare
//! string, which is what most clients send.

use http::{HeaderMap, HeaderName};

use onceward_core::name::MAX_CHARACTERS;

/// Why a header does not contain a valid key. The message never shows the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The header came more than once.
    #[error("the header came {0} times; one request has one key")]
    Several(usize),
    /// The key is empty.
    #[error("the key is empty")]
    Empty,
    /// The key is too long.
    #[error("the key has {0} characters; at most {MAX_CHARACTERS} are allowed")]
    TooLong(usize),
    /// The key contains a character that is not allowed.
    #[error("the key contains a character that is not visible ASCII, at position {0}")]
    NotVisible(usize),
    /// The key starts with a quote and is not a complete quoted string.
    #[error("the key starts with a quote but is not a quoted string")]
    BadQuotes,
}

/// The key in the headers of a request, if there is one.
pub fn in_headers(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, Error> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match values.count() {
        0 => read(value.as_bytes()).map(Some),
        others => Err(Error::Several(others + 1)),
    }
}

/// Reads the key from one header value.
pub fn read(value: &[u8]) -> Result<String, Error> {
    let text = value.trim_ascii();
    let key = match text.split_first() {
        None => return Err(Error::Empty),
        Some((b'"', rest)) => unquoted(rest)?,
        Some(_) => text.to_vec(),
    };
    if key.is_empty() {
        return Err(Error::Empty);
    }
    if key.len() > MAX_CHARACTERS {
        return Err(Error::TooLong(key.len()));
    }
    if let Some(index) = key.iter().position(|byte| !byte.is_ascii_graphic()) {
        return Err(Error::NotVisible(index + 1));
    }
    String::from_utf8(key).map_err(|_| Error::BadQuotes)
}

/// A string of RFC 8941 without its opening quote. Parameters after it have no meaning here and are refused.
fn unquoted(rest: &[u8]) -> Result<Vec<u8>, Error> {
    let mut key = Vec::with_capacity(rest.len());
    let mut bytes = rest.iter();
    loop {
        match bytes.next() {
            Some(b'"') => break,
            Some(b'\\') => match bytes.next() {
                Some(escaped @ (b'"' | b'\\')) => key.push(*escaped),
                _ => return Err(Error::BadQuotes),
            },
            Some(byte) => key.push(*byte),
            None => return Err(Error::BadQuotes),
        }
    }
    if bytes.next().is_some() { Err(Error::BadQuotes) } else { Ok(key) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_and_bare_are_the_same_key() {
        for text in ["\"8e03978e-40d5\"", "8e03978e-40d5", "  8e03978e-40d5 "] {
            assert_eq!(read(text.as_bytes()).unwrap(), "8e03978e-40d5");
        }
        assert_eq!(read(b"12345").unwrap(), "12345");
        assert_eq!(read(br#""a\"b\\c""#).unwrap(), r#"a"b\c"#);
    }

    #[test]
    fn every_malformed_key_has_its_own_error() {
        assert_eq!(read(b""), Err(Error::Empty));
        assert_eq!(read(b"\"\""), Err(Error::Empty));
        assert_eq!(read(&[b'a'; 256]), Err(Error::TooLong(256)));
        assert!(read(&[b'a'; 255]).is_ok());
        assert_eq!(read("schlüssel".as_bytes()), Err(Error::NotVisible(5)));
        assert_eq!(read(b"a b"), Err(Error::NotVisible(2)));
        for text in ["\"abc", "\"abc\\", "\"a\\b\"", "\"abc\"; p=1", "\"abc\"d"] {
            assert_eq!(read(text.as_bytes()), Err(Error::BadQuotes), "{text}");
        }
    }

    #[test]
    fn a_key_in_two_header_lines_is_refused() {
        let name = HeaderName::from_static("idempotency-key");
        let mut headers = HeaderMap::new();
        assert_eq!(in_headers(&headers, &name), Ok(None));
        headers.append(&name, "a".parse().unwrap());
        assert_eq!(in_headers(&headers, &name), Ok(Some("a".to_owned())));
        headers.append(&name, "a".parse().unwrap());
        assert_eq!(in_headers(&headers, &name), Err(Error::Several(2)));
    }
}
