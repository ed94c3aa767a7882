//! JSON pointers (RFC 6901), which are checked when they are parsed.

use std::fmt;

use super::Value;

/// A pointer into a JSON value: `/customer/id`, `/lines/0`, or empty for the whole value.
#[derive(Clone, PartialEq, Eq)]
pub struct Pointer {
    text: String,
    segments: Vec<String>,
}

/// Why a text is not a pointer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointerError {
    /// The text does not begin with a slash.
    #[error("the pointer {pointer:?} must begin with '/', as in \"/customer_id\"")]
    MissingSlash {
        /// What was written.
        pointer: String,
    },
    /// A `~` that is not followed by `0` or `1`.
    #[error("the pointer {pointer:?} has a '~' that is neither \"~0\" (for '~') nor \"~1\" (for '/')")]
    BadEscape {
        /// What was written.
        pointer: String,
    },
}

impl Pointer {
    /// Parses a pointer.
    pub fn parse(text: &str) -> Result<Self, PointerError> {
        if text.is_empty() {
            return Ok(Self { text: String::new(), segments: Vec::new() });
        }
        let Some(rest) = text.strip_prefix('/') else {
            return Err(PointerError::MissingSlash { pointer: text.to_owned() });
        };
        let segments: Option<Vec<_>> = rest.split('/').map(unescape).collect();
        match segments {
            Some(segments) => Ok(Self { text: text.to_owned(), segments }),
            None => Err(PointerError::BadEscape { pointer: text.to_owned() }),
        }
    }

    /// The pointer as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The unescaped member names and indices of the path.
    pub fn segments(&self) -> &[String] {
        &self.segments
    }

    /// Whether `other` points to the same value or to something inside it.
    pub fn contains(&self, other: &Self) -> bool {
        other.segments.starts_with(&self.segments)
    }

    /// The value that it points to.
    pub fn find<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.segments.iter().try_fold(value, |value, segment| match value {
            Value::Object(members) => members.iter().find(|(name, _)| name == segment).map(|(_, value)| value),
            Value::Array(elements) => elements.get(index(segment)?),
            _ => None,
        })
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pointer({:?})", self.text)
    }
}

fn unescape(segment: &str) -> Option<String> {
    let mut pieces = segment.split('~');
    let mut unescaped = pieces.next()?.to_owned();
    for piece in pieces {
        let (character, rest) = match piece.as_bytes().first() {
            Some(b'0') => ('~', &piece[1..]),
            Some(b'1') => ('/', &piece[1..]),
            _ => return None,
        };
        unescaped.push(character);
        unescaped.push_str(rest);
    }
    Some(unescaped)
}

fn index(segment: &str) -> Option<usize> {
    let plain = segment == "0" || !segment.starts_with('0');
    (plain && segment.bytes().all(|byte| byte.is_ascii_digit())).then(|| segment.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pointer: &str) -> Option<String> {
        let value =
            Value::parse(br#"{"foo":["bar","baz"],"":0,"a/b":1,"m~n":8,"~1":9," ":7,"01":[[5]],"x":{"0":6}}"#).unwrap();
        value.pointer(pointer).map(Value::canonical)
    }

    #[test]
    fn pointers_work_as_in_rfc_6901() {
        for (pointer, value) in [
            ("/foo", "[\"bar\",\"baz\"]"),
            ("/foo/0", "\"bar\""),
            ("/foo/1", "\"baz\""),
            ("/", "0"),
            ("/a~1b", "1"),
            ("/m~0n", "8"),
            ("/~01", "9"),
            ("/ ", "7"),
            ("/01/0/0", "5"),
            ("/x/0", "6"),
        ] {
            assert_eq!(found(pointer).as_deref(), Some(value), "{pointer}");
        }
        assert!(found("").unwrap().starts_with('{'));
    }

    #[test]
    fn a_missing_value_is_not_found() {
        for pointer in
            ["/fo", "/foo/2", "/foo/-", "/foo/00", "/foo/+1", "/foo/0/x", "/foo/", "/foo/99999999999999999999"]
        {
            assert_eq!(found(pointer), None, "{pointer}");
        }
    }

    #[test]
    fn a_malformed_pointer_says_what_is_wrong() {
        assert!(matches!(Pointer::parse("foo"), Err(PointerError::MissingSlash { .. })));
        for text in ["/~", "/~2", "/a~é", "/~~0"] {
            assert!(matches!(Pointer::parse(text), Err(PointerError::BadEscape { .. })), "{text}");
        }
        assert_eq!(found("foo"), None);
    }

    #[test]
    fn a_pointer_is_shown_as_it_was_written() {
        let pointer = Pointer::parse("/a~1b").unwrap();
        assert_eq!((pointer.to_string(), format!("{pointer:?}")), ("/a~1b".into(), "Pointer(\"/a~1b\")".into()));
    }

    #[test]
    fn a_pointer_contains_itself_and_everything_inside_it() {
        let pointer = |text| Pointer::parse(text).unwrap();
        assert!(pointer("/a").contains(&pointer("/a")));
        assert!(pointer("/a").contains(&pointer("/a/b")));
        assert!(pointer("").contains(&pointer("/a")));
        assert!(!pointer("/a").contains(&pointer("/ab")));
        assert!(!pointer("/a/b").contains(&pointer("/a")));
    }
}
