//! How a queued call stands: in plain words for a model, and as a value for a program.

use onceward::core::name::{Identity, Tenant};
use onceward::core::outcome::{Body, Outcome, Verdict};
use onceward::core::policy::InDoubt;
use onceward::core::record::{Record, Seen, Standing, State};
use onceward::core::time::Timestamp;
use onceward_runtime::output::quoted;
use serde_json::{Value, json};

use super::super::members::Members;
use super::super::verdict::{ERROR, RESULT};

/// How a queued call stands.
#[derive(Debug)]
pub(in super::super) struct EntryView {
    pub(in super::super) state: &'static str,
    pub(in super::super) since: Timestamp,
    pub(in super::super) words: String,
    pub(super) attempts: u32,
    /// What the model wants is known not to have happened, or it is unknown and nothing tries again.
    pub(super) is_stuck: bool,
    outcome: Option<Outcome>,
}

impl EntryView {
    /// `None` if the record is not that of a queued call. `flags` are those with which `onceward` finds the ledger.
    pub(in super::super) fn of(seen: &Seen, flags: &str) -> Option<Self> {
        let (record, standing) = (&seen.record, seen.standing()?);
        let (identity, _entry) = (record.identity.as_ref()?, record.entry.as_ref()?);
        let (since, outcome) = match (&record.state, standing) {
            (State::Done { finished_at, outcome, .. }, _) => (*finished_at, Some(outcome.clone())),
            (_, Standing::InDoubt { since }) => (since, None),
            _ => (record.updated_at, None),
        };
        let is_tried_again = is_tried_again(record);
        let (words, is_stuck) = match standing {
            Standing::Queued { due } | Standing::Open { not_before: due } => (waiting(record, due), false),
            Standing::Running { .. } => ("a courier is calling it now".to_owned(), false),
            Standing::InDoubt { .. } if is_tried_again => {
                let why = why(record, "no response was received");
                (format!("unknown: it may have happened ({why}). A courier finds out and tries again by itself"), false)
            }
            Standing::InDoubt { .. } => (in_doubt(record, identity, flags), true),
            Standing::Done => (done(outcome.as_ref()), false),
            Standing::Tombstone => ("done; its result is no longer stored".to_owned(), false),
            Standing::Dead => (dead(record, identity, flags), true),
        };
        let state = match standing {
            Standing::Open { .. } => "queued",
            standing => standing.status().as_str(),
        };
        Some(Self { state, since, words, attempts: record.attempts, is_stuck, outcome })
    }

    /// Whether the tool has failed for good.
    pub(super) fn has_failed(&self) -> bool {
        self.outcome.as_ref().is_some_and(|outcome| outcome.verdict == Verdict::Failure)
    }

    /// The stored result, as a value; `None` if there is none.
    pub(in super::super) fn result(&self) -> Option<Value> {
        let outcome = self.outcome.as_ref()?;
        let Body::Kept(body) = &outcome.body else { return None };
        let text = String::from_utf8_lossy(body);
        let value = serde_json::from_str::<Value>(&text).ok();
        Some(match (outcome.content_type.as_str(), value) {
            (ERROR, Some(error)) => json!({ "error": error }),
            (_, Some(value)) => value,
            (_, None) => Value::String(text.into_owned()),
        })
    }

    /// The blocks of content of the stored result.
    pub(in super::super) fn content(&self) -> Vec<Value> {
        let Some(outcome) = &self.outcome else { return Vec::new() };
        let Body::Kept(body) = &outcome.body else {
            return vec![text_block("Its result was too large to be stored.")];
        };
        let text = String::from_utf8_lossy(body);
        let members = Members::read(&text);
        let blocks = || serde_json::from_str::<Vec<Value>>(members.as_ref()?.get("content")?.get()).ok();
        match outcome.content_type.as_str() {
            RESULT => blocks().unwrap_or_default(),
            ERROR => {
                let message = members.as_ref().and_then(|error| error.text("message"));
                vec![text_block(&message.unwrap_or_else(|| text.into_owned()))]
            }
            // A person has settled it.
            _ if text.trim().is_empty() => Vec::new(),
            _ => vec![text_block(&text)],
        }
    }
}

/// Whether a courier goes on with an entry in doubt. One whose courier is gone has no time for that yet.
fn is_tried_again(record: &Record) -> bool {
    match record.state {
        State::InDoubt { retry_at, .. } => retry_at.is_some(),
        _ => matches!(record.terms.in_doubt, InDoubt::Retry | InDoubt::Probe),
    }
}

pub(super) fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn why<'a>(record: &'a Record, otherwise: &'a str) -> &'a str {
    record.last_error.as_deref().unwrap_or(otherwise)
}

fn waiting(record: &Record, due: Timestamp) -> String {
    match (record.attempts, &record.last_error) {
        (0, None) => "queued: no courier has called it yet".to_owned(),
        (attempts, _) => {
            let why = why(record, "it is unknown why");
            format!("queued: attempt {attempts} did nothing ({why}). It is tried again at {due}")
        }
    }
}

