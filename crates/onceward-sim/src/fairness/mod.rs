//! Measures processes that share one ledger file: the share of each in every second, and the longest time of a begin
//! and finish (a pair). Also stops a process while it may write.
//!
//! - `worker`: one process of a measurement.

mod worker;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

pub use worker::WorkerOptions;
pub use worker::run as work;

/// Time for every process to open the ledger.
const START_DELAY: Duration = Duration::from_secs(1);

/// How long a process that shares a ledger with a stopped one may need for a few pairs: it waits for the write order
/// once, for a second; the rest is for slow machines.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct Options {
    /// How many processes.
    pub processes: u64,
    /// For how long.
    pub seconds: u64,
    /// Callers in each process.
    pub callers: u64,
    /// Where the ledger is created; a temporary folder by default.
    pub folder: Option<PathBuf>,
    /// The smallest part of its fair share that a process may have in any second, in per cent.
    pub least: u64,
    /// The longest that 99 of 100 pairs of a process may take, in milliseconds.
    pub longest: u64,
    /// Stops one process while it may write instead, and checks that another continues.
    pub stops: bool,
}

/// The report of one process: pairs in each second, and the 99th percentile of their times, in microseconds.
struct WorkerReport {
    pairs: Vec<u64>,
    slow: u64,
}

/// Measures, and prints the result. True if it is within the limits.
pub fn run(options: &Options) -> bool {
    let mut builder = tempfile::Builder::new();
    builder.prefix("onceward-fairness-");
    let folder = match &options.folder {
        Some(folder) => builder.tempdir_in(folder),
        None => builder.tempdir(),
    };
    let folder = folder.expect("a temporary folder can be made");
    if options.stops { stop(folder.path()) } else { share(options, folder.path()) }
}

fn share(options: &Options, folder: &Path) -> bool {
    let start = now() + u64::try_from(START_DELAY.as_millis()).unwrap_or(u64::MAX);
    let (callers, seconds) = (options.callers.to_string(), options.seconds.to_string());
    let children: Vec<Child> = (0..options.processes)
        .map(|number| {
            let (number, start) = (number.to_string(), start.to_string());
            let times = ["--number", &number, "--start", &start, "--callers", &callers, "--seconds", &seconds];
            child(folder, &times)
        })
        .collect();
    let reports: Vec<WorkerReport> = children.into_iter().map(read_report).collect();
    let mut least = u64::MAX;
    for second in 0..usize::try_from(options.seconds).unwrap_or(0) {
        let pairs: Vec<u64> = reports.iter().map(|reports| reports.pairs.get(second).copied().unwrap_or(0)).collect();
        let total: u64 = pairs.iter().sum();
        let fair = (total / options.processes).max(1);
        let worst = pairs.iter().map(|pairs| pairs * 100 / fair).min().unwrap_or(0);
        least = least.min(worst);
        println!("second {:<3} pairs {pairs:?} least of its fair share {worst} %", second + 1);
    }
    let slow: Vec<u64> = reports.iter().map(|reports| reports.slow.div_ceil(1000)).collect();
    let slowest = slow.iter().copied().max().unwrap_or(0);
    let total: u64 = reports.iter().flat_map(|reports| &reports.pairs).sum();
    println!("pairs per second         {}", total / options.seconds.max(1));
    println!("least of its fair share  {least} %");
    println!("p99 of each process      {slow:?} ms");
    println!("worst p99                {slowest} ms");
    least >= options.least && slowest <= options.longest
}

/// One process stops after its commit, while it may write; another must continue, and both when the first one
/// continues.
fn stop(folder: &Path) -> bool {
    let stopped = child(folder, &["--number", "0", "--pairs", "3", "--stop", "2"]);
    let pid = Pid::from_raw(i32::try_from(stopped.id()).expect("a process id"));
    match waitpid(pid, Some(WaitPidFlag::WUNTRACED)) {
        Ok(WaitStatus::Stopped(..)) => {}
        other => panic!("the process did not stop: {other:?}"),
    }
    let started = Instant::now();
    let other = read_report(child(folder, &["--number", "1", "--pairs", "20"]));
    let took = started.elapsed();
    kill(pid, Signal::SIGCONT).expect("it is there");
    let first = read_report(stopped);
    println!("pairs beside a stopped process  {} in {} ms", other.pairs.iter().sum::<u64>(), took.as_millis());
    println!("pairs of the stopped process    {}", first.pairs.iter().sum::<u64>());
    other.pairs.iter().sum::<u64>() == 20 && first.pairs.iter().sum::<u64>() == 3 && took < STOP_TIMEOUT
}

fn child(folder: &Path, arguments: &[&str]) -> Child {
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(program);
    command.arg("fairness-worker").arg("--folder").arg(folder).args(arguments).stdout(Stdio::piped());
    command.spawn().expect("a process can be started")
}

fn read_report(child: Child) -> WorkerReport {
    let output = child.wait_with_output().expect("it can be waited for");
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Option<Vec<u64>> = text.split_whitespace().map(|number| number.parse().ok()).collect();
    let (slow, pairs) = numbers.as_ref().and_then(|numbers| numbers.split_last()).expect("a worker prints its report");
    WorkerReport { pairs: pairs.to_vec(), slow: *slow }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
