//! The HTTP gateway, killed under load in front of an upstream that counts effects: one gateway, or several on one
//! ledger, of which one starts while another is killed. Nothing may happen twice that the policy does not permit, and
//! no answer that a client got may be lost.
//!
//! - `upstream`: has effects, and sometimes loses their answers. If it remembers keys, it forgets them after a while.
//! - `process`: a gateway process.
//! - `client`: clients that retry as real ones do.
//! - `memory`: what happens within and after the upstream's memory, step by step.
//! - `judge`: what clients were answered, and whether it can be true.

mod client;
mod judge;
mod memory;
mod process;
mod upstream;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::kills;
use crate::private_store::PrivateStore;
use crate::report::{Progress, row};
use crate::rng::Rng;
use judge::Judge;
use process::{Addresses, Process, Start};
use upstream::Upstream;

/// Callers at once.
const CALLERS: u64 = 16;

/// How long a gateway lives between two kills, in milliseconds.
const LIFETIME_MILLIS: (u64, u64) = (20, 300);

/// Where several gateways share a ledger, the old one dies at most this many milliseconds after the next one was
/// started.
const OVERLAP: u64 = 60;

/// How long an upstream that remembers keys does so, and how long an attempt may take. Short, so that keys are
/// forgotten within a run; long enough for an attempt on a busy machine.
pub const MEMORY: Duration = Duration::from_secs(3);
const RUNTIME: Duration = Duration::from_secs(1);

/// How long an attempt may take where the ledger is on a server: there, only the end of its lease shows that a gateway was
/// killed.
const RUNTIME_ON_A_SERVER: Duration = Duration::from_millis(400);

#[derive(Clone, Debug)]
pub struct Options {
    /// Kills, seed and binary.
    pub common: kills::Options,
    /// How long the upstream remembers keys; the gateway is configured alike.
    pub memory: Option<Duration>,
    /// How many gateways there are at once.
    pub gateways: usize,
    /// The server on which they share a ledger; otherwise they share a file.
    pub store: Option<String>,
}

/// Kills gateways. True if no rule was broken.
pub fn run(options: &Options) -> bool {
    kills::on_runtime(play(options))
}

async fn play(options: &Options) -> bool {
    let progress = Progress::start();
    let folder = tempfile::tempdir().expect("a folder");
    let judge = Arc::new(Judge::new(options));
    let upstream = Upstream::start(Arc::clone(&judge), options).await;
    let server = match &options.store {
        Some(server) => Some(PrivateStore::create(server).await),
        None => None,
    };
    let ledger = server.as_ref().map_or_else(|| folder.path().join("ledger.db"), |server| (&server.url).into());
    let start = Start { folder: folder.path().to_owned(), ledger, upstream: upstream.port, options: options.clone() };
    let addresses = Addresses::of(options.gateways);
    let mut gateways = Vec::new();
    for place in 0..options.gateways {
        let (gateway, address) = start.start().await;
        addresses.put(place, Some(address));
        gateways.push(gateway);
    }
    if let Some(memory) = options.memory {
        memory::play(&judge, &addresses, memory).await;
    }
    under_load(options, &judge, &start, &addresses, &mut gateways, &progress).await;
    // Once more from a gateway that knows only the ledger.
    for (place, gateway) in gateways.iter_mut().enumerate() {
        addresses.put(place, None);
        gateway.kill().await;
    }
    let (mut last, address) = start.start().await;
    addresses.put(0, Some(address));
    client::ask_again(&judge, &addresses).await;
    last.kill().await;
    judge.judge();
    row("gateways", options.gateways as u64);
    row("gateway kills", options.common.kills);
    row("seed", options.common.seed);
    judge.print(progress.elapsed());
    let sound = judge.violations() == 0;
    if !sound {
        let honours = if options.memory.is_some() { " --honours-key" } else { "" };
        let store = options.store.as_ref().map(|store| format!(" --store {store}")).unwrap_or_default();
        let (kills::Options { kills, seed, .. }, gateways) = (&options.common, options.gateways);
        println!("again: onceward-sim gateway --kills {kills} --seed {seed} --gateways {gateways}{honours}{store}");
    }
    sound
}

async fn under_load(
    options: &Options,
    judge: &Arc<Judge>,
    start: &Start,
    addresses: &Addresses,
    gateways: &mut [Process],
    progress: &Progress,
) {
    let stopped = Arc::new(AtomicBool::new(false));
    let seed = options.common.seed;
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            tokio::spawn(client::live(caller, seed, Arc::clone(judge), addresses.clone(), Arc::clone(&stopped)))
        })
        .collect();
    let mut rng = Rng::of(&[seed, 7]);
    for kill in 1..=options.common.kills {
        tokio::time::sleep(Duration::from_millis(LIFETIME_MILLIS.0 + rng.below(LIFETIME_MILLIS.1 - LIFETIME_MILLIS.0)))
            .await;
        let place = usize::try_from(rng.below(gateways.len() as u64)).unwrap_or(0);
        let overlap = Duration::from_millis(rng.below(OVERLAP));
        let killed = async {
            if options.gateways > 1 {
                tokio::time::sleep(overlap).await;
            }
            addresses.put(place, None);
            gateways[place].kill().await;
        };
        let (gateway, address) = if options.gateways > 1 {
            tokio::join!(killed, start.start()).1
        } else {
            killed.await;
            start.start().await
        };
        addresses.put(place, Some(address));
        gateways[place] = gateway;
        progress.print("kill", kill, options.common.kills, || judge.line());
        if judge.violations() > 0 {
            break;
        }
    }
    stopped.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.expect("a caller");
    }
}
