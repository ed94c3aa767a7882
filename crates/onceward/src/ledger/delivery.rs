//! Whether a caller got the answer to its call. For policies under which an equal call that comes after the answer is
//! another call and runs.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;

use onceward_core::decide::Command;
use onceward_core::plant::{Plant, planted};
use onceward_core::record::{Fence, Seen};

use super::{Intent, Ledger};

/// Records whether one answer arrived. Cheap to clone.
#[derive(Clone)]
pub struct Delivery {
    ledger: Ledger,
    fence: Fence,
    /// The record as it was last seen.
    last: Arc<Mutex<Seen>>,
}

impl Ledger {
    /// What records that a caller got the answer that a record stands for: its outcome, or that this is unknown. `None` where
    /// the record stands for no answer.
    pub fn delivery(&self, intent: Intent) -> Option<Delivery> {
        let fence = intent.seen.record.fence()?;
        Some(Delivery { ledger: self.clone(), fence, last: Arc::new(Mutex::new(intent.seen)) })
    }
}

impl Delivery {
    /// The answer to the work under a claim, once it has ended.
    pub(super) fn of_claim(ledger: &Ledger, fence: Fence, last: &Arc<Mutex<Seen>>) -> Self {
        Self { ledger: ledger.clone(), fence, last: Arc::clone(last) }
    }

    /// The answer arrived. It is written with the next write of the ledger, or after about a second; whoever begins after this
    /// call sees it. Lost in a crash, it is as if the answer had not arrived.
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

    /// It turned out that the answer did not arrive. Written when this returns, and also when nobody waits for that.
    pub async fn did_not_arrive(&self) {
        let this = self.clone();
        let _ = tokio::spawn(async move { this.write(false).await }).await;
    }

    async fn write(&self, arrived: bool) {
        let last = self.last().clone();
        let command = Command::Delivered { fence: self.fence, arrived };
        match self.ledger.inner.drive(Some(last), &command, None).await {
            Ok(driven) => {
                if let Some(seen) = driven.written {
                    self.ledger.inner.cache.keep(&seen.record);
                    *self.last() = seen;
                }
            }
            // An equal call is then answered with the outcome, and told so.
            Err(_) => tracing::warn!("a delivery could not be recorded"),
        }
    }

    fn last(&self) -> MutexGuard<'_, Seen> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Delivery")
    }
}
