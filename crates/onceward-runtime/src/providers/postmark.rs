//! Postmark.

use super::Provider;
use super::fact::{Fact, FactSource, KeyPlace, Lookup, ProviderProbe, ReferencePlace, read, without_key};

const OVERVIEW: FactSource = read("https://postmarkapp.com/developer/api/overview");
const MESSAGES: FactSource = read("https://postmarkapp.com/developer/api/messages-api");
const METADATA: FactSource = read("https://postmarkapp.com/support/article/1125-custom-metadata-faq");
const ANSWER: FactSource = read("https://posthorn.dev/configuration/transports/postmark/");

pub(super) const EMAIL: Provider = Provider {
    name: "postmark",
    title: "Postmark",
    request: "POST https://api.postmarkapp.com/email",
    key: Fact::Known {
        value: KeyPlace::NoneDocumented,
        note: "none in the pages that were read, so count on a repeat to send the e-mail again.",
        sources: &[OVERVIEW, MESSAGES],
    },
    longest_key: without_key(),
    remembers_key: without_key(),
    refusals: Fact::Unknown {
        note: "401, 413 and 422 are errors in the request. What could be read of the page does not say whether 429 and \
               5xx leave the message unsent.",
        sources: &[OVERVIEW],
    },
    body_failure: None,
    failed_answers: without_key(),
    reference: Fact::Known {
        value: ReferencePlace::Body("/MessageID"),
        note: "read from a program that uses it.",
        sources: &[ANSWER],
    },
    lookup: Fact::Known {
        value: Lookup::ByKey(ProviderProbe {
            mark: "\"Metadata\": {\"onceward-key\": \"{{ key }}\"}",
            method: "GET",
            url: "https://api.postmarkapp.com/messages/outbound?count=1&offset=0&metadata_onceward-key={{ key }}",
            found: "/Messages/0",
            settle_minutes: None,
        }),
        note: "by one metadata field at a time, for as long as messages are kept: 45 days unless configured. How soon a message \
               can be found is unknown.",
        sources: &[METADATA, MESSAGES],
    },
};
