//! Edits the response to `tools/list`: guarded tools take one more argument, and the gateway adds its own tool.

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::call::REPEAT;
use super::members::Members;
use super::result_schema;
use super::tools::Tools;

/// Names for the gateway's own tool. A server may have a tool of that name itself, for example another gateway.
pub(super) const STATUS: [&str; 3] = ["onceward_status", "onceward_status_2", "onceward_status_3"];

/// The first of these names that the server does not use.
pub(super) fn status_name(tools: &Tools) -> &'static str {
    STATUS.into_iter().find(|name| !tools.has(name)).unwrap_or(STATUS[2])
}

/// Learns the tools and edits their list. `None` when the list stays as it is.
pub(super) fn edited(response: &Members, tools: &Tools) -> Option<Members> {
    let mut result = response.object("result")?;
    let (mut edited, mut is_edited) = (learned(&result, tools)?, false);
    for tool in &mut edited {
        if let Some(shown) = edited_tool(tool, tools) {
            (*tool, is_edited) = (shown, true);
        }
    }
    // Without guarded tools, the gateway's own tool has nothing to report.
    if cursor(&result).is_none() && tools.guards_any() {
        edited.extend(own_tool(status_name(tools)));
        is_edited = true;
    }
    if !is_edited {
        return None;
    }
    result.set("tools", &edited);
    let mut response = response.clone();
    response.set("result", &result);
    Some(response)
}

/// Edits the tools of one server for an aggregate.
pub(super) fn shown(listed: Vec<Box<RawValue>>, tools: &Tools) -> Vec<Box<RawValue>> {
    listed.into_iter().map(|tool| edited_tool(&tool, tools).unwrap_or(tool)).collect()
}

/// The gateway's own tool, under this name.
pub(super) fn own_tool(name: &str) -> Option<Box<RawValue>> {
    to_raw_value(&status(name)).ok()
}

/// Learns the tools of one page.
pub(super) fn learned(result: &Members, tools: &Tools) -> Option<Vec<Box<RawValue>>> {
    let listed: Vec<Box<RawValue>> = serde_json::from_str(result.get("tools")?.get()).ok()?;
    for tool in &listed {
        if let Some(tool) = Members::read(tool.get())
            && let Some(name) = tool.text("name")
        {
            tools.learn(&name, &tool, REPEAT);
        }
    }
    if cursor(result).is_none() {
        tools.set_complete(true);
    }
    Some(listed)
}

/// The cursor of the next page.
pub(super) fn cursor(result: &Members) -> Option<&RawValue> {
    result.get("nextCursor").filter(|cursor| cursor.get() != "null")
}

/// Edits one tool. A guarded tool takes one more argument, so that a deliberate repeat is possible and is itself done once. An
/// argument that the gateway fills is hidden from models: they would make up a new key for every try. A structured result may
/// have a notice. `None` for a tool that stays as the server lists it.
fn edited_tool(tool: &RawValue, tools: &Tools) -> Option<Box<RawValue>> {
    let mut tool = Members::read(tool.get())?;
    let name = tool.text("name")?;
    if !tools.guard_reason(&name).is_guarded() {
        return None;
    }
    let is_changed =
        if tools.is_queued(&name) { list_as_queued(&mut tool, tools) } else { result_schema::list_notice(&mut tool) };
    let takes = edited_input(&tool, &name, tools);
    if let Some(schema) = &takes {
        tool.set("inputSchema", schema);
    }
    (is_changed || takes.is_some()).then(|| to_raw_value(&tool).ok()).flatten()
}

/// What a queued tool answers is not its result: no schema describes it, and it never becomes a task.
fn list_as_queued(tool: &mut Members, tools: &Tools) -> bool {
    tool.remove("outputSchema");
    tool.remove("execution");
    let note = format!(
        "Calls are queued: the answer says `enqueued`, the tool is called once afterwards, and {} tells how it went.",
        status_name(tools)
    );
    let description = tool.text("description").filter(|description| !description.trim().is_empty());
    tool.set("description", &description.map_or_else(|| note.clone(), |text| format!("{}\n\n{note}", text.trim_end())));
    true
}

/// The input schema of a guarded tool, where it differs from the one that the server lists.
fn edited_input(tool: &Members, name: &str, tools: &Tools) -> Option<Members> {
    let mut schema = tool.object("inputSchema")?;
    let mut properties = match schema.get("properties") {
        Some(_) => schema.object("properties")?,
        None => Members::default(),
    };
    let is_repeatable = tools.offers_repeat(name);
    if is_repeatable {
        properties.set(REPEAT, &repeat());
    }
    // An argument that other parts of the schema name has to stay: clients check arguments against all of it.
    let is_entangled = tools.key_slot(name).is_some_and(|slot| slot.is_entangled);
    let filled = tools.fills(name).filter(|_| !is_entangled).map(|(filled, _)| filled);
    if filled.is_none() && !is_repeatable {
        return None;
    }
    if let Some(filled) = filled {
        properties.remove(&filled);
        let required = schema.get("required").and_then(|names| serde_json::from_str::<Vec<String>>(names.get()).ok());
        if let Some(required) = required {
            schema.set("required", &required.into_iter().filter(|name| *name != filled).collect::<Vec<_>>());
        }
    }
    schema.set("properties", &properties);
    Some(schema)
}

fn repeat() -> serde_json::Value {
    json!({
        "type": "integer",
        "minimum": 2,
        "description": "Leave this out. An identical call is not done twice: it gets the first result. Only when the user \
                        wants the same thing once more, say 2 for the second time, 3 for the third.",
    })
}

