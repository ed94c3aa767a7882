//! Genuine webhooks are accepted, and everything else is refused.

mod forged;
mod identity;
mod malformed;
mod properties;
mod vectors;

use http::{HeaderMap, HeaderName, HeaderValue};
use onceward::core::time::Timestamp;
use onceward_runtime::config::{Inbox, Signing};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ReceivedWebhook, Refused, Verified, verify};

/// A webhook with the settings of its inbox, in a form that tests can change.
#[derive(Clone)]
struct Sample {
    signing: Signing,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    now: Timestamp,
}

impl Sample {
    fn verify(&self) -> Result<Verified, Refused> {
        let headers: HeaderMap = self.headers.iter().map(|(name, value)| header(name, value)).collect();
        verify(&self.signing, &ReceivedWebhook { headers: &headers, body: &self.body, now: self.now })
    }

    /// The same with another value in this header.
    fn with(&self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let mut changed = self.clone();
        changed.headers.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        changed.headers.push((name.to_owned(), value.as_ref().to_vec()));
        changed
    }

    fn without(&self, name: &str) -> Self {
        let mut changed = self.clone();
        changed.headers.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        changed
    }

    fn value(&self, name: &str) -> &str {
        let (_, value) = self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).unwrap();
        std::str::from_utf8(value).unwrap()
    }

    fn later(&self, milliseconds: i64) -> Self {
        Self { now: Timestamp::from_millis(self.now.as_millis() + milliseconds), ..self.clone() }
    }
}

fn header(name: &str, value: &[u8]) -> (HeaderName, HeaderValue) {
    (name.parse().unwrap(), HeaderValue::from_bytes(value).unwrap())
}

/// The settings as a configuration gives them, with secrets in files.
fn signing(scheme: &str, secrets: &[String], more: Value) -> Signing {
    let folder = tempfile::tempdir().unwrap();
    let references = secrets.iter().enumerate().map(|(number, secret)| {
        std::fs::write(folder.path().join(number.to_string()), secret).unwrap();
        format!("file:{number}")
    });
    let mut table = json!({ "path": "/x", "scheme": scheme, "operation": "x" });
    table["secret"] = references.collect();
    table.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    let inbox = Inbox::deserialize(table).unwrap();
    assert_eq!(Inbox::mistakes(std::slice::from_ref(&inbox)), []);
    inbox.settings(0, folder.path()).unwrap().signing
}

/// A genuine webhook from the vectors.
fn genuine(name: &str) -> Sample {
    let found = vectors::all().into_iter().find(|case| case.name == name);
    found.unwrap_or_else(|| panic!("no vector has the name {name:?}")).sample()
}

/// Every genuine webhook, with its name.
fn every_genuine() -> impl Iterator<Item = (String, Sample)> {
    vectors::all().into_iter().map(|case| (case.name.clone(), case.sample()))
}
