//! The gateway's own replies to calls that were not carried out: a stored result, or why there is none. In plain words, because a
//! model acts on them.

use std::time::Duration;

use onceward::core::decide::Decision;
use onceward::core::duration;
use onceward::core::name::Tenant;
use onceward::core::outcome::{Body, JSON, Outcome};
use onceward::core::policy::InDoubt;
use onceward::core::time::Timestamp;
use onceward::http::problem::QUOTA_RETRY_AFTER;
use onceward::{Call, Error};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::call::REPEAT;
use super::delivery::OutgoingResponse;
use super::gate::Request;
use super::members::Members;
use super::message;
use super::repeat_rule::Rule;
use super::result_schema::ResultSchema;
use super::verdict::{ERROR, RESULT};
use onceward_runtime::output::quoted;

/// The member of `_meta` with everything about the gateway.
const META: &str = "onceward";

/// The member that says which kind of result it is.
const KIND: &str = "resultType";

/// Settings for replies.
#[derive(Clone, Debug)]
pub(super) struct Replies {
    /// Whether a stored result has a text that says so.
    pub(super) notice: bool,
    /// The flags with which `onceward` finds the same ledger from any folder.
    pub(super) flags: String,
    /// The name of the gateway's status tool.
    pub(super) status: &'static str,
}

/// A reply of the gateway.
#[derive(Debug)]
pub(super) enum Reply {
    /// The result of a tool.
    Result(Members),
    /// A stored error.
    Error(Box<RawValue>),
    /// The response to an equal call, which ran at the same time.
    Same(Members),
}

impl Reply {
    /// The response to a request, without a receipt: its delivery does not affect later calls.
    pub(super) fn answer(self, request: &Request) -> OutgoingResponse {
        self.line(request).into()
    }

    /// The line for a request. Newer protocol versions require `resultType` in every result, and older ones do not know it; a stored
    /// result may come from either.
    pub(super) fn line(self, request: &Request) -> Vec<u8> {
        let id = &request.written;
        match self {
            Self::Result(mut result) => {
                if request.is_modern() {
                    result.set(KIND, &"complete");
                } else {
                    result.remove(KIND);
                }
                message::result(id, &result)
            }
            Self::Error(error) => message::failure(id, &error),
            Self::Same(answer) => message::with_id(&answer, id),
        }
    }
}

/// The call that a reply is about.
#[derive(Clone, Copy)]
pub(super) struct ReplyContext<'a> {
    pub(super) tool: &'a str,
    /// The tool's schema for structured results.
    pub(super) result_schema: ResultSchema,
    pub(super) call: &'a Call,
    /// When an equal call is a repeat.
    pub(super) rule: Rule,
    pub(super) repeat: u32,
}

impl Replies {
    /// The reply to a repeat.
    pub(super) fn decided(&self, about: ReplyContext<'_>, decision: Decision, now: Timestamp) -> Reply {
        let tool = about.tool;
        match decision {
            Decision::Replay { outcome, finished_at, .. } => self.replayed(about, &outcome, finished_at, now),
            Decision::OutcomeNotKept { .. } => error_reply(
                "done_not_kept",
                about,
                &format!(
                    "This exact call of {tool} was already done and was not repeated. Its result is no longer stored. {}",
                    how_to_repeat(about)
                ),
                json!({}),
            ),
            Decision::InFlight { running: true, .. } | Decision::Acquired(_) => error_reply(
                "running",
                about,
                &format!(
                    "This exact call of {tool} was made before and is still running; it was not started again. Wait, then \
                     call {} or make the same call again to get its result.",
                    self.status
                ),
                json!({}),
            ),
            Decision::InFlight { retry_after, .. } => error_reply(
                "not_yet",
                about,
                &format!(
                    "This call of {tool} may not run yet; nothing was called. Make the same call again in {} seconds.",
                    retry_after.as_secs() + 1
                ),
                json!({ "retry_after_seconds": retry_after.as_secs() + 1 }),
            ),
            Decision::InDoubt { since } => self.in_doubt(about, since, None),
            Decision::Mismatch => error_reply(
                "mismatch",
                about,
                &format!(
                    "{tool} was called before for the same thing with different values. Nothing was done now, and the first \
                     call stands. Do not vary the arguments to get around this: if you mean something different, say what \
                     makes it different; if the first call was wrong, correct what it did."
                ),
                json!({}),
            ),
            Decision::Collision | Decision::MixedUse | Decision::OutOfOrder { .. } => error_reply(
                "refused",
                about,
                &format!("{tool} was not called: its key is already used for a different call."),
                json!({}),
            ),
            Decision::Queued { .. } | Decision::Dead => error_reply(
                "refused",
                about,
                &format!("{tool} was not called: this intent is queued in the outbox."),
                json!({}),
            ),
            _ => error_reply("refused", about, &format!("{tool} was not called: the ledger refused it."), json!({})),
        }
    }

