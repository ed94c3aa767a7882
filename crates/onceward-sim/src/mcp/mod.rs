//! The MCP gateway, killed under load: over stdio, over HTTP, and in front of several servers. Clients send a key with
//! each call, retry calls without an answer, and race each other through several gateways on one ledger.
//!
//! - `server`: an MCP server over stdio whose one tool has effects; its own process.
//! - `remote`: the same over HTTP, inside the harness.
//! - `agent`: a client with its own gateway process.
//! - `response`: reads an answer as clients do.
//! - `without_keys`: clients that send no keys.
//! - `stdio`, `http`: the two transports.

mod agent;
mod http;
mod remote;
mod response;
mod server;
mod stdio;
mod without_keys;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::kills::{self, Options};
use crate::rng::Rng;
pub use agent::Agent;
pub use server::{ServerOptions, formality, run as serve};
pub use without_keys::WITHOUT_KEY_PREFIX;

/// How a client reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A gateway in front of one command.
    Stdio,
    /// A gateway in front of two commands.
    Several,
    /// A gateway in front of an address.
    Http,
}

impl Transport {
    /// Every transport, with its name on the command line.
    pub const ALL: [(&str, Self); 3] = [("stdio", Self::Stdio), ("http", Self::Http), ("several", Self::Several)];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, transport)| *transport == self).map_or("", |(name, _)| name)
    }

    /// The tool of a key: with several servers, half of the keys are for each.
    fn tool(self, key: &str) -> &'static str {
        match (self, Options::number(key).is_multiple_of(2)) {
            (Self::Several, true) => "one__act",
            (Self::Several, false) => "two__act",
            _ => "act",
        }
    }
}

/// Clients at once.
const CALLERS: u64 = 12;

/// How often a client tries one call before it gives up on it.
const TRIES: u64 = 6;

/// How long a gateway lives between two kills, in milliseconds: some die before their first answer.
const LIFETIME_MILLIS: (u64, u64) = (5, 250);

/// The longest that a client waits for an answer.
const LONGEST: Duration = Duration::from_secs(20);

/// What all parts of a run share.
struct KillRun {
    common: kills::KillRun,
    transport: Transport,
    /// Calls without keys.
    without_keys: without_keys::WithoutKeys,
}

impl Deref for KillRun {
    type Target = kills::KillRun;

    fn deref(&self) -> &kills::KillRun {
        &self.common
    }
}

/// How long the next gateway lives.
fn lifetime(rng: &mut Rng) -> Duration {
    Duration::from_millis(LIFETIME_MILLIS.0 + rng.below(LIFETIME_MILLIS.1 - LIFETIME_MILLIS.0))
}

/// How a doubt is settled as done: with the result of the tool.
fn as_result(value: &str) -> (&'static str, String) {
    ("--value", response::result(value).to_string())
}

/// Kills processes over each transport. True if no rule was broken.
pub fn run(options: &Options, transports: &[Transport]) -> bool {
    transports.iter().all(|transport| kills::on_runtime(play(options, *transport)))
}

async fn play(options: &Options, transport: Transport) -> bool {
    let run = Arc::new(KillRun {
        common: kills::KillRun::new(options, "mcp"),
        transport,
        without_keys: without_keys::WithoutKeys::default(),
    });
    match transport {
        Transport::Stdio | Transport::Several => stdio::play(&run).await,
        Transport::Http => http::play(&run).await,
    }
    run.without_keys.judge(&run.effects).into_iter().for_each(|what| run.judge.violation(what));
    run.without_keys.print();
    run.judge(&format!("mcp --over {}", transport.name()))
}
