//! Reads an answer as clients do.

use serde_json::{Value, json};

use crate::kills::judge::Response;

/// The result with the value of an effect.
pub(super) fn result(value: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": value }], "isError": false })
}

/// Reads a whole answer.
pub(super) fn read(response: &Value) -> Response {
    if let Some(error) = response.get("error") {
        // A gateway whose server is gone, or a server that has not started yet.
        return match error["code"].as_i64() {
            Some(-32603 | -32001 | -32000) => Response::Nothing,
            _ => Response::Wrong(error.to_string()),
        };
    }
    let result = &response["result"];
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    if result["isError"] != json!(true) {
        return Response::Done(text.to_owned());
    }
    match result["_meta"]["onceward"]["state"].as_str() {
        Some("in_doubt" | "attempt_unknown") => Response::Doubt,
        Some("running" | "not_yet") => Response::Busy,
        Some("attempt_failed" | "not_sent" | "ledger_down") => Response::Refused,
        _ => Response::Wrong(result.to_string()),
    }
}
