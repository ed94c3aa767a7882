//! Webhooks that the providers' own libraries signed, from `spec/vectors/webhooks.json`.

use std::collections::BTreeMap;

use onceward::core::time::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Sample, signing};

const TEXT: &str = include_str!("../../../../../../spec/vectors/webhooks.json");

#[derive(Deserialize)]
struct Vectors {
    genuine: Vec<GenuineWebhook>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GenuineWebhook {
    pub(super) name: String,
    #[serde(rename = "made_by")]
    _made_by: String,
    scheme: String,
    hmac: Option<Value>,
    secrets: Vec<String>,
    headers: BTreeMap<String, String>,
    body: String,
    now: i64,
    expect: ExpectedEvent,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedEvent {
    key: String,
    event_id: Option<String>,
    id_is_signed: bool,
    at: Option<i64>,
    challenge: Option<String>,
}

pub(super) fn all() -> Vec<GenuineWebhook> {
    serde_json::from_str::<Vectors>(TEXT).unwrap().genuine
}

impl GenuineWebhook {
    pub(super) fn sample(&self) -> Sample {
        let more = self.hmac.as_ref().map_or(Value::Null, |hmac| json!({ "hmac": hmac }));
        Sample {
            signing: signing(&self.scheme, &self.secrets, more),
            headers: self.headers.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes())).collect(),
            body: self.body.clone().into_bytes(),
            now: Timestamp::from_millis(self.now * 1000),
        }
    }
}

#[test]
fn webhooks_that_the_libraries_of_the_providers_signed_are_genuine() {
    let cases = all();
    assert!(cases.len() >= 15);
    for case in cases {
        let verified = case.sample().verify().unwrap_or_else(|refused| panic!("{}: {refused}", case.name));
        let expect = case.expect;
        assert_eq!(verified.key.as_str(), expect.key, "{}", case.name);
        assert_eq!(verified.event_id.as_ref().map(|id| id.as_str()), expect.event_id.as_deref(), "{}", case.name);
        assert_eq!(verified.id_is_signed, expect.id_is_signed, "{}", case.name);
        assert_eq!(verified.at, expect.at.map(|at| Timestamp::from_millis(at * 1000)), "{}", case.name);
        assert_eq!(verified.challenge, expect.challenge, "{}", case.name);
    }
}
