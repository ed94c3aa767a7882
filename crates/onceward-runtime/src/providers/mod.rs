//! What is publicly known about providers: how each takes an idempotency key, how long it remembers it, what proves that nothing
//! happened, and how to ask it afterwards. Data only; each fact has its sources and the day on which they were read.
//!
//! - `fact`: a fact, and the values that facts have. `text`: the table for people, programs and the docs.
//! - `stripe`, `resend`, `postmark`, `sendgrid`, `slack`, `pagerduty`, `twilio`, `standard_webhooks`: one file per provider.

mod fact;
mod pagerduty;
mod postmark;
mod resend;
mod sendgrid;
mod slack;
mod standard_webhooks;
mod stripe;
#[cfg(test)]
mod tests;
mod text;
mod twilio;

use std::time::Duration;

use serde::Serialize;

pub use fact::{
    BodyFailure, Fact, FactSource, FailedAnswers, KeyMemory, KeyPlace, Lookup, ProviderProbe, ReferencePlace,
    RefusalProof,
};
pub use text::{json, page, text};

/// One API of a provider.
#[derive(Debug, Serialize)]
pub struct Provider {
    /// The name in the configuration.
    pub name: &'static str,
    pub title: &'static str,
    /// The request that these facts are about.
    pub request: &'static str,
    /// Where it takes an idempotency key.
    pub key: Fact<KeyPlace>,
    /// The longest key, in characters.
    pub longest_key: Fact<u16>,
    pub remembers_key: Fact<KeyMemory>,
    /// Answers that prove that this request did nothing. They prove nothing about an earlier attempt.
    pub refusals: Fact<&'static [RefusalProof]>,
    /// Failures that have the status of a success, where they are known.
    pub body_failure: Option<Fact<BodyFailure>>,
    /// What a repeat with the same key gets after a failure.
    pub failed_answers: Fact<FailedAnswers>,
    /// Where the provider's own id is in its answer.
    pub reference: Fact<ReferencePlace>,
    /// Whether the provider can be asked afterwards if it happened.
    pub lookup: Fact<Lookup>,
}

/// Every provider, in the order of the table.
pub const ALL: [&Provider; 9] = [
    &stripe::API_V1,
    &resend::EMAILS,
    &postmark::EMAIL,
    &sendgrid::MAIL_SEND,
    &slack::CHAT_POST_MESSAGE,
    &slack::INCOMING_WEBHOOK,
    &pagerduty::EVENTS_V2,
    &twilio::MESSAGES,
    &standard_webhooks::RECEIVER,
];

impl Provider {
    /// The provider with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.into_iter().find(|provider| provider.name == name)
    }

    /// The key's place as a sink has it: `header:NAME` or `body:POINTER`. `None` if the provider takes none, or if that is
    /// unknown.
    pub fn downstream_key(&self) -> Option<String> {
        match self.key.value()? {
            KeyPlace::Header(name) => Some(format!("header:{name}")),
            KeyPlace::Body(pointer) => Some(format!("body:{pointer}")),
            KeyPlace::NoneDocumented => None,
        }
    }

    /// For how long a repeat with the same key is safe. `None` without such a time: then the user has to set it.
    pub fn honours_key_for(&self) -> Option<Duration> {
        match self.remembers_key.value()? {
            KeyMemory::Hours(hours) => Some(Duration::from_secs(u64::from(*hours) * 60 * 60)),
            KeyMemory::WhileOpen => None,
        }
    }

    /// The statuses after which the same request may be sent again, because nothing happened.
    pub fn retryable_refusals(&self) -> impl Iterator<Item = u16> {
        let proofs = self.refusals.value().into_iter().flat_map(|proofs| proofs.iter());
        proofs.filter(|proof| proof.retry).map(|proof| proof.status)
    }

    /// A probe that needs only a key and credentials.
    pub fn probe(&self) -> Option<&ProviderProbe> {
        match self.lookup.value()? {
            Lookup::ByKey(probe) => Some(probe),
            Lookup::ByScan | Lookup::NotOffered => None,
        }
    }
}
