//! `onceward get`: shows one intent.

use onceward::core::name::Identity;
use onceward::core::outcome::{Body, Outcome};
use onceward::core::record::{Standing, State};
use onceward::store::Durability;
use onceward::{Intent, StoreUrl};
use serde_json::{Value, json};

use super::intent_arguments::{IntentArguments, command_line};
use super::opening::open_holding;
use super::{Global, block_on};
use crate::run::{CONTENT_TYPE, Stream, decode};
use onceward_runtime::exit::{Fault, NO};
use onceward_runtime::output;
use onceward_server::view::{IntentView, KeyDisplay, age, table};

/// Show one intent
///
/// Exits with 1 if the intent does not exist.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  onceward get --operation digest --key 2026-11-15")]
pub(super) struct Get {
    #[command(flatten)]
    intent: IntentArguments,
    /// Show keys that look like e-mail addresses, phone numbers or card numbers, instead of a digest
    #[arg(long)]
    show_keys: bool,
    /// With --json, print the payload of an entry of the outbox too
    #[arg(long, requires = "json")]
    show_payload: bool,
    /// Print one JSON object, with the outcome and the audit trail
    #[arg(long)]
    json: bool,
}

impl Get {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        let settings = global.settings()?;
        let keys = KeyDisplay::shown_if(self.show_keys);
        block_on(async {
            let identity = self.intent.identity(global, &settings).await?;
            let (ledger, store) = open_holding(&settings, &identity).await?;
            let found = ledger.get(&identity).await?;
            let durability = ledger.durability_of(&identity.operation).await?;
            ledger.close().await;
            let shown = found.as_ref().and_then(|intent| Some((intent, IntentView::of(&intent.seen, keys)?)));
            let Some((intent, view)) = shown else {
                output::say(&format!("{identity} not found in {store}"));
                return Ok(NO);
            };
            if self.json {
                let mut value = as_json(intent, &view);
                if let Some(payload) = intent.seen.record.payload.as_ref().filter(|_| self.show_payload) {
                    value["payload"] = json!(Body::Kept(payload.clone()));
                }
                value["store"] = json!({ "url": store.to_string(), "durability": durability });
                output::json(&value);
            } else {
                let resolve = command_line("resolve", settings.store_argument().as_deref(), &identity, keys);
                output::out(&as_text(intent, &view, &identity, keys, warning(&store, &durability), &resolve));
            }
            Ok(0)
        })
    }
}

fn as_json(intent: &Intent, view: &IntentView) -> Value {
    let mut value = json!(view);
    value["trail"] = json!(intent.trail.iter().map(entry).collect::<Vec<_>>());
    if let (State::Done { outcome, .. }, Some(Standing::Done)) = (&intent.seen.record.state, intent.seen.standing()) {
        for (name, content) in contents(outcome) {
            value["outcome"][name] = content;
        }
    }
    value
}

fn entry(entry: &onceward::store::AuditEntry) -> Value {
    json!({ "at": entry.at.to_string(), "what": entry.event.what, "by": entry.event.by, "token": entry.event.token, "note": entry.event.note })
}

/// The bytes of an outcome: both streams of a command, or the body.
fn contents(outcome: &Outcome) -> Vec<(&'static str, Value)> {
    let Body::Kept(body) = &outcome.body else { return vec![("body", json!(outcome.body))] };
    let segments = if outcome.content_type == CONTENT_TYPE { decode(body) } else { None };
    let Some(segments) = segments else { return vec![("body", json!(outcome.body))] };
    let of = |stream| {
        let parts = segments.iter().filter(|segment| segment.stream == stream).map(|segment| &segment.bytes[..]);
        json!(Body::Kept(parts.collect::<Vec<_>>().concat().into()))
    };
    vec![("stdout", of(Stream::Stdout)), ("stderr", of(Stream::Stderr))]
}

/// What the operator must know about the store of an intent.
fn warning(store: &StoreUrl, durability: &Durability) -> Option<String> {
    (*durability != Durability::Durable).then(|| format!("{store} is not durable: {durability}"))
}

