//! Short scenarios on the real surfaces in which nothing is left to chance: a few calls in a fixed order, each answer
//! and each effect known in advance. They find in seconds what random kills find sooner or later.
//!
//! - `http`: the gateway, in front of an `upstream` that does what the path says.
//! - `api`: the API with tokens.
//! - `mcp`: the MCP gateway, in front of a `server` that does what the tool's name says.
//! - `delivery`: the same for calls without a key.
//! - `command`: `onceward run`.

mod api;
mod command;
mod delivery;
mod http;
mod mcp;
mod server;
mod upstream;

use std::time::Instant;

use crate::kills::{self, KillRun, Options};
use crate::report::row;
pub use server::run as serve;

/// The result of a scenario: nothing, or what is wrong.
type Outcome = Result<(), String>;

/// Plays every scenario. True if all passed.
pub fn run(options: &Options) -> bool {
    let started = Instant::now();
    let mut broken = 0;
    let mut check = |name: &str, outcome: Outcome| match outcome {
        Ok(()) => println!("passed: {name}"),
        Err(what) => {
            broken += 1;
            println!("VIOLATION {name}: {what}");
        }
    };
    kills::on_runtime(async {
        http::play(&KillRun::new(options, "scenarios-http"), &mut check).await;
        api::play(&KillRun::new(options, "scenarios-api"), &mut check).await;
        mcp::play(&KillRun::new(options, "scenarios-mcp"), &mut check).await;
        delivery::play(&KillRun::new(options, "scenarios-delivery"), &mut check).await;
        command::play(&KillRun::new(options, "scenarios-run"), &mut check).await;
    });
    row("violations", broken);
    println!("{:.1} s", started.elapsed().as_secs_f64());
    broken == 0
}

/// Compares two values.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, is: &T, must_be: &T) -> Outcome {
    if is == must_be { Ok(()) } else { Err(format!("{what}: {is:?} instead of {must_be:?}")) }
}

/// How often an effect has happened.
fn effects(run: &KillRun, key: &str) -> usize {
    run.effects.read().get(key).map_or(0, Vec::len)
}
