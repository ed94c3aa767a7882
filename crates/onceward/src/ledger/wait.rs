//! Waiting for the attempt of another caller. A waiting caller gets the owner's answer; waiting callers do not run one after
//! another.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep, timeout};

use crate::plant::{Plant, planted};
use onceward_core::claim::Mark;
use onceward_core::decide::{CommandResult, Decision, decide};
use onceward_core::hash::Digest;
use onceward_core::record::{Seen, Standing, State};
use onceward_core::time::Timestamp;

use super::begin::take;
use super::{Call, Ledger};
use crate::error::Error;

/// How often the store is asked about an owner in another process: soon at first, then less and less often.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_millis(250);

/// The longest wait, whatever the caller asks for: work that takes days is not waited for.
const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// The waiting callers of this process, by intent, so that an owner in this process can wake them at once.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    intents: Mutex<HashMap<Digest, Waiting>>,
}

/// The callers that wait for one intent.
#[derive(Debug, Default)]
struct Waiting {
    notify: Arc<Notify>,
    callers: usize,
}

impl Waiters {
    fn enter(&self, id: Digest) -> WaiterEntry<'_> {
        let mut intents = self.intents();
        let waiting = intents.entry(id).or_default();
        waiting.callers += 1;
        WaiterEntry { waiters: self, id, notify: Arc::clone(&waiting.notify) }
    }

    pub(super) fn wake(&self, id: &Digest) {
        if let Some(waiting) = self.intents().get(id) {
            waiting.notify.notify_waiters();
        }
    }

    fn intents(&self) -> MutexGuard<'_, HashMap<Digest, Waiting>> {
        self.intents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One waiting caller, until this is dropped.
struct WaiterEntry<'a> {
    waiters: &'a Waiters,
    id: Digest,
    notify: Arc<Notify>,
}

impl Drop for WaiterEntry<'_> {
    fn drop(&mut self) {
        let mut intents = self.waiters.intents();
        if let Some(waiting) = intents.get_mut(&self.id) {
            waiting.callers -= 1;
            if waiting.callers == 0 {
                intents.remove(&self.id);
            }
        }
    }
}

/// What a record means for a waiting caller.
enum OwnerProgress {
    /// The owner is still at work.
    Running,
    /// Begin again: that gives the answer, whatever it is.
    Over,
    /// The owner ended it in doubt. The waiting callers are told so, rather than letting each of them try in turn.
    InDoubt(Timestamp),
    /// The owner failed and gave the claim back, for this reason.
    Released(String),
    /// The owner ended it in doubt, and the record's policy lets the next caller try.
    MayBeTried,
}

/// A caller that waits.
pub(super) struct Waiter<'a> {
    entry: WaiterEntry<'a>,
    deadline: Instant,
    pause: Duration,
}

/// How waiting ended.
pub(super) enum WaitResult {
    /// The attempt is over: begin again.
    Begin,
    InDoubt(Timestamp),
    /// The attempt is still running.
    TimedOut,
}

impl Ledger {
    /// A caller that waits for a running attempt, at most this long.
    pub(super) fn waiter(&self, call: &Call, wait: Duration) -> Waiter<'_> {
        self.heed_hints();
        let entry = self.inner.waiters.enter(call.identity.digest());
        Waiter { entry, deadline: Instant::now() + wait.min(MAX_WAIT), pause: FIRST_PAUSE }
    }
}

impl Ledger {
    /// Lets hints of the store wake waiting callers, from the first one on.
    fn heed_hints(&self) {
        if self.inner.heeds_hints.swap(true, Ordering::SeqCst) {
            return;
        }
        let Some(mut hints) = self.inner.store.hints() else { return };
        let ledger = Arc::downgrade(&self.inner);
        tokio::spawn(async move {
            loop {
                let hint = hints.recv().await;
                let Some(ledger) = ledger.upgrade() else { return };
                match hint {
                    Ok(id) => ledger.waiters.wake(&id),
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return,
                }
            }
        });
    }
}

impl Waiter<'_> {
    /// Waits until the running attempt is over, or the time is.
    pub(super) async fn wait(&mut self, ledger: &Ledger, call: &Call) -> Result<WaitResult, Error> {
        loop {
            // Created before the record is read, so that a wake-up in between is not missed.
            let woken = self.entry.notify.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            match progress(ledger.inner.store.get(self.entry.id).await?, call) {
                OwnerProgress::Over => return Ok(WaitResult::Begin),
                OwnerProgress::InDoubt(since) => return Ok(WaitResult::InDoubt(since)),
                OwnerProgress::Released(reason) => return Err(Error::OwnerFailed { intent: call.name(), reason }),
                OwnerProgress::MayBeTried => return Err(Error::OwnerUnknown { intent: call.name() }),
                OwnerProgress::Running => {
                    let Some(pause) = next_pause(&mut self.pause, self.deadline) else {
                        return Ok(WaitResult::TimedOut);
                    };
                    let _ = timeout(pause, woken).await;
                }
            }
        }
    }

    /// Waits before a key is asked about again that a transaction of another program holds. Nothing tells when it ends.
    pub(super) async fn pause(&mut self) -> WaitResult {
        let Some(pause) = next_pause(&mut self.pause, self.deadline) else { return WaitResult::TimedOut };
        sleep(pause).await;
        WaitResult::Begin
    }
}

/// How long to wait until the next look; `None` if the time is over.
fn next_pause(pause: &mut Duration, deadline: Instant) -> Option<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    let next = (*pause).min(left);
    *pause = (*pause * 2).min(MAX_PAUSE);
    (!left.is_zero()).then_some(next)
}

fn progress(seen: Option<Seen>, call: &Call) -> OwnerProgress {
    // The head of a stream may hold another item by now, which is not the one that is waited for.
    let Some(seen) = seen.filter(|seen| seen.record.sequence == call.sequence()) else { return OwnerProgress::Over };
    match &seen.record.state {
        State::Leased(_) if matches!(seen.standing(), Some(Standing::Running { .. })) => OwnerProgress::Running,
        // The owner gave up before it sent anything, so there is no failure to report: a waiting caller takes its turn.
        _ if seen.record.made_by == Some(Mark::of_withdrawal()) => OwnerProgress::Over,
        State::Open { .. } if !planted(Plant::WaitersRunInTurn) => {
            let reason = seen.record.last_error.unwrap_or_else(|| "it was given back".to_owned());
            OwnerProgress::Released(reason)
        }
        State::InDoubt { .. } if may_be_tried(&seen, call) => OwnerProgress::MayBeTried,
        State::InDoubt { .. } => OwnerProgress::InDoubt(seen.record.doubt_since.unwrap_or(seen.now)),
        _ => OwnerProgress::Over,
    }
}

/// Whether the next begin would get the claim. Nothing is written.
fn may_be_tried(seen: &Seen, call: &Call) -> bool {
    let begin = call.command(take(call, call.policy.lease()));
    matches!(decide(Some(seen), &begin).answer, CommandResult::Decision(Decision::Acquired(_)))
}
