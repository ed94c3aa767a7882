//! Judges what the response to a call says about its effect. Pure.

use onceward::core::class::{Class, Disposition, disposition};
use onceward::core::evidence::{Evidence, in_message, in_text};
use onceward::core::outcome::{Outcome, Verdict};
use onceward::core::policy::Policy;
use onceward::plant::{Plant, planted};

use serde_json::Value;

use super::members::Members;

/// The media type of a kept result, and of a kept error.
pub(super) const RESULT: &str = "application/vnd.onceward.mcp-result+json";
pub(super) const ERROR: &str = "application/vnd.onceward.mcp-error+json";

/// Errors that prove that no tool ran: invalid JSON, invalid request, unknown method, mismatched headers, capabilities or version,
/// and a URL that the user must visit first. Invalid parameters are not among them: a tool may report them in the middle of its
/// work.
const BEFORE_THE_WORK: [i64; 7] = [-32700, -32600, -32601, -32020, -32021, -32022, -32042];

/// Errors that say nothing about the effect: a closed connection, a time-out, an internal error of the server, a cancellation. SDKs
/// also turn any exception of a tool into an internal error (-32603, 0); whether the tool had acted by then is unknown too.
const ON_THE_WAY: [i64; 5] = [-32000, -32001, -32603, -32800, 0];

