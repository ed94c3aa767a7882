//! A fact with its sources, and the values that facts have.

use serde::Serialize;

/// What is known, what is not, and where it was looked for.
#[derive(Debug, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Fact<T> {
    Known {
        value: T,
        note: &'static str,
        sources: &'static [FactSource],
    },
    /// The sources say nothing about it.
    Unknown {
        note: &'static str,
        sources: &'static [FactSource],
    },
    /// Another fact leaves nothing to know.
    NotApplicable {
        note: &'static str,
    },
}

/// A public page, and the day on which it was read.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct FactSource {
    pub url: &'static str,
    /// `YYYY-MM-DD`.
    pub checked: &'static str,
}

/// Where a provider takes an idempotency key.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyPlace {
    Header(&'static str),
    /// A JSON pointer into the body.
    Body(&'static str),
    /// The documentation names none.
    NoneDocumented,
}

/// How long a provider remembers a key.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyMemory {
    /// At least this many hours.
    Hours(u16),
    /// As long as what the key made is open, and no longer.
    WhileOpen,
}

/// A status that proves that the request did nothing.
#[derive(Debug, Serialize)]
pub struct RefusalProof {
    pub status: u16,
    /// The error in the answer.
    pub error: &'static str,
    /// Whether the same request can succeed later.
    pub retry: bool,
}

/// A failure with the status of a success.
#[derive(Debug, Serialize)]
pub struct BodyFailure {
    /// The JSON pointer to the field that tells.
    pub pointer: &'static str,
    /// Its value, as JSON, if the request failed.
    pub fails_if: &'static str,
    /// The JSON pointer to the name of the error.
    pub error: &'static str,
    /// Errors after which the effect may have happened.
    pub doubtful: &'static [&'static str],
}

/// What a repeat with the same key gets after a failure.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailedAnswers {
    Replayed,
    NotReplayed,
}

/// Where the provider's own id is in its answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReferencePlace {
    Header(&'static str),
    /// A JSON pointer into the body.
    Body(&'static str),
    NotGiven,
}

/// Whether a provider can be asked if it happened.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lookup {
    /// By our key, with one request.
    ByKey(ProviderProbe),
    /// Only by reading a list, and comparing what is in it.
    ByScan,
    NotOffered,
}

/// A request that asks if it happened, as templates over `key`.
#[derive(Debug, Serialize)]
pub struct ProviderProbe {
    /// What the request itself has to carry, so that it can be found; empty if the key is enough.
    pub mark: &'static str,
    pub method: &'static str,
    pub url: &'static str,
    /// It happened if the answer has something at this JSON pointer.
    pub found: &'static str,
    /// After how many minutes "not found" counts; `None` if the provider does not say.
    pub settle_minutes: Option<u16>,
}

impl<T> Fact<T> {
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Known { value, .. } => Some(value),
            Self::Unknown { .. } | Self::NotApplicable { .. } => None,
        }
    }

    pub fn note(&self) -> &'static str {
        match self {
            Self::Known { note, .. } | Self::Unknown { note, .. } | Self::NotApplicable { note } => note,
        }
    }

    pub fn sources(&self) -> &'static [FactSource] {
        match self {
            Self::Known { sources, .. } | Self::Unknown { sources, .. } => sources,
            Self::NotApplicable { .. } => &[],
        }
    }
}

/// A page that was read on 2026-11-19, perhaps in a stored copy that is older.
pub(super) const fn read(url: &'static str) -> FactSource {
    FactSource { url, checked: "2026-11-19" }
}

/// For providers that take no key.
pub(super) const fn without_key<T>() -> Fact<T> {
    Fact::NotApplicable { note: "there is no key" }
}
