//! The strict parser. It reads bytes, builds a [`Value`], and never panics.

use super::{Error, MAX_BYTES, MAX_DEPTH, Number, Value, compare_names};

pub(super) fn parse(bytes: &[u8]) -> Result<Value, Error> {
    if bytes.len() > MAX_BYTES {
        return Err(Error::TooLarge { length: bytes.len() });
    }
    let text = std::str::from_utf8(bytes).map_err(|error| Error::InvalidUtf8 { offset: error.valid_up_to() })?;
    let mut parser = Parser { text, offset: 0 };
    let value = parser.value(0)?;
    parser.skip_whitespace();
    match parser.peek() {
        Some(_) => Err(Error::TrailingData { offset: parser.offset }),
        None => Ok(value),
    }
}

struct Parser<'a> {
    text: &'a str,
    /// Always on a character boundary.
    offset: usize,
}

impl<'a> Parser<'a> {
    fn value(&mut self, depth: usize) -> Result<Value, Error> {
        self.skip_whitespace();
        match self.peek() {
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number().map(Value::Number),
            _ if self.take_text("null") => Ok(Value::Null),
            _ if self.take_text("true") => Ok(Value::Bool(true)),
            _ if self.take_text("false") => Ok(Value::Bool(false)),
            _ => Err(self.expected("a value")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, Error> {
        self.enter(depth)?;
        let mut members: Vec<(String, usize, Value)> = Vec::new();
        self.skip_whitespace();
        if !self.take(b'}') {
            loop {
                self.skip_whitespace();
                let offset = self.offset;
                if self.peek() != Some(b'"') {
                    return Err(self.expected("a member name in quotes"));
                }
                let name = self.string()?;
                self.skip_whitespace();
                if !self.take(b':') {
                    return Err(self.expected("':' after the member name"));
                }
                members.push((name, offset, self.value(depth)?));
                self.skip_whitespace();
                if self.take(b'}') {
                    break;
                }
                if !self.take(b',') {
                    return Err(self.expected("',' or '}'"));
                }
            }
        }
        // A stable sort, so the later of two equal names comes second.
        members.sort_by(|(one, ..), (other, ..)| compare_names(one, other));
        if let Some(pair) = members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(Error::DuplicateMember { offset: pair[1].1 });
        }
        Ok(Value::Object(members.into_iter().map(|(name, _, value)| (name, value)).collect()))
    }

    fn array(&mut self, depth: usize) -> Result<Value, Error> {
        self.enter(depth)?;
        let mut elements = Vec::new();
        self.skip_whitespace();
        if self.take(b']') {
            return Ok(Value::Array(elements));
        }
        loop {
            elements.push(self.value(depth)?);
            self.skip_whitespace();
            if self.take(b']') {
                return Ok(Value::Array(elements));
            }
            if !self.take(b',') {
                return Err(self.expected("',' or ']'"));
            }
        }
    }

    /// Skips the opening bracket, unless it is one level too deep.
    fn enter(&mut self, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::TooDeep { offset: self.offset });
        }
        self.offset += 1;
        Ok(())
    }

