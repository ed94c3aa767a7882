//! Reads and writes JSON-RPC messages, as far as the gateway needs them. Messages that are passed on keep their bytes.

use serde::Serialize;
use serde_json::value::RawValue;

use super::members::Members;

/// The method that calls a tool.
pub(super) const CALL: &str = "tools/call";

/// The line is not JSON.
pub(super) const PARSE_ERROR: i32 = -32700;
/// The line is JSON, but not a request with one clear meaning.
pub(super) const INVALID_REQUEST: i32 = -32600;

/// The members of a message.
const NAMES: [&str; 4] = ["jsonrpc", "id", "method", "params"];

/// Doubles represent every integer up to here.
const MAX_INTEGER: f64 = 9_007_199_254_740_992.0;

/// The id of a request, which matches its response to it. A number and a string are never equal.
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
            b'-' | b'0'..=b'9' => Some(Self::Number(integer(text).unwrap_or_else(|| text.to_owned()))),
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

    /// As JSON.
    pub(super) fn to_json(&self) -> Option<Box<RawValue>> {
        match self {
            Self::Number(number) => RawValue::from_string(number.clone()).ok(),
            Self::Text(text) => serde_json::value::to_raw_value(text).ok(),
        }
    }
}

/// A request of a client. Ids are unique among the requests of one connection; a stdio gateway has only one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RequestId {
    pub(super) connection: String,
    pub(super) id: Id,
}

/// Normalises an integer: a server may send 1.0 back as 1.
#[allow(clippy::cast_possible_truncation, reason = "the number is an integer within the checked range")]
fn integer(text: &str) -> Option<String> {
    if !text.contains(['.', 'e', 'E']) {
        return None;
    }
    let number: f64 = text.parse().ok()?;
    (number.fract() == 0.0 && number.abs() < MAX_INTEGER).then(|| (number as i64).to_string())
}

/// The message on a line.
#[derive(Debug)]
pub(super) enum Message {
    /// A request, with its id as the sender wrote it.
    Request { id: Id, written: Box<RawValue>, method: String, members: Members },
    /// A notification, which has no response.
    Notification { method: String, members: Members },
    /// The response to a request.
    Response { id: Id, members: Members },
    /// A batch: the ids of its requests, and whether any of them calls a tool.
    Batch { ids: Vec<Box<RawValue>>, calls: bool },
    /// It may call a tool, depending on the parser.
    Ambiguous { id: Option<Box<RawValue>>, why: &'static str },
    /// Not JSON. Some servers are less strict.
    NotJson,
    /// An empty line, or JSON that is not a message.
    Other,
}

impl Message {
    pub(super) fn read(line: &[u8]) -> Self {
        let Ok(text) = std::str::from_utf8(line) else { return Self::NotJson };
        let text = text.trim_ascii();
        match text.bytes().next() {
            None => Self::Other,
            Some(b'{') => Self::one(text),
            Some(b'[') => Self::several(text),
            Some(_) if serde_json::from_str::<&RawValue>(text).is_ok() => Self::Other,
            Some(_) => Self::NotJson,
        }
    }

    /// Reads a line of a server. Some servers write `NaN` or broken UTF-8, and a request may wait for that response all the same.
    pub(super) fn read_lenient(line: &[u8]) -> Self {
        match Self::read(line) {
            Self::NotJson => Self::read(&as_valid_json(line)),
            message => message,
        }
    }

    fn one(text: &str) -> Self {
        let Some(members) = Members::read_any(text) else { return Self::NotJson };
        let written = members.get("id").map(ToOwned::to_owned);
        let calls = members.all("method").any(|method| is_call(method.get()));
        if !members.has_unique_names() || (calls && !members.has_no_lookalikes(&NAMES)) {
            let why = "the message names a member twice, or two that differ only in case";
            return if calls { Self::Ambiguous { id: written, why } } else { Self::Other };
        }
        let id = written.as_deref().and_then(Id::read);
        match (members.text("method"), id, written) {
            (Some(method), Some(id), Some(written)) => Self::Request { id, written, method, members },
            (Some(_), None, id) if calls => Self::Ambiguous { id, why: "a call of a tool needs an id" },
            (Some(method), None, None) => Self::Notification { method, members },
            (None, Some(id), _) if members.get("method").is_none_or(|method| method.get() == "null") => {
                Self::Response { id, members }
            }
            _ => Self::Other,
        }
    }

