//! The gateway's own tool: reports the state of calls, so that a model can check before it tries again.

use std::time::Duration;

use onceward::core::duration;
use onceward::core::policy::InDoubt;
use onceward::core::record::{Seen, Standing, State};
use onceward::core::time::Timestamp;
use onceward::store::Filter;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::call::{InvalidCall, ToolCall};
use super::gate::Gate;
use super::members::Members;
use super::queued::EntryView;
use super::reply::{Reply, ledger_down, status_error};
use super::tool_name::on_server;

/// How many recent calls are shown, and how many intents are searched for them.
const MAX_SHOWN: usize = 20;
const PAGE_SIZE: usize = 100;
const MAX_PAGES: usize = 5;

/// The calls that the model asks about.
#[derive(Debug)]
enum StatusQuery {
    /// The most recent calls.
    Recent,
    /// The call of this tool with this key, whatever its arguments.
    Key(String, String),
    /// The call of this tool with these arguments.
    Arguments(String, Members),
}

impl StatusQuery {
    /// Reads the arguments. Refuses what it cannot read: a reply would be about another call.
    fn read(arguments: &Members) -> Result<Self, InvalidCall> {
        let text = |name: &str| match arguments.get(name).filter(|given| given.get() != "null") {
            None => Ok(None),
            Some(_) => arguments.text(name).map(Some).ok_or_else(|| InvalidCall(format!("{name} must be a string"))),
        };
        let (tool, key) = (text("tool")?, text("key")?);
        let given = match arguments.get("arguments").map(RawValue::get) {
            None | Some("null") => None,
            Some(_) => Some(object(arguments)?),
        };
        match (tool, key, given) {
            (Some(tool), Some(key), _) => Ok(Self::Key(tool, key)),
            (Some(tool), None, given) => Ok(Self::Arguments(tool, given.unwrap_or_default())),
            (None, None, None) => Ok(Self::Recent),
            (None, ..) => Err(InvalidCall("tool is missing: name the tool that the call is of".to_owned())),
        }
    }
}

/// The arguments of a call: an object, or its JSON in a string, as many models send it.
fn object(arguments: &Members) -> Result<Members, InvalidCall> {
    let text = arguments.text("arguments");
    let given = arguments.object("arguments").or_else(|| text.as_deref().and_then(Members::read));
    given.ok_or_else(|| InvalidCall("arguments must be an object without duplicate names".to_owned()))
}

/// The reply to a call of the status tool.
pub(super) async fn answer(gate: &Gate, tool_call: &ToolCall) -> Reply {
    let Ok(ledger) = gate.lazy_ledger.ledger().await else { return ledger_down(&tool_call.tool) };
    let (tool, identity) = match StatusQuery::read(tool_call.arguments()) {
        Ok(StatusQuery::Recent) => return recent(gate, &ledger, tool_call).await,
        Ok(StatusQuery::Key(tool, key)) => {
            let Some(tool) = on_server(&tool, &gate.tools).map(str::to_owned) else { return unknown_tool(&tool) };
            let identity = tool_call.identity(&gate.settings, &tool, &key);
            (tool, identity)
        }
        Ok(StatusQuery::Arguments(tool, arguments)) => {
            let Some(tool) = on_server(&tool, &gate.tools).map(str::to_owned) else { return unknown_tool(&tool) };
            let about = tool_call.about(&tool, arguments, None, &gate.tools);
            let call = about.and_then(|about| about.call(&ledger, &gate.settings, &gate.tools, about.repeat));
            (tool, call.map(|call| call.identity))
        }
        Err(why) => return status_error(&why.0),
    };
    let intent = match identity {
        Ok(identity) => ledger.get(&identity).await,
        Err(why) => return status_error(&why.0),
    };
    let intent = match intent {
        Ok(intent) => intent,
        Err(error) => return status_error(&error.to_string()),
    };
    let tool = format!("{}{tool}", gate.settings.tool_prefix);
    let entry = intent.as_ref().and_then(|intent| EntryView::of(&intent.seen, &gate.replies.flags));
    let described = intent.as_ref().and_then(|intent| described(&intent.seen, &tool, &gate.replies.flags));
    match described {
        Some((text, mut value)) => {
            let outcome = entry.as_ref().and_then(EntryView::result);
            if let (Some(outcome), Some(value)) = (outcome, value.as_object_mut()) {
                value.insert("outcome".to_owned(), outcome);
            }
            status_reply(&text, entry.map(|entry| entry.content()).unwrap_or_default(), &value)
        }
        None => {
            let text =
                format!("There is no record of this call of {tool}: it was not made, or its record has expired.");
            status_reply(&text, Vec::new(), &json!({ "state": "unknown_call", "tool": tool, "means": text }))
        }
    }
}

/// The answer about a tool that the server does not have. It must not look like an answer about a call.
fn unknown_tool(tool: &str) -> Reply {
    status_error(&format!("the server has no tool `{tool}`: name the tool as the server lists it"))
}

