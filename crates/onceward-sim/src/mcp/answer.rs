//! What an answer tells a client, read as clients read it.

use serde_json::{Value, json};

use crate::kills::book::Told;

/// The result with which the server tells the value of an effect.
pub(super) fn result(value: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": value }], "isError": false })
}

/// What a whole answer says.
pub(super) fn read(answer: &Value) -> Told {
    if let Some(error) = answer.get("error") {
        // A gateway whose server is gone, or a server that is not there yet.
        return match error["code"].as_i64() {
            Some(-32603 | -32001 | -32000) => Told::Nothing,
            _ => Told::Wrong(error.to_string()),
        };
    }
    let result = &answer["result"];
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    if result["isError"] != json!(true) {
        return Told::Done(text.to_owned());
    }
    match result["_meta"]["onceward"]["state"].as_str() {
        Some("in_doubt" | "attempt_unknown") => Told::Doubt,
        Some("running" | "not_yet") => Told::Busy,
        Some("attempt_failed" | "not_sent" | "ledger_down") => Told::Refused,
        _ => Told::Wrong(result.to_string()),
    }
}
