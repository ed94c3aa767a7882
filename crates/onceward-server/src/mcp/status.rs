//! Our own tool: what became of calls, so that a model looks before it tries again.

use onceward::core::record::{Seen, Standing, State};
use onceward::store::Filter;
use serde_json::{Value, json};

use super::call::Asked;
use super::gate::Gate;
use super::members::Members;
use super::reply::{Reply, ledger_down, unfit};

/// How many of the most recent calls are shown, and among how many intents they are looked for.
const SHOWN: usize = 20;
const PAGE: usize = 100;
const PAGES: usize = 5;

/// The answer to a call of it.
pub(super) async fn answer(gate: &Gate, asked: &Asked) -> Reply {
    let arguments = asked.arguments();
    let Ok(ledger) = gate.books.ledger().await else { return ledger_down(&asked.tool) };
    let (tool, key) = (arguments.text("tool"), arguments.text("key"));
    let Some(tool) = tool else { return recent(gate, &ledger, asked).await };
    let about = asked.about(&tool, arguments.object("arguments").unwrap_or_default(), key, &gate.tools);
    let call = match about.and_then(|about| about.call(&ledger, &gate.naming, &gate.tools, about.repeat)) {
        Ok(call) => call,
        Err(why) => return unfit(&why.0),
    };
    let intent = match ledger.get(&call.identity).await {
        Ok(intent) => intent,
        Err(error) => return unfit(&error.to_string()),
    };
    let shown = intent.as_ref().and_then(|intent| shown(&intent.seen, &tool));
    match shown {
        Some((text, value)) => said(&text, &value),
        None => {
            let text = format!("Nothing is known of this call of {tool}: it was not made, or too long ago.");
            said(&text, &json!({ "state": "unknown_call", "tool": tool, "means": text }))
        }
    }
}

async fn recent(gate: &Gate, ledger: &onceward::Ledger, asked: &Asked) -> Reply {
    let filter = Filter { tenant: Some(asked.tenant.clone()), ..Filter::default() };
    let (mut after, mut calls, prefix) = (None, Vec::new(), gate.naming.prefix(asked.scope()));
    for _ in 0..PAGES {
        let page = match ledger.list(&filter, after, PAGE).await {
            Ok(page) => page,
            Err(error) => return unfit(&error.to_string()),
        };
        for seen in &page.seen {
            let operation = seen.record.identity.as_ref().map(|identity| identity.operation.as_str().to_owned());
            let tool = operation.as_deref().and_then(|operation| operation.strip_prefix(&prefix));
            calls.extend(tool.and_then(|tool| shown(seen, tool)));
        }
        after = page.next;
        if after.is_none() || calls.len() >= SHOWN {
            break;
        }
    }
    calls.truncate(SHOWN);
    let (texts, values): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
    let mut text = if texts.is_empty() { "No calls are known.".to_owned() } else { texts.join("\n") };
    if values.len() < SHOWN && after.is_some() {
        text += &format!(" Only the newest {} entries of the ledger were looked at.", PAGES * PAGE);
    }
    said(&text, &json!({ "calls": values }))
}

/// One call, in words and for programs. Some agents show their models only what is for programs, so the words are there too.
fn shown(seen: &Seen, tool: &str) -> Option<(String, Value)> {
    let (standing, record) = (seen.standing()?, &seen.record);
    let state = standing.status().as_str();
    let key = record.identity.as_ref().map(|identity| identity.key.as_str());
    let since = match (&record.state, standing) {
        (State::Done { finished_at, .. }, _) => *finished_at,
        (_, Standing::InDoubt { since }) => since,
        _ => record.updated_at,
    };
    let words = match standing {
        Standing::Done => "done; the same call gets its stored result".to_owned(),
        Standing::Tombstone => "done, and its result is no longer kept".to_owned(),
        Standing::Running { .. } => "running; the same call waits for its result".to_owned(),
        Standing::InDoubt { .. } => {
            "unknown: it may have happened. Do not call it again; look whether it did".to_owned()
        }
        Standing::Open { .. } => "not done: the last attempt did nothing. It may be called again".to_owned(),
        _ => state.to_owned(),
    };
    let text = format!("{tool} ({}), {since}: {words}.", key.unwrap_or("no key"));
    Some((text, json!({ "tool": tool, "key": key, "state": state, "since": since.to_string(), "means": words })))
}

fn said(text: &str, value: &Value) -> Reply {
    let mut result = Members::default();
    result.set("content", &json!([{ "type": "text", "text": text }]));
    result.set("structuredContent", value);
    result.set("isError", &false);
    Reply::Result(result)
}
