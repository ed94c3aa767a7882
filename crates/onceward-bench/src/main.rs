//! Measures Onceward beside the systems that people use for the same job, and writes what it found.
//!
//! - `arguments`: the command line.
//! - `plan`: which systems, on which ground, in which order.
//! - `service/`: Redis, PostgreSQL and a Python, each started here and stopped here.
//! - `load`: callers that claim and finish as fast as they are answered.
//! - `peer/`: one file for each system: what a pair is there.
//! - `http`: the gateway, beside nginx and a bare service.
//! - `processor`: how much processor time a process has used.
//! - `figures`: what a run yields, and the middle of several.
//! - `machine`: where it was measured.
//! - `report/`: the table, the aims, the plot and the page.

// Its output is its product.
#![allow(clippy::print_stdout, clippy::print_stderr)]
// The crate is one program.
#![allow(unreachable_pub)]

mod arguments;
mod figures;
mod http;
mod load;
mod machine;
mod peer;
mod plan;
mod processor;
mod report;
mod run;
mod service;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

/// What went wrong, for the person who started it.
pub type Fault = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = arguments::Arguments::parse();
    // Services are stopped when the run is dropped, so an interrupt only has to end the run.
    let ended = tokio::select! {
        ended = run::run(&arguments) => ended,
        signal = interrupted() => Err(signal),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("onceward-bench: {fault}");
            ExitCode::FAILURE
        }
    }
}

async fn interrupted() -> Fault {
    let wait = async |kind| match signal(kind) {
        Ok(mut signals) => {
            signals.recv().await;
        }
        Err(_) => std::future::pending().await,
    };
    tokio::select! {
        () = wait(SignalKind::interrupt()) => "interrupted; what was started is stopped".into(),
        () = wait(SignalKind::terminate()) => "told to end; what was started is stopped".into(),
    }
}
