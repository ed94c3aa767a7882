//! Headers of protocol version 2026-07-28 that repeat parts of a message. The server compares them with the message; a call that
//! does not reach the server is compared here.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, HeaderName};

use crate::members::Members;

/// The error code for headers that do not match the message.
pub(super) const DISAGREES: i32 = -32020;

/// The member of `_meta` with the protocol version.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// Marks around a value that is not plain text.
const START: &str = "=?base64?";
const END: &str = "?=";

/// The prefix of headers that repeat an argument of a call.
const ARGUMENT: &str = "mcp-param-";

/// The first header that does not match a tool call, if any. A missing header is not a mismatch: some servers do without. Older
/// protocol versions have no such headers.
pub(super) fn disagreement(headers: &HeaderMap, message: &Members) -> Option<&'static str> {
    let parameters = message.object("params")?;
    let version = parameters.object("_meta")?.text(VERSION)?;
    let expected = [
        ("mcp-protocol-version", Some(version)),
        ("mcp-method", message.text("method")),
        ("mcp-name", parameters.text("name")),
    ];
    expected.into_iter().find(|(name, value)| !matches(headers, name, value.as_deref())).map(|(name, _)| name)
}

/// Removes the headers that repeat arguments of a call, for another request with the same headers.
pub(super) fn without_arguments(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers.keys().filter(|name| name.as_str().starts_with(ARGUMENT)).cloned().collect();
    for name in named {
        headers.remove(name);
    }
}

fn matches(headers: &HeaderMap, name: &str, value: Option<&str>) -> bool {
    let mut given = headers.get_all(name).iter();
    given.all(|one| one.to_str().ok().and_then(decoded).as_deref() == value)
}

fn decoded(text: &str) -> Option<String> {
    let text = text.trim();
    match text.strip_prefix(START).and_then(|text| text.strip_suffix(END)) {
        Some(encoded) => String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok(),
        None => Some(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_does_not_match_is_found_and_a_missing_one_is_not() {
        let message = |name: &str| {
            let meta = format!(r#"{{"{VERSION}":"2026-07-28"}}"#);
            let text = format!(r#"{{"id":1,"method":"tools/call","params":{{"name":"{name}","_meta":{meta}}}}}"#);
            Members::read(&text).unwrap()
        };
        let headers = |version: &str, method: &str, name: &str| {
            let told = [("mcp-protocol-version", version), ("mcp-method", method), ("mcp-name", name)];
            told.into_iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect::<HeaderMap>()
        };
        let told = |name: &str| headers("2026-07-28", "tools/call", name);
        assert_eq!(disagreement(&told("send"), &message("send")), None);
        assert_eq!(disagreement(&told("=?base64?c2VuZA==?="), &message("send")), None);
        assert_eq!(disagreement(&told("other"), &message("send")), Some("mcp-name"));
        assert_eq!(disagreement(&headers("2026-07-28", "tools/list", "send"), &message("send")), Some("mcp-method"));
        assert_eq!(
            disagreement(&headers("2025-11-25", "tools/call", "send"), &message("send")),
            Some("mcp-protocol-version")
        );
        assert_eq!(disagreement(&HeaderMap::new(), &message("send")), None);
        let mut twice = told("send");
        twice.append("mcp-name", "other".parse().unwrap());
        assert_eq!(disagreement(&twice, &message("send")), Some("mcp-name"));
        let older = Members::read(r#"{"id":1,"method":"tools/call","params":{"name":"send"}}"#).unwrap();
        assert_eq!(disagreement(&HeaderMap::new(), &older), None);
    }

    #[test]
    fn argument_headers_are_not_sent_with_another_request() {
        let named = ["mcp-param-region", "Mcp-Param-Key", "mcp-name", "mcp-params"];
        let mut headers: HeaderMap =
            named.into_iter().map(|name| (name.parse().unwrap(), "x".parse().unwrap())).collect();
        without_arguments(&mut headers);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["mcp-name", "mcp-params"]);
    }
}
