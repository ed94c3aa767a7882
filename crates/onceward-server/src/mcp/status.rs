//! Our own tool: what became of calls, so that a model looks before it tries again.

use std::time::Duration;

use onceward::core::duration;
use onceward::core::policy::InDoubt;
use onceward::core::record::{Seen, Standing, State};
use onceward::store::Filter;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::call::{Asked, Unfit};
use super::gate::Gate;
use super::members::Members;
use super::reply::{Reply, ledger_down, unanswered};

/// How many of the most recent calls are shown, and among how many intents they are looked for.
const SHOWN: usize = 20;
const PAGE: usize = 100;
const PAGES: usize = 5;

/// Which call is asked about.
#[derive(Debug)]
enum Which {
    /// The most recent ones.
    Recent,
    /// The one with this key, whatever its arguments are.
    Key(String, String),
    /// The one with these arguments.
    Arguments(String, Members),
}

impl Which {
    /// What is asked for in a way that cannot be read is refused: any other answer would be about another call.
    fn read(arguments: &Members) -> Result<Self, Unfit> {
        let text = |name: &str| match arguments.get(name).filter(|given| given.get() != "null") {
            None => Ok(None),
            Some(_) => arguments.text(name).map(Some).ok_or_else(|| Unfit(format!("{name} must be a text"))),
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
            (None, ..) => Err(Unfit("say which tool it is about: the name of the tool is missing".to_owned())),
        }
    }
}

/// The arguments of a call: an object, or the text of one, which is how many models send it.
fn object(arguments: &Members) -> Result<Members, Unfit> {
    let text = arguments.text("arguments");
    let given = arguments.object("arguments").or_else(|| text.as_deref().and_then(Members::read));
    given.ok_or_else(|| Unfit("arguments must be an object that names nothing twice".to_owned()))
}

/// The answer to a call of it.
pub(super) async fn answer(gate: &Gate, asked: &Asked) -> Reply {
    let Ok(ledger) = gate.books.ledger().await else { return ledger_down(&asked.tool) };
    let (tool, identity) = match Which::read(asked.arguments()) {
        Ok(Which::Recent) => return recent(gate, &ledger, asked).await,
        Ok(Which::Key(tool, key)) => {
            let identity = asked.identity(&gate.naming, &tool, &key);
            (tool, identity)
        }
        Ok(Which::Arguments(tool, arguments)) => {
            let about = asked.about(&tool, arguments, None, &gate.tools);
            let call = about.and_then(|about| about.call(&ledger, &gate.naming, &gate.tools, about.repeat));
            (tool, call.map(|call| call.identity))
        }
        Err(why) => return unanswered(&why.0),
    };
    let intent = match identity {
        Ok(identity) => ledger.get(&identity).await,
        Err(why) => return unanswered(&why.0),
    };
    let intent = match intent {
        Ok(intent) => intent,
        Err(error) => return unanswered(&error.to_string()),
    };
    let tool = format!("{}{tool}", gate.naming.shown);
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
            Err(error) => return unanswered(&error.to_string()),
        };
        for seen in page.listed.iter().map(|listed| &listed.seen) {
            let operation = seen.record.identity.as_ref().map(|identity| identity.operation.as_str().to_owned());
            let tool = operation.as_deref().and_then(|operation| operation.strip_prefix(&prefix));
            calls.extend(tool.and_then(|tool| shown(seen, &format!("{}{tool}", gate.naming.shown))));
        }
        after = page.next;
        if after.is_none() || calls.len() >= SHOWN {
            break;
        }
    }
    calls.truncate(SHOWN);
    let (texts, values): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
    // Sessions are in keys only, which cannot be read.
    let mut text = match texts.len() {
        0 => "No calls are known.".to_owned(),
        _ => format!("The most recent calls, of every session:\n{}", texts.join("\n")),
    };
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
        Standing::Done => match record.terms.after_delivery {
            None => "done; the same call gets its stored result".to_owned(),
            Some(Duration::ZERO) => "done; if you have its answer, the same call does it once more".to_owned(),
            Some(after) => format!(
                "done; the same call gets its stored result, and does it once more from {} after the answer on",
                duration::format(after)
            ),
        },
        Standing::Tombstone => "done, and its result is no longer kept".to_owned(),
        Standing::Running { .. } => "running; the same call waits for its result".to_owned(),
        Standing::InDoubt { .. } if record.terms.in_doubt == InDoubt::Tell => {
            "unknown: it may have happened. Look whether it did; if it did not, the same call runs once you were told"
                .to_owned()
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn which(arguments: &str) -> Result<String, Unfit> {
        Which::read(&Members::read(arguments).unwrap()).map(|which| match which {
            Which::Recent => "recent".to_owned(),
            Which::Key(tool, key) => format!("{tool} {key}"),
            Which::Arguments(tool, arguments) => format!("{tool} {}", arguments.written()),
        })
    }

    #[test]
    fn what_is_asked_for_is_read_as_models_send_it_or_refused() {
        for (asked, expected) in [
            (r#"{"tool":"t","arguments":{"a":1}}"#, r#"t {"a":1}"#),
            (r#"{"tool":"t","arguments":"{\"a\":1}"}"#, r#"t {"a":1}"#),
            (r#"{"tool":"t"}"#, "t {}"),
            (r#"{"tool":"t","key":"k"}"#, "t k"),
            (r#"{"tool":"t","key":"k","arguments":null}"#, "t k"),
            ("{}", "recent"),
            (r#"{"tool":null,"key":null}"#, "recent"),
        ] {
            assert_eq!(which(asked).as_deref(), Ok(expected), "{asked}");
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
            assert!(which(wrong).is_err(), "{wrong}");
        }
    }
}
