//! The key that a client sends: a quoted structured-field string, as the draft says, or bare, as nearly everybody does.

use http::{HeaderMap, HeaderName};

use onceward_core::name::MAX_CHARACTERS;

/// Why a header holds no key. Never shows the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It came more than once.
    #[error("the header came {0} times; one request has one key")]
    Several(usize),
    /// There is nothing in it.
    #[error("it is empty")]
    Empty,
    /// It is too long.
    #[error("it has {0} characters; at most {MAX_CHARACTERS} are allowed")]
    TooLong(usize),
    /// It holds something that a key cannot hold.
    #[error("it holds a character that is not visible ASCII, at position {0}")]
    NotVisible(usize),
    /// It starts as a quoted string and does not end as one.
    #[error("it starts with a quote and is no quoted string")]
    BadQuotes,
}

/// The key in a request, if there is one.
pub fn in_headers(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, Error> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match values.count() {
        0 => read(value.as_bytes()).map(Some),
        others => Err(Error::Several(others + 1)),
    }
}

/// Reads one value.
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

/// A string of RFC 8941 without its opening quote. Parameters behind it are not for us, and are refused.
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
    fn what_is_no_key_is_told_apart() {
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
    fn two_lines_are_no_key() {
        let name = HeaderName::from_static("idempotency-key");
        let mut headers = HeaderMap::new();
        assert_eq!(in_headers(&headers, &name), Ok(None));
        headers.append(&name, "a".parse().unwrap());
        assert_eq!(in_headers(&headers, &name), Ok(Some("a".to_owned())));
        headers.append(&name, "a".parse().unwrap());
        assert_eq!(in_headers(&headers, &name), Err(Error::Several(2)));
    }
}
