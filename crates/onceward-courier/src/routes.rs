//! The courier of a configuration: every operation that names a sink is delivered to it, and queued tools are called.

use std::collections::BTreeMap;
use std::sync::Arc;

use onceward::courier::{Courier, Route};
use onceward::{Ledger, StoreUrl};
use onceward_runtime::config::{Settings, Sink, SinkSettings};
use onceward_runtime::exit::Fault;

use crate::open::{Opened, Surroundings, open};

/// A courier for the operations that name a sink, and for queued tools; `None` if there are none, or if workers take all of their
/// entries. Connects to nothing but stores, and starts nothing.
pub async fn courier(settings: &Settings, ledger: &Ledger) -> Result<Option<Courier>, Fault> {
    // Opened even if no operation names it: its mistakes are reported when the server starts.
    let mut routes = BTreeMap::new();
    for (name, sink) in settings.sinks() {
        let store = store_of(settings, name, &sink.settings)?;
        let around = Surroundings::new(settings.folder(), concurrent_attempts(settings, name), store)?;
        if let Opened::Delivers(opened) = open(name, &sink.settings, &around).await? {
            let route = Route {
                timeout: sink.timeout(),
                retry: sink.retry(),
                breaker: sink.breaker(),
                budget: sink.budget(),
                concurrency: sink.concurrency(),
                settle: sink.settle(),
                passes_key: sink.passes_key(),
                ..Route::to(name, opened)
            };
            routes.insert(name, route);
        }
    }
    let mut courier = Courier::new(ledger.clone());
    let mut has_routes = false;
    for (name, sink) in settings.sinks() {
        let Some(route) = routes.get(name) else { continue };
        let fallback = sink.fallback().and_then(|fallback| routes.get(fallback)).cloned().map(Arc::new);
        for operation in operations_of(settings, name) {
            let route = Route { fallback: fallback.clone(), ..route.clone() };
            courier = courier.route(operation, route).map_err(onceward::Error::from)?;
            has_routes = true;
        }
    }
    let tools = onceward_mcp::queued::routes(settings)?;
    if !tools.is_empty() {
        // When the courier is killed, a server may run for a moment longer: its calls are in progress until it has ended.
        ledger.lend_claims();
    }
    for (operation, route) in tools {
        courier = courier.route(&operation, route).map_err(onceward::Error::from)?;
        has_routes = true;
    }
    Ok(has_routes.then_some(courier))
}

fn operations_of<'a>(settings: &'a Settings, sink: &'a str) -> impl Iterator<Item = &'a str> {
    settings.operations().filter(move |(_, operation)| operation.sink.as_deref() == Some(sink)).map(|(name, _)| name)
}

/// The sinks whose entries go to a sink: itself, and those that fall back to it.
fn leading_to<'a>(settings: &'a Settings, name: &'a str) -> impl Iterator<Item = (&'a str, &'a Sink)> {
    settings.sinks().filter(move |(other, sink)| *other == name || sink.fallback() == Some(name))
}

/// How many attempts at a sink are made at the same time.
fn concurrent_attempts(settings: &Settings, name: &str) -> usize {
    let lanes = |(other, sink): (&str, &Sink)| operations_of(settings, other).count() * sink.concurrency();
    leading_to(settings, name).map(lanes).sum::<usize>().max(1)
}

/// The store of the entries that go to a sink. Only a sink that works in this store needs all of them in one.
fn store_of(settings: &Settings, name: &str, sink: &SinkSettings) -> Result<StoreUrl, Fault> {
    let mut operations = leading_to(settings, name).flat_map(|(other, _)| operations_of(settings, other));
    let Some(first) = operations.next() else { return Ok(settings.store()?.clone()) };
    let store = settings.store_of(first)?;
    for other in operations.filter(|_| matches!(sink, SinkSettings::Sql(_))) {
        if settings.store_of(other)? != store {
            return Err(Fault::config(format!(
                "sink.{name}: the operations {first} and {other} live in different stores, and the statement runs in one of them: \
                 make a sink for each"
            )));
        }
    }
    Ok(store.clone())
}