    fn string(&mut self) -> Result<String, Error> {
        self.offset += 1;
        let mut string = String::new();
        loop {
            let start = self.offset;
            while matches!(self.peek(), Some(byte) if byte >= 0x20 && byte != b'"' && byte != b'\\') {
                self.offset += 1;
            }
            string.push_str(&self.text[start..self.offset]);
            match self.peek() {
                Some(b'"') => {
                    self.offset += 1;
                    return Ok(string);
                }
                Some(b'\\') => string.push(self.escape()?),
                Some(_) => return Err(Error::ControlCharacter { offset: self.offset }),
                None => return Err(self.expected("'\"' at the end of the string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Error> {
        let start = self.offset;
        self.offset += 1;
        let character = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(start),
            _ => return Err(self.expected("one of \" \\ / b f n r t u after the backslash")),
        };
        self.offset += 1;
        Ok(character)
    }

    fn unicode_escape(&mut self, start: usize) -> Result<char, Error> {
        let lone = Error::LoneSurrogate { offset: start };
        self.offset += 1;
        let first = self.four_hex_digits()?;
        if !(0xd800..=0xdbff).contains(&first) {
            return char::from_u32(first).ok_or(lone);
        }
        if !self.take_text("\\u") {
            return Err(lone);
        }
        let second = self.four_hex_digits()?;
        if !(0xdc00..=0xdfff).contains(&second) {
            return Err(lone);
        }
        char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)).ok_or(lone)
    }

    fn four_hex_digits(&mut self) -> Result<u32, Error> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            code = code * 16 + digit.ok_or_else(|| self.expected("four hex digits after \\u"))?;
            self.offset += 1;
        }
        Ok(code)
    }

    fn number(&mut self) -> Result<Number, Error> {
        let start = self.offset;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            if !self.take(b'+') {
                self.take(b'-');
            }
            self.digits()?;
        }
        Number::from_literal(&self.text[start..self.offset]).ok_or(Error::InexactNumber { offset: start })
    }

    fn digits(&mut self) -> Result<(), Error> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.expected("a digit"));
        }
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.offset += 1;
        }
        Ok(())
    }

    fn skip_whitespace(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.offset += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.offset).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.offset += usize::from(is_next);
        is_next
    }

    fn take_text(&mut self, text: &str) -> bool {
        let is_next = self.text.as_bytes()[self.offset..].starts_with(text.as_bytes());
        self.offset += if is_next { text.len() } else { 0 };
        is_next
    }

    fn expected(&self, expected: &'static str) -> Error {
        Error::Syntax { offset: self.offset, expected }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(bytes: impl AsRef<[u8]>) -> Error {
        parse(bytes.as_ref()).unwrap_err()
    }

    fn syntax_error_offset(text: &str) -> usize {
        match refusal(text) {
            Error::Syntax { offset, .. } => offset,
            other => panic!("{text}: {other}"),
        }
    }

    #[test]
    fn a_syntax_error_has_its_offset() {
        for (text, offset) in [
            ("", 0),
            (" ", 1),
            ("nul", 0),
            ("[1,]", 3),
            ("[1 2]", 3),
            ("{a:1}", 1),
            ("{\"a\" 1}", 5),
            ("{\"a\":1,}", 7),
            ("\"abc", 4),
            ("\"\\x\"", 2),
            ("\"\\u12g4\"", 5),
            ("-", 1),
            ("+1", 0),
            (".5", 0),
            ("1.", 2),
            ("1e", 2),
            ("1e+", 3),
            ("NaN", 0),
            ("-Infinity", 1),
            ("'a'", 0),
            ("[", 1),
            ("\u{feff}1", 0),
        ] {
            assert_eq!(syntax_error_offset(text), offset, "{text}");
        }
    }

    #[test]
    fn data_after_the_value_is_refused() {
        for (text, offset) in [("1 2", 2), ("{}x", 2), ("null,", 4), ("01", 1), ("-01", 2), ("1\u{a0}", 1)] {
            assert_eq!(refusal(text), Error::TrailingData { offset }, "{text}");
        }
    }

    #[test]
    fn duplicate_members_are_found_after_unescaping() {
        assert_eq!(refusal(r#"{"a":1,"b":2,"a":1}"#), Error::DuplicateMember { offset: 13 });
        assert_eq!(refusal(r#"[{"a":1,"\u0061":2}]"#), Error::DuplicateMember { offset: 8 });
    }

    #[test]
    fn nesting_beyond_the_limit_is_refused() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(parse(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert_eq!(refusal(nested(MAX_DEPTH + 1)), Error::TooDeep { offset: MAX_DEPTH });
        assert_eq!(refusal("[".repeat(1_000_000)), Error::TooDeep { offset: MAX_DEPTH });
        assert_eq!(refusal("{\"a\":".repeat(200)), Error::TooDeep { offset: MAX_DEPTH * 5 });
    }

    #[test]
    fn text_that_is_not_unicode_is_refused() {
        assert_eq!(refusal(b"\"a\xff\""), Error::InvalidUtf8 { offset: 2 });
        assert_eq!(refusal(b"\"\xed\xa0\x80\""), Error::InvalidUtf8 { offset: 1 });
        for text in [r#""\ud800""#, r#""\udc00""#, r#""\ud800x""#, r#""\ud800\n""#, r#""\ud800\ud800""#] {
            assert_eq!(refusal(text), Error::LoneSurrogate { offset: 1 }, "{text}");
        }
        assert_eq!(refusal(r#""a\udc00\ud800""#), Error::LoneSurrogate { offset: 2 });
    }

    #[test]
    fn control_characters_must_be_escaped() {
        assert_eq!(refusal("\"a\nb\""), Error::ControlCharacter { offset: 2 });
        assert_eq!(refusal("{\"\0\":1}"), Error::ControlCharacter { offset: 2 });
        assert!(parse(b"\"\x7f\"").is_ok());
    }

    #[test]
    fn an_inexact_number_is_refused_where_it_begins() {
        assert_eq!(refusal("[1, 1e400]"), Error::InexactNumber { offset: 4 });
    }

    #[test]
    fn a_text_over_the_limit_is_refused() {
        assert_eq!(refusal(vec![b' '; MAX_BYTES + 1]), Error::TooLarge { length: MAX_BYTES + 1 });
        let mut longest = vec![b' '; MAX_BYTES];
        longest[0] = b'1';
        assert!(parse(&longest).is_ok());
    }

    #[test]
    fn truncated_and_damaged_texts_never_cause_a_panic() {
        let text = r#"{"a":[1.5e-7,-0,true,null,"\ud83d\ude00\n é"],"b":{"c":""}}"#.as_bytes();
        assert!(parse(text).is_ok());
        for position in 0..text.len() {
            assert!(parse(&text[..position]).is_err());
            for byte in 0..=255 {
                let mut damaged = text.to_vec();
                damaged[position] = byte;
                let _ = parse(&damaged);
            }
        }
    }
}
