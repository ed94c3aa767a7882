//! Tests of the sinks with real servers and processes.

// Clippy lets only test functions panic; what they share fails a test in the same way.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod certificates;
mod command;
mod courier;
mod http;
mod http_server;
mod smtp;
mod smtp_server;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use onceward::core::name::{Identity, Key, Operation, Tenant};
use onceward::courier::{Health, Parcel, Sink, SinkResult};
use onceward::outcome::{Outcome, Verdict};
use onceward::record::Fence;
use onceward_courier::{Opened, Surroundings, open};
use onceward_runtime::config::SinkSettings;
use onceward_runtime::egress::{SystemResolver, Trust};

fn around() -> Surroundings {
    let resolver = Arc::new(SystemResolver::default());
    Surroundings {
        folder: ".".into(),
        trust: Trust::load(false, None).unwrap(),
        resolver,
        concurrent: 8,
        store: "memory:".into(),
    }
}

/// The sink of a table in TOML, or the message about it.
fn try_sink(table: &str) -> Result<Arc<dyn Sink>, String> {
    let settings: SinkSettings = toml::from_str(table).map_err(|error| error.to_string())?;
    // Only the sink `sql` waits for anything, namely for its database.
    let opened = open("test", &settings, &around()).now_or_never().expect("nothing is waited for");
    match opened.map_err(|fault| fault.message)? {
        Opened::Delivers(sink) => Ok(sink),
        Opened::Pulled => Err("pulled".to_owned()),
    }
}

#[track_caller]
fn sink(table: &str) -> Arc<dyn Sink> {
    try_sink(table).unwrap()
}

fn parcel(payload: &str) -> Parcel {
    Parcel {
        identity: Identity {
            tenant: Tenant::new("acme").unwrap(),
            operation: Operation::new("charge").unwrap(),
            key: Key::new("order-7").unwrap(),
        },
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        downstream_key: "k1".to_owned(),
        attempt: 2,
        fence: Fence::from_bits(1),
    }
}

/// What an attempt came to, in short.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Done,
    Failed,
    Again(Option<Duration>),
    Dead,
    Unknown,
}

fn end(attempt: &SinkResult) -> End {
    match attempt {
        SinkResult::Ended(outcome) if outcome.verdict == Verdict::Success => End::Done,
        SinkResult::Ended(_) => End::Failed,
        SinkResult::Finished => panic!("only the sink `sql` finishes entries"),
        SinkResult::Refused { again: true, retry_after, .. } => End::Again(*retry_after),
        SinkResult::Refused { again: false, .. } => End::Dead,
        SinkResult::Unknown { .. } | SinkResult::AwaitsPerson { .. } => End::Unknown,
    }
}

fn health(attempt: &SinkResult) -> Health {
    match attempt {
        SinkResult::Ended(_) | SinkResult::Finished => Health::Working,
        SinkResult::Refused { health, .. }
        | SinkResult::Unknown { health, .. }
        | SinkResult::AwaitsPerson { health, .. } => *health,
    }
}

#[track_caller]
fn error(attempt: &SinkResult) -> &str {
    match attempt {
        SinkResult::Refused { error, .. }
        | SinkResult::Unknown { error, .. }
        | SinkResult::AwaitsPerson { error, .. } => error,
        attempt @ (SinkResult::Ended(_) | SinkResult::Finished) => panic!("{attempt:?}"),
    }
}

#[track_caller]
fn outcome(attempt: SinkResult) -> Outcome {
    match attempt {
        SinkResult::Ended(outcome) => outcome,
        other => panic!("{other:?}"),
    }
}
