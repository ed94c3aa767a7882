//! All processes of a measurement, and the measurement of one slice of each case.

use std::net::SocketAddr;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::super::bench_files::BenchFiles;
use super::super::pairs;
use super::super::process::Process;
use super::super::usage;
use super::case::{Case, KeyChoice, MANY};
use super::figures::Figures;
use super::load::{LoadCommand, LoadResponse, LoadResult, OPEN_BATCH};
use super::nginx::Nginx;
use onceward_runtime::exit::{self, Fault};

/// File handles that a server needs in addition to its connections.
const EXTRA_HANDLES: u64 = 500;

/// All processes of a measurement. They are ended before their files are removed.
pub(super) struct HttpBench {
    connections: u16,
    load: Process,
    /// One gateway per kind of load, so that none pays for the background work of another.
    unguarded: GatewayProcess,
    guarded: GatewayProcess,
    replaying: GatewayProcess,
    nginx: Option<Nginx>,
    echo: (Process, SocketAddr),
    pairs: onceward::Ledger,
    keys: pairs::FinishedKeys,
    store: BenchFiles,
}

impl HttpBench {
    /// Starts all processes, and fills the gateway with the responses to replay.
    pub(super) async fn start(store: Option<&str>, connections: u16, idle: u16) -> Result<Self, Fault> {
        if store == Some("memory:") {
            return Err(Fault::usage("a gateway needs a ledger in a file: name one with --store"));
        }
        raise_limit(u64::from(idle.max(connections)) + EXTRA_HANDLES);
        let files = BenchFiles::create(store)?;
        let mut echo = Process::ours("the echo", &["bench-part", "echo"])?;
        let address = address(&echo.receive(Duration::ZERO).await?)?;
        let mut bench = Self {
            connections,
            load: Process::ours("the load", &["bench-part", "load"])?,
            unguarded: GatewayProcess::start(&files, "-unguarded", address).await?,
            guarded: GatewayProcess::start(&files, "-guarded", address).await?,
            replaying: GatewayProcess::start(&files, "-replaying", address).await?,
            nginx: Nginx::start(address).await?,
            echo: (echo, address),
            pairs: files.open()?,
            keys: pairs::FinishedKeys::default(),
            store: files,
        };
        // The load generator cycles through the keys: this many requests use every key once.
        for _ in 0..MANY / OPEN_BATCH as u64 {
            bench.open(bench.replaying.address, OPEN_BATCH, KeyChoice::Many, false).await?;
        }
        Ok(bench)
    }

    pub(super) fn store(&self) -> String {
        self.store.url()
    }

    pub(super) fn nginx_version(&self) -> Option<&str> {
        self.nginx.as_ref().map(|nginx| nginx.version.as_str())
    }

    pub(super) fn has(&self, case: Case) -> bool {
        case != Case::Nginx || self.nginx.is_some()
    }

    /// One slice of one case.
    pub(super) async fn measure(&mut self, case: Case, time: Duration) -> Result<Figures, Fault> {
        if case == Case::StorePair {
            let work = pairs::claim_and_finish(&self.pairs, &self.keys, usize::from(self.connections), time).await?;
            return Ok(Figures::of_store(work));
        }
        let (to, servers) = match (case, &self.nginx) {
            (Case::Nginx, Some(nginx)) => (nginx.address, nginx.pids()),
            (Case::Unguarded, _) => (self.unguarded.address, vec![self.unguarded.process.pid()]),
            (Case::Guarded, _) => (self.guarded.address, vec![self.guarded.process.pid()]),
            (Case::ReplayOne | Case::ReplayMany, _) => (self.replaying.address, vec![self.replaying.process.pid()]),
            (Case::Echo | Case::Nginx | Case::StorePair, _) => (self.echo.1, vec![self.echo.0.pid()]),
        };
        let replayed = matches!(case, Case::ReplayOne | Case::ReplayMany);
        self.open(to, usize::from(self.connections), case.keys(), replayed).await?;
        let before = usage::processor_of(&servers);
        let done = self.run(time).await?;
        let after = usage::processor_of(&servers);
        let processor = after.zip(before).map(|(after, before)| after.saturating_sub(before));
        Ok(Figures::of_load(&done, processor))
    }

