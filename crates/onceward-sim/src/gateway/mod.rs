//! The HTTP gateway, killed under load in front of an upstream that counts. Nothing may happen twice that the policy does
//! not permit, and no answer that a client was given may be lost.
//!
//! - `upstream`: the other side, which has effects, and sometimes loses their answers.
//! - `process`: the gateway as a process of its own, started and killed.
//! - `client`: callers that retry as real ones do.
//! - `book`: what was told to whom, and whether it can be true.

mod book;
mod client;
mod process;
mod upstream;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::dice::Dice;
use book::Book;
use process::Process;
use upstream::Upstream;

/// Callers at once.
const CALLERS: u64 = 16;

/// A gateway lives so long between two kills, in milliseconds.
const LIFE: (u64, u64) = (20, 300);

/// How often a progress line is printed.
const PROGRESS: Duration = Duration::from_secs(2);

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often the gateway is killed.
    pub kills: u64,
    /// The seed of the plan.
    pub seed: u64,
    /// The upstream remembers keys, and the gateway is told so.
    pub honours_key: bool,
}

/// Kills the gateway as often as is wanted. True if nothing was broken.
pub fn run(options: &Options) -> bool {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(play(options))
}

async fn play(options: &Options) -> bool {
    let started = Instant::now();
    let folder = tempfile::tempdir().expect("a folder");
    let book = Arc::new(Book::default());
    let upstream = Upstream::start(Arc::clone(&book), options).await;
    let mut gateway = Process::start(folder.path(), upstream.port, options).await;
    let address = gateway.address();
    let over = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (book, address, over) = (Arc::clone(&book), Arc::clone(&address), Arc::clone(&over));
            tokio::spawn(client::live(caller, options.seed, book, address, over))
        })
        .collect();
    let mut dice = Dice::of(&[options.seed, 7]);
    let mut told = Instant::now();
    for kill in 1..=options.kills {
        tokio::time::sleep(Duration::from_millis(LIFE.0 + dice.below(LIFE.1 - LIFE.0))).await;
        gateway.kill().await;
        gateway = gateway.again().await;
        if told.elapsed() > PROGRESS {
            told = Instant::now();
            println!("kill {kill} of {}, {} s: {}", options.kills, started.elapsed().as_secs(), book.line());
        }
        if book.violations() > 0 {
            break;
        }
    }
    over.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.expect("a caller");
    }
    // Once more from a gateway that knows nothing but the ledger.
    gateway.kill().await;
    gateway = gateway.again().await;
    client::ask_again(&book, &gateway.address()).await;
    gateway.kill().await;
    book.judge(options);
    println!("gateway kills                                 {:>10}", options.kills);
    println!("seed                                          {:>10}", options.seed);
    book.print(started.elapsed());
    let sound = book.violations() == 0;
    if !sound {
        let honours = if options.honours_key { " --honours-key" } else { "" };
        println!("again: onceward-sim gateway --kills {} --seed {}{honours}", options.kills, options.seed);
    }
    sound
}
