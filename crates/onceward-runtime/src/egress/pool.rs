//! The connections that one client keeps between requests. They are never shared with another client.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::http1::Http1;
use super::http2::Http2;
use super::target::Origin;

/// A connection to one origin.
pub(super) enum PooledConnection {
    Http1(Http1),
    Http2(Http2),
}

impl PooledConnection {
    fn has_ended(&self) -> bool {
        match self {
            Self::Http1(connection) => connection.has_ended(),
            Self::Http2(connection) => connection.has_ended(),
        }
    }

    fn is_idle(&self) -> bool {
        match self {
            Self::Http1(_) => true,
            Self::Http2(connection) => connection.is_idle(),
        }
    }
}

/// Idle connections, and HTTP/2 connections in use.
pub(super) struct Pool {
    kept: Mutex<Connections>,
    /// One for each request that may be in progress. A connection in use carries at least one.
    slots: Arc<Semaphore>,
    max: usize,
    idle_timeout: Duration,
}

#[derive(Default)]
struct Connections {
    /// The connection that was used last is at the end.
    entries: Vec<Entry>,
    is_swept: bool,
}

struct Entry {
    origin: Origin,
    connection: PooledConnection,
    since: Instant,
}

impl Pool {
    pub(super) fn new(max: usize, idle_timeout: Duration) -> Arc<Self> {
        Arc::new(Self { kept: Mutex::default(), slots: Arc::new(Semaphore::new(max)), max, idle_timeout })
    }

    /// Waits for the right to send one request. `None` never happens: the semaphore is not closed.
    pub(super) async fn slot(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.slots).acquire_owned().await.ok()
    }

    /// A connection that is open as far as this side knows.
    pub(super) fn take(&self, origin: &Origin) -> Option<PooledConnection> {
        let mut kept = self.kept();
        self.sweep(&mut kept);
        let at = kept.entries.iter().rposition(|entry| entry.origin == *origin)?;
        if let PooledConnection::Http2(connection) = &kept.entries[at].connection {
            return Some(PooledConnection::Http2(connection.clone()));
        }
        Some(kept.entries.remove(at).connection)
    }

    /// Closes idle connections until there is room for another one.
    pub(super) fn make_room(&self) {
        let mut kept = self.kept();
        self.sweep(&mut kept);
        let in_use = self.max.saturating_sub(self.slots.available_permits());
        let mut excess = (in_use + idle(&kept)).saturating_sub(self.max);
        kept.entries.retain(|entry| {
            let stays = excess == 0 || !entry.connection.is_idle();
            excess -= usize::from(!stays);
            stays
        });
    }

    /// Keeps a connection for the next request to its origin.
    pub(super) fn keep(self: &Arc<Self>, origin: &Origin, connection: PooledConnection) {
        let mut kept = self.kept();
        if let PooledConnection::Http2(new) = &connection {
            let mut of_origin = kept.entries.iter_mut().filter(|entry| entry.origin == *origin);
            let shared = of_origin.find_map(|entry| match &entry.connection {
                PooledConnection::Http2(shared) => Some((shared.is_same(new), &mut entry.since)),
                PooledConnection::Http1(_) => None,
            });
            // Requests that started at the same time opened a connection each. One is enough.
            if let Some((is_same, since)) = shared {
                if is_same {
                    *since = Instant::now();
                }
                return;
            }
        }
        kept.entries.push(Entry { origin: origin.clone(), connection, since: Instant::now() });
        if !kept.is_swept {
            kept.is_swept = true;
            tokio::spawn(sweep_while_used(Arc::downgrade(self), self.idle_timeout));
        }
    }

    /// Stops using an HTTP/2 connection for new requests. Those on it go on.
    pub(super) fn forget(&self, connection: &PooledConnection) {
        let PooledConnection::Http2(gone) = connection else { return };
        self.kept()
            .entries
            .retain(|entry| !matches!(&entry.connection, PooledConnection::Http2(kept) if kept.is_same(gone)));
    }

    fn sweep(&self, kept: &mut Connections) {
        kept.entries.retain(|entry| {
            let has_expired = entry.connection.is_idle() && entry.since.elapsed() >= self.idle_timeout;
            !has_expired && !entry.connection.has_ended()
        });
    }

    fn kept(&self) -> MutexGuard<'_, Connections> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn idle(kept: &Connections) -> usize {
    kept.entries.iter().filter(|entry| entry.connection.is_idle()).count()
}

/// Closes idle connections when their time is over, until there are none or the client is gone.
async fn sweep_while_used(pool: Weak<Pool>, idle_timeout: Duration) {
    loop {
        tokio::time::sleep(idle_timeout).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut kept = pool.kept();
        pool.sweep(&mut kept);
        if kept.entries.is_empty() {
            kept.is_swept = false;
            return;
        }
    }
}
