//! What the provider and the agent tell the driver: one line of JSON on their standard output for each event.

use std::io::{self, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What the provider says. It says so before it answers, so that its account never lags behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum ProviderSays {
    /// It listens here.
    Listening { address: std::net::SocketAddr },
    /// It took money.
    Charged { invoice: String, receipt: String, cents: u64 },
    /// It knew the key and gave the receipt that it gave before.
    KnewKey { invoice: String, receipt: String },
    /// It has charged and will not answer: now is the moment to kill the agent.
    KillAgent { invoice: String },
    /// It dropped the line and charged nothing.
    Dropped { invoice: String },
    /// Its answer was ready when nobody was there any more.
    TooLate { invoice: String },
}

/// What the agent says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum AgentSays {
    /// No answer; it will try again.
    Again { invoice: String },
    /// It has a receipt, from the provider or from the ledger.
    Paid { invoice: String, receipt: String },
    /// The ledger holds the payment until somebody settles it.
    Held { invoice: String },
    /// Something went wrong that is not part of the show.
    Failed { invoice: String, reason: String },
}

/// Writes one event as one line, in one piece.
pub(super) fn say(to: &mut impl Write, event: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// Reads one event from one line.
pub(super) fn hear<T: DeserializeOwned>(line: &str) -> Result<T, String> {
    serde_json::from_str(line).map_err(|error| format!("`{line}` is no event: {error}"))
}
