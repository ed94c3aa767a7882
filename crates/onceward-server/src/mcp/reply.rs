//! What a model is told when its call was not carried out: a stored result, or why there is none. Plain words, because a
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
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::call::REPEAT;
use super::delivery::Answered;
use super::gate::Request;
use super::members::Members;
use super::message;
use super::repeats::Rule;
use super::typed::Typed;
use super::verdict::{ERROR, RESULT};
use crate::output::quoted;

/// Under this name everything about the gateway stands in `_meta`.
const META: &str = "onceward";

/// What kind of result it is.
const KIND: &str = "resultType";

/// What answers are made with.
#[derive(Clone, Debug)]
pub(super) struct Replies {
    /// Whether a repeat's result says in a text that it is one.
    pub(super) notice: bool,
    /// The flags with which a command that is typed anywhere finds the same ledger.
    pub(super) flags: String,
    /// The name of our own tool.
    pub(super) status: &'static str,
}

/// An answer of ours.
#[derive(Debug)]
pub(super) enum Reply {
    /// The result of a tool.
    Result(Members),
    /// An error that was kept.
    Error(Box<RawValue>),
    /// The answer that somebody else got for the same call.
    Same(Members),
}

impl Reply {
    /// The answer to a request that makes no difference to later ones.
    pub(super) fn answer(self, request: &Request) -> Answered {
        self.line(request).into()
    }

    /// The line for a request. Clients of the newest generation want every result to say what kind it is; one that was kept
    /// may come from an older one.
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
            Self::Same(answer) => message::readdressed(&answer, id),
        }
    }
}

/// Which call it is about.
#[derive(Clone, Copy)]
pub(super) struct About<'a> {
    pub(super) tool: &'a str,
    /// What the tool has promised of its structured results.
    pub(super) typed: Typed,
    pub(super) call: &'a Call,
    /// Which calls are repeats.
    pub(super) rule: Rule,
    pub(super) repeat: u32,
}

impl Replies {
    /// What a repeat is told.
    pub(super) fn decided(&self, about: About<'_>, decision: Decision, now: Timestamp) -> Reply {
        let tool = about.tool;
        match decision {
            Decision::Replay { outcome, finished_at, .. } => self.replayed(about, &outcome, finished_at, now),
            Decision::OutcomeNotKept { .. } => told(
                "done_not_kept",
                about,
                &format!(
                    "This exact call of {tool} was done before, and nothing was done again. Its result is no longer kept. {}",
                    once_more(about)
                ),
                json!({}),
            ),
            Decision::InFlight { running: true, .. } | Decision::Acquired(_) => told(
                "running",
                about,
                &format!(
                    "This exact call of {tool} is still running; it was made before, and nothing was started again. Wait, \
                     then ask {}, or make the same call again to get its result.",
                    self.status
                ),
                json!({}),
            ),
            Decision::InFlight { retry_after, .. } => told(
                "not_yet",
                about,
                &format!("{tool} asked to wait. Make the same call again in {} seconds.", retry_after.as_secs() + 1),
                json!({ "retry_after_seconds": retry_after.as_secs() + 1 }),
            ),
            Decision::InDoubt { since } => self.in_doubt(about, since, None),
            Decision::Mismatch => told(
                "mismatch",
                about,
                &format!(
                    "{tool} was called before for the same thing with other values. Nothing was done now, and the first call \
                     stands. Do not vary the arguments to get around this: if it is another thing, say what makes it so; if \
                     the first call was wrong, correct what it did."
                ),
                json!({}),
            ),
            Decision::Collision | Decision::MixedUse | Decision::OutOfOrder { .. } => told(
                "refused",
                about,
                &format!("{tool} was not called: its key is in use for something else."),
                json!({}),
            ),
            Decision::Queued { .. } | Decision::Dead => {
                told("refused", about, &format!("{tool} was not called: this intent is in the outbox."), json!({}))
            }
        }
    }

    fn replayed(&self, about: About<'_>, outcome: &Outcome, finished_at: Timestamp, now: Timestamp) -> Reply {
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
        let Some(mut result) = result else { return settled(about, &text, &mark) };
        if outcome.content_type != RESULT {
            excused(&mut result, about);
        }
        if self.notice {
            let ago = ago(finished_at.until(now));
            let text = format!(
                "[onceward] This call was done {ago} and not again: this is its stored result. {}",
                once_more(about)
            );
            noted(&mut result, &text);
            about.typed.note(&mut result, &text);
        }
        marked(&mut result, &mark);
        Reply::Result(result)
    }

