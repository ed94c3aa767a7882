//! Everything that runs during a measurement, each in a process of its own; and one slice of each case.

use std::collections::BTreeMap;
use std::fs::File;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::super::place::Place;
use super::super::process::{PATIENCE, Process};
use super::super::raw::{self, Appending};
use super::super::usage;
use super::case::{Case, Step};
use super::client::Client;
use super::figures::Figures;
use crate::exit::{self, Fault};

/// Every part of a measurement. Processes are ended before the files below them are removed.
pub(super) struct Stage {
    /// One gateway for each case, so that none pays for what another leaves to be done in the background.
    talks: BTreeMap<Case, Talk>,
    log: File,
    store: Place,
}

/// How often a tool was called, and how often it acted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Happened {
    pub(super) calls: u64,
    pub(super) effects: u64,
}

impl Stage {
    /// Starts everything, and has every server greeted.
    pub(super) async fn set(store: Option<&str>) -> Result<Self, Fault> {
        let place = Place::take(store)?;
        let Some(log) = place.raw_log() else {
            return Err(Fault::usage("a gateway has a ledger that others can find: name a file with --store"));
        };
        let mut talks = BTreeMap::new();
        for case in Case::ALL {
            talks.insert(case, Talk::start(case, &place).await?);
        }
        // Last of all: where it is, everything is.
        Ok(Self { talks, log: raw::prepare(&log)?, store: place })
    }

    pub(super) fn store(&self) -> String {
        self.store.url()
    }

    /// One slice of one step.
    pub(super) async fn measure(&mut self, step: Step, time: Duration) -> Result<Figures, Fault> {
        let nothing = || Fault::new(exit::STORE, format!("{}: nothing was done in time", step.label()));
        let (case, load) = match step {
            Step::Calls(case, load) => (case, load),
            Step::Synced => {
                let mut log = Appending::to(&self.log)?;
                let talk = self.talks.get_mut(&Case::Direct).ok_or_else(nothing)?;
                let done = talk.with(time, move |client| client.call_synced(&mut log, time)).await?;
                return Figures::of_calls(done, None).ok_or_else(nothing);
            }
            Step::Sync => {
                let started = Instant::now();
                let (_, syncs) = raw::append_and_sync(&self.log, 1, time).await?;
                return Figures::of(syncs, started.elapsed().as_secs_f64()).ok_or_else(nothing);
            }
        };
        let talk = self.talks.get_mut(&case).ok_or_else(nothing)?;
        let before = talk.processor();
        let done = talk.with(time, move |client| client.call(load, time)).await?;
        let processor = talk.processor().zip(before).map(|(after, before)| after.saturating_sub(before));
        Figures::of_calls(done, processor).ok_or_else(nothing)
    }

    /// What was called, and what came of it. A tool that did not act exactly as often as it had to ends the measurement: what
    /// is fast and wrong is not fast.
    pub(super) async fn counted(&mut self) -> Result<BTreeMap<Case, Happened>, Fault> {
        let mut all = BTreeMap::new();
        for (case, talk) in &mut self.talks {
            let count = |client: &mut Client| Ok(Happened { calls: client.calls, effects: client.acted()? });
            let happened = talk.with(Duration::ZERO, count).await?;
            let due = case.effects(happened.calls);
            if happened.effects != due {
                let (calls, effects) = (happened.calls, happened.effects);
                let what = format!("{}: {calls} calls had {effects} effects instead of {due}", case.label());
                return Err(Fault::new(exit::STORE, what));
            }
            all.insert(*case, happened);
        }
        Ok(all)
    }
}

/// A client, and the process that it talks to.
struct Talk {
    /// Away while it calls.
    client: Option<Client>,
    process: Process,
    _ledger: Option<Place>,
}

impl Talk {
    async fn start(case: Case, beside: &Place) -> Result<Self, Fault> {
        let program = std::env::current_exe().map_err(|error| Fault::new(exit::STORE, error))?;
        let program = program.to_string_lossy();
        let server = ["bench-part", "tools"];
        let (mut process, ledger) = match ledger(case) {
            None => (Process::ours("the server", &server)?, None),
            Some(suffix) => {
                let url = beside.url() + suffix;
                let ledger = Place::take(Some(&url))?;
                // Nothing of the person's own settings.
                let mut line = vec!["mcp", "--config", "/dev/null", "--store", &url, "--server", "bench"];
                // Without one, repeats are repeats for a minute only.
                if case == Case::Replay {
                    line.extend(["--session", "bench"]);
                }
                line.extend(["--", &program]);
                line.extend(server);
                (Process::ours("the gateway", &line)?, Some(ledger))
            }
        };
        let (to, from) = process.pipes()?;
        let mut talk = Self { client: None, process, _ledger: ledger };
        let opened = spawn_blocking(move || Client::open(case, to, from));
        let client = talk.within(Duration::ZERO, async { opened.await.map_err(|error| error.to_string())? }).await?;
        talk.client = Some(client);
        Ok(talk)
    }

    /// Has the client do something on a thread of its own. One that hangs gets away when its process is ended.
    async fn with<T: Send + 'static>(
        &mut self,
        time: Duration,
        work: impl FnOnce(&mut Client) -> Result<T, String> + Send + 'static,
    ) -> Result<T, Fault> {
        let mut client = self.client.take().ok_or_else(|| Fault::new(exit::STORE, "a client is away"))?;
        let working = spawn_blocking(move || work(&mut client).map(|done| (client, done)));
        let (client, done) = self.within(time, async { working.await.map_err(|error| error.to_string())? }).await?;
        self.client = Some(client);
        Ok(done)
    }

    async fn within<T>(&mut self, time: Duration, work: impl Future<Output = Result<T, String>>) -> Result<T, Fault> {
        match timeout(time + PATIENCE, work).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(what)) => Err(self.process.failed(&what).await),
            Err(_) => Err(self.process.failed("it does not answer").await),
        }
    }

    /// What the process that is asked has used.
    fn processor(&self) -> Option<Duration> {
        usage::processor_of(&[self.process.pid()])
    }
}

/// Where the ledger of a case is, if it has one.
const fn ledger(case: Case) -> Option<&'static str> {
    match case {
        Case::Direct => None,
        Case::PassThrough => Some("-reads"),
        Case::Guarded => Some("-acts"),
        Case::Replay => Some("-repeats"),
    }
}
