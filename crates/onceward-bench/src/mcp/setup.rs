//! All processes of a measurement, and the measurement of one slice of each case.

use std::collections::BTreeMap;
use std::fs::File;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::super::bench_files::BenchFiles;
use super::super::process::{Process, RESPONSE_TIMEOUT};
use super::super::raw::{self, SingleWriter};
use super::super::usage;
use super::case::{Case, Step};
use super::client::BenchClient;
use super::figures::Figures;
use onceward_runtime::exit::{self, Fault};

/// All processes of a measurement. They are ended before their files are removed.
pub(super) struct McpBench {
    /// One gateway per case, so that none pays for the background work of another.
    connections: BTreeMap<Case, ServerConnection>,
    log: File,
    store: BenchFiles,
}

/// How often a tool was called, and how often it acted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct CallCounts {
    pub(super) calls: u64,
    pub(super) effects: u64,
}

impl McpBench {
    /// Starts all processes and performs the handshakes.
    pub(super) async fn start(store: Option<&str>) -> Result<Self, Fault> {
        let files = BenchFiles::create(store)?;
        let Some(log) = files.raw_log() else {
            return Err(Fault::usage("a gateway needs a ledger in a file: name one with --store"));
        };
        let mut connections = BTreeMap::new();
        for case in Case::ALL {
            connections.insert(case, ServerConnection::start(case, &files).await?);
        }
        // Created last: once it exists, everything is running.
        Ok(Self { connections, log: raw::prepare(&log)?, store: files })
    }

    pub(super) fn store(&self) -> String {
        self.store.url()
    }

    /// Measures one slice of one step.
    pub(super) async fn measure(&mut self, step: Step, time: Duration) -> Result<Figures, Fault> {
        let nothing = || Fault::new(exit::STORE, format!("{}: no call was completed in time", step.label()));
        let (case, load) = match step {
            Step::Calls(case, load) => (case, load),
            Step::Synced => {
                let mut log = SingleWriter::new(&self.log)?;
                let connection = self.connections.get_mut(&Case::Direct).ok_or_else(nothing)?;
                let done = connection.with(time, move |client| client.call_synced(&mut log, time)).await?;
                return Figures::of_calls(done, None).ok_or_else(nothing);
            }
            Step::Sync => {
                let started = Instant::now();
                let (_, syncs) = raw::append_and_sync(&self.log, 1, time).await?;
                return Figures::of(syncs, started.elapsed().as_secs_f64()).ok_or_else(nothing);
            }
        };
        let connection = self.connections.get_mut(&case).ok_or_else(nothing)?;
        let before = connection.processor();
        let done = connection.with(time, move |client| client.call(load, time)).await?;
        let processor = connection.processor().zip(before).map(|(after, before)| after.saturating_sub(before));
        Figures::of_calls(done, processor).ok_or_else(nothing)
    }

    /// The calls and effects of each case. If a tool did not act exactly as often as expected, the measurement ends: wrong
    /// results do not count, however fast.
    pub(super) async fn counted(&mut self) -> Result<BTreeMap<Case, CallCounts>, Fault> {
        let mut all = BTreeMap::new();
        for (case, connection) in &mut self.connections {
            let count = |client: &mut BenchClient| Ok(CallCounts { calls: client.calls, effects: client.acted()? });
            let counts = connection.with(Duration::ZERO, count).await?;
            let due = case.effects(counts.calls);
            if counts.effects != due {
                let (calls, effects) = (counts.calls, counts.effects);
                let what = format!("{}: {calls} calls had {effects} effects instead of {due}", case.label());
                return Err(Fault::new(exit::STORE, what));
            }
            all.insert(*case, counts);
        }
        Ok(all)
    }
}

/// A client and the process that it is connected to.
struct ServerConnection {
    /// `None` while it is calling.
    client: Option<BenchClient>,
    process: Process,
    _ledger: Option<BenchFiles>,
}

impl ServerConnection {
    async fn start(case: Case, beside: &BenchFiles) -> Result<Self, Fault> {
        let program = std::env::current_exe().map_err(|error| Fault::new(exit::STORE, error))?;
        let program = program.to_string_lossy();
        let server = ["bench-part", "tools"];
        let (mut process, ledger) = match ledger(case) {
            None => (Process::ours("the server", &server)?, None),
            Some(suffix) => {
                let url = beside.url() + suffix;
                let ledger = BenchFiles::create(Some(&url))?;
                // Without the user's own settings.
                let mut line = vec!["mcp", "--config", "/dev/null", "--store", &url, "--server", "bench"];
                // Without a session, repeats are recognised for a minute only.
                if case == Case::Replay {
                    line.extend(["--session", "bench"]);
                }
                line.extend(["--", &program]);
                line.extend(server);
                (Process::ours("the gateway", &line)?, Some(ledger))
            }
        };
        let (to, from) = process.pipes()?;
        let mut connection = Self { client: None, process, _ledger: ledger };
        let opened = spawn_blocking(move || BenchClient::open(case, to, from));
        let client =
            connection.within(Duration::ZERO, async { opened.await.map_err(|error| error.to_string())? }).await?;
        connection.client = Some(client);
        Ok(connection)
    }

    /// Runs a closure with the client on its own thread. If the client hangs, it is freed when its process is ended.
    async fn with<T: Send + 'static>(
        &mut self,
        time: Duration,
        work: impl FnOnce(&mut BenchClient) -> Result<T, String> + Send + 'static,
    ) -> Result<T, Fault> {
        let mut client = self.client.take().ok_or_else(|| Fault::new(exit::STORE, "a client is in use"))?;
        let working = spawn_blocking(move || work(&mut client).map(|done| (client, done)));
        let (client, done) = self.within(time, async { working.await.map_err(|error| error.to_string())? }).await?;
        self.client = Some(client);
        Ok(done)
    }

    async fn within<T>(&mut self, time: Duration, work: impl Future<Output = Result<T, String>>) -> Result<T, Fault> {
        match timeout(time + RESPONSE_TIMEOUT, work).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(what)) => Err(self.process.failed(&what).await),
            Err(_) => Err(self.process.failed("it does not respond").await),
        }
    }

    /// The processor time of the process under test.
    fn processor(&self) -> Option<Duration> {
        usage::processor_of(&[self.process.pid()])
    }
}

/// The file suffix of the ledger of a case, if it has one.
const fn ledger(case: Case) -> Option<&'static str> {
    match case {
        Case::Direct => None,
        Case::PassThrough => Some("-reads"),
        Case::Guarded => Some("-acts"),
        Case::Replay => Some("-repeats"),
    }
}
