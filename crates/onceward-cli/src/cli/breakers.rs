//! `onceward breakers`: shows and forces the breakers of sinks, and pauses queues.

use onceward::breakers::{ForceBreaker, Stops, state_name};
use onceward::core::breaker::State;
use serde_json::{Value, json};

use super::opening::open_reachable;
use super::{Global, block_on};
use onceward_runtime::config::{Settings, suggestion};
use onceward_runtime::exit::Fault;
use onceward_runtime::output;
use onceward_server::view::table;

/// Show breakers and paused queues, or change one
///
/// A breaker stops attempts at a sink that fails; entries that wait use up no attempts. It opens and closes by itself, and all couriers
/// of a ledger share it. A person can hold it open, hold it closed, or pause the entries of one operation.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  onceward breakers
  onceward breakers --pause newsletter --by ana     # stop delivering one operation
  onceward breakers --resume newsletter
  onceward breakers --open stripe --by ana          # stop all attempts at a sink
  onceward breakers --reset stripe                  # let it open and close by itself again")]
pub(super) struct Breakers {
    /// Stop all attempts at this sink until --reset
    #[arg(long, value_name = "SINK", group = "change")]
    open: Option<String>,
    /// Permit all attempts at this sink until --reset, whatever becomes of them
    #[arg(long, value_name = "SINK", group = "change")]
    close: Option<String>,
    /// Let the breaker of this sink open and close by itself again
    #[arg(long, value_name = "SINK", group = "change")]
    reset: Option<String>,
    /// Stop delivering the entries of this operation until --resume
    #[arg(long, value_name = "OPERATION", group = "change")]
    pause: Option<String>,
    /// Deliver the entries of this operation again
    #[arg(long, value_name = "OPERATION", group = "change")]
    resume: Option<String>,
    /// Who decides this [default: the user name]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Breakers {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        let settings = global.settings()?;
        block_on(async {
            let ledger = open_reachable(&settings).await?;
            if let Some((stops, force)) = self.change() {
                warn_if_unknown(&stops, &settings);
                ledger.force_breaker(&stops, &force).await?;
            }
            let breakers = ledger.breakers().await?;
            ledger.close().await;
            if self.json {
                let all: Vec<Value> = breakers.iter().map(|(stops, breaker)| view(stops, &breaker.state)).collect();
                output::json(&json!({ "breakers": all }));
            } else if breakers.is_empty() {
                output::out("all breakers are closed, and no queue is paused");
            } else {
                let head = ["STOPS", "NAME", "STATE", "SINCE", "NOTE"].map(str::to_owned).to_vec();
                let rows = breakers.iter().map(|(stops, breaker)| row(stops, &breaker.state).to_vec());
                output::out(&table(&std::iter::once(head).chain(rows).collect::<Vec<_>>()));
            }
            Ok(0)
        })
    }

    fn change(&self) -> Option<(Stops, ForceBreaker)> {
        let by = self.by.clone().or_else(|| std::env::var("USER").ok()).unwrap_or_else(|| "an operator".to_owned());
        let sink = |name: &String| Stops::Sink(name.clone());
        let queue = |name: &String| Stops::Queue(name.clone());
        let open = self.open.as_ref().map(|name| (sink(name), ForceBreaker::Open { by: by.clone() }));
        let close = self.close.as_ref().map(|name| (sink(name), ForceBreaker::Closed { by: by.clone() }));
        let reset = self.reset.as_ref().map(|name| (sink(name), ForceBreaker::Reset));
        let pause = self.pause.as_ref().map(|name| (queue(name), ForceBreaker::Open { by: by.clone() }));
        let resume = self.resume.as_ref().map(|name| (queue(name), ForceBreaker::Reset));
        open.or(close).or(reset).or(pause).or(resume)
    }
}

/// A misspelt name would stop nothing. Sinks of other programs, such as Python couriers, are not in the configuration.
fn warn_if_unknown(stops: &Stops, settings: &Settings) {
    let (kind, name, known) = match stops {
        Stops::Sink(name) => ("sink", name, settings.sinks().map(|(name, _)| name).collect::<Vec<_>>()),
        Stops::Queue(name) => ("operation", name, settings.operations().map(|(name, _)| name).collect()),
    };
    if !known.is_empty() && !known.contains(&name.as_str()) {
        let suggested = suggestion(name, known.into_iter());
        output::say(&format!("warning: the configuration has no {kind} `{name}`; {suggested}"));
    }
}

/// The kind, the name, and what its state is called.
fn names(stops: &Stops, state: &State) -> (&'static str, String, &'static str) {
    match stops {
        Stops::Sink(name) => ("sink", name.clone(), state_name(state)),
        Stops::Queue(name) if matches!(state, State::ForcedOpen { .. }) => ("queue", name.clone(), "paused"),
        Stops::Queue(name) => ("queue", name.clone(), "running"),
    }
}

fn row(stops: &Stops, state: &State) -> [String; 5] {
    let (kind, name, state_name) = names(stops, state);
    let (since, note) = match state {
        State::Closed { failures: 0 } => (String::new(), String::new()),
        State::Closed { failures } => (String::new(), format!("{failures} failures in a row")),
        State::Open { since, until } => (since.to_string(), format!("tried again at {until}")),
        State::HalfOpen { since, .. } => (since.to_string(), "one attempt finds out".to_owned()),
        State::ForcedOpen { by, since } | State::ForcedClosed { by, since } => (since.to_string(), format!("by {by}")),
    };
    [kind.to_owned(), name, state_name.to_owned(), since, note]
}

fn view(stops: &Stops, state: &State) -> Value {
    let (kind, name, state_name) = names(stops, state);
    let (since, by) = match state {
        State::Closed { .. } => (None, None),
        State::Open { since, .. } | State::HalfOpen { since, .. } => (Some(since.to_string()), None),
        State::ForcedOpen { by, since } | State::ForcedClosed { by, since } => {
            (Some(since.to_string()), Some(by.clone()))
        }
    };
    json!({ "stops": kind, "name": name, "state": state_name, "since": since, "by": by })
}
