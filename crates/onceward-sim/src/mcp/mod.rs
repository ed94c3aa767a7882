//! The MCP gateway, killed under load: over stdio, over HTTP, and in front of several servers. Clients give each call a key,
//! retry what they hear nothing of, and race each other through several gateways on one ledger.
//!
//! - `server`: an MCP server over stdio whose one tool has effects; a process of its own.
//! - `remote`: the same over HTTP, inside the harness.
//! - `agent`: a client with a gateway process of its own.
//! - `answer`: what an answer tells a client.
//! - `meant`: clients that give their calls no keys.
//! - `stdio`, `http`: the two ways to play.

mod agent;
mod answer;
mod http;
mod meant;
mod remote;
mod server;
mod stdio;

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::dice::Dice;
use crate::kills::{self, Options};
pub use agent::Agent;
pub use meant::MEANT;
pub use server::{Role, formality, run as serve};

/// How a client reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// A gateway in front of one command.
    Stdio,
    /// A gateway in front of two commands.
    Several,
    /// A gateway in front of an address.
    Http,
}

impl Over {
    /// Every way, with its name on the command line.
    pub const ALL: [(&str, Self); 3] = [("stdio", Self::Stdio), ("http", Self::Http), ("several", Self::Several)];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, over)| *over == self).map_or("", |(name, _)| name)
    }

    /// The tool that a key is for: with several servers, half of the keys are for each.
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

/// A gateway lives so long between two kills, in milliseconds: some die before they have answered anything.
const LIFE: (u64, u64) = (5, 250);

/// No caller waits longer for an answer.
const LONGEST: Duration = Duration::from_secs(20);

/// What is the same for all of a run.
struct Stage {
    common: kills::Stage,
    over: Over,
    /// Calls without keys.
    meant: meant::Meant,
}

impl Deref for Stage {
    type Target = kills::Stage;

    fn deref(&self) -> &kills::Stage {
        &self.common
    }
}

/// How long the next gateway lives.
fn life(dice: &mut Dice) -> Duration {
    Duration::from_millis(LIFE.0 + dice.below(LIFE.1 - LIFE.0))
}

/// How a doubt is settled as done: with the result of the tool.
fn as_result(value: &str) -> (&'static str, String) {
    ("--value", answer::result(value).to_string())
}

/// Kills as often as is wanted in each of these ways. True if nothing was broken.
pub fn run(options: &Options, ways: &[Over]) -> bool {
    ways.iter().all(|over| kills::on_a_runtime(play(options, *over)))
}

async fn play(options: &Options, over: Over) -> bool {
    let started = Instant::now();
    let stage = Arc::new(Stage { common: kills::Stage::new(options, "mcp"), over, meant: meant::Meant::default() });
    match over {
        Over::Stdio | Over::Several => stdio::play(&stage).await,
        Over::Http => http::play(&stage).await,
    }
    stage.meant.judge(&stage.effects).into_iter().for_each(|what| stage.book.violation(what));
    stage.meant.print();
    stage.judge(&format!("mcp --over {}", over.name()), started.elapsed())
}
