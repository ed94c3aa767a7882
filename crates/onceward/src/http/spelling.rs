//! How a client writes its key: `abc` and `"abc"` are one key here, and may be two to an upstream that remembers keys. So a
//! retry goes upstream in the spelling of the first attempt. The record tells which that was: the spelling is part of its
//! fingerprint, and a request that does not match in its own spelling is compared in the other one.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::{Duration, Instant};

use onceward_core::decide::Decision;
use onceward_core::fingerprint::{Builder, Fingerprint};

use super::key;
use super::rules::{KeyFrom, Rules};
use crate::error::Error;
use crate::ledger::{Call, Ledger, Started};

/// Timers and the store's clock need not agree on the very millisecond.
const AFTER_THE_MOMENT: Duration = Duration::from_millis(5);

/// How a key is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spelling {
    /// As it is, as most clients do.
    Bare,
    /// As a quoted string (RFC 8941), as the draft says.
    Quoted,
}

/// The key of a request in its header, as its client wrote it.
#[derive(Clone, Debug)]
pub(super) struct Spelt {
    header: HeaderName,
    key: String,
    spelling: Spelling,
}

impl Spelt {
    /// The key that the client sent in a header; `None` where it is in the body, or made from the request.
    pub(super) fn of(rules: &Rules, headers: &HeaderMap, key: Option<&str>) -> Option<Self> {
        let KeyFrom::Header(header) = &rules.key_from else { return None };
        let is_quoted = headers.get(header)?.as_bytes().trim_ascii_start().starts_with(b"\"");
        let spelling = if is_quoted { Spelling::Quoted } else { Spelling::Bare };
        Some(Self { header: header.clone(), key: key?.to_owned(), spelling })
    }

    /// The same key in the other spelling; `None` where it cannot be written so.
    fn other(&self) -> Option<Self> {
        let spelling = match self.spelling {
            Spelling::Bare => Spelling::Quoted,
            Spelling::Quoted => Spelling::Bare,
        };
        let other = Self { spelling, ..self.clone() };
        let value = other.value()?;
        (key::read(value.as_bytes()).as_ref() == Ok(&self.key)).then_some(other)
    }

    fn value(&self) -> Option<HeaderValue> {
        let text = match self.spelling {
            Spelling::Bare => self.key.clone(),
            Spelling::Quoted => format!("\"{}\"", self.key.replace('\\', "\\\\").replace('"', "\\\"")),
        };
        HeaderValue::try_from(text).ok()
    }

    /// The fingerprint of a request whose key is written so.
    fn mark(&self, fingerprint: Fingerprint) -> Fingerprint {
        match self.spelling {
            Spelling::Bare => fingerprint,
            Spelling::Quoted => Fingerprint::combine(&[fingerprint, Builder::new("quoted key").build()]),
        }
    }
}

/// What came of a begin, and the header to send upstream where it is not the client's own.
pub(super) struct Begun {
    pub(super) started: Started,
    pub(super) respelt: Option<(HeaderName, HeaderValue)>,
}

/// Begins a call in the spelling of its client and, where a record does not match that, in the other one. Each is one atomic
/// step, and the record has one fingerprint, so that at most one of the two can match.
pub(super) async fn begin(ledger: &Ledger, call: &Call, spelt: Option<&Spelt>) -> Result<Begun, Error> {
    let Some(spelt) = spelt else { return Ok(Begun { started: started(ledger, call).await?, respelt: None }) };
    let spelt_as = |spelt: &Spelt| Call { fingerprint: spelt.mark(call.fingerprint), ..call.clone() };
    let first = started(ledger, &spelt_as(spelt)).await?;
    if let Started::Answered(Decision::Mismatch) = first
        && let Some(other) = spelt.other()
    {
        let second = started(ledger, &spelt_as(&other)).await?;
        let respelt = other.value().map(|value| (other.header.clone(), value));
        return Ok(Begun { started: second, respelt });
    }
    Ok(Begun { started: first, respelt: None })
}

/// Begins. A client that comes back before the upstream wants to be asked again waits for that moment as for running work:
/// many clients do not look at Retry-After, and would use up their tries on being told to wait.
async fn started(ledger: &Ledger, call: &Call) -> Result<Started, Error> {
    let from = Instant::now();
    match ledger.start(call).await? {
        Started::Answered(Decision::InFlight { retry_after, running: false, .. })
            if from.elapsed() + retry_after < call.policy.wait =>
        {
            tokio::time::sleep(retry_after + AFTER_THE_MOMENT).await;
            let mut call = call.clone();
            let left = call.policy.wait.saturating_sub(from.elapsed());
            Arc::make_mut(&mut call.policy).wait = left;
            ledger.start(&call).await
        }
        started => Ok(started),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelt(text: &str) -> Spelt {
        let headers = [(super::super::rules::IDEMPOTENCY_KEY, text.parse().unwrap())].into_iter().collect();
        let key = key::read(text.as_bytes()).unwrap();
        Spelt::of(&Rules::default(), &headers, Some(&key)).unwrap()
    }

    #[test]
    fn a_key_has_two_spellings_unless_one_cannot_be_written() {
        for (text, other) in [
            ("abc", Some("\"abc\"")),
            ("\"abc\"", Some("abc")),
            ("a\"b\\c", Some("\"a\\\"b\\\\c\"")),
            ("\"a\\\"b\\\\c\"", Some("a\"b\\c")),
            // Written bare, it would be read as an open quote.
            ("\"\\\"abc\"", None),
        ] {
            let spelt = spelt(text);
            assert_eq!(spelt.value().unwrap(), text);
            assert_eq!(spelt.other().map(|other| other.value().unwrap()), other.map(|text| text.parse().unwrap()));
        }
    }
}
