//! Resend.

use super::Provider;
use super::fact::{Fact, FactSource, KeyMemory, KeyPlace, Lookup, ReferencePlace, read};

const KEYS: FactSource = read("https://resend.com/docs/dashboard/emails/idempotency-keys");
const CHANGELOG: FactSource = read("https://resend.com/changelog/idempotency-keys");
const ERRORS: FactSource = read("https://resend.com/docs/api-reference/errors");
const LIST: FactSource = read("https://resend.com/changelog/list-sent-emails-endpoint");

pub(super) const EMAILS: Provider = Provider {
    name: "resend",
    title: "Resend",
    request: "POST https://api.resend.com/emails, and /emails/batch",
    key: Fact::Known {
        value: KeyPlace::Header("Idempotency-Key"),
        note: "over SMTP, the header Resend-Idempotency-Key of the message. A repeat with another payload gets 409 \
               invalid_idempotent_request.",
        sources: &[KEYS],
    },
    longest_key: Fact::Known { value: 256, note: "otherwise 400 invalid_idempotency_key.", sources: &[KEYS, ERRORS] },
    remembers_key: Fact::Known { value: KeyMemory::Hours(24), note: "", sources: &[KEYS] },
    refusals: Fact::Unknown {
        note: "429 stands for the rate limit and for quotas; the pages do not say in so many words that nothing was sent. 409 \
               concurrent_idempotent_requests proves nothing: a request with the key is still running, so try again later.",
        sources: &[ERRORS, KEYS],
    },
    body_failure: None,
    failed_answers: Fact::Unknown {
        note: "a repeat of a sent e-mail gets the same response; about failed requests the pages say nothing.",
        sources: &[KEYS],
    },
    reference: Fact::Known {
        value: ReferencePlace::Body("/id"),
        note: "a batch has one in each element of /data.",
        sources: &[CHANGELOG],
    },
    lookup: Fact::Known {
        value: Lookup::ByScan,
        note: "GET /emails lists what was sent, newest first and at most 100 at a time, without a filter by key.",
        sources: &[LIST],
    },
};