    /// Nobody knows whether it happened. `why` is what is known of the attempt.
    pub(super) fn in_doubt(&self, about: About<'_>, since: Timestamp, why: Option<&str>) -> Reply {
        let (tool, identity) = (about.tool, &about.call.identity);
        if about.call.policy.in_doubt == InDoubt::Tell {
            let why = why.unwrap_or("its answer never came");
            let text = format!(
                "It is unknown whether {tool} took effect: this exact call was made at {since}, and {why}. It may have \
                 happened. Look first whether it did; if it did not, make the same call again, and it runs."
            );
            return told("in_doubt", about, &text, json!({ "since": since.to_string(), "may_try_again": true }));
        }
        let tenant = match &identity.tenant {
            tenant if *tenant == Tenant::default() => String::new(),
            tenant => format!(" --tenant {}", quoted(tenant.as_str())),
        };
        let text = format!(
            "It is unknown whether {tool} took effect: this exact call was made at {since}, and {}. It may have happened. Do \
             not call it again, and not with other arguments either. Look with a tool that reads whether it happened, tell \
             the user what is unknown, and let a person settle it: onceward resolve{}{tenant} --operation {} --key {} \
             --happened (or --did-not-happen){}. Afterwards {} knows it.",
            why.unwrap_or("its answer never came"),
            self.flags,
            quoted(identity.operation.as_str()),
            quoted(identity.key.as_str()),
            if about.typed.is_promised() {
                ", with --value and its structured result as JSON if that is known"
            } else {
                ""
            },
            self.status,
        );
        told("in_doubt", about, &text, json!({ "since": since.to_string() }))
    }

    /// The answer to a call just made will not come.
    pub(super) fn lost(&self, about: About<'_>, why: &str, now: Timestamp) -> Reply {
        if matches!(about.call.policy.in_doubt, InDoubt::Hold | InDoubt::Tell) {
            return self.in_doubt(about, now, Some(why));
        }
        let text = format!(
            "It is unknown whether {} took effect: {why}. You may make exactly the same call again, with the same arguments: \
             it will be settled then. Do not make it with other arguments.",
            about.tool
        );
        told("in_doubt", about, &text, json!({ "since": now.to_string(), "may_try_again": true }))
    }

    /// Nothing was done.
    pub(super) fn not_sent(&self, about: About<'_>, why: &str) -> Reply {
        told("not_sent", about, &format!("{} was not called: {why}. Nothing was done.", about.tool), json!({}))
    }

    /// A repeat that is meant, before its time.
    pub(super) fn too_early(&self, about: About<'_>) -> Reply {
        let (tool, before) = (about.tool, about.repeat.saturating_sub(1));
        let first = if before < 2 { format!("without {REPEAT}") } else { format!("with {REPEAT}: {before}") };
        let text = format!(
            "{tool} was not called: {REPEAT}: {} is for when the same call was done {before} times, and it was not, or too \
             long ago to know. Call it {first}.",
            about.repeat
        );
        told("refused", about, &text, json!({}))
    }

    /// Something is wrong here, and nothing was done now.
    pub(super) fn failed(&self, about: About<'_>, error: &Error) -> Reply {
        let tool = about.tool;
        match error {
            Error::OwnerFailed { .. } => told(
                "attempt_failed",
                about,
                &format!("The same call of {tool} was running, and it failed. It may be made again."),
                json!({}),
            ),
            Error::OwnerUnknown { .. } => told(
                "attempt_unknown",
                about,
                &format!(
                    "The same call of {tool} was running, and its answer never came. Make exactly the same call again."
                ),
                json!({}),
            ),
            Error::Quota { most, .. } => told(
                "quota",
                about,
                &format!(
                    "{tool} was not called, and nothing was done: the ledger holds {most} calls for this user, and that is \
                     its limit. Do not try other arguments. Calls that were made before can still be repeated. Tell the user \
                     that new calls are possible again when older records have expired, or when the operator raises \
                     records_per_tenant."
                ),
                json!({ "retry_after_seconds": QUOTA_RETRY_AFTER.as_secs() }),
            ),
            error => {
                tracing::error!(%error, "a guarded call was refused: the ledger cannot be used");
                ledger_down(tool)
            }
        }
    }

    /// An answer that leaves a doubt behind says so.
    pub(super) fn doubted(&self, about: About<'_>, answer: &Members) -> Option<Members> {
        let next = match about.call.policy.in_doubt {
            InDoubt::Hold => {
                "Do not call it again, and not with other arguments: look whether it happened, and let the user settle it."
            }
            InDoubt::Tell => "Look first whether it did; if it did not, make the same call again, and it runs.",
            InDoubt::Retry | InDoubt::Probe => {
                "You may make exactly the same call again; do not make it with other arguments."
            }
        };
        let text = format!("[onceward] {} failed, and it may have taken effect all the same. {next}", about.tool);
        annotated(answer, "in_doubt", about, &text)
    }

