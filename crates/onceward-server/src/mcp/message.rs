//! One message of JSON-RPC, read as far as it matters here. What is passed on is the line that came.

use serde::Serialize;
use serde_json::value::RawValue;

use super::members::Members;

/// The method that calls a tool.
pub(super) const CALL: &str = "tools/call";

/// The text is no JSON.
pub(super) const GARBLED: i32 = -32700;
/// It is JSON, and no request that can be understood in one way only.
pub(super) const UNCLEAR: i32 = -32600;

/// What a message is made of.
const NAMES: [&str; 4] = ["jsonrpc", "id", "method", "params"];

/// Doubles count integers one by one up to here.
const WHOLE: f64 = 9_007_199_254_740_992.0;

/// The name of a request, so that its answer is found: numbers and texts are never the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Id {
    Number(String),
    Text(String),
}

impl Id {
    pub(super) fn read(value: &RawValue) -> Option<Self> {
        let text = value.get();
        match text.bytes().next()? {
            b'"' => serde_json::from_str(text).ok().map(Self::Text),
            b'-' | b'0'..=b'9' => Some(Self::Number(whole(text).unwrap_or_else(|| text.to_owned()))),
            _ => None,
        }
    }
}

impl Id {
    pub(super) fn length(&self) -> usize {
        match self {
            Self::Number(text) | Self::Text(text) => text.len(),
        }
    }

    /// As it is written.
    pub(super) fn written(&self) -> Option<Box<RawValue>> {
        match self {
            Self::Number(number) => RawValue::from_string(number.clone()).ok(),
            Self::Text(text) => serde_json::value::to_raw_value(text).ok(),
        }
    }
}

/// A server may give 1.0 back as 1.
#[allow(clippy::cast_possible_truncation, reason = "it is whole, and within what is checked")]
fn whole(text: &str) -> Option<String> {
    if !text.contains(['.', 'e', 'E']) {
        return None;
    }
    let number: f64 = text.parse().ok()?;
    (number.fract() == 0.0 && number.abs() < WHOLE).then(|| (number as i64).to_string())
}

/// What a line says.
#[derive(Debug)]
pub(super) enum Message {
    /// A request, with its id as it was written.
    Request { id: Id, written: Box<RawValue>, method: String, members: Members },
    /// Something that wants no answer.
    Notification { method: String, members: Members },
    /// The answer to a request.
    Answer { id: Id, members: Members },
    /// Several at once: the ids of those that want an answer, and whether any of them calls a tool.
    Batch { ids: Vec<Box<RawValue>>, calls: bool },
    /// It might call a tool, and whether it does depends on who reads it.
    Unclear { id: Option<Box<RawValue>>, why: &'static str },
    /// No JSON at all. Some servers are less strict.
    Garbled,
    /// Nothing that matters here: an empty line, or another kind of message.
    Other,
}

impl Message {
    pub(super) fn read(line: &[u8]) -> Self {
        let Ok(text) = std::str::from_utf8(line) else { return Self::Garbled };
        let text = text.trim_ascii();
        match text.bytes().next() {
            None => Self::Other,
            Some(b'{') => Self::one(text),
            Some(b'[') => Self::several(text),
            Some(_) if serde_json::from_str::<&RawValue>(text).is_ok() => Self::Other,
            Some(_) => Self::Garbled,
        }
    }

    /// Reads what a server says. Some write numbers that are none, and it may be what somebody waits for all the same.
    pub(super) fn heard(line: &[u8]) -> Self {
        match Self::read(line) {
            Self::Garbled => Self::read(&loosened(line)),
            said => said,
        }
    }

    fn one(text: &str) -> Self {
        let Some(members) = Members::read_any(text) else { return Self::Garbled };
        let written = members.get("id").map(ToOwned::to_owned);
        let calls = members.all("method").any(|method| is_call(method.get()));
        if !members.is_clear() || (calls && !members.is_plain(&NAMES)) {
            let why = "it names a member twice, or almost twice";
            return if calls { Self::Unclear { id: written, why } } else { Self::Other };
        }
        let id = written.as_deref().and_then(Id::read);
        match (members.text("method"), id, written) {
            (Some(method), Some(id), Some(written)) => Self::Request { id, written, method, members },
            (Some(_), None, id) if calls => Self::Unclear { id, why: "a call of a tool needs an id" },
            (Some(method), None, None) => Self::Notification { method, members },
            (None, Some(id), _) if members.get("method").is_none_or(|method| method.get() == "null") => {
                Self::Answer { id, members }
            }
            _ => Self::Other,
        }
    }

