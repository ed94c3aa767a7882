//! Asks a server for its list of tools when a client calls an unknown tool, with the client's own `_meta`.

use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use tokio::time::timeout;

use super::call::ToolCall;
use super::gate::Gate;
use super::list::{cursor as next_cursor, learned};
use super::members::Members;
use super::transport::Transport;

/// How long a server may take to list its tools.
const LIST_LIMIT: Duration = Duration::from_secs(5);

/// How many pages the list may have.
const MAX_PAGES: usize = 50;

impl Gate {
    /// Whether the server's list is needed before a call of this tool.
    pub(super) fn is_to_ask(&self, tool: &str) -> bool {
        self.tools.is_unknown(tool) || (self.tools.guard_reason(tool).is_guarded() && self.tools.needs_schema(tool))
    }

    /// Asks a server for its list of tools. A tool that the server has not listed is guarded.
    pub(super) async fn ask_for_tools(&self, tool_call: &ToolCall, transport: &impl Transport) {
        if !self.tools.may_ask(Instant::now()) {
            return;
        }
        let all = async {
            let mut cursor: Option<Box<RawValue>> = None;
            for _ in 0..MAX_PAGES {
                let mut parameters = Members::default();
                if let Some(meta) = tool_call.meta() {
                    parameters.set("_meta", &meta);
                }
                if let Some(cursor) = &cursor {
                    parameters.set("cursor", cursor);
                }
                let Ok(response) = transport.ask("tools/list", parameters).await else { return };
                let Some(result) = response.object("result") else { return };
                if learned(&result, &self.tools).is_none() {
                    return;
                }
                cursor = next_cursor(&result).map(ToOwned::to_owned);
                if cursor.is_none() {
                    return;
                }
            }
        };
        let _ = timeout(LIST_LIMIT, all).await;
        if self.is_to_ask(&tool_call.tool) {
            self.tools.list_failed(Instant::now());
        }
    }
}
