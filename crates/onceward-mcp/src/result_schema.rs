//! Tools with a schema for structured results, and the gateway's notice in such a result: some clients show their models only the
//! structured part. Pure.

use serde_json::json;
use serde_json::value::RawValue;

use super::members::Members;

/// The member of a structured result that holds the gateway's notice.
const NOTICE: &str = "onceward";

/// The keywords of a schema that allow one more property without changing its meaning.
const HARMLESS: [&str; 12] = [
    "$schema",
    "$id",
    "$defs",
    "definitions",
    "$comment",
    "title",
    "description",
    "type",
    "properties",
    "required",
    "additionalProperties",
    "minProperties",
];

/// A tool's schema for structured results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ResultSchema {
    /// No schema: any object is valid.
    NoSchema,
    /// An object to which the gateway can add a listed member.
    Extensible,
    /// A schema that the gateway cannot extend.
    Fixed,
    /// The server has not listed the tool.
    #[default]
    Unlisted,
}

impl ResultSchema {
    /// The schema in the server's list.
    pub(super) fn of(tool: &Members) -> Self {
        match tool.get("outputSchema").map(RawValue::get) {
            None | Some("null") => Self::NoSchema,
            Some(schema) if Members::read(schema).is_some_and(|schema| is_open(&schema)) => Self::Extensible,
            Some(_) => Self::Fixed,
        }
    }

    /// Whether clients refuse results without structured content, unless they are errors.
    pub(super) fn is_declared(self) -> bool {
        matches!(self, Self::Extensible | Self::Fixed)
    }

    /// Adds a notice to the structured content of a result, where clients accept it.
    pub(super) fn note(self, result: &mut Members, text: &str) {
        if !matches!(self, Self::NoSchema | Self::Extensible) {
            return;
        }
        if let Some(mut content) = result.object("structuredContent").filter(|content| content.get(NOTICE).is_none()) {
            content.set(NOTICE, &text);
            result.set("structuredContent", &content);
        }
    }
}

/// Adds the member for the notice to a tool's schema, where possible. Returns whether the tool changed.
pub(super) fn list_notice(tool: &mut Members) -> bool {
    let Some(mut schema) = tool.object("outputSchema").filter(is_open) else { return false };
    let Some(mut properties) = schema.object("properties") else { return false };
    let description = "Present only when this is not the result of a new call; says what it is instead.";
    properties.set(NOTICE, &json!({ "type": "string", "description": description }));
    schema.set("properties", &properties);
    tool.set("outputSchema", &schema);
    true
}

/// Whether a schema describes an object by its properties only, so that one more property is harmless. A schema without properties
/// describes a map; with one property it would mean something else.
fn is_open(schema: &Members) -> bool {
    let is_object = schema.text("type").is_some_and(|kind| kind == "object");
    let properties = schema.object("properties");
    let is_free = properties.is_some_and(|properties| properties.len() > 0 && properties.get(NOTICE).is_none());
    // Members that begin with `x-` are annotations of libraries.
    is_object && is_free && schema.names().all(|name| HARMLESS.contains(&name) || name.starts_with("x-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(schema: &str) -> Members {
        Members::read(&format!(r#"{{"name":"send","outputSchema":{schema}}}"#)).unwrap()
    }

    #[test]
    fn a_schema_is_extended_only_where_its_meaning_stays() {
        for open in [
            r#"{"type":"object","properties":{"id":{}},"additionalProperties":false}"#,
            r##"{"type":"object","properties":{"id":{"$ref":"#/$defs/a"}},"required":["id"],"$defs":{"a":{}},"title":"T"}"##,
            r#"{"type":"object","properties":{"result":{"type":"integer"}},"x-fastmcp-wrap-result":true}"#,
        ] {
            let mut tool = tool(open);
            assert_eq!(ResultSchema::of(&tool), ResultSchema::Extensible, "{open}");
            assert!(list_notice(&mut tool) && tool.to_json().contains(r#""onceward":{"#), "{open}");
            assert_eq!(ResultSchema::of(&tool), ResultSchema::Fixed, "listed twice");
        }
        for closed in [
            "true",
            "{}",
            r#"{"type":"object"}"#,
            r#"{"type":"array","items":{}}"#,
            r#"{"type":["object","null"],"properties":{"id":{}}}"#,
            r#"{"type":"object","properties":{}}"#,
            r#"{"type":"object","properties":{"onceward":{}}}"#,
            r#"{"type":"object","properties":{"id":{}},"patternProperties":{".":{"type":"integer"}}}"#,
            r#"{"type":"object","properties":{"id":{}},"unevaluatedProperties":false}"#,
            r#"{"type":"object","properties":{"id":{}},"maxProperties":1}"#,
            r#"{"type":"object","properties":{"id":{}},"anyOf":[{"additionalProperties":false}]}"#,
            r#"{"type":"object","properties":{"id":{}},"properties":{}}"#,
        ] {
            let mut tool = tool(closed);
            assert_eq!((ResultSchema::of(&tool), list_notice(&mut tool)), (ResultSchema::Fixed, false), "{closed}");
        }
        assert_eq!(ResultSchema::of(&Members::read("{}").unwrap()), ResultSchema::NoSchema);
        assert_eq!(ResultSchema::of(&tool("null")), ResultSchema::NoSchema);
    }

    #[test]
    fn a_notice_is_added_where_clients_accept_it() {
        let noted = |result_schema: ResultSchema, result: &str| {
            let mut result = Members::read(result).unwrap();
            result_schema.note(&mut result, "again");
            result.to_json()
        };
        let (plain, marked) =
            (r#"{"structuredContent":{"n":1.00}}"#, r#"{"structuredContent":{"n":1.00,"onceward":"again"}}"#);
        for (result_schema, expected) in [
            (ResultSchema::NoSchema, marked),
            (ResultSchema::Extensible, marked),
            (ResultSchema::Fixed, plain),
            (ResultSchema::Unlisted, plain),
        ] {
            assert_eq!(noted(result_schema, plain), expected, "{result_schema:?}");
        }
        for left in [r#"{"structuredContent":{"onceward":7}}"#, r#"{"structuredContent":[1]}"#, r#"{"content":[]}"#] {
            assert_eq!(noted(ResultSchema::NoSchema, left), left);
        }
    }
}
