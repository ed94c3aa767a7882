//! Stripe's API v1.

use super::Provider;
use super::fact::{
    Fact, FactSource, FailedAnswers, KeyMemory, KeyPlace, Lookup, ProviderProbe, ReferencePlace, RefusalProof, read,
};

const IDEMPOTENCY: FactSource = read("https://docs.stripe.com/api/idempotent_requests");
const ERRORS: FactSource = read("https://docs.stripe.com/error-low-level");
const SEARCH: FactSource = read("https://docs.stripe.com/search");
const PAYMENT_INTENT_SEARCH: FactSource = read("https://docs.stripe.com/api/payment_intents/search");
const METADATA: FactSource = read("https://docs.stripe.com/api/metadata");

pub(super) const API_V1: Provider = Provider {
    name: "stripe",
    title: "Stripe, API v1",
    request: "POST https://api.stripe.com/v1/…",
    key: Fact::Known {
        value: KeyPlace::Header("Idempotency-Key"),
        note: "on every POST; it has no effect on GET and DELETE. A repeat with other parameters is an error.",
        sources: &[IDEMPOTENCY],
    },
    longest_key: Fact::Known { value: 255, note: "", sources: &[IDEMPOTENCY] },
    remembers_key: Fact::Known {
        value: KeyMemory::Hours(24),
        note: "keys may be removed once they are that old, and a repeat is then a new request.",
        sources: &[IDEMPOTENCY],
    },
    refusals: Fact::Known {
        value: &[RefusalProof { status: 429, error: "rate limit", retry: true }],
        note: "rate limiters run before the idempotency layer, so a 429 says nothing about an earlier attempt. 500 is \
               indeterminate.",
        sources: &[ERRORS],
    },
    body_failure: None,
    failed_answers: Fact::Known {
        value: FailedAnswers::Replayed,
        note: "500 too, once execution has begun. Failed validation and a concurrent request with the key are not kept. API v2 \
               differs: it works on a failed request again.",
        sources: &[IDEMPOTENCY],
    },
    reference: Fact::Known { value: ReferencePlace::Body("/id"), note: "", sources: &[PAYMENT_INTENT_SEARCH] },
    lookup: Fact::Known {
        value: Lookup::ByKey(ProviderProbe {
            mark: "metadata[onceward_key]={{ key }}",
            method: "GET",
            url: "https://api.stripe.com/v1/payment_intents/search?query=metadata%5B%27onceward_key%27%5D%3A%27{{ key }}%27",
            found: "/data/0",
            settle_minutes: Some(60),
        }),
        note: "usually searchable within a minute, in outages up to an hour later. The same for charges, customers, invoices, \
               prices, products and subscriptions. Not for merchants in India.",
        sources: &[PAYMENT_INTENT_SEARCH, SEARCH, METADATA],
    },
};
