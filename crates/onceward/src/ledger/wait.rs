//! A repeat that waits for the running one. It gets the owner's answer; waiting callers do not run one after
//! another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use onceward_core::decide::Decision;
use onceward_core::hash::Digest;
use onceward_core::record::{Seen, State};
use onceward_core::time::Timestamp;

use super::{Begun, Call, Ledger};
use crate::error::Error;

/// How often the store is asked about an owner in another process: soon at first, then less and less often.
const FIRST_LOOK: Duration = Duration::from_millis(10);
const SLOWEST_LOOK: Duration = Duration::from_millis(250);

/// Who in this process waits for what, so that an owner in this process can wake them at once.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    waiting: Mutex<HashMap<Digest, Arc<Notify>>>,
}

impl Waiters {
    fn enter(&self, id: Digest) -> Place<'_> {
        let notify = Arc::clone(self.waiting().entry(id).or_default());
        Place { waiters: self, id, notify }
    }

    pub(super) fn wake(&self, id: &Digest) {
        if let Some(notify) = self.waiting().get(id) {
            notify.notify_waiters();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Digest, Arc<Notify>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One caller's place among the waiters.
struct Place<'a> {
    waiters: &'a Waiters,
    id: Digest,
    notify: Arc<Notify>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiting = self.waiters.waiting();
        // The table's own and ours: nobody else waits any more.
        if Arc::strong_count(&self.notify) <= 2 {
            waiting.remove(&self.id);
        }
    }
}

/// What a look at the record means for a waiting caller.
enum Look {
    Wait,
    /// Whatever it is, begin has the answer to it.
    Ask,
    /// The owner ended it in doubt: told to the waiting callers, rather than letting each of them try in turn.
    Doubt(Timestamp),
    /// The owner failed and gave the claim back.
    Released(String),
}

impl Ledger {
    /// Asks for the claim and, while somebody else has it, waits up to `wait` for the owner's answer.
    pub async fn begin_within(&self, call: &Call, wait: Duration) -> Result<Begun, Error> {
        let deadline = Instant::now() + wait;
        let mut begun = self.begin(call).await?;
        if wait.is_zero() {
            return Ok(begun);
        }
        let id = call.identity.digest();
        let place = self.inner.waiters.enter(id);
        let mut pause = FIRST_LOOK;
        while matches!(begun, Begun::Answered(Decision::InFlight { running: true, .. })) {
            let woken = place.notify.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            match look(self.inner.store.get(id).await?) {
                Look::Ask => begun = self.begin(call).await?,
                Look::Doubt(since) => return Ok(Begun::Answered(Decision::InDoubt { since })),
                Look::Released(reason) => {
                    return Err(Error::OwnerFailed { intent: call.identity.to_string(), reason });
                }
                Look::Wait => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(begun);
                    }
                    let _ = timeout(pause.min(left), woken).await;
                    pause = (pause * 2).min(SLOWEST_LOOK);
                }
            }
        }
        Ok(begun)
    }
}

fn look(seen: Option<Seen>) -> Look {
    let Some(seen) = seen else { return Look::Ask };
    match &seen.record.state {
        State::Leased(lease) if seen.now < lease.until && !seen.owner_gone => Look::Wait,
        State::Open { .. } => {
            let reason = seen.record.last_error.unwrap_or_else(|| "it was given back".to_owned());
            Look::Released(reason)
        }
        State::InDoubt { .. } => Look::Doubt(seen.record.doubt_since.unwrap_or(seen.now)),
        _ => Look::Ask,
    }
}
