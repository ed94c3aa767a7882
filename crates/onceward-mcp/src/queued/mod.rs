//! Queued tools: the gateway records the call and answers at once, and a courier calls the tool later, on a server of its own.
//!
//! - `enqueue`: the gateway's side: records a call. `entry_view`: how an entry stands, for a model.
//! - `tool_sink`: the courier's side: one attempt at a call. `own_server`: the server that the courier has started, and starts
//!   again when it is gone. `handshake`: agrees on a protocol version and asks for the tools. `server_pipes`: requests and
//!   responses over the pipes of a server.

mod enqueue;
mod entry_view;
mod handshake;
mod own_server;
mod server_pipes;
mod tool_sink;

use std::sync::Arc;
use std::time::Duration;

use onceward::courier::Route;
use onceward_runtime::config::{Settings, Tool, mcp_sink};
use onceward_runtime::exit::Fault;

use super::tools::Tools;
pub(super) use entry_view::EntryView;
use own_server::OwnServer;
use tool_sink::ToolSink;

/// How many calls of one tool are under way. Few, because a server that ends takes all of them into doubt, and because many
/// servers do one thing after the other.
const CONCURRENCY: usize = 4;

/// The courier's routes for the queued tools of a configuration: each operation and how it is delivered. Starts no server.
pub fn routes(settings: &Settings) -> Result<Vec<(String, Route)>, Fault> {
    if settings.queued_tools().next().is_none() {
        return Ok(Vec::new());
    }
    settings.check_mcp()?;
    settings.check_queue()?;
    let mut routes = Vec::new();
    let mut last: Option<(String, Arc<OwnServer>)> = None;
    // The tools of a server come one after the other, and share its process.
    for (name, operation, tool) in settings.queued_tools() {
        let Some(configured) = settings.mcp().server.get(name) else { continue };
        let server = match last.take().filter(|(other, _)| other == name) {
            Some((_, server)) => server,
            None => Arc::new(OwnServer::new(configured.clone())?),
        };
        let settings_of_tool = configured.tool.get(tool).cloned().unwrap_or_default();
        routes.push((operation, route(&mcp_sink(name), Arc::clone(&server), tool, &settings_of_tool)));
        last = Some((name.to_owned(), server));
    }
    Ok(routes)
}

fn route(sink_name: &str, server: Arc<OwnServer>, tool: &str, configured: &Tool) -> Route {
    let policy = configured.policy();
    let settle = settle_time(configured, policy.max_runtime);
    Route {
        timeout: policy.max_runtime,
        concurrency: CONCURRENCY,
        settle,
        keep_limit: policy.keep_limit,
        ..Route::to(sink_name, Arc::new(ToolSink::new(server, tool, configured)))
    }
}

/// How long a probe that finds nothing is not believed.
fn settle_time(configured: &Tool, max_runtime: Duration) -> Duration {
    let after = configured.probe.as_ref().and_then(|probe| probe.after);
    after.map_or(max_runtime, |after| after.0)
}

impl Tools {
    /// Whether calls of a tool are queued for a courier.
    pub(super) fn is_queued(&self, name: &str) -> bool {
        self.configured(name).is_some_and(Tool::is_queued)
    }
}
