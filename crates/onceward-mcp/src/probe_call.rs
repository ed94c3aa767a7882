//! Builds the call of another tool that tells whether an effect took place, and reads its response. Pure.

use serde_json::{Value, json};

use super::members::Members;
use onceward_runtime::config::Probe;

/// What the probe found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProbeResult {
    /// The effect took place.
    Happened,
    /// It did not take place.
    DidNotHappen,
    /// The probe does not say; the reason.
    Unknown(String),
}

/// The parameters of the probe's call.
pub(super) fn parameters(probe: &Probe, arguments: &Members, meta: Option<Members>) -> Result<Members, String> {
    let given: Value = serde_json::from_str(&arguments.to_json()).map_err(|error| error.to_string())?;
    let filled = filled(&Value::Object(probe.arguments.clone()), &given)?;
    let mut parameters = Members::default();
    parameters.set("name", &probe.tool);
    parameters.set("arguments", &filled);
    if let Some(meta) = meta {
        parameters.set("_meta", &meta);
    }
    Ok(parameters)
}

/// Replaces the pointers in a template by the values that they point to.
fn filled(template: &Value, given: &Value) -> Result<Value, String> {
    match template {
        Value::String(text) if text.starts_with("$/") => match given.pointer(&text[1..]) {
            Some(value) => Ok(value.clone()),
            None => Err(format!("the call has no argument at {}", &text[1..])),
        },
        Value::Array(values) => values.iter().map(|value| filled(value, given)).collect(),
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| Ok((name.clone(), filled(value, given)?)));
            members.collect::<Result<_, String>>().map(Value::Object)
        }
        other => Ok(other.clone()),
    }
}

/// Reads the response to the probe's call.
pub(super) fn read(probe: &Probe, answer: &Members) -> ProbeResult {
    let Some(result) = answer.get("result").and_then(|result| serde_json::from_str::<Value>(result.get()).ok()) else {
        return ProbeResult::Unknown(format!("{} returned an error", probe.tool));
    };
    if result.get("isError").and_then(Value::as_bool) == Some(true) {
        return ProbeResult::Unknown(format!("{} failed", probe.tool));
    }
    let Some(returned_value) = returned_value(&result) else {
        return ProbeResult::Unknown(format!("{} did not return JSON", probe.tool));
    };
    match is_there(&returned_value, &probe.found) {
        Some(true) => ProbeResult::Happened,
        Some(false) => ProbeResult::DidNotHappen,
        None => ProbeResult::Unknown(format!("the result of {} has no {}", probe.tool, probe.found)),
    }
}