async fn recent(gate: &Gate, ledger: &onceward::Ledger, tool_call: &ToolCall) -> Reply {
    let filter = Filter { tenant: Some(tool_call.tenant.clone()), ..Filter::default() };
    let shown = |tool: &str| format!("{}{tool}", gate.settings.tool_prefix);
    let (mut after, mut calls, prefix) = (None, Vec::new(), gate.settings.prefix(tool_call.scope()));
    for _ in 0..MAX_PAGES {
        let page = match ledger.list(&filter, after, PAGE_SIZE).await {
            Ok(page) => page,
            Err(error) => return status_error(&error.to_string()),
        };
        for seen in page.listed.iter().map(|listed| &listed.seen) {
            let operation = seen.record.identity.as_ref().map(|identity| identity.operation.as_str().to_owned());
            let tool = operation.as_deref().and_then(|operation| operation.strip_prefix(&prefix));
            calls.extend(tool.and_then(|tool| described(seen, &shown(tool), &gate.replies.flags)));
        }
        after = page.next;
        if after.is_none() || calls.len() >= MAX_SHOWN {
            break;
        }
    }
    calls.truncate(MAX_SHOWN);
    let (texts, values): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
    // Records cannot be filtered by session: a session is part of the hashed key.
    let mut text = match texts.len() {
        0 => "No calls are recorded.".to_owned(),
        _ => format!("The most recent calls of all sessions:\n{}", texts.join("\n")),
    };
    if values.len() < MAX_SHOWN && after.is_some() {
        text += &format!(" Only the newest {} entries of the ledger were searched.", MAX_PAGES * PAGE_SIZE);
    }
    status_reply(&text, Vec::new(), &json!({ "calls": values }))
}

/// One call as text and as a value. The value contains the text, because some clients show their models only the value.
fn described(seen: &Seen, tool: &str, flags: &str) -> Option<(String, Value)> {
    let (standing, record) = (seen.standing()?, &seen.record);
    let key = record.identity.as_ref().map(|identity| identity.key.as_str());
    if let Some(EntryView { state, since, words, .. }) = EntryView::of(seen, flags) {
        return Some(called(tool, key, state, since, &words));
    }
    let state = standing.status().as_str();
    let since = match (&record.state, standing) {
        (State::Done { finished_at, .. }, _) => *finished_at,
        (_, Standing::InDoubt { since }) => since,
        _ => record.updated_at,
    };
    let words = match standing {
        Standing::Done => match record.terms.after_delivery {
            None => "done; the same call returns the stored result".to_owned(),
            Some(Duration::ZERO) => "done; if you received the response, the same call does it once more".to_owned(),
            Some(after) => format!(
                "done; the same call returns the stored result until {} after the response, then does it once more",
                duration::format(after)
            ),
        },
        Standing::Tombstone => "done; its result is no longer stored".to_owned(),
        Standing::Running { .. } => "running; the same call waits for its result".to_owned(),
        Standing::InDoubt { .. } if record.terms.in_doubt == InDoubt::Tell => {
            "unknown: it may have happened. Check whether it did; if it did not, the same call runs once you have been told"
                .to_owned()
        }
        Standing::InDoubt { .. } => {
            "unknown: it may have happened. Do not call it again; check whether it did".to_owned()
        }
        Standing::Open { .. } => "not done: the last attempt had no effect. You may call it again".to_owned(),
        _ => state.to_owned(),
    };
    Some(called(tool, key, state, since, &words))
}

fn called(tool: &str, key: Option<&str>, state: &str, since: Timestamp, words: &str) -> (String, Value) {
    let text = format!("{tool} ({}), {since}: {words}.", key.unwrap_or("no key"));
    (text, json!({ "tool": tool, "key": key, "state": state, "since": since.to_string(), "means": words }))
}

/// `more` are further blocks of content.
fn status_reply(text: &str, more: Vec<Value>, value: &Value) -> Reply {
    let mut result = Members::default();
    let content: Vec<Value> = std::iter::once(json!({ "type": "text", "text": text })).chain(more).collect();
    result.set("content", &content);
    result.set("structuredContent", value);
    result.set("isError", &false);
    Reply::Result(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(arguments: &str) -> Result<String, InvalidCall> {
        StatusQuery::read(&Members::read(arguments).unwrap()).map(|query| match query {
            StatusQuery::Recent => "recent".to_owned(),
            StatusQuery::Key(tool, key) => format!("{tool} {key}"),
            StatusQuery::Arguments(tool, arguments) => format!("{tool} {}", arguments.to_json()),
        })
    }

    #[test]
    fn queries_are_read_as_models_send_them_or_refused() {
        for (arguments, expected) in [
            (r#"{"tool":"t","arguments":{"a":1}}"#, r#"t {"a":1}"#),
            (r#"{"tool":"t","arguments":"{\"a\":1}"}"#, r#"t {"a":1}"#),
            (r#"{"tool":"t"}"#, "t {}"),
            (r#"{"tool":"t","key":"k"}"#, "t k"),
            (r#"{"tool":"t","key":"k","arguments":null}"#, "t k"),
            ("{}", "recent"),
            (r#"{"tool":null,"key":null}"#, "recent"),
        ] {
            assert_eq!(query(arguments).as_deref(), Ok(expected), "{arguments}");
        }
        for wrong in [
            r#"{"key":"k"}"#,
            r#"{"arguments":{"a":1}}"#,
            r#"{"tool":7}"#,
            r#"{"tool":"t","key":7}"#,
            r#"{"tool":"t","arguments":"a=1"}"#,
            r#"{"tool":"t","arguments":[1]}"#,
            r#"{"tool":"t","arguments":{"a":1,"a":2}}"#,
        ] {
            assert!(query(wrong).is_err(), "{wrong}");
        }
    }
}
