//! Receivers that follow Standard Webhooks, version 1.0.0.

use super::Provider;
use super::fact::{Fact, FactSource, KeyPlace, Lookup, ReferencePlace, read};

const SPECIFICATION: FactSource =
    read("https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md");

pub(super) const RECEIVER: Provider = Provider {
    name: "standard_webhooks",
    title: "Receivers of Standard Webhooks",
    request: "POST to the receiver's URL",
    key: Fact::Known {
        value: KeyPlace::Header("webhook-id"),
        note: "the same on every retry of an event, and signed. It should have no `.`.",
        sources: &[SPECIFICATION],
    },
    longest_key: Fact::Unknown { note: "the specification has no limit.", sources: &[SPECIFICATION] },
    remembers_key: Fact::Unknown {
        note: "each receiver decides whether and for how long; the example of the specification is 5 minutes.",
        sources: &[SPECIFICATION],
    },
    refusals: Fact::Unknown {
        note: "every other status than 2xx is a failure, and says nothing about the effect. 410 asks to stop sending; 429, 502 and \
               504 ask to slow down.",
        sources: &[SPECIFICATION],
    },
    body_failure: None,
    failed_answers: Fact::Unknown { note: "each receiver decides.", sources: &[SPECIFICATION] },
    reference: Fact::Known {
        value: ReferencePlace::NotGiven,
        note: "the specification defines no body of the answer.",
        sources: &[SPECIFICATION],
    },
    lookup: Fact::Known {
        value: Lookup::NotOffered,
        note: "the specification has no such request.",
        sources: &[SPECIFICATION],
    },
};
