//! The outbox, killed under load: processes queue the same entries again and again, and couriers deliver them to a
//! downstream that counts effects. Both are killed, at named steps and at any moment.
//!
//! - `entry_kind`: how entries are delivered, and what is demanded of them.
//! - `downstream`: has effects, refuses, and loses answers. It remembers keys where the policy of an entry counts on that.
//! - `enqueuer`, `courier`: the processes that are killed.
//! - `processes`: starts and kills them.
//! - `opening`: scripted kills, with nothing left to chance.
//! - `judge`: what the ledger says at the end, and whether it can be true.

mod courier;
mod downstream;
mod enqueuer;
mod entry_kind;
mod judge;
mod opening;
mod processes;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use onceward::Ledger;
use onceward::core::record::{Record, State};
use onceward::step::Step;
use onceward::store::Filter;

use crate::kills;
use crate::kills::effects::Effects;
use crate::private_store::PrivateStore;
use crate::report::{Progress, row};
use crate::rng::Rng;
pub use courier::run as deliver;
use downstream::Downstream;
pub use enqueuer::run as enqueue;
use entry_kind::EntryKind;
use judge::Judge;
use processes::Processes;

/// A process is killed at most this many milliseconds after the last one: several in each second.
const LONGEST_PAUSE: u64 = 300;

/// Everything is delivered within this time once the kills are over, on a busy machine.
const DRAINED_WITHIN: Duration = Duration::from_secs(120);

/// How often the harness looks at the ledger.
const LOOK: Duration = Duration::from_millis(50);

/// The size of a page of a list.
const PAGE: usize = 500;

#[derive(Clone, Debug)]
pub struct Options {
    /// How many kills.
    pub kills: u64,
    /// The seed of the plan.
    pub seed: u64,
    /// How many couriers there are at once.
    pub couriers: u64,
    /// How many processes queue entries.
    pub enqueuers: u64,
    /// The server on which they share a ledger; otherwise they share a file.
    pub store: Option<String>,
}

/// What a process is started with.
#[derive(Clone, Debug)]
pub struct ProcessOptions {
    /// The folder of the run.
    pub folder: PathBuf,
    /// The URL or the file of the ledger.
    pub ledger: String,
    /// The port of the downstream.
    pub port: u16,
    pub seed: u64,
    /// Which of its kind it is.
    pub number: u64,
    /// The name of its sink, or the key of the one entry that it queues.
    pub name: Option<String>,
    /// When the run has begun.
    pub origin: u64,
    /// The step at which to die, and at which visit of it.
    pub die: Option<(Step, u32)>,
}

/// The entries that were acknowledged, one line for each: operation and key.
fn acknowledgements(folder: &std::path::Path) -> Effects {
    Effects::at(&folder.join("acknowledged"))
}

/// What all parts of a run share.
struct Run {
    options: Options,
    ledger: Ledger,
    downstream: Arc<Downstream>,
    judge: Judge,
}

/// Kills couriers and enqueuers. True if no rule was broken.
pub fn run(options: &Options) -> bool {
    kills::on_runtime(play(options.clone()))
}