/// Whether there is a value at a pointer; `None` when the response does not say. A response about something else, such as that the
/// search is down, must not count as nothing found: only an empty value and a list that is too short do.
fn is_there(returned_value: &Value, pointer: &str) -> Option<bool> {
    let mut at = returned_value;
    for name in pointer.split('/').skip(1) {
        at = match (at.pointer(&format!("/{name}")), at) {
            (Some(next), _) => next,
            (None, Value::Array(_)) if name.parse::<usize>().is_ok() => return Some(false),
            _ => return None,
        };
        if is_empty(at) {
            return Some(false);
        }
    }
    Some(true)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(found) => !found,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

/// What is stored of a response that found the effect: its texts. Its structured content does not fit the schema of the probed tool.
pub(super) fn found(probe: &Probe, tool: &str, answer: &Members) -> Members {
    let result = answer.get("result").and_then(|result| serde_json::from_str::<Value>(result.get()).ok());
    let result = result.unwrap_or_default();
    let words = format!("{tool} took effect: {} found it. It was not done again.", probe.tool);
    let mut content = vec![json!({ "type": "text", "text": words })];
    match (result.get("content").and_then(Value::as_array), result.get("structuredContent")) {
        (Some(blocks), _) if !blocks.is_empty() => content.extend(blocks.iter().cloned()),
        (_, Some(structured)) => content.push(json!({ "type": "text", "text": structured.to_string() })),
        _ => {}
    }
    let mut found = Members::default();
    found.set("content", &content);
    found
}

/// The value that a tool returned: its structured content, or its first text that is JSON.
fn returned_value(result: &Value) -> Option<Value> {
    if let Some(structured) = result.get("structuredContent").filter(|structured| !structured.is_null()) {
        return Some(structured.clone());
    }
    let texts = result.get("content")?.as_array()?.iter().filter_map(|block| block.get("text")?.as_str());
    texts.filter_map(|text| serde_json::from_str(text).ok()).next()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn probe() -> Probe {
        let arguments = json!({ "invoice": "$/invoice", "deep": ["$/to/0", "as it is"], "n": 1 });
        let arguments = arguments.as_object().unwrap().clone();
        Probe { tool: "find".to_owned(), arguments, found: "/items".to_owned(), after: None }
    }

    #[test]
    fn a_template_is_filled_from_the_arguments_of_the_call() {
        let arguments = Members::read(r#"{"invoice":"i-7","to":[{"a":1}]}"#).unwrap();
        let parameters = parameters(&probe(), &arguments, None).unwrap().to_json();
        let expected = r#"{"name":"find","arguments":{"deep":[{"a":1},"as it is"],"invoice":"i-7","n":1}}"#;
        assert_eq!(parameters, expected);
        assert!(super::parameters(&probe(), &Members::default(), None).is_err());
    }

    #[test]
    fn only_a_clear_response_counts() {
        let judged = |result: &str| read(&probe(), &Members::read(&format!("{{\"result\":{result}}}")).unwrap());
        assert_eq!(judged(r#"{"structuredContent":{"items":[1]}}"#), ProbeResult::Happened);
        assert_eq!(judged(r#"{"structuredContent":{"items":[]}}"#), ProbeResult::DidNotHappen);
        assert_eq!(judged(r#"{"content":[{"type":"text","text":"{\"items\":\"x\"}"}]}"#), ProbeResult::Happened);
        assert!(matches!(judged(r#"{"content":[{"type":"text","text":"nothing"}]}"#), ProbeResult::Unknown(_)));
        assert!(matches!(judged(r#"{"structuredContent":{}}"#), ProbeResult::Unknown(_)));
        assert!(matches!(judged(r#"{"content":[],"isError":true}"#), ProbeResult::Unknown(_)));
        let error = Members::read(r#"{"error":{"code":1}}"#).unwrap();
        assert!(matches!(read(&probe(), &error), ProbeResult::Unknown(_)));
    }

    #[test]
    fn only_an_empty_value_means_that_it_did_not_happen() {
        for (pointer, returned_value, expected) in [
            ("/charges/0", json!({ "charges": [{ "id": 1 }] }), Some(true)),
            ("/charges/0", json!({ "charges": [] }), Some(false)),
            ("/charges/1", json!({ "charges": [1] }), Some(false)),
            ("/charges/x", json!({ "charges": [1] }), None),
            ("/charges/0", json!({ "charges": null }), Some(false)),
            ("/charges/0", json!({ "message": "search is down, try later" }), None),
            ("/charges/0", json!(503), None),
            ("/charges/0", json!("temporarily unavailable"), None),
            ("/charges/0", json!(null), None),
            ("/charges/0", json!({}), None),
            ("/charge/id", json!({ "charge": {} }), Some(false)),
            ("/charge/id", json!({ "charge": { "error": "down" } }), None),
            ("/charge/id", json!({ "charge": "down" }), None),
            ("/found", json!({ "error": "down" }), None),
            ("/found", json!({ "found": false }), Some(false)),
            ("/found", json!({ "found": 0 }), Some(false)),
            ("/found", json!({ "found": "" }), Some(false)),
            ("/0", json!([]), Some(false)),
            ("/0/id", json!([{ "id": 7 }]), Some(true)),
            ("/a~1b/~0c", json!({ "a/b": { "~c": 1 } }), Some(true)),
        ] {
            assert_eq!(is_there(&returned_value, pointer), expected, "{pointer} in {returned_value}");
        }
    }

    #[test]
    fn a_found_effect_is_stored_as_text() {
        let kept = |result: &str| found(&probe(), "pay", &Members::read(&format!("{{\"result\":{result}}}")).unwrap());
        let words = kept(r#"{"content":[{"type":"text","text":"i-7 is paid"}],"structuredContent":{"items":[7]}}"#);
        assert!(words.get("structuredContent").is_none());
        assert!(words.to_json().contains("pay took effect: find found it") && words.to_json().contains("i-7 is paid"));
        assert!(kept(r#"{"content":[],"structuredContent":{"items":[7]}}"#).to_json().contains(r#"{\"items\":[7]}"#));
    }
}
