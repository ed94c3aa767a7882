//! An open ledger. After a fork, the child opens the store again.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use onceward::breakers::NOTES;
use onceward::pull::LEASES;
use onceward::{Ledger, Resolution, Resolved, StoreUrl, store};
use onceward_core::name::{Identity, Key, Operation, Tenant};
use onceward_core::outcome::Outcome;
use onceward_core::record::{Seen, Status};
use pyo3::prelude::*;
use serde_json::json;

use crate::courier::{self, NativeCourier, RouteOptions};
use crate::error::{self, About};
use crate::operation::NativeOperation;
use crate::process;
use crate::remote::{self, RemoteLedger, Settlement};
use crate::runtime::{self, runtime, wait};

/// How many intents of a list are read at a time.
const PAGE: usize = 200;

/// How often the end of the process looks for claims whose callers have gone: a begin that met another write is written again.
const STRAY_ROUNDS: u32 = 3;

/// How long an answer takes from the writer to the task that gives the claim back, on a busy machine.
const STRAY_PAUSE: Duration = Duration::from_millis(5);

/// Every ledger that was opened, for the end of the process.
static OPENED: Mutex<Vec<Weak<Handle>>> = Mutex::new(Vec::new());

/// A store and the ledger on it, shared by all operations.
pub(crate) struct Handle {
    url: String,
    shown: String,
    /// What a child process opens again. A path is absolute: a process that becomes a daemon changes its working directory.
    lasting: StoreUrl,
    open: RwLock<Open>,
}

struct Open {
    /// `None` after `close`.
    ledger: Option<Ledger>,
    /// The process that opened it, counted in forks.
    generation: u64,
}

impl Handle {
    /// The ledger as messages name it: a command that they show works in every directory.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// The ledger, for this process.
    pub(crate) fn ledger(&self, py: Python<'_>) -> PyResult<Ledger> {
        {
            let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
            if open.generation == process::generation() {
                return open.ledger.clone().ok_or_else(|| self.closed(py));
            }
        }
        self.reopen(py)
    }

    fn closed(&self, py: Python<'_>) -> PyErr {
        error::store_unavailable(py, &store::Error::Closed, &self.about())
    }

    /// A child process opens the store again. The parent's ledger is forgotten, because its threads do not exist here.
    fn reopen(&self, py: Python<'_>) -> PyResult<Ledger> {
        if self.url == "memory:" {
            let why = "a ledger in memory belongs to the process that opened it; processes share a ledger in a file";
            return Err(error::store_unavailable(py, &store::Error::Unreachable(why.to_owned()), &self.about()));
        }
        let ledger = open(py, &self.shown, self.lasting.clone())?;
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        if open.generation == process::generation() {
            // Another thread was faster.
            return open.ledger.clone().ok_or_else(|| self.closed(py));
        }
        let inherited =
            std::mem::replace(&mut *open, Open { ledger: Some(ledger.clone()), generation: process::generation() });
        std::mem::forget(inherited);
        Ok(ledger)
    }

    fn about(&self) -> About {
        About { store: self.shown.clone(), ..About::default() }
    }

