//! The courier of a configuration: every operation that names a sink is delivered to it, and queued tools are called.

use onceward::Ledger;
use onceward::courier::{Courier, Route};
use onceward_runtime::config::Settings;
use onceward_runtime::exit::Fault;

use crate::open::{Opened, Surroundings, open};

/// A courier for the operations that name a sink, and for queued tools; `None` if there are none, or if workers take all of their
/// entries. Connects to nothing and starts nothing.
pub fn courier(settings: &Settings, ledger: &Ledger) -> Result<Option<Courier>, Fault> {
    let mut courier = Courier::new(ledger.clone());
    let mut has_routes = false;
    for (name, sink) in settings.sinks() {
        let operations: Vec<&str> = settings
            .operations()
            .filter(|(_, operation)| operation.sink.as_deref() == Some(name))
            .map(|(operation, _)| operation)
            .collect();
        // Opened even if no operation names it: its mistakes are reported when the server starts.
        let concurrent = sink.concurrency() * operations.len().max(1);
        let around = Surroundings::new(settings.folder(), concurrent)?;
        let Opened::Delivers(opened) = open(name, &sink.settings, &around)? else { continue };
        for operation in operations {
            let route = Route {
                timeout: sink.timeout(),
                retry: sink.retry(),
                breaker: sink.breaker(),
                budget: sink.budget(),
                concurrency: sink.concurrency(),
                settle: sink.settle(),
                passes_key: sink.passes_key(),
                ..Route::to(name, opened.clone())
            };
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