fn in_doubt(record: &Record, identity: &Identity, flags: &str) -> String {
    let why = why(record, "no response was received");
    let command = command("resolve", identity, flags);
    format!(
        "unknown: it may have happened ({why}). Do not call it again, not even with other arguments: check whether it happened, \
         tell the user what is unknown, and let a person settle it: {command} --happened (or --did-not-happen)"
    )
}

fn dead(record: &Record, identity: &Identity, flags: &str) -> String {
    let why = why(record, "it is unknown why");
    let command = command("requeue", identity, flags);
    format!(
        "not done, and no longer tried: {why}. Tell the user; a person who has removed the cause can have it tried again: \
         {command}"
    )
}

fn done(outcome: Option<&Outcome>) -> String {
    match outcome.map(|outcome| (outcome.verdict, outcome.content_type.as_str())) {
        Some((Verdict::Failure, _)) => "the tool was called and reported a final failure".to_owned(),
        Some((Verdict::Success, RESULT)) | None => "done".to_owned(),
        Some((Verdict::Success, _)) => "done: a person checked and settled it".to_owned(),
    }
}

/// A command for a person about this call.
fn command(verb: &str, identity: &Identity, flags: &str) -> String {
    let tenant = match &identity.tenant {
        tenant if *tenant == Tenant::default() => String::new(),
        tenant => format!(" --tenant {}", quoted(tenant.as_str())),
    };
    let (operation, key) = (quoted(identity.operation.as_str()), quoted(identity.key.as_str()));
    format!("onceward {verb}{flags}{tenant} --operation {operation} --key {key}")
}

#[cfg(test)]
mod tests {
    use onceward::courier::{Courier, Health, Parcel, Route, Sink, SinkResult, async_trait};
    use onceward::{EnqueueOptions, Ledger};

    use super::*;

    /// Ends every attempt like this.
    struct EndsWith(SinkResult);

    #[async_trait]
    impl Sink for EndsWith {
        async fn deliver(&self, _: &Parcel) -> SinkResult {
            self.0.clone()
        }
    }

    async fn view_after(result: Option<SinkResult>) -> EntryView {
        let ledger = Ledger::open("memory:").await.unwrap();
        let call = ledger.operation("mcp:mail/send").key("k");
        call.enqueue(&json!({}), EnqueueOptions::default()).await.unwrap();
        if let Some(result) = result {
            let route = Route::to("mcp:mail", std::sync::Arc::new(EndsWith(result)));
            Courier::new(ledger.clone()).route("mcp:mail/send", route).unwrap().run_until_idle().await;
        }
        EntryView::of(&call.get().await.unwrap().unwrap().seen, " --store x.db").unwrap()
    }

    fn refused(again: bool) -> SinkResult {
        SinkResult::Refused {
            error: "it was down".to_owned(),
            retry_after: Some(std::time::Duration::from_secs(60)),
            again,
            health: Health::Working,
        }
    }

    #[tokio::test]
    async fn each_state_is_told_in_words_that_a_model_can_act_on() {
        let (error, health) = ("it asked".to_owned(), Health::Working);
        let failure = Outcome::of(Verdict::Failure, ERROR, r#"{"code":7,"message":"no such address"}"#);
        for (result, state, words, is_stuck) in [
            (None, "queued", "no courier has called it yet", false),
            (Some(refused(true)), "queued", "attempt 1 did nothing (it was down)", false),
            (Some(refused(false)), "dead", "onceward requeue --store x.db --operation mcp:mail/send --key k", true),
            (Some(SinkResult::AwaitsPerson { error, health }), "in_doubt", "onceward resolve --store x.db", true),
            (Some(SinkResult::Ended(Outcome::of(Verdict::Success, RESULT, "{}"))), "done", "done", false),
            (Some(SinkResult::Ended(failure)), "done", "a final failure", false),
        ] {
            let view = view_after(result).await;
            assert_eq!((view.state, view.is_stuck), (state, is_stuck), "{}", view.words);
            assert!(view.words.contains(words), "{}", view.words);
        }
    }

    #[tokio::test]
    async fn a_stored_result_is_shown_with_its_content() {
        let ended = |outcome| view_after(Some(SinkResult::Ended(outcome)));
        let body = r#"{"content":[{"type":"text","text":"sent"}],"structuredContent":{"id":1}}"#;
        let view = ended(Outcome::of(Verdict::Success, RESULT, body)).await;
        assert_eq!(view.content(), [text_block("sent")]);
        assert_eq!(view.result(), serde_json::from_str(body).unwrap());
        let view = ended(Outcome::of(Verdict::Failure, ERROR, r#"{"code":7,"message":"no such address"}"#)).await;
        assert_eq!((view.content(), view.has_failed()), (vec![text_block("no such address")], true));
        let large = ended(Outcome::of(Verdict::Success, RESULT, "x".repeat(1 << 20))).await;
        assert_eq!((large.result(), large.content().len()), (None, 1));
    }
}
