//! The messages between client and tool server, one per line, and the check of responses.

use std::fmt::Write;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The tool that acts and the tool that only reads.
pub(super) const ACT: &str = "send";
pub(super) const LOOK: &str = "look";

/// A message of the client, as far as the server needs it.
#[derive(Debug, Deserialize)]
pub(super) struct ClientMessage<'a> {
    /// `None` for a notification.
    #[serde(borrow)]
    pub(super) id: Option<&'a RawValue>,
    pub(super) method: &'a str,
    #[serde(borrow)]
    pub(super) params: Option<&'a RawValue>,
}

/// The parameters of a call.
#[derive(Debug, Deserialize)]
pub(super) struct CallParameters<'a> {
    pub(super) name: &'a str,
}

/// A response, as far as the client needs it.
#[derive(Debug, Deserialize)]
struct ServerResponse<'a> {
    id: u64,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

/// The handshake of a client, in this order. It also lists the tools, as every client does.
pub(super) const HANDSHAKE: [&str; 3] = [
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    r#"{"jsonrpc":"2.0","id":0,"method":"tools/list"}"#,
];

/// The result of `initialize`.
pub(super) const WELCOME: &str =
    r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}"#;

/// The result of `tools/list`.
pub(super) const TOOLS: &str = r#"{"tools":[{"name":"send","inputSchema":{"type":"object","properties":{"to":{"type":"string"},"number":{"type":"integer"}}},"annotations":{"readOnlyHint":false}},{"name":"look","inputSchema":{"type":"object","properties":{"to":{"type":"string"},"number":{"type":"integer"}}},"annotations":{"readOnlyHint":true}}]}"#;

/// Writes a call.
pub(super) fn call(line: &mut String, id: u64, tool: &str, number: u64) {
    line.clear();
    let _ = writeln!(
        line,
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"to":"someone@example.com","number":{number}}}}}}}"#
    );
}

/// Writes a result.
pub(super) fn result(line: &mut String, id: &RawValue, result: &str) {
    line.clear();
    let _ = writeln!(line, r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
}

/// The result of both tools: how often the server has acted.
pub(super) fn counted(acted: u64) -> String {
    format!(r#"{{"content":[{{"type":"text","text":"acted {acted} times"}}],"isError":false}}"#)
}

/// The id of the call that a response is for. An error if the response is wrong.
pub(super) fn answered(line: &str, replayed: bool) -> Result<u64, String> {
    let wrong = || format!("wrong response: {}", line.trim_end());
    let answer: ServerResponse<'_> = serde_json::from_str(line).map_err(|_| wrong())?;
    let result = answer.result.ok_or_else(wrong)?.get();
    let is_right = result.contains(r#""text":"acted "#) && !result.contains(r#""isError":true"#);
    if is_right && result.contains(r#""replayed":true"#) == replayed { Ok(answer.id) } else { Err(wrong()) }
}

/// How often the server has acted, according to its response.
pub(super) fn acted(line: &str) -> Option<u64> {
    let (_, behind) = line.split_once(r#""text":"acted "#)?;
    behind.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_names_its_call_and_has_the_expected_content() {
        let mut line = String::new();
        result(&mut line, &RawValue::from_string("7".to_owned()).unwrap(), &counted(3));
        assert_eq!(answered(&line, false), Ok(7));
        assert_eq!(acted(&line), Some(3));
        assert!(answered(&line, true).is_err());
        let replay = line.replace(r#""isError":false"#, r#""_meta":{"onceward":{"replayed":true}}"#);
        assert_eq!(answered(&replay, true), Ok(7));
        assert!(answered(&replay, false).is_err());
        assert!(answered(&line.replace("false", "true"), false).is_err());
        assert!(
            answered(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"acted 3 times"}}"#, false).is_err()
        );
        assert!(answered("", false).is_err());
    }

    #[test]
    fn a_call_is_one_line_that_the_server_understands() {
        let mut line = String::new();
        call(&mut line, 7, ACT, 9);
        let request: ClientMessage<'_> = serde_json::from_str(&line).unwrap();
        let called: CallParameters<'_> = serde_json::from_str(request.params.unwrap().get()).unwrap();
        assert_eq!((request.id.unwrap().get(), request.method, called.name), ("7", "tools/call", ACT));
        assert_eq!(line.matches('\n').count(), 1);
    }
}
