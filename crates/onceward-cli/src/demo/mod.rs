//! `onceward demo`: shows the product in 15 seconds, with real processes on the loopback device and a real kill -9.
//! Nothing has to be installed.
//!
//! # Layout
//!
//! - `plan`: which payments there are and which faults they meet; a pure function of the seed.
//! - `world`: the three worlds that are compared, and the policy of each.
//! - `provider`, `agent`: the child processes; `provider_client` and `events` are how they communicate.
//! - `child`, `driver`: start and kill the child processes, and count charges.
//! - `progress`, `render`, `screen`: the state of the run, the same as text, and the terminal.
//! - `promises`: checks the totals against the promises.
//! - `settle`, `summary`: what a person does with a held payment, and which commands to try next.
//! - `ledger_file`: the file of the ledger.

pub(crate) mod agent;
mod child;
mod driver;
mod events;
mod ledger_file;
mod plan;
mod progress;
mod promises;
pub(crate) mod provider;
mod provider_client;
mod render;
mod screen;
mod settle;
mod summary;
mod world;

use std::io::{self, Write};
use std::path::PathBuf;

use onceward::Ledger;
use tokio::signal::unix::{SignalKind, signal};

use driver::{ChildSettings, Driver};
use ledger_file::LedgerFile;
use plan::Plan;
use progress::Progress;
use screen::Screen;

/// The exit code when the demo could not run: EX_SOFTWARE of sysexits.h.
const EX_SOFTWARE: u8 = 70;

/// The file of the ledger, unless the user names another one.
const DEFAULT_FILE: &str = "demo.db";

/// Watch an agent pay invoices through a flaky provider, with and without Onceward; 15 seconds
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Chooses the faults: the same seed shows the same faults and the same totals
    #[arg(long, value_name = "N", default_value_t = 5)]
    seed: u64,
    /// How many invoices the agent pays
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(6..=60))]
    payments: u32,
    /// Write each provider's log into this folder; for tests
    #[arg(long, value_name = "FOLDER", hide = true)]
    provider_logs: Option<PathBuf>,
}

/// Why the demo did not end well.
#[derive(Debug, thiserror::Error)]
enum DemoError {
    /// The totals contradict a promise.
    #[error("a promise does not hold: {0}")]
    PromiseBroken(String),
    /// The demo could not run.
    #[error("{0}")]
    Failed(String),
    /// Standard output could not be written.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
    /// A signal stopped the demo; with the exit code for that signal.
    #[error("stopped")]
    Stopped(u8),
}

/// Runs the demo, with its ledger in the file `store` or in `demo.db`. Returns the exit code: 0 when every promise
/// held, 1 when one did not, 70 when the demo could not run.
pub(crate) async fn run(args: Args, store: Option<String>) -> u8 {
    // A store that the environment names is for real work.
    let store = store.filter(|store| std::env::var("ONCEWARD_STORE").as_ref() != Ok(store));
    let store = store.as_deref().unwrap_or(DEFAULT_FILE);
    let result = tokio::select! {
        result = perform(args, store) => result,
        error = stopped() => Err(error),
    };
    let error = match result {
        Ok(()) => return 0,
        Err(error) => error,
    };
    let code = match &error {
        DemoError::PromiseBroken(_) => 1,
        DemoError::Failed(_) => EX_SOFTWARE,
        // A reader that closes its end of a pipe has seen enough.
        DemoError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return 0,
        DemoError::Output(_) => EX_SOFTWARE,
        DemoError::Stopped(code) => *code,
    };
    let _ = writeln!(io::stderr().lock(), "onceward demo: {error}");
    code
}

/// Waits for Ctrl-C or SIGTERM. The caller then drops everything else, which kills the child processes.
async fn stopped() -> DemoError {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => DemoError::Stopped(130),
        _ = terminate.recv() => DemoError::Stopped(143),
    }
}

async fn perform(args: Args, store: &str) -> Result<(), DemoError> {
    let file = LedgerFile::prepare(store).await?;
    let ledger = Ledger::open(&file.url()).await.map_err(|error| DemoError::Failed(error.to_string()))?;
    let plan = Plan::new(args.seed, args.payments);
    let mut progress = Progress::new(args.seed, &plan);
    let mut screen = Screen::new(&progress);
    let pace = screen.pace(&plan);
    let settings = ChildSettings {
        seed: args.seed,
        payments: args.payments,
        store: file.url(),
        pace,
        provider_logs: args.provider_logs,
    };
    screen.open(&progress)?;
    let mut driver = Driver::start(settings, plan.clone()).await?;
    driver.pay_all(&mut progress, &mut screen).await?;
    screen.close(&progress)?;
    promises::check(&progress, &ledger).await?;
    summary::explain(&progress, &mut screen)?;
    let provider = driver.provider(settle::WORLD);
    let provider = provider.ok_or_else(|| DemoError::Failed("a provider is missing".to_owned()))?;
    let settled = settle::settle_one(&ledger, provider, &plan, &progress, pace, file.path(), &mut screen).await?;
    summary::suggest(&progress, &plan, settled, file.path(), &mut screen)?;
    driver.stop().await?;
    ledger.close().await;
    Ok(())
}
