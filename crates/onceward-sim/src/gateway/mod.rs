//! The HTTP gateway, killed under load in front of an upstream that counts: one, or several on one ledger, of which one is
//! started while another is being killed. Nothing may happen twice that the policy does not permit, and no answer that a
//! client was given may be lost.
//!
//! - `upstream`: has effects, and sometimes loses their answers. One that remembers keys forgets them after a while.
//! - `process`: a gateway as a process of its own.
//! - `client`: callers that retry as real ones do.
//! - `memory`: what happens within and after the upstream's memory, step by step.
//! - `book`: what was told to whom, and whether it can be true.

mod book;
mod client;
mod memory;
mod process;
mod upstream;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::dice::Dice;
use crate::kills;
use book::Book;
use process::{Addresses, Process, Start};
use upstream::Upstream;

/// Callers at once.
const CALLERS: u64 = 16;

/// A gateway lives so long between two kills, in milliseconds.
const LIFE: (u64, u64) = (20, 300);

/// Where several gateways share a ledger, one that is killed dies so many milliseconds after the next one was started.
const OVERLAP: u64 = 60;

/// How long an upstream that remembers keys does so, and how long an attempt may take. Short, so that keys are forgotten
/// within a run; and an attempt has time enough on a machine that has other things to do.
pub const MEMORY: Duration = Duration::from_secs(3);
const RUNTIME: Duration = Duration::from_secs(1);

/// How often a progress line is printed.
const PROGRESS: Duration = Duration::from_secs(2);

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Options {
    /// Kills, seed and binary.
    pub common: kills::Options,
    /// The upstream remembers keys for this long, and the gateway is told so.
    pub memory: Option<Duration>,
    /// How many gateways there are at once.
    pub gateways: usize,
}

/// Kills gateways as often as is wanted. True if nothing was broken.
pub fn run(options: &Options) -> bool {
    kills::on_a_runtime(play(options))
}

async fn play(options: &Options) -> bool {
    let started = Instant::now();
    let folder = tempfile::tempdir().expect("a folder");
    let book = Arc::new(Book::new(options));
    let upstream = Upstream::start(Arc::clone(&book), options).await;
    let start = Start { folder: folder.path().to_owned(), upstream: upstream.port, options: options.clone() };
    let addresses = Addresses::of(options.gateways);
    let mut gateways = Vec::new();
    for place in 0..options.gateways {
        let (gateway, address) = start.start().await;
        addresses.put(place, Some(address));
        gateways.push(gateway);
    }
    if let Some(memory) = options.memory {
        memory::play(&book, &addresses, memory).await;
    }
    under_load(options, &book, &start, &addresses, &mut gateways).await;
    // Once more from a gateway that knows nothing but the ledger.
    for (place, gateway) in gateways.iter_mut().enumerate() {
        addresses.put(place, None);
        gateway.kill().await;
    }
    let (mut last, address) = start.start().await;
    addresses.put(0, Some(address));
    client::ask_again(&book, &addresses).await;
    last.kill().await;
    book.judge();
    println!("{:<46}{:>10}", "gateways", options.gateways);
    println!("gateway kills                                 {:>10}", options.common.kills);
    println!("seed                                          {:>10}", options.common.seed);
    book.print(started.elapsed());
    let sound = book.violations() == 0;
    if !sound {
        let honours = if options.memory.is_some() { " --honours-key" } else { "" };
        let kills::Options { kills, seed, .. } = options.common;
        println!("again: onceward-sim gateway --kills {kills} --seed {seed} --gateways {}{honours}", options.gateways);
    }
    sound
}

async fn under_load(
    options: &Options,
    book: &Arc<Book>,
    start: &Start,
    addresses: &Addresses,
    gateways: &mut [Process],
) {
    let over = Arc::new(AtomicBool::new(false));
    let seed = options.common.seed;
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| tokio::spawn(client::live(caller, seed, Arc::clone(book), addresses.clone(), Arc::clone(&over))))
        .collect();
    let mut dice = Dice::of(&[seed, 7]);
    let (begun, mut told) = (Instant::now(), Instant::now());
    for kill in 1..=options.common.kills {
        tokio::time::sleep(Duration::from_millis(LIFE.0 + dice.below(LIFE.1 - LIFE.0))).await;
        let place = usize::try_from(dice.below(gateways.len() as u64)).unwrap_or(0);
        let overlap = Duration::from_millis(dice.below(OVERLAP));
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
        if told.elapsed() > PROGRESS {
            told = Instant::now();
            println!("kill {kill} of {}, {} s: {}", options.common.kills, begun.elapsed().as_secs(), book.line());
        }
        if book.violations() > 0 {
            break;
        }
    }
    over.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.expect("a caller");
    }
}