    fn several(text: &str) -> Self {
        let Ok(parts) = serde_json::from_str::<Vec<&RawValue>>(text) else { return Self::NotJson };
        let (mut ids, mut calls) = (Vec::new(), false);
        for part in parts {
            let Some(members) = Members::read_any(part.get()) else {
                // An object that cannot be parsed may be anything.
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

/// Turns a line that only lenient parsers accept into valid JSON: `NaN` and infinities become `null`, and bytes that are not
/// UTF-8 become replacement characters.
fn as_valid_json(line: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(line);
    let (mut valid, mut rest, mut in_string) = (String::with_capacity(text.len()), &*text, false);
    while let Some(first) = rest.chars().next() {
        let not_a_number = if in_string {
            None
        } else {
            ["NaN", "-Infinity", "Infinity"].into_iter().find(|word| rest.starts_with(word))
        };
        let length = match (not_a_number, first) {
            (Some(word), _) => {
                valid.push_str("null");
                rest = &rest[word.len()..];
                continue;
            }
            (None, '\\') if in_string => rest.chars().take(2).map(char::len_utf8).sum(),
            (None, '"') => {
                in_string = !in_string;
                1
            }
            (None, first) => first.len_utf8(),
        };
        valid.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    valid.into_bytes()
}

/// Whether a parser that takes a carriage return for a line end would read more than one message.
pub(super) fn has_carriage_return(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    line.contains(&b'\r')
}

/// Whether a method, written in any way that JSON allows, calls a tool.
fn is_call(method: &str) -> bool {
    serde_json::from_str::<String>(method).is_ok_and(|method| method == CALL)
}

/// The line of a response with a result.
pub(super) fn result(id: &RawValue, result: &impl Serialize) -> Vec<u8> {
    line(id, "result", result)
}

/// The line of a response with an error of the gateway.
pub(super) fn error(id: Option<&RawValue>, code: i32, message: &str) -> Vec<u8> {
    let error = serde_json::json!({ "code": code, "message": format!("onceward: {message}") });
    line(id.unwrap_or(RawValue::NULL), "error", &error)
}

/// The line of a response with an error as it is given.
pub(super) fn failure(id: &RawValue, error: &RawValue) -> Vec<u8> {
    line(id, "error", &error)
}

/// The line of a response with another id.
pub(super) fn with_id(answer: &Members, id: &RawValue) -> Vec<u8> {
    let mut answer = answer.clone();
    answer.set("id", &id);
    to_line(&answer)
}

/// The line of a request.
pub(super) fn request(id: &str, method: &str, parameters: &Members) -> Vec<u8> {
    let mut members = version();
    members.set("id", &id);
    members.set("method", &method);
    members.set("params", parameters);
    to_line(&members)
}

/// A notification without parameters.
pub(super) fn notification(method: &str) -> Members {
    let mut members = version();
    members.set("method", &method);
    members
}

/// A message as a line.
pub(super) fn to_line(members: &Members) -> Vec<u8> {
    let mut line = members.to_json().into_bytes();
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
    to_line(&members)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(line: &[u8]) -> String {
        match Message::read(line) {
            Message::Request { id, method, .. } => format!("request {id:?} {method}"),
            Message::Notification { method, .. } => format!("notification {method}"),
            Message::Response { id, .. } => format!("response {id:?}"),
            Message::Batch { ids, calls } => format!("batch {} {calls}", ids.len()),
            Message::Ambiguous { .. } => "ambiguous".to_owned(),
            Message::NotJson => "not JSON".to_owned(),
            Message::Other => "other".to_owned(),
        }
    }

    #[test]
    fn each_kind_of_message_is_recognised() {
        for (line, expected) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#, r#"request Number("1") a"#),
            ("{\"id\":1.0,\"method\":\"a\"}\r\n", r#"request Number("1") a"#),
            (r#"{"method":"a","id":"\u0031","params":{}}"#, r#"request Text("1") a"#),
            (r#"{"method":"a"}"#, "notification a"),
            (r#"{"id":-7,"result":{}}"#, r#"response Number("-7")"#),
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
    fn a_message_that_a_lenient_parser_may_take_for_a_call_is_not_passed_on() {
        for unclear in [
            r#"{"id":1,"method":"a","method":"tools/call"}"#,
            r#"{"id":1,"id":2,"method":"tools/call"}"#,
            r#"{"method":"tools/call","params":{}}"#,
            r#"{"id":null,"method":"tools/call"}"#,
            r#"{"id":true,"method":"tools\u002fcall"}"#,
            r#"{"id":1,"Method":"tools/call"}"#,
            r#"{"id":1,"method":"tools/call","Params":{}}"#,
        ] {
            assert_eq!(kind(unclear.as_bytes()), "ambiguous", "{unclear}");
        }
        for garbled in
            [&b"{\"id\":1"[..], b"\0", b"{\"id\":1,\"method\":\"tools/call\",\"x\":NaN}", b"{\"a\":\"\xff\"}", b"[1,"]
        {
            assert_eq!(kind(garbled), "not JSON");
        }
    }

    #[test]
    fn nan_and_infinity_become_null_outside_of_strings() {
        let line = br#"{"id":1,"result":{"a":NaN,"b":[-Infinity,Infinity],"c":"NaN \" NaN"}}"#;
        let valid = br#"{"id":1,"result":{"a":null,"b":[null,null],"c":"NaN \" NaN"}}"#;
        assert_eq!(as_valid_json(line), valid);
        assert_eq!(kind(&as_valid_json(b"{\"id\":1,\"result\":\"\xff\"}")), r#"response Number("1")"#);
        assert_eq!(kind(br#"{"id":1,"method":null,"result":{}}"#), r#"response Number("1")"#);
        assert_eq!(kind(br#"[{"\ud800":1,"method":"tools/call"}]"#), "batch 0 true");
    }

    #[test]
    fn a_carriage_return_inside_a_line_is_found() {
        assert!(has_carriage_return(b"{\"x\":[\r{}\r]}\n") && has_carriage_return(b"{}\r{}"));
        assert!(
            !has_carriage_return(b"{}\r\n")
                && !has_carriage_return(b"{}\n")
                && !has_carriage_return(b"{\"a\":\"\\r\"}\n")
        );
    }

    #[test]
    fn a_response_has_the_id_as_the_client_wrote_it() {
        let id = RawValue::from_string("\"\\u0031\"".to_owned()).unwrap();
        let line = result(&id, &serde_json::json!({}));
        assert_eq!(line, b"{\"jsonrpc\":\"2.0\",\"id\":\"\\u0031\",\"result\":{}}\n");
        assert!(
            error(Some(&id), INVALID_REQUEST, "no")
                .ends_with(b"\"error\":{\"code\":-32600,\"message\":\"onceward: no\"}}\n")
        );
        assert!(error(None, PARSE_ERROR, "no").starts_with(b"{\"jsonrpc\":\"2.0\",\"id\":null,"));
    }
}