/// How the claim ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Store the outcome; every repeat gets it.
    Keep(Outcome),
    /// Nothing was done.
    Release(&'static str),
    /// The effect is unknown.
    Doubt(&'static str),
    /// The work continues as a task with this id.
    Task(String),
}

/// Judges a response. A cancellation may have stopped the tool halfway, whatever the response says.
pub(super) fn of(answer: &Members, policy: &Policy, cancelled: bool) -> Ending {
    if let Some(error) = answer.object("error") {
        let code = error.get("code").and_then(|code| serde_json::from_str::<i64>(code.get()).ok());
        if code.is_some_and(|code| BEFORE_THE_WORK.contains(&code)) {
            return Ending::Release("the server refused the call");
        }
        let body = answer.get("error").map(|error| error.get().to_owned()).unwrap_or_default();
        let is_on_the_way = code.is_none_or(|code| ON_THE_WAY.contains(&code));
        let evidence = if is_on_the_way { Some(Evidence::Unknown) } else { in_error(&body) };
        return failed(policy, evidence, cancelled, Outcome::of(Verdict::Failure, ERROR, body));
    }
    let Some(result) = answer.object("result") else {
        return Ending::Doubt("the response has neither a result nor an error");
    };
    if asks_for_input(answer) {
        return Ending::Release("the tool asks for input first");
    }
    if let Some(task) = task(&result) {
        return Ending::Task(task);
    }
    let body = answer.get("result").map(|result| result.get().to_owned()).unwrap_or_default();
    if result.get("isError").is_some_and(|is_error| is_error.get() == "true") {
        let evidence = in_result(&body);
        return failed(policy, evidence, cancelled, Outcome::of(Verdict::Failure, RESULT, body));
    }
    Ending::Keep(Outcome::of(Verdict::Success, RESULT, body))
}

/// Whether the tool wants to ask the user first.
pub(super) fn asks_for_input(answer: &Members) -> bool {
    let kind = answer.object("result").and_then(|result| result.text("resultType"));
    kind.is_some_and(|kind| kind == "input_required")
}

/// Evidence in a JSON-RPC error: in its message and its other members.
fn in_error(body: &str) -> Option<Evidence> {
    let Ok(error) = serde_json::from_str::<Value>(body) else { return Some(Evidence::Unknown) };
    let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
    in_message(message).or_else(|| in_values(&error))
}

/// Evidence in a failed result: in its texts and its structured content. Texts are decoded first, so that an escape does not hide a
/// word.
fn in_result(body: &str) -> Option<Evidence> {
    let Ok(result) = serde_json::from_str::<Value>(body) else { return Some(Evidence::Unknown) };
    let content = result.get("content").and_then(Value::as_array).into_iter().flatten();
    let mut texts = content.filter_map(|block| block.get("text")?.as_str());
    texts.find_map(in_message).or_else(|| in_values(&result))
}

/// Searches every string, and every number together with its name. The parser limits the depth.
fn in_values(value: &Value) -> Option<Evidence> {
    match value {
        Value::String(text) => in_text(text),
        Value::Array(values) => values.iter().find_map(in_values),
        Value::Object(members) => members.iter().find_map(|(name, value)| match value {
            Value::Number(number) => in_text(&format!("{name} {number}")),
            value => in_values(value),
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn failed(policy: &Policy, evidence: Option<Evidence>, cancelled: bool, outcome: Outcome) -> Ending {
    if cancelled && !planted(Plant::CancelledCallReleased) {
        return Ending::Doubt("the client cancelled the call while it ran");
    }
    match disposition(Class::Unclassified { evidence }, policy.errors(), false) {
        Disposition::Release(_) => Ending::Release("the tool reported that it failed"),
        Disposition::Keep => Ending::Keep(outcome),
        Disposition::Doubt => Ending::Doubt(match evidence {
            None => "the tool reported that it failed, but not whether it had acted",
            Some(Evidence::TimedOut) => "the tool reported a time-out",
            Some(Evidence::Interrupted) => "the tool reported an interruption",
            Some(Evidence::ServerError) => "the tool reported that a server failed",
            Some(Evidence::Unknown) => "the server returned an error that says nothing about the effect",
        }),
    }
}

/// The task that a result names. Protocol versions put it in different places.
fn task(result: &Members) -> Option<String> {
    if result.get("content").is_some() {
        return None;
    }
    let inner = result.object("task");
    inner.as_ref().unwrap_or(result).text("taskId")
}

#[cfg(test)]
mod tests {
    use onceward::core::policy::{OnError, Tier};

    use super::*;

    fn judged(answer: &str, on_error: OnError, cancelled: bool) -> String {
        judged_by(answer, &Policy { on_error, ..Policy::default() }, cancelled)
    }

    fn judged_by(answer: &str, policy: &Policy, cancelled: bool) -> String {
        match of(&Members::read(answer).unwrap(), policy, cancelled) {
            Ending::Keep(outcome) => format!("keep {:?} {}", outcome.verdict, outcome.content_type),
            Ending::Release(_) => "release".to_owned(),
            Ending::Doubt(_) => "doubt".to_owned(),
            Ending::Task(id) => format!("task {id}"),
        }
    }

    #[test]
    fn every_kind_of_response_is_judged() {
        let success = format!("keep Success {RESULT}");
        let failure = format!("keep Failure {RESULT}");
        let error = format!("keep Failure {ERROR}");
        for (answer, retry, doubt, keep, cancelled) in [
            (r#"{"result":{"content":[]}}"#, &*success, &*success, &*success, &*success),
            (r#"{"result":{"content":[],"isError":false}}"#, &success, &success, &success, &success),
            (r#"{"result":{"content":[],"isError":true}}"#, "release", "doubt", &failure, "doubt"),
            (r#"{"error":{"code":-32603,"message":"x"}}"#, "release", "doubt", &error, "doubt"),
            (r#"{"error":{"code":-32602,"message":"x"}}"#, "release", "doubt", &error, "doubt"),
            (r#"{"error":{"code":-32601,"message":"x"}}"#, "release", "release", "release", "release"),
            (r#"{"error":{"code":-32042,"message":"x"}}"#, "release", "release", "release", "release"),
            (r#"{"error":{"code":"x"}}"#, "release", "doubt", &error, "doubt"),
            (
                r#"{"result":{"resultType":"input_required","requestState":"s"}}"#,
                "release",
                "release",
                "release",
                "release",
            ),
            (r#"{"result":{"task":{"taskId":"t1"}}}"#, "task t1", "task t1", "task t1", "task t1"),
            (r#"{"result":{"resultType":"task","taskId":"t2"}}"#, "task t2", "task t2", "task t2", "task t2"),
            (r#"{"result":7}"#, "doubt", "doubt", "doubt", "doubt"),
            ("{}", "doubt", "doubt", "doubt", "doubt"),
        ] {
            let on = |on_error| judged(answer, on_error, false);
            assert_eq!(on(OnError::Retry), retry, "{answer}");
            assert_eq!(on(OnError::Doubt), doubt, "{answer}");
            assert_eq!(on(OnError::Keep), keep, "{answer}");
            assert_eq!(judged(answer, OnError::Retry, true), cancelled, "{answer}");
        }
    }

    #[test]
    fn transport_errors_are_in_doubt_unless_the_configuration_says_otherwise() {
        for (code, by_default) in [
            ("-32000", "doubt"),
            ("-32001", "doubt"),
            ("-32800", "doubt"),
            ("-32603", "doubt"),
            ("0", "doubt"),
            ("\"x\"", "doubt"),
            ("-32602", "release"),
            ("7", "release"),
        ] {
            let answer = format!(r#"{{"error":{{"code":{code},"message":"x"}}}}"#);
            assert_eq!(judged(&answer, OnError::Classify, false), by_default, "{code}");
            assert_eq!(judged(&answer, OnError::Retry, false), "release", "{code}");
        }
    }

    #[test]
    fn evidence_in_a_failed_result_adds_doubt_and_a_declared_tier_doubts_every_failure() {
        let text =
            |text: &str| format!(r#"{{"result":{{"isError":true,"content":[{{"type":"text","text":"{text}"}}]}}}}"#);
        let structured =
            r#"{"result":{"isError":true,"content":[],"structuredContent":{"error":{"code":"ECONNRESET"}}}}"#;
        let message = r#"{"error":{"code":7,"message":"upstream request timed out"}}"#;
        let internal = r#"{"error":{"code":-32603,"message":"Internal error"}}"#;
        let silent = r#"{"error":{"code":-32603,"message":""}}"#;
        let status = r#"{"result":{"isError":true,"content":[],"structuredContent":{"upstream":{"statusCode":503}}}}"#;
        for (answer, by_default) in [
            (text("Read timed out"), "doubt"),
            (text("the API answered HTTP 502"), "doubt"),
            (structured.to_owned(), "doubt"),
            (message.to_owned(), "doubt"),
            (text(r"Error:\nECONNRESET"), "doubt"),
            (text("Error executing tool charge: "), "doubt"),
            (internal.to_owned(), "doubt"),
            (silent.to_owned(), "doubt"),
            (status.to_owned(), "doubt"),
            (text("the address is not valid"), "release"),
            (r#"{"error":{"code":7,"message":"Invalid input: amount"}}"#.to_owned(), "release"),
        ] {
            assert_eq!(judged(&answer, OnError::Classify, false), by_default, "{answer}");
            assert_eq!(judged(&answer, OnError::Retry, false), "release", "{answer}");
            assert_eq!(judged_by(&answer, &Policy::of(Tier::Email), false), "doubt", "{answer}");
        }
    }
}