/// The intent as a table. `store` says what is wrong with its store, and `resolve` is the command line that settles it.
fn as_text(
    intent: &Intent,
    view: &IntentView,
    identity: &Identity,
    keys: KeyDisplay,
    store: Option<String>,
    resolve: &str,
) -> String {
    let seen = &intent.seen;
    let ago = |time| format!("{time} ({})", age(time, seen.now));
    let mut rows = vec![
        ("intent", identity.to_string()),
        ("tenant", identity.tenant.to_string()),
        ("operation", identity.operation.to_string()),
        ("key", keys.masked(&identity.key).unwrap_or_else(|| identity.key.as_str().to_owned())),
        ("state", view.state.to_owned()),
        ("attempts", view.attempts.to_string()),
        ("version", view.version.to_string()),
        ("recorded", ago(seen.record.created_at)),
        ("changed", ago(seen.record.updated_at)),
    ];
    let mut add = |name, value: Option<String>| rows.extend(value.map(|value| (name, value)));
    add("item", view.sequence.map(|number| number.to_string()));
    add("running until", view.running_until.clone());
    add("not before", view.not_before.clone());
    add("in doubt since", view.doubt_since.clone());
    add("finished", view.finished_at.clone());
    add("kept until", view.expires_at.clone());
    add("last error", view.last_error.clone());
    add(
        "outcome",
        view.outcome.as_ref().map(|outcome| {
            let kept = if outcome.kept { "kept" } else { "too large to keep" };
            format!("{}, {}{} bytes {kept}", word(outcome.verdict), outcome.ended(), outcome.size)
        }),
    );
    if let Some(entry) = &view.entry {
        add("priority", Some(json!(entry.priority).as_str().unwrap_or_default().to_owned()));
        add("due", entry.due_at.clone());
        add("tried until", entry.deliver_until.clone());
        add("max attempts", entry.max_attempts.map(|most| most.to_string()));
        add("sink", entry.sink.clone());
        add("run", entry.rerun.as_ref().map(|rerun| format!("{}, after {}", rerun.run, rerun.of)));
        add("payload", seen.record.payload.as_ref().map(|payload| format!("{} bytes", payload.len())));
    }
    add("reference", view.outcome.as_ref().and_then(|outcome| outcome.reference.clone()));
    add("store", store);
    for entry in &intent.trail {
        let by = entry.event.by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
        let token = entry.event.token.as_deref().map(|token| format!(" (token {token})")).unwrap_or_default();
        let note = entry.event.note.as_deref().map(|note| format!(": {note}")).unwrap_or_default();
        add("trail", Some(format!("{} {}{by}{token}{note}", entry.at, entry.event.what.as_str())));
    }
    let rows: Vec<_> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    let mut text = table(&rows);
    if matches!(seen.standing(), Some(Standing::InDoubt { .. })) {
        text +=
            &format!("\n\nFind out whether it happened, then:\n  {resolve} --happened\n  {resolve} --did-not-happen");
    }
    if view.entry.is_some() && matches!(seen.standing(), Some(Standing::Dead)) {
        text += &format!(
            "\n\nIt is not tried again. To have it tried again:\n  {}",
            resolve.replacen("resolve", "requeue", 1)
        );
    }
    text
}

fn word(verdict: onceward::core::outcome::Verdict) -> &'static str {
    match verdict {
        onceward::core::outcome::Verdict::Success => "success",
        onceward::core::outcome::Verdict::Failure => "final failure",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use onceward::Ledger;

    use super::*;

    #[tokio::test]
    async fn a_store_that_may_lose_the_intent_is_shown() {
        let ledger = Ledger::open("memory:").await.unwrap();
        ledger.operation("a").key("1").run(|_| async { Ok(1) }).await.unwrap();
        let call = ledger.operation("a").key("1").call().unwrap();
        let intent = ledger.get(&call.identity).await.unwrap().unwrap();
        let keys = KeyDisplay::shown_if(false);
        let view = IntentView::of(&intent.seen, keys).unwrap();
        let store = StoreUrl::from("redis://:hunter2@h");
        let text = |durability: &Durability| {
            as_text(&intent, &view, &call.identity, keys, warning(&store, durability), "onceward resolve")
        };
        let shown = text(&Durability::unless(vec!["appendfsync is everysec".to_owned()]));
        assert!(shown.contains("redis://:…@h is not durable: best effort: appendfsync is everysec"), "{shown}");
        assert!(!text(&Durability::Durable).contains("redis://"));
    }
}
