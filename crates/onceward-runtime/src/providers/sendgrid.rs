//! Twilio SendGrid.

use super::Provider;
use super::fact::{Fact, FactSource, KeyPlace, Lookup, ReferencePlace, read, without_key};

const RESPONSES: FactSource =
    read("https://www.twilio.com/docs/sendgrid/api-reference/how-to-use-the-sendgrid-v3-api/responses");
const RATE_LIMITS: FactSource =
    read("https://www.twilio.com/docs/sendgrid/api-reference/how-to-use-the-sendgrid-v3-api/rate-limits");
const MESSAGE_ID: FactSource = read(
    "https://support.sendgrid.com/hc/en-us/articles/35804743679259-How-To-Filter-results-with-Activity-Feed-API-for-X-Message-ID",
);
const ACTIVITY: FactSource = read("https://www.twilio.com/docs/sendgrid/api-reference/email-activity");
const ACTIVITY_QUERIES: FactSource =
    read("https://www.twilio.com/docs/sendgrid/for-developers/sending-email/getting-started-email-activity-api");

pub(super) const MAIL_SEND: Provider = Provider {
    name: "sendgrid",
    title: "Twilio SendGrid, v3",
    request: "POST https://api.sendgrid.com/v3/mail/send",
    key: Fact::Known {
        value: KeyPlace::NoneDocumented,
        note: "none in the pages that were read, so count on a repeat to send the e-mail again.",
        sources: &[RESPONSES, MESSAGE_ID],
    },
    longest_key: without_key(),
    remembers_key: without_key(),
    refusals: Fact::Unknown {
        note: "429 stands for the rate limit; the pages do not say in so many words that nothing was accepted.",
        sources: &[RATE_LIMITS, RESPONSES],
    },
    body_failure: None,
    failed_answers: without_key(),
    reference: Fact::Known {
        value: ReferencePlace::Header("X-Message-ID"),
        note: "of the request; the id of each recipient's message begins with it.",
        sources: &[MESSAGE_ID],
    },
    lookup: Fact::Known {
        value: Lookup::ByScan,
        note: "the Email Activity Feed API has to be bought, takes 6 requests a minute, and has no data of EU subusers. How to \
               query it by custom_args, and how soon it knows, is unknown.",
        sources: &[ACTIVITY, ACTIVITY_QUERIES],
    },
};
