//! How a client writes its key: `abc` and `"abc"` are one key here, and may be two keys for an upstream that honours keys. So a
//! retry goes upstream in the spelling of the first attempt. The spelling is part of the record's fingerprint: a request that does
//! not match in its own spelling is compared in the other one.

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::{Duration, Instant};

use onceward_core::decide::Decision;
use onceward_core::fingerprint::{Builder, Fingerprint};

use super::key;
use super::rules::{KeyFrom, Rules};
use crate::error::Error;
use crate::ledger::{Call, Ledger, StartOptions, Started};

/// Timers and the store's clock may differ by a few milliseconds.
const CLOCK_SLACK: Duration = Duration::from_millis(5);

/// The spelling of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spelling {
    /// Without quotes, as most clients do.
    Bare,
    /// As a quoted string (RFC 8941), as the IETF draft says.
    Quoted,
}

/// The key in the header of a request, as its client wrote it.
#[derive(Clone, Debug)]
pub(super) struct SpelledKey {
    header: HeaderName,
    key: String,
    spelling: Spelling,
}

impl SpelledKey {
    /// The key that the client sent in a header; `None` if it is in the body or derived.
    pub(super) fn of(rules: &Rules, headers: &HeaderMap, key: Option<&str>) -> Option<Self> {
        let KeyFrom::Header(header) = &rules.key_from else { return None };
        let is_quoted = headers.get(header)?.as_bytes().trim_ascii_start().starts_with(b"\"");
        let spelling = if is_quoted { Spelling::Quoted } else { Spelling::Bare };
        Some(Self { header: header.clone(), key: key?.to_owned(), spelling })
    }

    /// The same key in the other spelling; `None` if it cannot be written that way.
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

    /// The fingerprint of a request whose key has this spelling.
    fn mark(&self, fingerprint: Fingerprint) -> Fingerprint {
        match self.spelling {
            Spelling::Bare => fingerprint,
            Spelling::Quoted => Fingerprint::combine(&[fingerprint, Builder::new("quoted key").build()]),
        }
    }
}

/// A started call, and the header to send upstream if that differs from the client's own.
pub(super) struct StartedRequest {
    pub(super) started: Started,
    pub(super) respelled: Option<(HeaderName, HeaderValue)>,
}

/// Starts a call in the spelling of its client and, if the record does not match that, in the other one. Each is one atomic step,
/// and the record has one fingerprint, so that at most one of the two can match.
pub(super) async fn start(ledger: &Ledger, call: &Call, spelled: Option<&SpelledKey>) -> Result<StartedRequest, Error> {
    let Some(spelled) = spelled else {
        return Ok(StartedRequest { started: start_when_due(ledger, call).await?, respelled: None });
    };
    let spelled_as = |spelled: &SpelledKey| Call { fingerprint: spelled.mark(call.fingerprint), ..call.clone() };
    let first = start_when_due(ledger, &spelled_as(spelled)).await?;
    if let Started::Answered(Decision::Mismatch) = first
        && let Some(other) = spelled.other()
    {
        let second = start_when_due(ledger, &spelled_as(&other)).await?;
        let respelled = other.value().map(|value| (other.header.clone(), value));
        return Ok(StartedRequest { started: second, respelled });
    }
    Ok(StartedRequest { started: first, respelled: None })
}

/// Starts a call. A client that comes back before the upstream's Retry-After is over waits for that as for running work: many
/// clients ignore Retry-After, and would use up their tries.
async fn start_when_due(ledger: &Ledger, call: &Call) -> Result<Started, Error> {
    let from = Instant::now();
    match ledger.start(call, StartOptions::default()).await? {
        Started::Answered(Decision::InFlight { retry_after, running: false, .. })
            if from.elapsed() + retry_after < call.policy.wait =>
        {
            tokio::time::sleep(retry_after + CLOCK_SLACK).await;
            let left = call.policy.wait.saturating_sub(from.elapsed());
            ledger.start(call, StartOptions::default().wait(left)).await
        }
        started => Ok(started),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(text: &str) -> SpelledKey {
        let headers = [(super::super::rules::IDEMPOTENCY_KEY, text.parse().unwrap())].into_iter().collect();
        let key = key::read(text.as_bytes()).unwrap();
        SpelledKey::of(&Rules::default(), &headers, Some(&key)).unwrap()
    }

    #[test]
    fn a_key_has_two_spellings_unless_one_cannot_be_written() {
        for (text, other) in [
            ("abc", Some("\"abc\"")),
            ("\"abc\"", Some("abc")),
            ("a\"b\\c", Some("\"a\\\"b\\\\c\"")),
            ("\"a\\\"b\\\\c\"", Some("a\"b\\c")),
            // Without quotes, it would be read as an open quote.
            ("\"\\\"abc\"", None),
        ] {
            let spelled = spelled(text);
            assert_eq!(spelled.value().unwrap(), text);
            assert_eq!(spelled.other().map(|other| other.value().unwrap()), other.map(|text| text.parse().unwrap()));
        }
    }
}
