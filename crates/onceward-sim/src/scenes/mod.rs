//! Short scenes on the real surfaces in which nothing is left to chance: a few calls in a fixed order, each answer and each
//! effect known beforehand. They find in seconds what random kills find sooner or later.
//!
//! - `http`: the gateway, in front of an `upstream` that does as the path says.
//! - `api`: the API with tokens.
//! - `mcp`: the MCP gateway, in front of a `server` that does as the tool's name says.
//! - `delivery`: the same with calls that no key names.
//! - `command`: `onceward run`.

mod api;
mod command;
mod delivery;
mod http;
mod mcp;
mod server;
mod upstream;

use std::time::Instant;

use crate::kills::{self, Options, Stage};
pub use server::run as serve;

/// What a scene comes to: nothing, or what is wrong.
type Outcome = Result<(), String>;

/// Plays every scene. True if each went as it must.
pub fn run(options: &Options) -> bool {
    let started = Instant::now();
    let mut broken = 0;
    let mut tell = |name: &str, outcome: Outcome| match outcome {
        Ok(()) => println!("as it must be: {name}"),
        Err(what) => {
            broken += 1;
            println!("VIOLATION {name}: {what}");
        }
    };
    kills::on_a_runtime(async {
        http::play(&Stage::new(options, "scenes-http"), &mut tell).await;
        api::play(&Stage::new(options, "scenes-api"), &mut tell).await;
        mcp::play(&Stage::new(options, "scenes-mcp"), &mut tell).await;
        delivery::play(&Stage::new(options, "scenes-delivery"), &mut tell).await;
        command::play(&Stage::new(options, "scenes-run"), &mut tell).await;
    });
    println!("{:<46}{:>10}", "violations", broken);
    println!("{:.1} s", started.elapsed().as_secs_f64());
    broken == 0
}

/// Demands that two things are the same.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, is: &T, must_be: &T) -> Outcome {
    if is == must_be { Ok(()) } else { Err(format!("{what}: {is:?}, and must be {must_be:?}")) }
}

/// How often something has happened.
fn effects(stage: &Stage, key: &str) -> usize {
    stage.effects.read().get(key).map_or(0, Vec::len)
}