    /// The memory of a new gateway, before and after this many clients have sent a request and stay connected.
    pub(super) async fn idle(&mut self, connections: u16) -> Result<Idle, Fault> {
        let mut idle = Idle { connections, before_mb: None, after_mb: None, not_measured: None };
        let (handles, wanted) = (limit(), u64::from(connections) + EXTRA_HANDLES);
        if handles < wanted {
            let why = format!("this needs {wanted} file handles, and the system allows {handles} (ulimit -Hn)");
            return Ok(Idle { not_measured: Some(why), ..idle });
        }
        let gateway = GatewayProcess::start(&self.store, "-idle", self.echo.1).await?;
        #[expect(clippy::cast_precision_loss)]
        let resident = || usage::resident_of(&gateway.process.pid().to_string()).map(|bytes| bytes as f64 / 1e6);
        idle.before_mb = resident();
        self.open(gateway.address, usize::from(connections), KeyChoice::None, false).await?;
        idle.after_mb = resident();
        Ok(idle)
    }

    async fn open(&mut self, to: SocketAddr, connections: usize, keys: KeyChoice, replayed: bool) -> Result<(), Fault> {
        match self.order(LoadCommand::Open { to, connections, keys, replayed }, Duration::ZERO).await? {
            LoadResponse::Ready => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    async fn run(&mut self, time: Duration) -> Result<LoadResult, Fault> {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
        match self.order(LoadCommand::Run { millis }, time).await? {
            LoadResponse::Done(done) => Ok(done),
            other => Err(unexpected(&other)),
        }
    }

    async fn order(&mut self, order: LoadCommand, work: Duration) -> Result<LoadResponse, Fault> {
        let line = serde_json::to_string(&order).map_err(|error| Fault::new(exit::STORE, error))?;
        self.load.send(&line).await?;
        let line = self.load.receive(work).await?;
        serde_json::from_str(&line)
            .map_err(|error| Fault::new(exit::STORE, format!("the load generator: {error}: {line}")))
    }
}

/// A wrong response ends the measurement: wrong results do not count, however fast.
fn unexpected(response: &LoadResponse) -> Fault {
    match response {
        LoadResponse::Wrong(what) => Fault::new(exit::STORE, what),
        other => Fault::new(exit::STORE, format!("unexpected response of the load generator: {other:?}")),
    }
}

/// The memory that idle clients take.
#[derive(Debug, serde::Serialize)]
pub(super) struct Idle {
    pub(super) connections: u16,
    pub(super) before_mb: Option<f64>,
    pub(super) after_mb: Option<f64>,
    /// Why it was not measured.
    pub(super) not_measured: Option<String>,
}

/// The gateway, started like by a user, on a new ledger.
struct GatewayProcess {
    address: SocketAddr,
    process: Process,
    _ledger: BenchFiles,
}

impl GatewayProcess {
    async fn start(beside: &BenchFiles, suffix: &str, upstream: SocketAddr) -> Result<Self, Fault> {
        let url = beside.url() + suffix;
        let ledger = BenchFiles::create(Some(&url))?;
        let upstream = format!("http://{upstream}");
        let mut process = Process::ours(
            "the gateway",
            &[
                "gateway",
                "--upstream",
                &upstream,
                "--listen",
                "127.0.0.1:0",
                "--store",
                &url,
                // Requests without a key pass through.
                "--key-mode",
                "optional",
            ],
        )?;
        let line = process.receive(Duration::ZERO).await?;
        let address = address(line.rsplit('/').next().unwrap_or_default())?;
        Ok(Self { address, process, _ledger: ledger })
    }
}

fn address(text: &str) -> Result<SocketAddr, Fault> {
    text.parse().map_err(|_| Fault::new(exit::STORE, format!("invalid listening address of a server: {text:?}")))
}

/// The limit of open file handles.
fn limit() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft)
}

/// Raises the limit of file handles as far as the system allows; child processes inherit it.
fn raise_limit(wanted: u64) {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < wanted
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard);
    }
}
