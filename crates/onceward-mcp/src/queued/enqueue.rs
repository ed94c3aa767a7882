//! Records a call of a queued tool, and tells the model how the call stands.

use onceward::clock::{Clock, SystemClock};
use onceward::core::decide::Decision;
use onceward::{EnqueueOptions, Enqueued, Error, Ledger};
use serde_json::json;

use super::super::gate::{Gate, GuardedCall};
use super::super::members::Members;
use super::super::reply::{Replies, Reply, ReplyContext, error_reply, invalid_call, set_meta};
use super::entry_view::{EntryView, text_block};

impl Gate {
    /// Queues a call. Its payload is the arguments: a courier has no credentials of the caller, and passes none on.
    pub(in super::super) async fn enqueue(&self, ledger: &Ledger, guarded: &GuardedCall<'_>) -> Reply {
        let payload = guarded.tool_call.given().to_json().into_bytes();
        let about = guarded.about();
        match ledger.enqueue(guarded.call, payload, EnqueueOptions::default()).await {
            Ok(Enqueued::Created) => self.replies.enqueued(about),
            Ok(Enqueued::Existing(decision)) => {
                let intent = ledger.get(&guarded.call.identity).await.ok().flatten();
                let view = intent.and_then(|intent| EntryView::of(&intent.seen, &self.replies.flags));
                match view {
                    Some(view) => self.replies.already_enqueued(about, &view),
                    // A call from before the tool was queued.
                    None => self.replies.decided(about, decision, SystemClock.now()),
                }
            }
            Err(Error::Mismatch { .. }) => self.replies.decided(about, Decision::Mismatch, SystemClock.now()),
            Err(Error::Collision { .. } | Error::MixedUse { .. }) => {
                self.replies.decided(about, Decision::Collision, SystemClock.now())
            }
            Err(Error::Invalid(error)) => invalid_call(&error.to_string()),
            Err(error @ Error::Quota { .. }) => self.replies.failed(about, &error),
            Err(error) => {
                tracing::error!(%error, "a call could not be queued");
                self.replies.perhaps_enqueued(about)
            }
        }
    }
}

impl Replies {
    fn enqueued(&self, about: ReplyContext<'_>) -> Reply {
        let text = format!(
            "This call of {tool} was queued. It has not happened yet: a courier calls {tool} once, as soon as it can. Do not call \
             it again for the same thing. To see how it went, call {} with \"tool\": \"{tool}\" and the same arguments, or with \"key\".",
            self.status,
            tool = about.tool,
        );
        queue_reply(about, "enqueued", &text, None)
    }

    fn already_enqueued(&self, about: ReplyContext<'_>, view: &EntryView) -> Reply {
        let more = match view.state {
            "done" if view.result().is_some() => "The stored result follows.".to_owned(),
            _ if view.is_stuck || view.state == "done" => String::new(),
            _ => format!("To see how it went, call {}.", self.status),
        };
        let text = format!(
            "This exact call of {} was queued before, and was not queued again. Its state: {}. {more}",
            about.tool, view.words
        );
        queue_reply(about, "already_enqueued", text.trim_end(), Some(view))
    }

    /// The store failed during the write.
    fn perhaps_enqueued(&self, about: ReplyContext<'_>) -> Reply {
        let text = format!(
            "It is unknown whether this call of {} was queued: the ledger did not answer. Make exactly the same call again \
             later: it is queued once at the most. Do not call it with other arguments.",
            about.tool
        );
        error_reply("ledger_down", about, &text, json!({ "may_try_again": true }))
    }
}

/// The sentence, the same as JSON, and the stored result if there is one.
fn queue_reply(about: ReplyContext<'_>, result: &str, text: &str, view: Option<&EntryView>) -> Reply {
    let (mut mark, state) = (Members::default(), view.map_or("queued", |view| view.state));
    mark.set("result", &result);
    mark.set("state", &state);
    mark.set("key", &about.call.identity.key.as_str());
    if let Some(view) = view {
        mark.set("since", &view.since.to_string());
        mark.set("attempts", &view.attempts);
    }
    let mut value = mark.clone();
    value.set("tool", &about.tool);
    let mut content = vec![text_block(text), text_block(&value.to_json())];
    content.extend(view.map(EntryView::content).unwrap_or_default());
    let outcome = view.and_then(EntryView::result);
    mark.set("replayed", &outcome.is_some());
    if let Some(outcome) = outcome {
        value.set("outcome", &outcome);
    }
    let mut reply = Members::default();
    reply.set("content", &content);
    reply.set("structuredContent", &value);
    reply.set("isError", &view.is_some_and(|view| view.is_stuck || view.has_failed()));
    set_meta(&mut reply, &mark);
    Reply::Result(reply)
}
