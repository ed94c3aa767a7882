//! Slack: the Web API, and incoming webhooks.

use super::Provider;
use super::fact::{BodyFailure, Fact, FactSource, KeyPlace, Lookup, ReferencePlace, RefusalProof, read, without_key};

const METHOD: FactSource = read("https://docs.slack.dev/reference/methods/chat.postMessage");
const CLIENT_MESSAGE_ID: FactSource = read("https://github.com/slackapi/java-slack-sdk/issues/852");
const KEY_REQUESTED: FactSource = read("https://github.com/slackapi/slack-api-specs/issues/10");
const COMMON_ERRORS: FactSource =
    read("https://hex.pm/packages/slack_kit/1.0.0-alpha.0/files/priv/docs/common_errors.json");
const HISTORY: FactSource = read("https://docs.slack.dev/reference/methods/conversations.history");
const WEBHOOK_ERRORS: FactSource =
    read("https://api.slack.com/changelog/2016-05-17-changes-to-errors-for-incoming-webhooks");
const RATE_LIMITS: FactSource = read("https://api.slack.com/docs/rate-limits");
const WEBHOOKS: FactSource = read("https://webhook.net/slack-webhooks");

pub(super) const CHAT_POST_MESSAGE: Provider = Provider {
    name: "slack",
    title: "Slack, chat.postMessage",
    request: "POST https://slack.com/api/chat.postMessage",
    key: Fact::Known {
        value: KeyPlace::NoneDocumented,
        note: "client_msg_id occurs only in the list of errors, and is for Slack's own clients, as a maintainer says. A request \
               for such a field has been open since 2018.",
        sources: &[METHOD, CLIENT_MESSAGE_ID, KEY_REQUESTED],
    },
    longest_key: without_key(),
    remembers_key: without_key(),
    refusals: Fact::Unknown {
        note: "429 comes with Retry-After; the pages do not say in so many words that nothing was posted.",
        sources: &[METHOD, RATE_LIMITS],
    },
    body_failure: Some(Fact::Known {
        value: BodyFailure {
            pointer: "/ok",
            fails_if: "false",
            error: "/error",
            doubtful: &["fatal_error", "internal_error"],
        },
        note: "the status is 200 then. With these two errors, a part of the operation may have succeeded.",
        sources: &[METHOD, COMMON_ERRORS],
    }),
    failed_answers: without_key(),
    reference: Fact::Known {
        value: ReferencePlace::Body("/ts"),
        note: "only together with /channel.",
        sources: &[METHOD, CLIENT_MESSAGE_ID],
    },
    lookup: Fact::Known {
        value: Lookup::ByScan,
        note: "a message can carry metadata, and conversations.history returns it with include_all_metadata. Needs a scope for \
               the channel's history. How soon a message is there is unknown.",
        sources: &[METHOD, HISTORY],
    },
};

pub(super) const INCOMING_WEBHOOK: Provider = Provider {
    name: "slack_webhook",
    title: "Slack, incoming webhooks",
    request: "POST https://hooks.slack.com/services/…",
    key: Fact::Unknown {
        note: "no page that was found names one; count on none.",
        sources: &[WEBHOOKS, WEBHOOK_ERRORS],
    },
    longest_key: Fact::Unknown { note: "", sources: &[WEBHOOKS] },
    remembers_key: Fact::Unknown { note: "", sources: &[WEBHOOKS] },
    refusals: Fact::Known {
        value: &[
            RefusalProof { status: 400, error: "invalid_payload, user_not_found", retry: false },
            RefusalProof { status: 403, error: "action_prohibited", retry: false },
            RefusalProof { status: 404, error: "channel_not_found", retry: false },
            RefusalProof { status: 410, error: "channel_is_archived", retry: false },
        ],
        note: "429 comes with Retry-After; the pages do not say in so many words that nothing was posted. 500 rollup_error is \
               unexplained.",
        sources: &[WEBHOOK_ERRORS, RATE_LIMITS],
    },
    body_failure: None,
    failed_answers: Fact::Unknown { note: "", sources: &[WEBHOOKS] },
    reference: Fact::Unknown {
        note: "no page that was found names an id in the answer.",
        sources: &[WEBHOOKS, WEBHOOK_ERRORS],
    },
    lookup: Fact::Unknown { note: "a webhook alone cannot read the channel.", sources: &[WEBHOOKS] },
};
