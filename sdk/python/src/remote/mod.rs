//! A ledger behind HTTP: the API of `onceward serve`. Keys come from the core, as for a ledger in a file; decisions
//! come from the server.
//!
//! - `address`: the URL and the token. `trust`: CA certificates. `client`: one request, and what its answer means.
//! - `messages`: the JSON of the API. `failure`: what is raised.
//! - `call`: what identifies a call. `start`: begins it, again when an answer is lost, and waits.
//! - `enqueue`: queues an intent.
//! - `claim`: the right to do the work, and how it ended. `renewal`: keeps its lease.
//! - `intents`: lists, shows and settles intents. `background`: writes that outlive their caller.

mod address;
mod background;
mod call;
mod claim;
mod client;
mod enqueue;
mod failure;
mod intents;
mod messages;
mod renewal;
mod start;
mod trust;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use onceward::store;
use pyo3::prelude::*;

pub(crate) use address::is_http;
pub(crate) use claim::{Ownership, RemoteClaim};
pub(crate) use enqueue::{EnqueueParts, enqueue};
pub(crate) use intents::Settlement;
pub(crate) use messages::is_not_kept;
pub(crate) use start::{CallParts, RemoteOperation, start};

use self::address::Address;
use self::client::Client;
use self::trust::Authorities;
use crate::error::{self, About};
use crate::process;
use crate::runtime;

/// How long closing a ledger waits for its last writes. Those that the server has not answered by then go on in the
/// background.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// Every ledger that was opened, for the end of the process.
static OPENED: Mutex<Vec<Weak<RemoteLedger>>> = Mutex::new(Vec::new());

/// A server, and the connections of this process to it.
pub(crate) struct RemoteLedger {
    address: Address,
    authorities: Authorities,
    open: RwLock<OpenClient>,
}

struct OpenClient {
    /// `None` after `close`.
    client: Option<Arc<Client>>,
    /// The process that opened it, counted in forks.
    generation: u64,
}

impl RemoteLedger {
    /// Nothing is sent yet: a program can be imported while the server is down.
    pub(crate) fn open(py: Python<'_>, url: &str, token: Option<&str>, ca: Option<&Path>) -> PyResult<Arc<Self>> {
        let refuse = |why: String| error::invalid(py, &why, &About::default());
        let address = Address::parse(url, token).map_err(refuse)?;
        let authorities = Authorities::load(address.is_secure(), ca).map_err(refuse)?;
        let client = Client::new(&address, &authorities, runtime::runtime()?.handle()).map_err(refuse)?;
        let open = OpenClient { client: Some(Arc::new(client)), generation: process::generation() };
        let ledger = Arc::new(Self { address, authorities, open: RwLock::new(open) });
        OPENED.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&ledger));
        Ok(ledger)
    }

    pub(crate) fn url(&self) -> &str {
        self.address.url()
    }

    pub(crate) fn about(&self) -> About {
        About { store: self.url().to_owned(), ..About::default() }
    }

    /// The client of this process. A forked child makes its own: the connections belong to its parent.
    pub(crate) fn client(&self, py: Python<'_>) -> PyResult<Arc<Client>> {
        let closed = || error::store_unavailable(py, &store::Error::Closed, &self.about());
        {
            let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
            if open.generation == process::generation() {
                return open.client.clone().ok_or_else(closed);
            }
        }
        let runtime = runtime::runtime()?;
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        if open.generation == process::generation() {
            // Another thread was faster.
            return open.client.clone().ok_or_else(closed);
        }
        let made = Client::new(&self.address, &self.authorities, runtime.handle());
        let made = Arc::new(made.map_err(|why| error::invalid(py, &why, &self.about()))?);
        let own = OpenClient { client: Some(Arc::clone(&made)), generation: process::generation() };
        // Closing the parent's connections here would take them out of the parent's event queue.
        std::mem::forget(std::mem::replace(&mut *open, own));
        Ok(made)
    }

    /// Waits for the last writes and closes the connections.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        let client = {
            let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
            let client = open.client.take();
            if open.generation == process::generation() {
                client
            } else {
                std::mem::forget(client);
                open.generation = process::generation();
                None
            }
        };
        match client {
            Some(client) => {
                let writes_done = async move { tokio::time::timeout(CLOSE_LIMIT, client.writes_done()).await };
                runtime::wait(py, writes_done).map(drop)
            }
            None => Ok(()),
        }
    }

    fn client_of_this_process(&self) -> Option<Arc<Client>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.client.clone().filter(|_| open.generation == process::generation())
    }
}

impl Drop for RemoteLedger {
    fn drop(&mut self) {
        let open = self.open.get_mut().unwrap_or_else(PoisonError::into_inner);
        if open.generation != process::generation() {
            std::mem::forget(open.client.take());
        }
    }
}

/// Waits until the writes in the background have ended.
pub(crate) async fn writes_done() {
    let opened: Vec<_> = {
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        opened.retain(|ledger| ledger.strong_count() > 0);
        opened.iter().filter_map(Weak::upgrade).collect()
    };
    for client in opened.iter().filter_map(|ledger| ledger.client_of_this_process()) {
        client.writes_done().await;
    }
}
