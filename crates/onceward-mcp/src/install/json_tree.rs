//! Parses JSON with byte positions, so that a part of a file can be changed without touching the rest. Accepts and notes comments
//! and trailing commas, which some clients allow. Pure.

use std::ops::Range;

use serde::de::IgnoredAny;

/// How deep objects and lists may be nested: the limit of other JSON parsers.
const MAX_DEPTH: usize = 128;

/// A parsed text.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) root: Node,
    /// It has comments or trailing commas, so it is not strict JSON.
    pub(super) is_loose: bool,
}

/// A value and its position.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) at: Range<usize>,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Object(Vec<Member>),
    List(Vec<Node>),
    Text(String),
    /// A number, `true`, `false` or `null`.
    Plain,
}

/// A member of an object.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) name_at: Range<usize>,
    pub(super) value: Node,
}

/// Why a text cannot be parsed, and in which line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    pub(super) line: usize,
    pub(super) what: &'static str,
}

impl Node {
    pub(super) fn members(&self) -> &[Member] {
        match &self.kind {
            Kind::Object(members) => members,
            _ => &[],
        }
    }

    /// The member of this name. The last one wins, as in most parsers.
    pub(super) fn member(&self, name: &str) -> Option<&Member> {
        self.members().iter().rfind(|member| member.name == name)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        self.member(name).map(|member| &member.value)
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The strings of a list that holds only strings.
    pub(super) fn texts(&self) -> Option<Vec<&str>> {
        match &self.kind {
            Kind::List(items) => items.iter().map(Self::text).collect(),
            _ => None,
        }
    }

    /// Whether there are several members of this name.
    pub(super) fn names_twice(&self, name: &str) -> bool {
        self.members().iter().filter(|member| member.name == name).count() > 1
    }
}

/// Parses a text.
pub(super) fn read(text: &str) -> Result<Tree, SyntaxError> {
    let mut reader = Reader { text, at: 0, is_loose: false };
    // Editors on Windows may begin a file with a byte order mark.
    if text.starts_with('\u{feff}') {
        reader.at = '\u{feff}'.len_utf8();
    }
    reader.skip()?;
    let root = reader.value(0)?;
    reader.skip()?;
    if reader.at < text.len() {
        return Err(reader.wrong("there is more text after the end"));
    }
    Ok(Tree { root, is_loose: reader.is_loose })
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    is_loose: bool,
}

impl Reader<'_> {
    fn wrong(&self, what: &'static str) -> SyntaxError {
        let before = self.text.as_bytes().get(..self.at).unwrap_or_default();
        SyntaxError { line: before.iter().filter(|byte| **byte == b'\n').count() + 1, what }
    }

    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn next(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Skips a byte if it is the next one.
    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.next() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// Skips whitespace and comments.
    fn skip(&mut self) -> Result<(), SyntaxError> {
        loop {
            let rest = self.rest();
            let length = if rest.starts_with("//") {
                rest.find('\n').unwrap_or(rest.len())
            } else if rest.starts_with("/*") {
                rest.find("*/").ok_or_else(|| self.wrong("a comment has no end"))? + 2
            } else {
                let spaces = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
                if spaces == 0 {
                    return Ok(());
                }
                self.at += spaces;
                continue;
            };
            self.is_loose = true;
            self.at += length;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, SyntaxError> {
        if depth > MAX_DEPTH {
            return Err(self.wrong("it is nested too deeply"));
        }
        let start = self.at;
        let kind = match self.next() {
            Some(b'{') => Kind::Object(self.object(depth)?),
            Some(b'[') => Kind::List(self.list(depth)?),
            Some(b'"') => Kind::Text(self.string()?),
            Some(_) => self.plain()?,
            None => return Err(self.wrong("it ends too early")),
        };
        Ok(Node { at: start..self.at, kind })
    }

    fn object(&mut self, depth: usize) -> Result<Vec<Member>, SyntaxError> {
        let mut members = Vec::new();
        self.at += 1;
        while !self.closes(b'}', members.is_empty())? {
            let start = self.at;
            if self.next() != Some(b'"') {
                return Err(self.wrong("a name in quotes is missing"));
            }
            let name = self.string()?;
            let name_at = start..self.at;
            self.skip()?;
            if !self.take(b':') {
                return Err(self.wrong("a colon is missing"));
            }
            self.skip()?;
            members.push(Member { name, name_at, value: self.value(depth + 1)? });
        }
        Ok(members)
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, SyntaxError> {
        let mut items = Vec::new();
        self.at += 1;
        while !self.closes(b']', items.is_empty())? {
            items.push(self.value(depth + 1)?);
        }
        Ok(items)
    }

    /// Whether the bracket closes here. Otherwise the next item begins here.
    fn closes(&mut self, bracket: u8, is_first: bool) -> Result<bool, SyntaxError> {
        self.skip()?;
        if self.take(bracket) {
            return Ok(true);
        }
        if is_first {
            return Ok(false);
        }
        if !self.take(b',') {
            return Err(self.wrong("a comma or a closing bracket is missing"));
        }
        self.skip()?;
        let closes = self.take(bracket);
        self.is_loose |= closes;
        Ok(closes)
    }

    fn string(&mut self) -> Result<String, SyntaxError> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut end = start + 1;
        loop {
            match bytes.get(end) {
                None => return Err(self.wrong("a string has no closing quote")),
                Some(b'"') => break,
                Some(b'\\') => end += 2,
                Some(_) => end += 1,
            }
        }
        let read = self.text.get(start..=end).and_then(|text| serde_json::from_str(text).ok());
        let text = read.ok_or_else(|| self.wrong("a string is not valid JSON"))?;
        self.at = end + 1;
        Ok(text)
    }

    fn plain(&mut self) -> Result<Kind, SyntaxError> {
        let rest = self.rest();
        let is_part = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        if serde_json::from_str::<IgnoredAny>(&rest[..length]).is_err() {
            return Err(self.wrong("a value is missing or is not valid JSON"));
        }
        self.at += length;
        Ok(Kind::Plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_right() {
        let text = "{ \"a\": [1, \"x\\u0041\"],\n \"b\": {\"c\": null} }";
        let tree = read(text).unwrap();
        assert!(!tree.is_loose);
        let a = tree.root.get("a").unwrap();
        assert_eq!(&text[a.at.clone()], "[1, \"x\\u0041\"]");
        let Kind::List(items) = &a.kind else { panic!("{a:?}") };
        assert_eq!((items[1].text(), &text[items[0].at.clone()]), (Some("xA"), "1"));
        let c = tree.root.get("b").and_then(|b| b.member("c")).unwrap();
        assert_eq!((&text[c.name_at.clone()], &text[c.value.at.clone()]), ("\"c\"", "null"));
    }

    #[test]
    fn comments_and_trailing_commas_are_accepted_and_noted() {
        for loose in ["// x\n{}", "{ /* x */ \"a\": 1 }", "{\"a\": [1, 2,],}", "{\"a\":1} // no line end"] {
            assert!(read(loose).unwrap().is_loose, "{loose}");
        }
        for strict in ["{\"a\":\"// no comment\"}", "\u{feff}{}", " [ ] ", "-1.5e+3"] {
            assert!(!read(strict).unwrap().is_loose, "{strict}");
        }
    }

    #[test]
    fn invalid_json_is_refused_as_by_other_parsers() {
        for (text, line) in
            [("", 1), ("{", 1), ("{\n\"a\"\n:\n}", 4), ("{\"a\" 1}", 1), ("[1 2]", 1), ("{a:1}", 1), ("/* x", 1)]
        {
            assert_eq!(read(text).unwrap_err().line, line, "{text}");
            assert!(serde_json::from_str::<IgnoredAny>(text).is_err());
        }
        for text in ["{} {}", "\"\\x\"", "\"\\", "[,]", "{,}", "01", "nul", "'a'", "\"a\nb\"", "[1,,2]", "[NaN]"] {
            assert!(read(text).is_err(), "{text}");
            assert!(serde_json::from_str::<IgnoredAny>(text).is_err());
        }
        assert!(read(&"[".repeat(100_000)).is_err());
    }
}
