//! How the entries of one operation are delivered.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::breaker;
use onceward_core::outbox::Destination;
use onceward_core::policy::Policy;
use onceward_core::record::{Record, downstream_key};
use onceward_core::retry::{backoff, budget};

use super::sink::Sink;

/// How many entries of one operation are on their way at the same time, unless the route says otherwise: enough to hide the
/// latency of an API, and few enough for its limits.
pub const DEFAULT_CONCURRENCY: usize = 32;

/// How long a look-up that finds nothing is not believed, unless the route says otherwise: an API may show an effect late.
pub const DEFAULT_SETTLE: Duration = Duration::from_secs(60);

/// How the entries of one operation are delivered.
#[derive(Clone)]
pub struct Route {
    /// The name of the sink. It is part of the downstream key: renaming a sink changes the keys of new entries.
    pub sink_name: String,
    /// The sink.
    pub sink: Arc<dyn Sink>,
    /// The longest time that an attempt should take. A lease is three times as long.
    pub timeout: Duration,
    /// When a failed attempt is made again. How many attempts there are is written into each entry.
    pub retry: backoff::Settings,
    /// When attempts stop because the downstream fails.
    pub breaker: breaker::Settings,
    /// How many retries the downstream gets, however many entries wait.
    pub budget: budget::Settings,
    /// How many entries are on their way at the same time.
    pub concurrency: usize,
    /// How long after an attempt a look-up that finds nothing is not believed.
    pub settle: Duration,
    /// Whether the downstream gets the key of the intent as it is, instead of one that is derived from it. Then nothing else may
    /// send the same keys there: for the downstream, equal keys of two operations or tenants are one request.
    pub passes_key: bool,
    /// The largest outcome to keep. Of a larger one, only size and digest are kept.
    pub keep_limit: usize,
    /// Where entries go while the breaker is open, unless an attempt at this sink may have happened. A fallback of the fallback is
    /// not used. If entries are retried in doubt, both sinks must honour the downstream key.
    pub fallback: Option<Arc<Route>>,
}

impl Route {
    /// A route to a sink, with the default settings.
    pub fn to(sink_name: &str, sink: Arc<dyn Sink>) -> Self {
        Self {
            sink_name: sink_name.to_owned(),
            sink,
            timeout: Duration::from_secs(30),
            retry: backoff::Settings::default(),
            breaker: breaker::Settings::default(),
            budget: budget::Settings::default(),
            concurrency: DEFAULT_CONCURRENCY,
            settle: DEFAULT_SETTLE,
            passes_key: false,
            keep_limit: Policy::default().keep_limit,
            fallback: None,
        }
    }

    /// Where an attempt goes that is not bound by an earlier one.
    pub(super) fn destination(&self, record: &Record) -> Option<Destination> {
        let identity = record.identity.as_ref()?;
        // A fresh key must differ from the one that the downstream knows.
        let key = match self.passes_key && record.generation == 0 {
            true => identity.key.as_str().to_owned(),
            false => downstream_key(identity, &self.sink_name, record.generation),
        };
        Some(Destination { sink: self.sink_name.clone(), key })
    }

    /// The policy of the courier's claims: the terms of the entry are in its record. A sink that finishes entries itself gets them
    /// unsent, so that a lapsed claim leaves no doubt: sending is one step with finishing.
    pub(super) fn policy(&self) -> Arc<Policy> {
        Arc::new(Policy {
            max_runtime: self.timeout,
            keep_limit: self.keep_limit,
            probes: self.sink.can_look_up(),
            marks_sent: self.sink.finishes_entries(),
            ..Policy::default()
        })
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("sink", &self.sink_name).finish_non_exhaustive()
    }
}
