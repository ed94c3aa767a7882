//! PagerDuty's Events API v2.

use super::Provider;
use super::fact::{Fact, FactSource, FailedAnswers, KeyMemory, KeyPlace, Lookup, ProviderProbe, ReferencePlace, read};

const TRIGGER: FactSource =
    read("https://github.com/PagerDuty/developer-docs/blob/main/docs/events-API-v2/02-Trigger-Events.md");
const SCHEMA: FactSource = read("https://github.com/PagerDuty/api-schema/blob/main/reference/events-v2/openapiv3.json");
const REST_SCHEMA: FactSource = read("https://github.com/PagerDuty/api-schema/blob/main/reference/REST/openapiv3.json");
const SUPPRESSED: FactSource = read("https://support.pagerduty.com/docs/why-incidents-fail-to-trigger");

pub(super) const EVENTS_V2: Provider = Provider {
    name: "pagerduty",
    title: "PagerDuty, Events API v2",
    request: "POST https://events.pagerduty.com/v2/enqueue",
    key: Fact::Known {
        value: KeyPlace::Body("/dedup_key"),
        note: "only events with the same routing_key meet. A repeated trigger is added to the log of the open alert; nothing new is \
               opened.",
        sources: &[TRIGGER],
    },
    longest_key: Fact::Known { value: 255, note: "", sources: &[TRIGGER] },
    remembers_key: Fact::Known {
        value: KeyMemory::WhileOpen,
        note: "once the alert is resolved, a trigger with the same key opens a new one.",
        sources: &[TRIGGER],
    },
    refusals: Fact::Unknown {
        note: "429 and 5xx are to be sent again, which the key makes safe; the pages do not say that nothing happened.",
        sources: &[SCHEMA],
    },
    body_failure: None,
    failed_answers: Fact::Known {
        value: FailedAnswers::NotReplayed,
        note: "every event is processed anew.",
        sources: &[TRIGGER, SCHEMA],
    },
    reference: Fact::Known { value: ReferencePlace::Body("/dedup_key"), note: "our own key.", sources: &[SCHEMA] },
    lookup: Fact::Known {
        value: Lookup::ByKey(ProviderProbe {
            mark: "",
            method: "GET",
            url: "https://api.pagerduty.com/incidents?date_range=all&limit=1&incident_key={{ key }}",
            found: "/incidents/0",
            settle_minutes: None,
        }),
        note: "needs a REST API token. Not finding an incident proves little: events are processed later, and suppressed ones and \
               those for disabled services open none.",
        sources: &[REST_SCHEMA, SUPPRESSED],
    },
};
