//! Tools that promise structured results, and the notice in such a result: some clients show their models nothing else of it.

use serde_json::json;
use serde_json::value::RawValue;

use super::members::Members;

/// The member of a structured result that says what the gateway has to say of it.
const NOTICE: &str = "onceward";

/// What a schema may hold besides its properties so that one more of them is allowed, and means nothing else.
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

/// What a tool promises of its structured results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Typed {
    /// Nothing: any object will do.
    Free,
    /// An object that may have one more member, once that is listed.
    Open,
    /// Something that stays as it is.
    Closed,
    /// The server has not listed the tool.
    #[default]
    Unlisted,
}

impl Typed {
    /// What a tool promises, as the server lists it.
    pub(super) fn of(tool: &Members) -> Self {
        match tool.get("outputSchema").map(RawValue::get) {
            None | Some("null") => Self::Free,
            Some(schema) if Members::read(schema).is_some_and(|schema| is_open(&schema)) => Self::Open,
            Some(_) => Self::Closed,
        }
    }

    /// Whether clients refuse results without structured content, unless they are errors.
    pub(super) fn is_promised(self) -> bool {
        matches!(self, Self::Open | Self::Closed)
    }

    /// Adds a notice to the structured content of a result, where clients accept it.
    pub(super) fn note(self, result: &mut Members, text: &str) {
        if !matches!(self, Self::Free | Self::Open) {
            return;
        }
        if let Some(mut content) = result.object("structuredContent").filter(|content| content.get(NOTICE).is_none()) {
            content.set(NOTICE, &text);
            result.set("structuredContent", &content);
        }
    }
}

/// Lists the member for the notice, where the schema of a tool allows it. `false` when there is nothing to change.
pub(super) fn list_notice(tool: &mut Members) -> bool {
    let Some(mut schema) = tool.object("outputSchema").filter(is_open) else { return false };
    let Some(mut properties) = schema.object("properties") else { return false };
    let description = "Only there when this is not the result of a new call: says what it is instead.";
    properties.set(NOTICE, &json!({ "type": "string", "description": description }));
    schema.set("properties", &properties);
    tool.set("outputSchema", &schema);
    true
}

/// Whether a schema describes an object by its properties, and by nothing that one more of them could run into. A schema
/// without properties describes a map, and clients would read it as something else with one.
fn is_open(schema: &Members) -> bool {
    let is_object = schema.text("type").is_some_and(|kind| kind == "object");
    let properties = schema.object("properties");
    let is_free = properties.is_some_and(|properties| properties.len() > 0 && properties.get(NOTICE).is_none());
    // Members that no standard knows are annotations, such as those of libraries.
    is_object && is_free && schema.names().all(|name| HARMLESS.contains(&name) || name.starts_with("x-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(schema: &str) -> Members {
        Members::read(&format!(r#"{{"name":"send","outputSchema":{schema}}}"#)).unwrap()
    }

    #[test]
    fn a_schema_takes_one_more_property_only_where_it_can_mean_nothing_else() {
        for open in [
            r#"{"type":"object","properties":{"id":{}},"additionalProperties":false}"#,
            r##"{"type":"object","properties":{"id":{"$ref":"#/$defs/a"}},"required":["id"],"$defs":{"a":{}},"title":"T"}"##,
            r#"{"type":"object","properties":{"result":{"type":"integer"}},"x-fastmcp-wrap-result":true}"#,
        ] {
            let mut tool = tool(open);
            assert_eq!(Typed::of(&tool), Typed::Open, "{open}");
            assert!(list_notice(&mut tool) && tool.written().contains(r#""onceward":{"#), "{open}");
            assert_eq!(Typed::of(&tool), Typed::Closed, "listed twice");
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
            assert_eq!((Typed::of(&tool), list_notice(&mut tool)), (Typed::Closed, false), "{closed}");
        }
        assert_eq!(Typed::of(&Members::read("{}").unwrap()), Typed::Free);
        assert_eq!(Typed::of(&tool("null")), Typed::Free);
    }

    #[test]
    fn a_notice_stands_where_clients_accept_it() {
        let noted = |typed: Typed, result: &str| {
            let mut result = Members::read(result).unwrap();
            typed.note(&mut result, "again");
            result.written()
        };
        let (plain, marked) =
            (r#"{"structuredContent":{"n":1.00}}"#, r#"{"structuredContent":{"n":1.00,"onceward":"again"}}"#);
        for (typed, expected) in
            [(Typed::Free, marked), (Typed::Open, marked), (Typed::Closed, plain), (Typed::Unlisted, plain)]
        {
            assert_eq!(noted(typed, plain), expected, "{typed:?}");
        }
        for left in [r#"{"structuredContent":{"onceward":7}}"#, r#"{"structuredContent":[1]}"#, r#"{"content":[]}"#] {
            assert_eq!(noted(Typed::Free, left), left);
        }
    }
}
