//! `onceward demo`: the product in 15 seconds. Real processes on the loopback device, a real kill -9, and nothing
//! to install.
//!
//! # Layout
//!
//! - `plan`: which faults occur; a pure function of the seed.
//! - `world`: the three columns.
//! - `provider`, `agent`: the processes that play these parts; `client` and `wire` are how they talk.
//! - `child`, `stage`: the driver, which starts, kills and counts.
//! - `scene`, `paint`, `show`: what the audience sees.
//! - `settle`, `verdict`, `next`: how it ends.
//! - `place`: where the ledger goes.

pub(crate) mod agent;
mod child;
mod client;
mod next;
mod paint;
mod place;
mod plan;
pub(crate) mod provider;
mod scene;
mod settle;
mod show;
mod stage;
mod verdict;
mod wire;
mod world;

use std::io::{self, Write};
use std::path::PathBuf;

use onceward::Ledger;
use tokio::signal::unix::{SignalKind, signal};

use place::Place;
use plan::Plan;
use scene::Scene;
use show::Show;
use stage::{Cast, Stage};
use world::World;

/// The exit code for a demo that could not be shown: EX_SOFTWARE of sysexits.h.
const SOFTWARE: u8 = 70;

/// Where the ledger is left unless the user names another file.
const STORE: &str = "demo.db";

/// See it: an agent, a flaky payment provider, with and without Onceward; 15 seconds
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The same seed shows the same faults and the same totals
    #[arg(long, value_name = "N", default_value_t = 5)]
    seed: u64,
    /// How many invoices the agent pays
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(6..=60))]
    payments: u32,
    /// A folder in which each provider logs what it does, for tests
    #[arg(long, value_name = "FOLDER", hide = true)]
    provider_logs: Option<PathBuf>,
}

/// Why the demo did not end well.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    /// A promise does not hold: the worst news there is.
    #[error("a promise does not hold: {0}")]
    Broken(String),
    /// It could not be shown.
    #[error("{0}")]
    Failed(String),
    /// Nobody reads what is written.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
    /// The user has had enough.
    #[error("stopped")]
    Stopped(u8),
}

/// Shows the demo; its ledger goes into the file `store`, or into `demo.db`. The answer is the exit code. 0: every
/// promise held; 1: one did not; 70: it could not be shown.
pub(crate) async fn run(args: Args, store: Option<String>) -> u8 {
    // What the environment names is for real work.
    let store = store.filter(|store| std::env::var("ONCEWARD_STORE").as_ref() != Ok(store));
    let store = store.as_deref().unwrap_or(STORE);
    let shown = tokio::select! {
        shown = perform(args, store) => shown,
        trouble = stopped() => Err(trouble),
    };
    let trouble = match shown {
        Ok(()) => return 0,
        Err(trouble) => trouble,
    };
    let code = match &trouble {
        Trouble::Broken(_) => 1,
        Trouble::Failed(_) => SOFTWARE,
        // As a reader that closes its end expects.
        Trouble::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return 0,
        Trouble::Output(_) => SOFTWARE,
        Trouble::Stopped(code) => *code,
    };
    let _ = writeln!(io::stderr().lock(), "onceward demo: {trouble}");
    code
}

/// Ctrl-C or a request to end: everything else is dropped then, and the children die with it.
async fn stopped() -> Trouble {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => Trouble::Stopped(130),
        _ = terminate.recv() => Trouble::Stopped(143),
    }
}

async fn perform(args: Args, store: &str) -> Result<(), Trouble> {
    let place = Place::take(store).await?;
    let ledger = Ledger::open(&place.url()).await.map_err(|error| Trouble::Failed(error.to_string()))?;
    let plan = Plan::new(args.seed, args.payments);
    let mut scene = Scene::new(args.seed, &plan);
    let mut show = Show::new(&scene);
    let pace = show.pace(&plan);
    let cast =
        Cast { seed: args.seed, payments: args.payments, store: place.url(), pace, provider_logs: args.provider_logs };
    show.open(&scene)?;
    let mut stage = Stage::set(cast, plan.clone()).await?;
    stage.play(&mut scene, &mut show).await?;
    show.close(&scene)?;
    verdict::check(&scene, &ledger).await?;
    next::explain(&scene, &mut show)?;
    let provider = stage.provider(World::NoKeys).ok_or_else(|| Trouble::Failed("a provider is missing".to_owned()))?;
    let settled = settle::settle_one(&ledger, provider, &plan, &scene, pace, &mut show).await?;
    next::suggest(&scene, &plan, settled, place.path(), &mut show)?;
    stage.clear().await?;
    ledger.close().await;
    Ok(())
}
