//! Generates the reference page of the configuration from the types that it is parsed into.

use std::fmt::Write;

use schemars::{JsonSchema, Schema, schema_for};
use serde_json::Value;

use super::api::{Api, Token};
use super::file::{File, Limits, NamedStore, Operation, Window};
use super::gateway::{Gateway, Route};
use super::inbox::{HmacTable, Inbox};
use super::mcp::{Mcp, Probe, Server, Tool};
use super::route::SinkUse;
use super::sink::{CommandSink, HttpProbe, HttpSink, SmtpSink, SqlSink};

/// `docs/reference/configuration.md`.
pub fn reference() -> String {
    let mut page = String::from(
        "# onceward.toml\n\nGenerated from the code; to change it, change the code.\n\nOnceward takes the file that `--config` \
         names, then the one in `ONCEWARD_CONFIG`, then `onceward.toml` in the working directory. `onceward mcp` only takes a \
         file that is named. A flag overrides the file, and the file overrides the tier. An unknown field is an error. \
         Durations are whole numbers with the units `ms`, `s`, `m`, `h`, `d` and `w`: `\"30s\"`, `\"1h30m\"`.\n",
    );
    section::<File>(&mut page, "Top level");
    section::<NamedStore>(&mut page, "[stores.NAME]");
    section::<Limits>(&mut page, "[limits]");
    section::<Operation>(&mut page, "[operation.NAME]");
    section::<Window>(&mut page, "[operation.NAME.window]");
    section::<SinkUse>(&mut page, "[sink.NAME]");
    section::<HttpSink>(&mut page, "[sink.NAME] with type = \"http\"");
    section::<HttpProbe>(&mut page, "[sink.NAME.probe]");
    section::<CommandSink>(&mut page, "[sink.NAME] with type = \"command\"");
    section::<SmtpSink>(&mut page, "[sink.NAME] with type = \"smtp\"");
    section::<SqlSink>(&mut page, "[sink.NAME] with type = \"sql\"");
    section::<Inbox>(&mut page, "[[inbox]]");
    section::<HmacTable>(&mut page, "[inbox.hmac]");
    section::<Api>(&mut page, "[api]");
    section::<Token>(&mut page, "[[api.token]]");
    section::<Gateway>(&mut page, "[gateway]");
    section::<Route>(&mut page, "[[gateway.route]]");
    section::<Mcp>(&mut page, "[mcp]");
    section::<Server>(&mut page, "[mcp.server.NAME]");
    section::<Tool>(&mut page, "[mcp.server.NAME.tool.NAME]");
    section::<Probe>(&mut page, "[mcp.server.NAME.tool.NAME.probe]");
    page
}

fn section<T: JsonSchema>(page: &mut String, title: &str) {
    let schema = schema_for!(T);
    let _ = write!(page, "\n## `{title}`\n\n{}\n\n", text(&schema, "description"));
    page.push_str("| field | type | default | meaning |\n|---|---|---|---|\n");
    let Some(fields) = schema.get("properties").and_then(Value::as_object) else { return };
    for (name, field) in fields {
        let kind = words(field, &schema).unwrap_or_else(|| of(field, "x-type"));
        let _ = writeln!(page, "| `{name}` | {kind} | {} | {} |", of(field, "x-default"), of(field, "description"));
    }
}

/// The values of a choice, each with its meaning.
fn words(field: &Value, root: &Schema) -> Option<String> {
    let choices = field.get("anyOf")?.as_array()?;
    let reference = choices.iter().find_map(|choice| choice.get("$ref")?.as_str())?;
    let definition = root.get("$defs")?.get(reference.rsplit('/').next()?)?;
    let words = definition.get("oneOf")?.as_array()?.iter().map(|word| {
        let name = word.get("const").and_then(Value::as_str).unwrap_or_default();
        format!("`\"{name}\"`: {}", of(word, "description").trim_end_matches('.'))
    });
    Some(words.collect::<Vec<_>>().join("<br>"))
}

fn text(schema: &Schema, name: &str) -> String {
    schema.get(name).map(clean).unwrap_or_default()
}

fn of(value: &Value, name: &str) -> String {
    value.get(name).map(clean).unwrap_or_default()
}

fn clean(value: &Value) -> String {
    value.as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|")
}
