//! `[sink.NAME]`: how a sink is used by the operations that deliver to it, whatever its type. The doc comments here become the
//! reference page.

use std::time::Duration;

use onceward::core::retry::{backoff, budget};
use onceward::core::{breaker, policy};
use onceward::courier::{DEFAULT_CONCURRENCY, DEFAULT_SETTLE};
use schemars::JsonSchema;
use serde::Deserialize;

use super::sink::SinkSettings;
use super::values::Length;

/// The most attempts at the same time: each holds a connection and its payload.
const LARGEST_CONCURRENCY: u16 = 1024;

/// How many transactions of a sink `sql` are open at the same time, unless the file says otherwise: each has a connection, of which a
/// server has few, and ends after milliseconds.
const DEFAULT_TRANSACTIONS: usize = 4;

/// The most of them. A server has 100 connections by default.
const LARGEST_TRANSACTIONS: u16 = 64;

/// A place to which the courier delivers, and how often it tries.
#[derive(Clone, Debug, Deserialize)]
pub struct Sink {
    #[serde(flatten)]
    pub settings: SinkSettings,
    #[serde(flatten)]
    pub(super) use_: SinkUse,
}

/// Settings that sinks of every type have.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct SinkUse {
    /// How often and when a failed attempt is made again: `retry = { base = "100ms", cap = "10s", max_attempts = 8 }`. The pause
    /// is a random time between zero and `base`, doubled with every attempt, at most `cap`; never less than the downstream asks
    /// for.
    #[schemars(extend("x-type" = "table", "x-default" = "as in the example"))]
    pub retry: Option<Retry>,
    /// When attempts stop because the downstream fails: `breaker = { failures = 5, recovery = "30s" }`. After that many failures
    /// in a row, nothing is sent for the time of `recovery`; then one attempt finds out whether the downstream is back. Entries
    /// that wait use up no attempts.
    #[schemars(extend("x-type" = "table", "x-default" = "as in the example"))]
    pub breaker: Option<Breaker>,
    /// How many retries the downstream gets, however many entries wait: `budget = { percent = 20, per_second = 1 }`, a share of the
    /// first attempts and a constant number.
    #[schemars(extend("x-type" = "table", "x-default" = "as in the example"))]
    pub budget: Option<Budget>,
    /// The most attempts at the same time, for each operation and each courier.
    #[schemars(extend("x-type" = "number", "x-default" = "`32`; `4` with `type = \"sql\"`, at most 64 there"))]
    pub concurrency: Option<u16>,
    /// The sink that gets the entries while the breaker of this one is open. An entry waits if an attempt at this sink may have
    /// happened. If this sink honours keys, so must the other one, for as long.
    #[schemars(extend("x-type" = "string", "x-default" = "none: entries wait"))]
    pub fallback: Option<String>,
    /// How long after an attempt a probe that finds nothing is not believed.
    #[schemars(extend("x-type" = "duration", "x-default" = "`\"60s\"`"))]
    pub settle: Option<Length>,
}

/// How often and when a failed attempt is made again.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Retry {
    pub base: Option<Length>,
    pub cap: Option<Length>,
    pub max_attempts: Option<u32>,
}

/// When attempts stop.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Breaker {
    pub failures: Option<u32>,
    pub recovery: Option<Length>,
}

/// How many retries there are.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Budget {
    pub percent: Option<u32>,
    pub per_second: Option<u32>,
}