    fn replayed(&self, about: ReplyContext<'_>, outcome: &Outcome, finished_at: Timestamp, now: Timestamp) -> Reply {
        let Body::Kept(body) = &outcome.body else {
            return self.decided(about, Decision::OutcomeNotKept { outcome: None, status: None }, now);
        };
        let text = String::from_utf8_lossy(body);
        let mark = json!({
            "state": "done",
            "replayed": true,
            "first_time": finished_at.to_string(),
            "key": about.call.identity.key.as_str(),
        });
        if outcome.content_type == ERROR
            && let Ok(error) = RawValue::from_string(text.clone().into_owned())
        {
            return Reply::Error(error);
        }
        let is_result = outcome.content_type == RESULT || outcome.content_type == JSON;
        let is_whole = |result: &Members| outcome.content_type == RESULT || result.get("content").is_some();
        let result = Members::read(&text).filter(|result| is_result && is_whole(result));
        let Some(mut result) = result else { return settled_by_person(about, &text, &mark) };
        if outcome.content_type != RESULT {
            mark_incomplete(&mut result, about);
        }
        if self.notice {
            let ago = ago(finished_at.until(now));
            let text = format!(
                "[onceward] This call was done {ago} and was not repeated: this is its stored result. {}",
                how_to_repeat(about)
            );
            add_text(&mut result, &text);
            about.result_schema.note(&mut result, &text);
        }
        set_meta(&mut result, &mark);
        Reply::Result(result)
    }

    /// The outcome is unknown. `why` is the reason in the record.
    pub(super) fn in_doubt(&self, about: ReplyContext<'_>, since: Timestamp, why: Option<&str>) -> Reply {
        let (tool, identity) = (about.tool, &about.call.identity);
        if about.call.policy.in_doubt == InDoubt::Tell {
            let why = why.unwrap_or("no response was received");
            let text = format!(
                "It is unknown whether {tool} took effect: this exact call was made at {since}, and {why}. It may have \
                 happened. First check whether it did; if it did not, make the same call again and it will run."
            );
            return error_reply("in_doubt", about, &text, json!({ "since": since.to_string(), "may_try_again": true }));
        }
        let tenant = match &identity.tenant {
            tenant if *tenant == Tenant::default() => String::new(),
            tenant => format!(" --tenant {}", quoted(tenant.as_str())),
        };
        let text = format!(
            "It is unknown whether {tool} took effect: this exact call was made at {since}, and {}. It may have happened. Do \
             not call it again, not even with other arguments or another key. Check with a read-only tool whether it happened, \
             tell the user what is unknown, and let a person settle it: onceward resolve{}{tenant} --operation {} --key {} \
             --happened (or --did-not-happen){}. Afterwards {} reports the outcome.",
            why.unwrap_or("no response was received"),
            self.flags,
            quoted(identity.operation.as_str()),
            quoted(identity.key.as_str()),
            if about.result_schema.is_declared() {
                ", with --value and its structured result as JSON if that is known"
            } else {
                ""
            },
            self.status,
        );
        error_reply("in_doubt", about, &text, json!({ "since": since.to_string() }))
    }

    /// The response to this call will not come.
    pub(super) fn lost(&self, about: ReplyContext<'_>, why: &str, now: Timestamp) -> Reply {
        if matches!(about.call.policy.in_doubt, InDoubt::Hold | InDoubt::Tell) {
            return self.in_doubt(about, now, Some(why));
        }
        let text = format!(
            "It is unknown whether {} took effect: {why}. You may make exactly the same call again, with the same arguments; \
             that settles it. Do not call it with other arguments.",
            about.tool
        );
        error_reply("in_doubt", about, &text, json!({ "since": now.to_string(), "may_try_again": true }))
    }

