//! Twilio's Messages.

use super::Provider;
use super::fact::{Fact, FactSource, KeyPlace, Lookup, ReferencePlace, RefusalProof, read, without_key};

const NOT_IDEMPOTENT: FactSource = read("https://www.twilio.com/docs/errors/20500");
const TOO_MANY_REQUESTS: FactSource = read("https://www.twilio.com/docs/api/errors/20429");
const MESSAGE: FactSource = read("https://www.twilio.com/docs/messaging/api/message-resource");

pub(super) const MESSAGES: Provider = Provider {
    name: "twilio",
    title: "Twilio, Messages",
    request: "POST https://api.twilio.com/2010-04-01/Accounts/{AccountSid}/Messages.json",
    key: Fact::Known {
        value: KeyPlace::NoneDocumented,
        note: "requests that send a message or start a call are not idempotent: a retry after a 500 may send it twice.",
        sources: &[NOT_IDEMPOTENT],
    },
    longest_key: without_key(),
    remembers_key: without_key(),
    refusals: Fact::Known {
        value: &[RefusalProof { status: 429, error: "20429", retry: true }],
        note: "a request that gets 429 is never processed, and is always safe to retry.",
        sources: &[TOO_MANY_REQUESTS],
    },
    body_failure: None,
    failed_answers: without_key(),
    reference: Fact::Known { value: ReferencePlace::Body("/sid"), note: "", sources: &[MESSAGE] },
    lookup: Fact::Known {
        value: Lookup::ByScan,
        note: "messages can be listed by recipient, sender and day, and then compared by their text. How soon a message is listed \
               is unknown.",
        sources: &[MESSAGE],
    },
};
