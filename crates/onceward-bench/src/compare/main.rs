//! Compares Onceward with Redis, PostgreSQL and idemkit on the same load, and writes the results.
//!
//! - `arguments`: the command line.
//! - `plan`: the systems, the storage and the order.
//! - `service/`: starts and stops Redis, PostgreSQL and Python.
//! - `load`: callers that claim and finish as fast as possible.
//! - `peer/`: one file per system: what a pair is there.
//! - `http`: the gateway, compared with nginx and a bare service.
//! - `figures`: the figures of a run, and medians.
//! - `machine`: describes the machine.
//! - `report/`: tables, aims, the plot and the pages.

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
mod report;
mod run;
mod service;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

/// An error message for the user.
pub type BoxError = Box<dyn Error + Send + Sync>;

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

async fn interrupted() -> BoxError {
    let wait = async |kind| match signal(kind) {
        Ok(mut signals) => {
            signals.recv().await;
        }
        Err(_) => std::future::pending().await,
    };
    tokio::select! {
        () = wait(SignalKind::interrupt()) => "interrupted; all started services are stopped".into(),
        () = wait(SignalKind::terminate()) => "terminated; all started services are stopped".into(),
    }
}