    /// Nothing was done.
    pub(super) fn not_sent(&self, about: ReplyContext<'_>, why: &str) -> Reply {
        error_reply("not_sent", about, &format!("{} was not called: {why}. Nothing was done.", about.tool), json!({}))
    }

    /// A deliberate repeat of a call that was not done before.
    pub(super) fn too_early(&self, about: ReplyContext<'_>) -> Reply {
        let (tool, before) = (about.tool, about.repeat.saturating_sub(1));
        let first = if before < 2 { format!("without {REPEAT}") } else { format!("with {REPEAT}: {before}") };
        let text = format!(
            "{tool} was not called: use {REPEAT}: {} only after the same call was done {before} times. It was not, or its \
             record has expired. Call it {first}.",
            about.repeat
        );
        error_reply("refused", about, &text, json!({}))
    }

    /// The call failed in the gateway, and nothing was done now.
    pub(super) fn failed(&self, about: ReplyContext<'_>, error: &Error) -> Reply {
        let tool = about.tool;
        match error {
            Error::OwnerFailed { .. } => error_reply(
                "attempt_failed",
                about,
                &format!("The same call of {tool} was already running and failed. You may make it again."),
                json!({}),
            ),
            Error::OwnerUnknown { .. } => error_reply(
                "attempt_unknown",
                about,
                &format!(
                    "The same call of {tool} was already running, and no response was received. Make exactly the same call again."
                ),
                json!({}),
            ),
            Error::Quota { most, .. } => error_reply(
                "quota",
                about,
                &format!(
                    "{tool} was not called, and nothing was done: the ledger holds {most} calls for this user, which is its \
                     limit. Do not try other arguments. Calls that were made before can still be repeated. Tell the user \
                     that new calls are possible again when older records have expired, or when the operator raises \
                     records_per_tenant."
                ),
                json!({ "retry_after_seconds": QUOTA_RETRY_AFTER.as_secs() }),
            ),
            error => {
                tracing::error!(%error, "a guarded call was refused: the ledger is not available");
                ledger_down(tool)
            }
        }
    }

    /// Adds to a response that the outcome is unknown.
    pub(super) fn doubted(&self, about: ReplyContext<'_>, answer: &Members) -> Option<Members> {
        let next = match about.call.policy.in_doubt {
            InDoubt::Hold => {
                "Do not call it again, not even with other arguments: check whether it happened, and let the user settle it."
            }
            InDoubt::Tell => "First check whether it did; if it did not, make the same call again and it will run.",
            InDoubt::Retry | InDoubt::Probe => {
                "You may make exactly the same call again; do not call it with other arguments."
            }
        };
        let text = format!("[onceward] {} failed, but it may have taken effect. {next}", about.tool);
        annotated(answer, "in_doubt", about, &text)
    }

    /// Adds to a response that it could not be recorded: repeats will not get it.
    pub(super) fn not_recorded(&self, about: ReplyContext<'_>, answer: &Members) -> Option<Members> {
        let text = format!(
            "[onceward] This is the result of {}, but it could not be recorded: a later equal call would be told that its \
             outcome is unknown. Do not make it again. Tell the user; the gateway's stderr says why.",
            about.tool
        );
        annotated(answer, "not_recorded", about, &text)
    }
}

/// Adds a text for the model and a state for programs to a response of the server.
fn annotated(answer: &Members, state: &str, about: ReplyContext<'_>, text: &str) -> Option<Members> {
    let mark = json!({ "state": state, "replayed": false, "key": about.call.identity.key.as_str() });
    let mut answer = answer.clone();
    if let Some(mut result) = answer.object("result") {
        add_text(&mut result, text);
        about.result_schema.note(&mut result, text);
        set_meta(&mut result, &mark);
        answer.set("result", &result);
        return Some(answer);
    }
    // Clients show models only the message of an error.
    let mut error = answer.object("error")?;
    let message = error.text("message").map_or_else(|| text.to_owned(), |message| format!("{message} {text}"));
    error.set("message", &message);
    let data = if error.get("data").is_some() { error.object("data") } else { Some(Members::default()) };
    if let Some(mut data) = data {
        data.set(META, &mark);
        error.set("data", &data);
    }
    answer.set("error", &error);
    Some(answer)
}