    /// Waits until every claim has ended.
    pub(crate) async fn writes_done(&self) {
        let ledger = {
            let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
            if open.generation == process::generation() { open.ledger.clone() } else { None }
        };
        let Some(ledger) = ledger else { return };
        ledger.idle().await;
        if runtime::may_have_stray_claims() {
            // Begins whose callers have gone are in the queue of the writer. Once a later write is through, they have their answers,
            // and give back what they were granted.
            for _ in 0..STRAY_ROUNDS {
                let _: Result<(), store::Error> = ledger.ping().await;
                tokio::time::sleep(STRAY_PAUSE).await;
                ledger.idle().await;
            }
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let open = self.open.get_mut().unwrap_or_else(PoisonError::into_inner);
        if open.generation != process::generation() {
            std::mem::forget(open.ledger.take());
        }
    }
}

fn open(py: Python<'_>, shown: &str, store: StoreUrl) -> PyResult<Ledger> {
    let about = About { store: shown.to_owned(), ..About::default() };
    wait(py, Ledger::open(store))?.map_err(|error| error::store_unavailable(py, &error, &about))
}

/// The file of a ledger, from the root; `None` for memory, for servers, and for an unknown store.
fn file_of(url: &str) -> Option<PathBuf> {
    StoreUrl::from(url).file().and_then(|path| std::path::absolute(path).ok())
}

/// The store of a URL, wherever the process is when it opens it.
fn lasting(url: &str) -> StoreUrl {
    file_of(url).map_or_else(|| StoreUrl::from(url), StoreUrl::from)
}

/// The path of a ledger in a file, from the root; the URL of another store, without its password.
fn shown(url: &str) -> String {
    file_of(url).map_or_else(|| onceward::shown_store(url), |path| path.display().to_string())
}

/// A store as the user wrote it, without a password.
#[pyfunction]
pub(crate) fn shown_store(url: &str) -> String {
    onceward::shown_store(url)
}

/// Where a ledger is.
#[derive(Clone)]
pub(crate) enum Source {
    Local(Arc<Handle>),
    Remote(Arc<RemoteLedger>),
}

/// The ledgers that are still open.
pub(crate) fn open_ledgers() -> Vec<Arc<Handle>> {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    opened.retain(|ledger| ledger.strong_count() > 0);
    opened.iter().filter_map(Weak::upgrade).collect()
}

/// A ledger.
#[pyclass(frozen, module = "onceward")]
pub(crate) struct NativeLedger {
    source: Source,
}

impl NativeLedger {
    /// The store in this process; a server has none here.
    pub(crate) fn local(&self, py: Python<'_>) -> PyResult<&Arc<Handle>> {
        match &self.source {
            Source::Local(handle) => Ok(handle),
            Source::Remote(server) => Err(error::invalid(
                py,
                "the middleware keeps claims in this process, which a ledger behind HTTP cannot: open the store itself, or put \
                 `onceward gateway` in front of the app",
                &server.about(),
            )),
        }
    }
}

#[pymethods]
impl NativeLedger {
    #[new]
    #[pyo3(signature = (url, token = None, ca = None))]
    fn new(py: Python<'_>, url: String, token: Option<&str>, ca: Option<PathBuf>) -> PyResult<Self> {
        runtime()?;
        if remote::is_http(&url) {
            let server = RemoteLedger::open(py, &url, token, ca.as_deref())?;
            return Ok(Self { source: Source::Remote(server) });
        }
        let (store, lasting, shown) = (StoreUrl::from(url.as_str()), lasting(&url), shown(&url));
        let open = Open { ledger: Some(open(py, &shown, store)?), generation: process::generation() };
        let handle = Arc::new(Handle { url, shown, lasting, open: RwLock::new(open) });
        OPENED.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&handle));
        Ok(Self { source: Source::Local(handle) })
    }

    /// The ledger as messages name it, without a password.
    #[getter]
    fn shown(&self) -> &str {
        match &self.source {
            Source::Local(handle) => handle.shown(),
            Source::Remote(server) => server.url(),
        }
    }

    /// Whether it is behind HTTP: then the server has the settings of operations.
    #[getter]
    fn is_remote(&self) -> bool {
        matches!(self.source, Source::Remote(_))
    }

    /// An operation with its settings, as JSON with the names of `onceward.toml`.
    #[pyo3(signature = (name, settings, marks_sent = false, probes = false))]
    fn operation(
        &self,
        py: Python<'_>,
        name: String,
        settings: &str,
        marks_sent: bool,
        probes: bool,
    ) -> PyResult<NativeOperation> {
        NativeOperation::new(py, self.source.clone(), name, settings, marks_sent, probes)
    }

    /// Starts a courier that delivers entries to functions of this process.
    fn courier(&self, py: Python<'_>, routes: Vec<RouteOptions>, until_idle: bool) -> PyResult<NativeCourier> {
        match &self.source {
            Source::Local(handle) => courier::start(py, handle, routes, until_idle),
            Source::Remote(server) => Err(error::invalid(
                py,
                "a courier needs the store itself: open the file, postgres://… or redis://…, or take work from the server with \
                 POST /v1/lease",
                &server.about(),
            )),
        }
    }

    /// One intent as JSON, or `None`.
    fn get(&self, py: Python<'_>, tenant: &str, operation: &str, key: &str) -> PyResult<Option<String>> {
        let identity = identity(py, tenant, operation, key)?;
        let handle = match &self.source {
            Source::Local(handle) => handle,
            Source::Remote(server) => return server.get(py, tenant, operation, key),
        };
        let (ledger, about) = (handle.ledger(py)?, handle.about());
        let found = wait(py, ledger.get(&identity))?.map_err(|error| error::raised(py, &error, &about))?;
        Ok(found.map(|intent| {
            let status = intent.status().map(|status| status.as_str());
            json!({ "status": status, "intent": intent }).to_string()
        }))
    }

    /// The newest intents, as a JSON list: all of them without a limit.
    #[pyo3(signature = (tenant, state, limit))]
    fn list(
        &self,
        py: Python<'_>,
        tenant: Option<&str>,
        state: Option<&str>,
        limit: Option<usize>,
    ) -> PyResult<String> {
        let limit = limit.unwrap_or(usize::MAX);
        let handle = match &self.source {
            Source::Local(handle) => handle,
            Source::Remote(server) => return server.list(py, tenant, state, limit),
        };
        let (ledger, about) = (handle.ledger(py)?, handle.about());
        let refuse = |why: &str| error::invalid(py, why, &about);
        let tenant = tenant.map(Tenant::new).transpose().map_err(|error| refuse(&error.to_string()))?;
        let mut filter = store::Filter { tenant, ..store::Filter::default() };
        if let Some(state) = state {
            let known = Status::ALL.into_iter().find(|status| status.as_str() == state);
            filter.status = vec![known.ok_or_else(|| refuse(&format!("unknown state `{state}`")))?];
        }
        let (mut listed, mut after) = (Vec::new(), None);
        while listed.len() < limit {
            let page = wait(py, ledger.list(&filter, after, PAGE.min(limit - listed.len())))?;
            let page = page.map_err(|error| error::store_unavailable(py, &error, &about))?;
            listed.extend(page.listed.iter().filter(|listed| !is_of_the_ledger(&listed.seen)).map(|listed| {
                let status = listed.seen.standing().map(|standing| standing.status().as_str());
                json!({ "status": status, "intent": listed.seen })
            }));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        Ok(json!(listed).to_string())
    }

    /// Settles an intent. `outcome` is JSON; without it the intent did not happen.
    #[pyo3(signature = (tenant, operation, key, version, outcome = None, by = None, note = None))]
    #[allow(clippy::too_many_arguments, reason = "Python passes them by name")]
    fn resolve(
        &self,
        py: Python<'_>,
        tenant: &str,
        operation: &str,
        key: &str,
        version: u64,
        outcome: Option<Vec<u8>>,
        by: Option<&str>,
        note: Option<&str>,
    ) -> PyResult<()> {
        let identity = identity(py, tenant, operation, key)?;
        let handle = match &self.source {
            Source::Local(handle) => handle,
            Source::Remote(server) => {
                let result = outcome.as_deref();
                return server.resolve(py, tenant, &Settlement { operation, key, version, result, by, note });
            }
        };
        let (ledger, about) = (handle.ledger(py)?, handle.about());
        let resolution = match outcome {
            Some(body) => Resolution::Happened(Outcome::success(body)),
            None => Resolution::DidNotHappen,
        };
        let resolved = wait(py, ledger.resolve(&identity, version, resolution, by, note))?;
        match resolved.map_err(|error| error::raised(py, &error, &about))? {
            Resolved::Settled => Ok(()),
            Resolved::Refused(refusal) => Err(error::invalid(py, &format!("not settled: {refusal}"), &about)),
        }
    }

    /// Counters since the ledger was opened.
    fn stats(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, u64)>> {
        let handle = match &self.source {
            Source::Local(handle) => handle,
            Source::Remote(server) => return server.stats(py),
        };
        let stats = handle.ledger(py)?.stats();
        Ok(vec![
            ("acquired", stats.acquired),
            ("replayed", stats.replayed),
            ("collisions", stats.collisions),
            ("contradictions", stats.contradictions),
            ("unguarded", stats.unguarded),
        ])
    }

    /// Closes the store. Calls after that are refused.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let handle = match &self.source {
            Source::Local(handle) => handle,
            Source::Remote(server) => return server.close(py),
        };
        let ledger = {
            let mut open = handle.open.write().unwrap_or_else(PoisonError::into_inner);
            let ledger = open.ledger.take();
            if open.generation == process::generation() {
                ledger
            } else {
                std::mem::forget(ledger);
                open.generation = process::generation();
                None
            }
        };
        match ledger {
            Some(ledger) => wait(py, ledger.close()),
            None => Ok(()),
        }
    }
}

fn identity(py: Python<'_>, tenant: &str, operation: &str, key: &str) -> PyResult<Identity> {
    let names = || -> Result<Identity, onceward_core::name::Error> {
        Ok(Identity { tenant: Tenant::new(tenant)?, operation: Operation::new(operation)?, key: Key::new(key)? })
    };
    names().map_err(|error| error::invalid(py, &error.to_string(), &About::default()))
}

/// Whether a record is one that couriers and workers keep for themselves. It is not an intent.
fn is_of_the_ledger(seen: &Seen) -> bool {
    seen.record.identity.as_ref().is_some_and(|identity| [NOTES, LEASES].contains(&identity.operation.as_str()))
}
