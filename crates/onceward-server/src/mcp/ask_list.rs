//! Asks a server for its list of tools, when a client calls one that is not known yet.

use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use tokio::time::timeout;

use super::call::Asked;
use super::gate::Gate;
use super::link::Link;
use super::list::{cursor, learned};
use super::members::Members;

/// How long a server may take to say what its tools are, when a tool is called that was not listed.
const LISTING: Duration = Duration::from_secs(5);

/// How many pages such a list may have.
const PAGES: usize = 50;

impl Gate {
    /// Whether the server's list has to be known before a call of this tool.
    pub(super) fn is_to_ask(&self, tool: &str) -> bool {
        self.tools.is_unknown(tool) || (self.tools.why(tool).is_guarded() && self.tools.needs_schema(tool))
    }

    /// Asks a server for its tools, because a client calls one that it has not listed. Until it does, the call is guarded.
    pub(super) async fn ask_for_tools(&self, asked: &Asked, link: &impl Link) {
        if !self.tools.may_ask(Instant::now()) {
            return;
        }
        let all = async {
            let mut at: Option<Box<RawValue>> = None;
            for _ in 0..PAGES {
                let mut parameters = Members::default();
                if let Some(meta) = asked.meta() {
                    parameters.set("_meta", &meta);
                }
                if let Some(at) = &at {
                    parameters.set("cursor", at);
                }
                let Ok(answer) = link.ask("tools/list", parameters).await else { return };
                let Some(result) = answer.object("result") else { return };
                if learned(&result, &self.tools).is_none() {
                    return;
                }
                at = cursor(&result).map(ToOwned::to_owned);
                if at.is_none() {
                    return;
                }
            }
        };
        let _ = timeout(LISTING, all).await;
        if self.is_to_ask(&asked.tool) {
            self.tools.asked_in_vain(Instant::now());
        }
    }
}