/// How the model can do the same thing once more.
fn how_to_repeat(about: ReplyContext<'_>) -> String {
    match about.rule {
        Rule::Causal | Rule::Idempotent => {
            "The first response may not have reached you. To do it once more, make the same call again now that you have \
             this result."
                .to_owned()
        }
        Rule::Kept | Rule::Outward => format!(
            "Do not try it again; if the user wants it done once more, call {} with {REPEAT}: {}.",
            about.tool,
            about.repeat + 1
        ),
    }
}

/// How long ago, as text.
fn ago(since: Duration) -> String {
    match since.as_secs() {
        0 => "just now".to_owned(),
        seconds => format!("{} ago", duration::format(Duration::from_secs(seconds))),
    }
}

/// The ledger is not available, so the tool was not called.
pub(super) fn ledger_down(tool: &str) -> Reply {
    let text = format!(
        "{tool} was not called: the ledger that prevents it from happening twice is not available. Nothing was done. Tell the \
         user; the gateway's stderr says why."
    );
    refusal("ledger_down", &text)
}

/// The call is not valid, so nothing was called.
pub(super) fn invalid_call(text: &str) -> Reply {
    refusal("refused", &format!("Nothing was called: {text}."))
}

/// An unguarded call got no response. Whether it was carried out is unknown.
pub(super) fn no_response(tool: &str, why: &str) -> Reply {
    refusal("refused", &format!("{tool} returned no response: {why}."))
}

/// The status tool cannot answer.
pub(super) fn status_error(text: &str) -> Reply {
    refusal("refused", &format!("No call was looked up: {text}."))
}

/// A refusal of a call without a key.
fn refusal(state: &str, text: &str) -> Reply {
    let mut result = Members::default();
    result.set("content", &json!([{ "type": "text", "text": text }]));
    result.set("isError", &true);
    set_meta(&mut result, &json!({ "state": state, "replayed": false }));
    Reply::Result(result)
}

/// The result of a call that a person has settled as happened.
fn settled_by_person(about: ReplyContext<'_>, text: &str, mark: &Value) -> Reply {
    let mut result = Members::default();
    let known = if text.trim().is_empty() { String::new() } else { format!(" The recorded result: {text}") };
    let message = format!("{} took effect: a person checked and settled it. It was not done again.{known}", about.tool);
    result.set("content", &json!([{ "type": "text", "text": message }]));
    if about.result_schema.is_declared()
        && let Some(value) = Members::read(text)
    {
        result.set("structuredContent", &value);
    }
    mark_incomplete(&mut result, about);
    set_meta(&mut result, mark);
    Reply::Result(result)
}

/// Marks a result as an error if it lacks the structured content that the tool declares: clients accept that only of errors.
fn mark_incomplete(result: &mut Members, about: ReplyContext<'_>) {
    if about.result_schema.is_declared() && result.get("structuredContent").is_none() {
        add_text(
            result,
            "This is marked as an error only because the structured result that the tool declares is unknown.",
        );
        result.set("isError", &true);
    }
}

/// An error result of the gateway: a text for the model and a state for programs.
pub(super) fn error_reply(state: &str, about: ReplyContext<'_>, text: &str, more: Value) -> Reply {
    let mut result = Members::default();
    result.set("content", &json!([{ "type": "text", "text": text }]));
    result.set("isError", &true);
    let mut mark = json!({ "state": state, "replayed": false, "key": about.call.identity.key.as_str() });
    if let (Some(mark), Value::Object(more)) = (mark.as_object_mut(), more) {
        mark.extend(more);
    }
    set_meta(&mut result, &mark);
    Reply::Result(result)
}

/// Adds a text at the end of a result.
fn add_text(result: &mut Members, text: &str) {
    let content = result.get("content").and_then(|content| serde_json::from_str(content.get()).ok());
    let mut content: Vec<Box<RawValue>> = content.unwrap_or_default();
    content.extend(to_raw_value(&json!({ "type": "text", "text": text })).ok());
    result.set("content", &content);
}

/// Sets the gateway's member of `_meta`.
pub(super) fn set_meta(result: &mut Members, about: &impl Serialize) {
    let mut meta = result.object("_meta").unwrap_or_default();
    meta.set(META, about);
    result.set("_meta", &meta);
}
