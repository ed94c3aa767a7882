//! The events that providers and agents report to the driver: one line of JSON each, on standard output.

use std::io::{self, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// An event of a provider. It is written before the provider answers its client, so the log is never behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum ProviderEvent {
    /// The provider listens on this address.
    Listening { address: std::net::SocketAddr },
    /// It charged the customer.
    Charged { invoice: String, receipt: String, cents: u64 },
    /// It recognised the key and returned the receipt of the earlier charge.
    KeyRecognised { invoice: String, receipt: String },
    /// It has charged and will not answer: the driver kills the agent now.
    KillAgent { invoice: String },
    /// It dropped the connection and charged nothing.
    ConnectionDropped { invoice: String },
    /// The client closed the connection before the answer was ready.
    ClientGaveUp { invoice: String },
    /// It was asked for the charge of an invoice.
    LookedUp { invoice: String, found: bool },
}

/// An event of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum AgentEvent {
    /// No answer came; the agent will retry.
    Retrying { invoice: String },
    /// It asks the provider whether the payment was made.
    Probing { invoice: String },
    /// It has a receipt, from the provider or from the ledger.
    Paid { invoice: String, receipt: String },
    /// The ledger holds the payment until a person settles it.
    Held { invoice: String },
    /// It failed for a reason that is not part of the demo.
    Failed { invoice: String, reason: String },
}

/// Writes one event as one line, in one write.
pub(super) fn write_event(to: &mut impl Write, event: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// Reads one event from one line.
pub(super) fn parse_event<T: DeserializeOwned>(line: &str) -> Result<T, String> {
    serde_json::from_str(line).map_err(|error| format!("`{line}` is not an event: {error}"))
}
