//! Escapes values for the place where they stand. Pure.

use onceward::core::json;

use super::{BEGIN, END};

/// Where a template is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Escaping {
    /// A URL: each value is one segment of the path, or a part of the query.
    Url,
    /// JSON: inside quotes, a value is a part of the string; elsewhere, it is a JSON value.
    Json,
    /// A form (`application/x-www-form-urlencoded`).
    Form,
    /// HTML or XML.
    Markup,
    /// Text of any kind.
    Text,
    /// One line: the value of a header, or an address.
    Line,
}

/// A part of the raw output.
enum Piece<'a> {
    Literal(&'a str),
    /// As JSON.
    Value(&'a str),
}

impl Escaping {
    /// Replaces the marked values in the output of the engine.
    pub(super) fn fill(self, raw: &str) -> Result<String, String> {
        let pieces = pieces(raw)?;
        match self {
            Self::Url => url(&pieces),
            Self::Json => json_text(&pieces),
            Self::Form => filled(&pieces, |text| percent_encoded(&text)),
            Self::Markup => filled(&pieces, |text| markup(&text)),
            Self::Text => filled(&pieces, |text| text),
            Self::Line => {
                let line = filled(&pieces, |text| text)?;
                if line.chars().any(char::is_control) {
                    return Err("a value contains a line break or another control character".to_owned());
                }
                Ok(line)
            }
        }
    }
}

fn pieces(raw: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut rest = raw;
    while let Some((literal, after)) = rest.split_once(BEGIN) {
        let (value, after) = after.split_once(END).ok_or("its output is incomplete")?;
        pieces.extend([Piece::Literal(literal), Piece::Value(value)]);
        rest = after;
    }
    pieces.push(Piece::Literal(rest));
    Ok(pieces)
}

fn filled(pieces: &[Piece<'_>], escaped: impl Fn(String) -> String) -> Result<String, String> {
    pieces.iter().try_fold(String::new(), |mut text, piece| {
        match piece {
            Piece::Literal(literal) => text.push_str(literal),
            Piece::Value(value) => text.push_str(&escaped(scalar(value)?)),
        }
        Ok(text)
    })
}

/// The text of a value that stands inside other text.
fn scalar(value: &str) -> Result<String, String> {
    match json::Value::parse(value.as_bytes()) {
        Ok(json::Value::String(text)) => Ok(text),
        Ok(json::Value::Number(number)) => Ok(number.as_str().to_owned()),
        Ok(json::Value::Bool(bool)) => Ok(bool.to_string()),
        Ok(json::Value::Null) => Err("a value is null where a text is needed".to_owned()),
        Ok(_) => Err("a value is a list or an object where a text is needed".to_owned()),
        Err(_) => Err("a value cannot be written".to_owned()),
    }
}

fn url(pieces: &[Piece<'_>]) -> Result<String, String> {
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Literal(literal) => text.push_str(literal),
            Piece::Value(value) => {
                let value = scalar(value)?;
                if !text.contains('?') {
                    check_segment(&value)?;
                }
                text.push_str(&percent_encoded(&value));
            }
        }
    }
    Ok(text)
}

/// Some servers decode an encoded slash before they split the path, and drop an empty segment.
fn check_segment(value: &str) -> Result<(), String> {
    if value.is_empty() {
        return Err("a value in the path of the URL is empty".to_owned());
    }
    if value.contains(['/', '\\']) || value.chars().any(char::is_control) {
        return Err("a value in the path of the URL contains a slash, a backslash or a control character".to_owned());
    }
    Ok(())
}

/// Encodes every byte that is not an unreserved character (RFC 3986, 2.3).
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

fn markup(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

fn json_text(pieces: &[Piece<'_>]) -> Result<String, String> {
    let mut text = String::new();
    let mut strings = Strings::default();
    for piece in pieces {
        match piece {
            Piece::Literal(literal) => {
                strings.pass(literal);
                text.push_str(literal);
            }
            Piece::Value(_) if strings.is_escaped => {
                return Err("a value stands behind a backslash".to_owned());
            }
            Piece::Value(value) if strings.is_inside => {
                let quoted = json::Value::String(scalar(value)?).canonical();
                text.push_str(&quoted[1..quoted.len() - 1]);
            }
            Piece::Value(value) => text.push_str(value),
        }
    }
    match json::Value::parse(text.as_bytes()) {
        Ok(_) => Ok(text),
        // The offset is one into the result, which is not shown.
        Err(error) => Err(format!("its result is not JSON ({})", error.kind())),
    }
}

/// Whether the text so far ends inside a JSON string.
#[derive(Default)]
struct Strings {
    is_inside: bool,
    is_escaped: bool,
}

impl Strings {
    fn pass(&mut self, literal: &str) {
        for byte in literal.bytes() {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.is_inside => self.is_escaped = true,
                b'"' => self.is_inside = !self.is_inside,
                _ => {}
            }
        }
    }
}