async fn play(options: Options) -> bool {
    let progress = Progress::start();
    let folder = tempfile::Builder::new().prefix("onceward-outbox-").tempdir().expect("a folder");
    let server = match &options.store {
        Some(server) => Some(PrivateStore::create(server).await),
        None => None,
    };
    let file = folder.path().join("ledger.db").to_string_lossy().into_owned();
    let place = server.as_ref().map_or(file, |server| server.url.clone());
    let ledger = Ledger::open(place.as_str()).await.expect("a ledger can be made");
    let downstream = Downstream::start(options.seed).await;
    let mut run =
        Run { options: options.clone(), ledger, downstream: Arc::clone(&downstream), judge: Judge::default() };
    let mut processes = Processes::new(folder.path(), place, downstream.port, options.clone());
    opening::play(&mut run, &mut processes).await;
    under_load(&mut run, &mut processes, &progress).await;
    processes.stop_enqueuers().await;
    downstream.calm_down();
    // What is wrong already is not waited for.
    let records = match run.judge.violations().is_empty() {
        true => drained(&mut run, &mut processes).await,
        false => Vec::new(),
    };
    processes.kill_all().await;
    if run.judge.violations().is_empty() {
        run.judge.judge(&records, &downstream.stories(), &acknowledgements(folder.path()).read());
    }
    println!("outbox");
    row("kills", processes.killed);
    row("kills at a named step", processes.died_at_a_step);
    row("seed", options.seed);
    row("seconds", progress.elapsed().as_secs());
    run.judge.print(&records, &downstream.stories());
    let sound = run.judge.violations().is_empty();
    if !sound {
        let Options { kills, seed, couriers, enqueuers, store } = options;
        let store = store.map(|store| format!(" --store {store}")).unwrap_or_default();
        println!(
            "again: onceward-sim outbox --kills {kills} --seed {seed} --couriers {couriers} --enqueuers {enqueuers}{store}"
        );
    }
    sound
}

async fn under_load(run: &mut Run, processes: &mut Processes, progress: &Progress) {
    let options = run.options.clone();
    let mut rng = Rng::of(&[options.seed, 7]);
    processes.start_couriers(&mut rng);
    if options.kills > 0 {
        processes.start_enqueuers();
    }
    let before = processes.killed;
    while processes.killed - before < options.kills && run.judge.violations().is_empty() {
        progress.print("kill", processes.killed - before, options.kills, || run.downstream.line());
        tokio::time::sleep(Duration::from_millis(rng.below(LONGEST_PAUSE))).await;
        processes.replace_dead(&mut rng, &mut run.judge).await;
        processes.kill_one(&mut rng).await;
    }
}

/// Waits until no entry is left that a courier would deliver, and returns all records.
async fn drained(run: &mut Run, processes: &mut Processes) -> Vec<Record> {
    let started = std::time::Instant::now();
    loop {
        processes.keep_couriers(&mut run.judge).await;
        let records = records(&run.ledger).await;
        match records.iter().find(|record| is_left(record)) {
            None => return whole(&run.ledger, records).await,
            Some(record) if started.elapsed() > DRAINED_WITHIN => {
                run.judge.violation(format!("{}: never ends: {:?}", name_of(record), record.state));
                return records;
            }
            Some(_) => tokio::time::sleep(LOOK).await,
        }
    }
}

/// Whether a courier has something to do. The last couriers have no sink for entries that were moved.
fn is_left(record: &Record) -> bool {
    match record.state {
        State::Queued { .. } | State::Leased(_) | State::Open { .. } => true,
        State::InDoubt { retry_at, .. } => retry_at.is_some() && EntryKind::of(record) != Some(EntryKind::Moved),
        State::Done { .. } | State::Tombstone { .. } | State::Dead => false,
    }
}

fn name_of(record: &Record) -> String {
    record.identity.as_ref().map_or_else(
        || record.id.short(),
        |identity| format!("{} {}", identity.operation.as_str(), identity.key.as_str()),
    )
}

/// The records with their payloads and outcomes, which a list leaves out.
async fn whole(ledger: &Ledger, listed: Vec<Record>) -> Vec<Record> {
    let mut records = Vec::new();
    for record in listed {
        let identity = record.identity.expect("an entry has its name until it expires");
        let intent = ledger.get(&identity).await.expect("the ledger can be read");
        records.extend(intent.map(|intent| intent.seen.record));
    }
    records
}

/// Every record of the ledger, as a list has it.
async fn records(ledger: &Ledger) -> Vec<Record> {
    let (mut records, mut cursor) = (Vec::new(), None);
    loop {
        let page = ledger.list(&Filter::default(), cursor, PAGE).await.expect("the ledger can be read");
        records.extend(page.listed.into_iter().map(|listed| listed.seen.record));
        cursor = match page.next {
            None => return records,
            next => next,
        };
    }
}