    /// The answer to a call whose outcome could not be recorded says so: repeats will not get it.
    pub(super) fn not_recorded(&self, about: About<'_>, answer: &Members) -> Option<Members> {
        let text = format!(
            "[onceward] This is the answer of {}, but it could not be recorded: the same call would later be told that its \
             outcome is unknown. Do not make it again. Tell the user; the gateway's stderr says why.",
            about.tool
        );
        annotated(answer, "not_recorded", about, &text)
    }
}

/// An answer of the server, with a text for the model and a state for programs added to it.
fn annotated(answer: &Members, state: &str, about: About<'_>, text: &str) -> Option<Members> {
    let mark = json!({ "state": state, "replayed": false, "key": about.call.identity.key.as_str() });
    let mut answer = answer.clone();
    if let Some(mut result) = answer.object("result") {
        noted(&mut result, text);
        about.typed.note(&mut result, text);
        marked(&mut result, &mark);
        answer.set("result", &result);
        return Some(answer);
    }
    // Clients show models the message of an error, and nothing else of it.
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

/// How the same thing is done once more.
fn once_more(about: About<'_>) -> String {
    match about.rule {
        Rule::Causal | Rule::Idempotent => {
            "Its answer may not have reached you. To do it once more, make the same call \
                                            again now that you have this answer."
                .to_owned()
        }
        Rule::Kept | Rule::Outward => format!(
            "Do not try it again; if the user wants it once more, call {} with {REPEAT}: {}.",
            about.tool,
            about.repeat + 1
        ),
    }
}

/// How long ago, in words.
fn ago(since: Duration) -> String {
    match since.as_secs() {
        0 => "just now".to_owned(),
        seconds => format!("{} ago", duration::format(Duration::from_secs(seconds))),
    }
}

/// There is no ledger to ask, so nothing was called.
pub(super) fn ledger_down(tool: &str) -> Reply {
    let text = format!(
        "{tool} was not called: the ledger that keeps it from happening twice cannot be used. Nothing was done. Tell the user; \
         the gateway's stderr says why."
    );
    refused("ledger_down", &text)
}

/// A call that cannot be guarded as it is.
pub(super) fn unfit(text: &str) -> Reply {
    refused("refused", &format!("Nothing was called: {text}."))
}

/// A question about calls that cannot be answered.
pub(super) fn unanswered(text: &str) -> Reply {
    refused("refused", &format!("This says nothing about any call: {text}."))
}

/// An answer to a call that has no key yet.
fn refused(state: &str, text: &str) -> Reply {
    let mut result = Members::default();
    result.set("content", &json!([{ "type": "text", "text": text }]));
    result.set("isError", &true);
    marked(&mut result, &json!({ "state": state, "replayed": false }));
    Reply::Result(result)
}

/// A person has said that it happened.
fn settled(about: About<'_>, text: &str, mark: &Value) -> Reply {
    let mut result = Members::default();
    let known = if text.trim().is_empty() { String::new() } else { format!(" What is known of it: {text}") };
    let said = format!("{} took effect: somebody looked and settled it. It was not done again.{known}", about.tool);
    result.set("content", &json!([{ "type": "text", "text": said }]));
    if about.typed.is_promised()
        && let Some(value) = Members::read(text)
    {
        result.set("structuredContent", &value);
    }
    excused(&mut result, about);
    marked(&mut result, mark);
    Reply::Result(result)
}

/// A result that is not the tool's own may lack what the tool has promised, and clients take that of an error only.
fn excused(result: &mut Members, about: About<'_>) {
    if about.typed.is_promised() && result.get("structuredContent").is_none() {
        noted(
            result,
            "This is marked as an error only because the structured result that the tool promises is not known.",
        );
        result.set("isError", &true);
    }
}

/// An answer of our own: text for the model, and the same for programs.
fn told(state: &str, about: About<'_>, text: &str, more: Value) -> Reply {
    let mut result = Members::default();
    result.set("content", &json!([{ "type": "text", "text": text }]));
    result.set("isError", &true);
    let mut mark = json!({ "state": state, "replayed": false, "key": about.call.identity.key.as_str() });
    if let (Some(mark), Value::Object(more)) = (mark.as_object_mut(), more) {
        mark.extend(more);
    }
    marked(&mut result, &mark);
    Reply::Result(result)
}

/// Adds a text at the end of what a tool said.
fn noted(result: &mut Members, text: &str) {
    let content = result.get("content").and_then(|content| serde_json::from_str(content.get()).ok());
    let mut content: Vec<Box<RawValue>> = content.unwrap_or_default();
    content.extend(to_raw_value(&json!({ "type": "text", "text": text })).ok());
    result.set("content", &content);
}

/// Puts what is ours into `_meta`.
fn marked(result: &mut Members, about: &Value) {
    let mut meta = result.object("_meta").unwrap_or_default();
    meta.set(META, about);
    result.set("_meta", &meta);
}