fn status(name: &str) -> serde_json::Value {
    json!({
        "name": name,
        "description": "What became of calls to this server's tools that act: done, running, or unknown. Ask this before \
                        doing anything again whose result you do not have.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "tool": { "type": "string", "description": "The name of the tool. Without it: the most recent calls." },
                "arguments": { "type": "object", "description": "The arguments of the call." },
                "key": { "type": "string", "description": "Its key, instead of its arguments." },
            },
        },
        "annotations": { "readOnlyHint": true, "openWorldHint": false },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceward_runtime::config::{Deliver, KeyArgument, Tool};

    fn edit(answer: &str, tools: &Tools) -> Option<String> {
        edited(&Members::read(answer).unwrap(), tools).map(|answer| answer.to_json())
    }

    #[test]
    fn guarded_tools_take_one_more_argument_and_other_bytes_stay_unchanged() {
        let tools = Tools::default();
        let reads = r#"{"name":"get_x","inputSchema":{"type":"object"},"n":1.00}"#;
        let acts =
            r#"{"x":1e3,"name":"send","inputSchema":{"properties":{"to":{ "type":"string"}},"required":["to"]}}"#;
        let answer = format!(r#"{{"id":1,"result":{{"tools":[{reads},{acts}],"ttl":9007199254740993}}}}"#);
        let edited = edit(&answer, &tools).unwrap();
        assert!(edited.contains(reads), "{edited}");
        assert!(edited.contains(r#""to":{ "type":"string"},"onceward_repeat":{"#), "{edited}");
        assert!(edited.contains("\"x\":1e3") && edited.contains("9007199254740993"));
        assert!(edited.contains("\"onceward_status\""));
        let page = r#"{"id":1,"result":{"tools":[],"nextCursor":"2"}}"#;
        assert!(edit(page, &tools).is_none());
        assert!(edit(r#"{"id":1,"error":{}}"#, &tools).is_none());
    }

    #[test]
    fn a_list_without_a_guarded_tool_stays_unchanged() {
        let tools = Tools::default();
        let page = |tool: &str, next: &str| format!(r#"{{"id":1,"result":{{"tools":[{{"name":"{tool}"}}]{next}}}}}"#);
        assert!(edit(&page("get_x", ""), &tools).is_none());
        assert!(edit(&page("send", r#","nextCursor":"2""#), &tools).is_none());
        let last = edit(&page("get_y", ""), &tools).unwrap();
        assert!(last.contains("onceward_status"), "an earlier page has a guarded tool: {last}");
    }

    #[test]
    fn a_structured_result_may_have_a_notice_and_an_ambiguous_schema_is_left_alone() {
        let tools = Tools::default();
        let output =
            r#""outputSchema":{"type":"object","properties":{"id":{"type":"string"}},"additionalProperties":false}"#;
        let listed = |name: &str, input: &str| {
            format!(r#"{{"id":1,"result":{{"tools":[{{"name":"{name}","inputSchema":{input},{output}}}]}}}}"#)
        };
        let edited = edit(&listed("send", r#"{"properties":{"a":1,"a":2}}"#), &tools).unwrap();
        assert!(edited.contains(r#""properties":{"id":{"type":"string"},"onceward":{"#), "{edited}");
        assert!(edited.contains(r#"{"properties":{"a":1,"a":2}}"#) && !edited.contains(REPEAT), "{edited}");
        assert!(edit(&listed("get_x", "{}"), &Tools::default()).is_none(), "it only reads");
    }

    #[test]
    fn a_queued_tool_promises_no_result_and_says_that_it_is_queued() {
        let tool = Tool { deliver: Some(Deliver::Queue), ..Tool::default() };
        let tools = Tools::new([("add".to_owned(), tool)].into());
        let listed = r#"{"name":"add","description":"Adds it.","inputSchema":{},"outputSchema":{"type":"object"},"execution":{}}"#;
        let edited = edit(&format!(r#"{{"id":1,"result":{{"tools":[{listed}]}}}}"#), &tools).unwrap();
        assert!(!edited.contains("outputSchema") && !edited.contains("execution"), "{edited}");
        assert!(
            edited.contains(r#""description":"Adds it.\n\nCalls are queued: "#) && edited.contains(REPEAT),
            "{edited}"
        );
    }

    #[test]
    fn names_of_the_gateway_that_the_server_uses_are_left_to_the_server() {
        let tools = Tools::default();
        let theirs = r#"{"name":"send","inputSchema":{"properties":{"onceward_repeat":{"type":"null"}}}}"#;
        let answer = format!(r#"{{"id":1,"result":{{"tools":[{theirs},{{"name":"onceward_status"}}]}}}}"#);
        let edited = edit(&answer, &tools).unwrap();
        assert!(edited.contains(r#""onceward_repeat":{"type":"null"}"#), "{edited}");
        assert!(edited.contains("onceward_status_2"), "{edited}");
    }

    #[test]
    fn an_argument_that_the_gateway_fills_is_hidden() {
        let tool = Tool { key_argument: Some(KeyArgument::Named("idempotency_key".to_owned())), ..Tool::default() };
        let tools = Tools::new([("pay".to_owned(), tool)].into());
        let pay = r#"{"name":"pay","inputSchema":{"properties":{"a":{},"idempotency_key":{}},"required":["a","idempotency_key"]}}"#;
        let edited = edit(&format!(r#"{{"id":1,"result":{{"tools":[{pay}]}}}}"#), &tools).unwrap();
        assert!(!edited.contains("idempotency_key") && edited.contains(r#""required":["a"]"#), "{edited}");
    }
}
