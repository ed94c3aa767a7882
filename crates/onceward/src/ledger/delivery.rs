//! Records whether a caller got the answer to its call: for policies under which an equal call that comes after the answer
//! is another call and runs.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;

use crate::plant::{Plant, planted};
use onceward_core::decide::Command;
use onceward_core::hash::Digest;
use onceward_core::record::{Fence, Seen};

use super::{Intent, Ledger};

/// Records whether one answer arrived. Cheap to clone.
#[derive(Clone)]
pub struct Delivery {
    ledger: Ledger,
    id: Digest,
    fence: Fence,
    /// The record as it was last seen, with its outcome. `None`: it is read from the store when it is needed.
    last: Option<Arc<Mutex<Seen>>>,
}

impl Ledger {
    /// Records that a caller got the answer that a record stands for: its outcome, or that the outcome is unknown. `None` if
    /// the record does not stand for an answer.
    pub fn delivery(&self, intent: Intent) -> Option<Delivery> {
        let (id, fence) = (intent.seen.record.id, intent.seen.record.fence()?);
        let identity = intent.seen.record.identity.as_ref();
        let ledger = identity.map_or(self, |identity| self.home(&identity.operation)).clone();
        Some(Delivery { ledger, id, fence, last: Some(Arc::new(Mutex::new(intent.seen))) })
    }
}

impl Delivery {
    /// For the answer to the work under a claim, once it has ended.
    pub(super) fn of_claim(ledger: &Ledger, fence: Fence, last: &Arc<Mutex<Seen>>) -> Self {
        let id = locked(last).record.id;
        Self { ledger: ledger.clone(), id, fence, last: Some(Arc::clone(last)) }
    }

    /// The same without the outcome in memory, for callers that keep many deliveries.
    #[must_use]
    pub fn without_record(self) -> Self {
        Self { last: None, ..self }
    }

    /// Records that the answer arrived. It is written with the next write of the ledger, or after about a second; every call
    /// that begins after this one sees it. If it is lost in a crash, the answer counts as not delivered.
    pub fn arrived(&self) {
        if planted(Plant::DeliveryNotWritten) {
            return;
        }
        let this = self.clone();
        let mut writing = Box::pin(async move { this.write(true).await });
        // Polled once here, so that the store has it before any later begin.
        let mut context = Context::from_waker(Waker::noop());
        let is_pending = writing.as_mut().poll(&mut context) == Poll::Pending;
        // Without a runtime the process is about to end; the store has the write, and its answer is not needed.
        if let Some(runtime) = Handle::try_current().ok().filter(|_| is_pending) {
            runtime.spawn(writing);
        }
    }

    /// Records that the answer arrived, as the caller learns only now. Written when this returns.
    pub async fn arrived_after_all(&self) {
        self.write_in_task(true).await;
    }

    /// Records that the answer did not arrive after all. Written when this returns.
    pub async fn did_not_arrive(&self) {
        self.write_in_task(false).await;
    }

    /// Writes in a task, so that a caller that is cancelled does not leave the write half done.
    async fn write_in_task(&self, arrived: bool) {
        let this = self.clone();
        let _ = tokio::spawn(async move { this.write(arrived).await }).await;
    }

    async fn write(&self, arrived: bool) {
        let (inner, command) = (&self.ledger.inner, Command::Delivered { fence: self.fence, arrived });
        let applied = match &self.last {
            Some(last) => {
                let last = locked(last).clone();
                inner.apply(Some(last), &command, None).await
            }
            None => inner.apply_by_id(self.id, &command, None).await,
        };
        match applied {
            Ok(applied) => {
                if let Some(seen) = applied.written {
                    inner.cache.keep(&seen.record);
                    self.saw(seen);
                }
            }
            // An equal call then gets the outcome, and is told that it is a repeat.
            Err(_) => tracing::warn!("a delivery could not be recorded"),
        }
    }
}

impl Delivery {
    /// Remembers the newest record. Based on an older one, the next write would conflict, and a begin could overtake its
    /// second try.
    fn saw(&self, seen: Seen) {
        let Some(last) = &self.last else { return };
        let mut last = locked(last);
        if seen.record.version > last.record.version {
            *last = seen;
        }
    }
}

fn locked(last: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    last.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Delivery")
    }
}
