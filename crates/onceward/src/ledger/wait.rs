//! A repeat that waits for the running one. It gets the owner's answer; waiting callers do not run one after
//! another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use onceward_core::decide::{Again, Answer, Decision, Take, decide};
use onceward_core::hash::Digest;
use onceward_core::plant::{Plant, planted};
use onceward_core::record::{Fence, Seen, Standing, State};
use onceward_core::time::Timestamp;

use super::{Begun, Call, Ledger};
use crate::error::Error;

/// How often the store is asked about an owner in another process: soon at first, then less and less often.
const FIRST_LOOK: Duration = Duration::from_millis(10);
const SLOWEST_LOOK: Duration = Duration::from_millis(250);

/// Nobody waits longer than this, whatever was said: work that takes days is not waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// Who in this process waits for what, so that an owner in this process can wake them at once.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    waiting: Mutex<HashMap<Digest, Bell>>,
}

/// What wakes the callers that wait for one intent, and how many there are.
#[derive(Debug, Default)]
struct Bell {
    notify: Arc<Notify>,
    waiting: usize,
}

impl Waiters {
    fn enter(&self, id: Digest) -> Place<'_> {
        let mut waiting = self.waiting();
        let bell = waiting.entry(id).or_default();
        bell.waiting += 1;
        Place { waiters: self, id, notify: Arc::clone(&bell.notify) }
    }

    pub(super) fn wake(&self, id: &Digest) {
        if let Some(bell) = self.waiting().get(id) {
            bell.notify.notify_waiters();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Digest, Bell>> {
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
        if let Some(bell) = waiting.get_mut(&self.id) {
            bell.waiting -= 1;
            if bell.waiting == 0 {
                waiting.remove(&self.id);
            }
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
    /// The owner ended it in doubt, and the record's policy lets the next one try.
    MayBeTried,
}

/// A caller that waits.
pub(super) struct Waiting<'a> {
    place: Place<'a>,
    deadline: Instant,
    pause: Duration,
}

/// What waiting led to.
pub(super) enum Waited {
    /// Begin has the answer now.
    Ask,
    Doubt(Timestamp),
    /// The running one is still running.
    TooLong,
}

impl Ledger {
    /// Waits up to `wait` for the owner's answer, if [`Ledger::begin`] said that somebody else is at it.
    pub async fn wait_for(&self, call: &Call, mut begun: Begun, wait: Duration) -> Result<Begun, Error> {
        let running = |begun: &Begun| matches!(begun, Begun::Answered(decision) if is_running(decision));
        if wait.is_zero() || !running(&begun) {
            return Ok(begun);
        }
        // It overlaps the running one, so the running one's outcome is its answer, delivered or not.
        let call = &Call { again: Again::Never, ..call.clone() };
        let mut waiting = self.waiting(call, wait);
        while running(&begun) {
            match self.watch(call, &mut waiting).await? {
                Waited::Ask => begun = self.begin(call).await?,
                Waited::Doubt(since) => return Ok(Begun::Answered(Decision::InDoubt { since })),
                Waited::TooLong => return Ok(begun),
            }
        }
        Ok(begun)
    }

    /// A place among the waiters, for this long.
    pub(super) fn waiting(&self, call: &Call, wait: Duration) -> Waiting<'_> {
        let place = self.inner.waiters.enter(call.identity.digest());
        Waiting { place, deadline: Instant::now() + wait.min(LONGEST_WAIT), pause: FIRST_LOOK }
    }

    /// Waits until the running one is over, or the time is.
    pub(super) async fn watch(&self, call: &Call, waiting: &mut Waiting<'_>) -> Result<Waited, Error> {
        loop {
            let woken = waiting.place.notify.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            match look(self.inner.store.get(waiting.place.id).await?, call) {
                Look::Ask => return Ok(Waited::Ask),
                Look::Doubt(since) => return Ok(Waited::Doubt(since)),
                Look::Released(reason) => return Err(Error::OwnerFailed { intent: call.name(), reason }),
                Look::MayBeTried => return Err(Error::OwnerUnknown { intent: call.name() }),
                Look::Wait => {
                    let left = waiting.deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(Waited::TooLong);
                    }
                    let _ = timeout(waiting.pause.min(left), woken).await;
                    waiting.pause = (waiting.pause * 2).min(SLOWEST_LOOK);
                }
            }
        }
    }
}

/// Whether somebody is at it now.
pub(super) fn is_running(decision: &Decision) -> bool {
    matches!(decision, Decision::InFlight { running: true, .. })
}

fn look(seen: Option<Seen>, call: &Call) -> Look {
    // The head of a stream may hold another item by now, which is not the one that is waited for.
    let Some(seen) = seen.filter(|seen| seen.record.sequence == call.sequence()) else { return Look::Ask };
    match &seen.record.state {
        State::Leased(_) if matches!(seen.standing(), Some(Standing::Running { .. })) => Look::Wait,
        State::Open { .. } if !planted(Plant::WaitersRunInTurn) => {
            let reason = seen.record.last_error.unwrap_or_else(|| "it was given back".to_owned());
            Look::Released(reason)
        }
        State::InDoubt { .. } if may_be_tried(&seen, call) => Look::MayBeTried,
        State::InDoubt { .. } => Look::Doubt(seen.record.doubt_since.unwrap_or(seen.now)),
        _ => Look::Ask,
    }
}

/// Whether the next begin would be granted. Only asked: nothing is written.
fn may_be_tried(seen: &Seen, call: &Call) -> bool {
    let begin = call.begin(Take {
        fence: Fence::from_bits(0),
        lease: call.policy.lease(),
        marks_sent: call.policy.marks_sent,
        probes: call.policy.probes,
        owner: None,
        claim: None,
    });
    matches!(decide(Some(seen), &begin).answer, Answer::Decision(Decision::Acquired(_)))
}