impl Sink {
    /// What is wrong with the settings: the field, and why.
    pub(super) fn wrong(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        let SinkUse { retry, breaker, budget, concurrency, .. } = &self.use_;
        if retry.is_some_and(|retry| retry.max_attempts == Some(0)) {
            wrong.push(("retry", "`max_attempts` is at least 1".to_owned()));
        }
        if breaker.is_some_and(|breaker| breaker.failures == Some(0)) {
            wrong.push(("breaker", "`failures` is at least 1".to_owned()));
        }
        if breaker.and_then(|breaker| breaker.recovery).is_some_and(|length| length.0 > breaker::LONGEST_RECOVERY) {
            wrong.push(("breaker", "`recovery` is at most 1h".to_owned()));
        }
        if budget.and_then(|budget| budget.percent).is_some_and(|percent| percent > 1000) {
            wrong.push(("budget", "`percent` is at most 1000".to_owned()));
        }
        let is_sql = matches!(self.settings, SinkSettings::Sql(_));
        let largest = if is_sql { LARGEST_TRANSACTIONS } else { LARGEST_CONCURRENCY };
        if concurrency.is_some_and(|concurrency| !(1..=largest).contains(&concurrency)) {
            wrong.push(("concurrency", format!("the range is 1 to {largest}")));
        }
        wrong
    }

    /// When failed attempts are made again.
    pub fn retry(&self) -> backoff::Settings {
        let (given, default) = (self.use_.retry.unwrap_or_default(), backoff::Settings::default());
        backoff::Settings {
            base: given.base.map_or(default.base, |length| length.0),
            cap: given.cap.map_or(default.cap, |length| length.0),
            max_attempts: given.max_attempts.unwrap_or(policy::DEFAULT_MAX_ATTEMPTS),
            ..default
        }
    }

    /// When attempts stop.
    pub fn breaker(&self) -> breaker::Settings {
        let (given, default) = (self.use_.breaker.unwrap_or_default(), breaker::Settings::default());
        breaker::Settings {
            failures: given.failures.unwrap_or(default.failures),
            recovery: given.recovery.map_or(default.recovery, |length| length.0),
            trial: self.timeout().max(default.trial),
        }
    }

    /// How many retries there are.
    pub fn budget(&self) -> budget::Settings {
        let (given, default) = (self.use_.budget.unwrap_or_default(), budget::Settings::default());
        budget::Settings {
            percent: given.percent.unwrap_or(default.percent),
            per_second: given.per_second.unwrap_or(default.per_second),
            ..default
        }
    }

    /// The most attempts at the same time.
    pub fn concurrency(&self) -> usize {
        let default = match self.settings {
            SinkSettings::Sql(_) => DEFAULT_TRANSACTIONS,
            _ => DEFAULT_CONCURRENCY,
        };
        self.use_.concurrency.map_or(default, usize::from)
    }

    /// The name of the sink that gets the entries while the breaker of this one is open.
    pub fn fallback(&self) -> Option<&str> {
        self.use_.fallback.as_deref()
    }

    /// Why another sink cannot be the fallback of this one.
    pub(super) fn refuses_fallback(&self, other: &Self) -> Option<&'static str> {
        if self.is_pulled() || other.is_pulled() {
            return Some("workers take the entries of a `pull` sink by themselves: it has no fallback and is none");
        }
        // An entry is queued on the terms of its first sink: where they are to retry in doubt, both sinks have to know the key.
        (other.honours_key_for() < self.honours_key_for())
            .then_some("it does not honour keys, or not for as long: a lost answer would be sent to it twice")
    }

    /// How long a probe that finds nothing is not believed.
    pub fn settle(&self) -> Duration {
        self.use_.settle.map_or(DEFAULT_SETTLE, |length| length.0)
    }

    /// Longest time for one attempt.
    pub fn timeout(&self) -> Duration {
        self.settings.timeout()
    }

    /// Whether the downstream gets the key of the intent as it is.
    pub fn passes_key(&self) -> bool {
        self.settings.passes_key()
    }

    /// How long the downstream remembers a downstream key; `None` if it does not honour keys.
    pub fn honours_key_for(&self) -> Option<Duration> {
        let length = self.settings.honours_key_for().unwrap_or(policy::DEFAULT_HONOURS_KEY_FOR);
        self.settings.honours_key().then_some(length)
    }

    /// Whether workers take the entries with the API.
    pub fn is_pulled(&self) -> bool {
        matches!(self.settings, SinkSettings::Pull(_))
    }
}