    fn several(text: &str) -> Self {
        let Ok(parts) = serde_json::from_str::<Vec<&RawValue>>(text) else { return Self::Garbled };
        let (mut ids, mut calls) = (Vec::new(), false);
        for part in parts {
            let Some(members) = Members::read_any(part.get()) else {
                // An object that cannot be read may be anything.
                calls |= part.get().starts_with('{');
                continue;
            };
            calls |= members.all("method").any(|method| is_call(method.get()));
            if members.get("method").is_some() {
                ids.extend(members.get("id").map(ToOwned::to_owned));
            }
        }
        Self::Batch { ids, calls }
    }
}

/// A line that some clients can read and we cannot, as we can: numbers that are none become `null`, and bytes that are no text
/// become question marks.
fn loosened(line: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(line);
    let (mut loose, mut rest, mut in_text) = (String::with_capacity(text.len()), &*text, false);
    while let Some(first) = rest.chars().next() {
        let none = if in_text {
            None
        } else {
            ["NaN", "-Infinity", "Infinity"].into_iter().find(|word| rest.starts_with(word))
        };
        let length = match (none, first) {
            (Some(word), _) => {
                loose.push_str("null");
                rest = &rest[word.len()..];
                continue;
            }
            (None, '\\') if in_text => rest.chars().take(2).map(char::len_utf8).sum(),
            (None, '"') => {
                in_text = !in_text;
                1
            }
            (None, first) => first.len_utf8(),
        };
        loose.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    loose.into_bytes()
}

/// Whether somebody who takes a carriage return for the end of a line would read more than one message.
pub(super) fn is_several(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    line.contains(&b'\r')
}

/// However it is written.
fn is_call(method: &str) -> bool {
    serde_json::from_str::<String>(method).is_ok_and(|method| method == CALL)
}

/// The line of an answer with a result.
pub(super) fn result(id: &RawValue, result: &impl Serialize) -> Vec<u8> {
    line(id, "result", result)
}

/// The line of an answer that says what is wrong with the request itself.
pub(super) fn error(id: Option<&RawValue>, code: i32, message: &str) -> Vec<u8> {
    let error = serde_json::json!({ "code": code, "message": format!("onceward: {message}") });
    line(id.unwrap_or(RawValue::NULL), "error", &error)
}

/// The line of an answer with an error that a server gave.
pub(super) fn failure(id: &RawValue, error: &RawValue) -> Vec<u8> {
    line(id, "error", &error)
}

/// The line of an answer that was given to another request, for this one.
pub(super) fn readdressed(answer: &Members, id: &RawValue) -> Vec<u8> {
    let mut answer = answer.clone();
    answer.set("id", &id);
    ended(&answer)
}

/// The line of a request.
pub(super) fn request(id: &str, method: &str, parameters: &Members) -> Vec<u8> {
    let mut members = version();
    members.set("id", &id);
    members.set("method", &method);
    members.set("params", parameters);
    ended(&members)
}

/// Something that wants no answer.
pub(super) fn told(method: &str) -> Members {
    let mut members = version();
    members.set("method", &method);
    members
}

/// A message as a line.
pub(super) fn ended(members: &Members) -> Vec<u8> {
    let mut line = members.written().into_bytes();
    line.push(b'\n');
    line
}

fn version() -> Members {
    let mut members = Members::default();
    members.set("jsonrpc", &"2.0");
    members
}

fn line(id: &RawValue, name: &str, value: &impl Serialize) -> Vec<u8> {
    let mut members = version();
    members.set("id", &id);
    members.set(name, value);
    ended(&members)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(line: &[u8]) -> String {
        match Message::read(line) {
            Message::Request { id, method, .. } => format!("request {id:?} {method}"),
            Message::Notification { method, .. } => format!("notification {method}"),
            Message::Answer { id, .. } => format!("answer {id:?}"),
            Message::Batch { ids, calls } => format!("batch {} {calls}", ids.len()),
            Message::Unclear { .. } => "unclear".to_owned(),
            Message::Garbled => "garbled".to_owned(),
            Message::Other => "other".to_owned(),
        }
    }

    #[test]
    fn a_line_is_what_it_says() {
        for (line, expected) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#, r#"request Number("1") a"#),
            ("{\"id\":1.0,\"method\":\"a\"}\r\n", r#"request Number("1") a"#),
            (r#"{"method":"a","id":"\u0031","params":{}}"#, r#"request Text("1") a"#),
            (r#"{"method":"a"}"#, "notification a"),
            (r#"{"id":-7,"result":{}}"#, r#"answer Number("-7")"#),
            (r#"[{"id":1,"method":"a"},{"method":"b"},3]"#, "batch 1 false"),
            (r#"[{"id":1,"method":"tools\/call"}]"#, "batch 1 true"),
        ] {
            assert_eq!(kind(line.as_bytes()), expected, "{line}");
        }
        for other in ["", "\r\n", "{}", "null", "7", r#"{"id":null,"method":"a"}"#, r#"{"id":1,"method":2}"#] {
            assert_eq!(kind(other.as_bytes()), "other", "{other}");
        }
    }

    #[test]
    fn what_a_looser_reader_might_take_for_a_call_is_not_passed_by() {
        for unclear in [
            r#"{"id":1,"method":"a","method":"tools/call"}"#,
            r#"{"id":1,"id":2,"method":"tools/call"}"#,
            r#"{"method":"tools/call","params":{}}"#,
            r#"{"id":null,"method":"tools/call"}"#,
            r#"{"id":true,"method":"tools\u002fcall"}"#,
            r#"{"id":1,"Method":"tools/call"}"#,
            r#"{"id":1,"method":"tools/call","Params":{}}"#,
        ] {
            assert_eq!(kind(unclear.as_bytes()), "unclear", "{unclear}");
        }
        for garbled in
            [&b"{\"id\":1"[..], b"\0", b"{\"id\":1,\"method\":\"tools/call\",\"x\":NaN}", b"{\"a\":\"\xff\"}", b"[1,"]
        {
            assert_eq!(kind(garbled), "garbled");
        }
    }

    #[test]
    fn what_is_no_number_becomes_null_outside_of_texts() {
        let line = br#"{"id":1,"result":{"a":NaN,"b":[-Infinity,Infinity],"c":"NaN \" NaN"}}"#;
        let loose = br#"{"id":1,"result":{"a":null,"b":[null,null],"c":"NaN \" NaN"}}"#;
        assert_eq!(loosened(line), loose);
        assert_eq!(kind(&loosened(b"{\"id\":1,\"result\":\"\xff\"}")), r#"answer Number("1")"#);
        assert_eq!(kind(br#"{"id":1,"method":null,"result":{}}"#), r#"answer Number("1")"#);
        assert_eq!(kind(br#"[{"\ud800":1,"method":"tools/call"}]"#), "batch 0 true");
    }

    #[test]
    fn a_carriage_return_ends_a_line_for_some() {
        assert!(is_several(b"{\"x\":[\r{}\r]}\n") && is_several(b"{}\r{}"));
        assert!(!is_several(b"{}\r\n") && !is_several(b"{}\n") && !is_several(b"{\"a\":\"\\r\"}\n"));
    }

    #[test]
    fn an_answer_has_the_id_as_it_was_written() {
        let id = RawValue::from_string("\"\\u0031\"".to_owned()).unwrap();
        let line = result(&id, &serde_json::json!({}));
        assert_eq!(line, b"{\"jsonrpc\":\"2.0\",\"id\":\"\\u0031\",\"result\":{}}\n");
        assert!(
            error(Some(&id), UNCLEAR, "no").ends_with(b"\"error\":{\"code\":-32600,\"message\":\"onceward: no\"}}\n")
        );
        assert!(error(None, GARBLED, "no").starts_with(b"{\"jsonrpc\":\"2.0\",\"id\":null,"));
    }
}
