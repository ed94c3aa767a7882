//! Everything that runs during a measurement, each in a process of its own; and one slice of each case.

use std::net::SocketAddr;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::super::pairs;
use super::super::place::Place;
use super::super::process::Process;
use super::super::usage;
use super::case::{Case, Keys, MANY};
use super::figures::Figures;
use super::load::{AT_ONCE, Done, Order, Said};
use super::nginx::Nginx;
use crate::exit::{self, Fault};

/// File handles that a server has besides its connections.
const HANDLES_BESIDES: u64 = 500;

/// Every part of a measurement. Processes are ended before the files below them are removed.
pub(super) struct Stage {
    connections: u16,
    load: Process,
    /// One for each kind of load, so that none pays for what another leaves to be done in the background.
    unguarded: Gateway,
    guarded: Gateway,
    replaying: Gateway,
    nginx: Option<Nginx>,
    echo: (Process, SocketAddr),
    pairs: onceward::Ledger,
    keys: pairs::Keys,
    store: Place,
}

impl Stage {
    /// Starts everything, and has the gateway answer what it is to replay.
    pub(super) async fn set(store: Option<&str>, connections: u16, idle: u16) -> Result<Self, Fault> {
        if store == Some("memory:") {
            return Err(Fault::usage("a gateway has a ledger that others can find: name a file with --store"));
        }
        raise_limit(u64::from(idle.max(connections)) + HANDLES_BESIDES);
        let place = Place::take(store)?;
        let mut echo = Process::ours("the echo", &["bench-part", "echo"])?;
        let address = address(&echo.hear(Duration::ZERO).await?)?;
        let mut stage = Self {
            connections,
            load: Process::ours("the load", &["bench-part", "load"])?,
            unguarded: Gateway::start(&place, "-unguarded", address).await?,
            guarded: Gateway::start(&place, "-guarded", address).await?,
            replaying: Gateway::start(&place, "-replaying", address).await?,
            nginx: Nginx::start(address).await?,
            echo: (echo, address),
            pairs: pairs::open(&place.url()).await?,
            keys: pairs::Keys::default(),
            store: place,
        };
        // The load counts through the keys: so many requests are every key once.
        for _ in 0..MANY / AT_ONCE as u64 {
            stage.open(stage.replaying.address, AT_ONCE, Keys::Many, false).await?;
        }
        Ok(stage)
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

    /// The memory of a new gateway, before and after so many clients have asked it something and stayed.
    pub(super) async fn idle(&mut self, connections: u16) -> Result<Idle, Fault> {
        let mut idle = Idle { connections, before_mb: None, after_mb: None, not_measured: None };
        let (handles, wanted) = (limit(), u64::from(connections) + HANDLES_BESIDES);
        if handles < wanted {
            let why = format!("{wanted} file handles are needed, and the system allows {handles} (ulimit -Hn)");
            return Ok(Idle { not_measured: Some(why), ..idle });
        }
        let gateway = Gateway::start(&self.store, "-idle", self.echo.1).await?;
        #[expect(clippy::cast_precision_loss)]
        let resident = || usage::resident_of(&gateway.process.pid().to_string()).map(|bytes| bytes as f64 / 1e6);
        idle.before_mb = resident();
        self.open(gateway.address, usize::from(connections), Keys::None, false).await?;
        idle.after_mb = resident();
        Ok(idle)
    }

    async fn open(&mut self, to: SocketAddr, connections: usize, keys: Keys, replayed: bool) -> Result<(), Fault> {
        match self.order(Order::Open { to, connections, keys, replayed }, Duration::ZERO).await? {
            Said::Ready => Ok(()),
            other => Err(astray(&other)),
        }
    }

    async fn run(&mut self, time: Duration) -> Result<Done, Fault> {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
        match self.order(Order::Run { millis }, time).await? {
            Said::Done(done) => Ok(done),
            other => Err(astray(&other)),
        }
    }

    async fn order(&mut self, order: Order, work: Duration) -> Result<Said, Fault> {
        let line = serde_json::to_string(&order).map_err(|error| Fault::new(exit::STORE, error))?;
        self.load.tell(&line).await?;
        let line = self.load.hear(work).await?;
        serde_json::from_str(&line).map_err(|error| Fault::new(exit::STORE, format!("the load: {error}: {line}")))
    }
}

/// A wrong answer ends the measurement: what is fast and wrong is not fast.
fn astray(said: &Said) -> Fault {
    match said {
        Said::Wrong(what) => Fault::new(exit::STORE, what),
        other => Fault::new(exit::STORE, format!("the load answered out of turn: {other:?}")),
    }
}

/// What idle clients take.
#[derive(Debug, serde::Serialize)]
pub(super) struct Idle {
    pub(super) connections: u16,
    pub(super) before_mb: Option<f64>,
    pub(super) after_mb: Option<f64>,
    /// Why not, if not.
    pub(super) not_measured: Option<String>,
}

/// The gateway as anybody starts it, on a new ledger.
struct Gateway {
    address: SocketAddr,
    process: Process,
    _ledger: Place,
}

impl Gateway {
    async fn start(beside: &Place, suffix: &str, upstream: SocketAddr) -> Result<Self, Fault> {
        let url = beside.url() + suffix;
        let ledger = Place::take(Some(&url))?;
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
                // What has no key passes by.
                "--key-mode",
                "optional",
            ],
        )?;
        let line = process.hear(Duration::ZERO).await?;
        let address = address(line.rsplit('/').next().unwrap_or_default())?;
        Ok(Self { address, process, _ledger: ledger })
    }
}

fn address(text: &str) -> Result<SocketAddr, Fault> {
    text.parse().map_err(|_| Fault::new(exit::STORE, format!("a server says that it listens on {text:?}")))
}

/// How many file handles a process may have.
fn limit() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft)
}

/// Asks for as many file handles as are needed; everything that is started gets the same. The system may allow fewer.
fn raise_limit(wanted: u64) {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < wanted
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard);
    }
}
