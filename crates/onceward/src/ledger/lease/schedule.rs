//! Which leases need attention when. Each runtime has one queue of leases, and one task that goes through it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::pending::Lease;

/// The queues of a ledger, one for each runtime on which it is used.
#[derive(Default)]
pub(super) struct Schedule {
    queues: Queues,
}

type Queues = Arc<Mutex<Vec<(Id, Arc<Queue>)>>>;

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    due: BTreeMap<(Instant, u64), Arc<Lease>>,
    /// Leases so far: tells apart those that are due at the same time.
    count: u64,
    /// When the task wakes by itself; `None` when only a change wakes it.
    wakes_at: Option<Instant>,
    closed: bool,
}

/// An entry of a queue, removed when this is dropped.
pub(super) struct ScheduleEntry {
    queue: Arc<Queue>,
    at: (Instant, u64),
}

impl Schedule {
    /// Has a lease attended to at `due`, on this runtime.
    pub(super) fn add(&self, runtime: &Handle, due: Instant, lease: &Arc<Lease>) -> ScheduleEntry {
        let queue = self.queue(runtime);
        let mut state = queue.state();
        state.count += 1;
        let at = (due, state.count);
        state.due.insert(at, Arc::clone(lease));
        // The task mostly wakes soon enough anyway: a claim that has ended leaves its time of waking behind.
        let sooner = state.wakes_at.is_none_or(|wakes_at| due < wakes_at);
        if sooner {
            state.wakes_at = Some(due);
        }
        drop(state);
        if sooner {
            queue.changed.notify_one();
        }
        ScheduleEntry { queue, at }
    }

    fn queue(&self, runtime: &Handle) -> Arc<Queue> {
        let id = runtime.id();
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, queue)) = queues.iter().find(|(known, _)| *known == id) {
            return Arc::clone(queue);
        }
        let queue = Arc::new(Queue::default());
        queues.push((id, Arc::clone(&queue)));
        drop(queues);
        // The task is dropped with its runtime, and takes the queue along.
        let removal = RemoveQueue { id, queues: Arc::clone(&self.queues) };
        let own = Arc::clone(&queue);
        runtime.spawn(async move {
            let _removal = removal;
            own.run().await;
        });
        queue
    }
}

impl Drop for Schedule {
    fn drop(&mut self) {
        for (_, queue) in self.queues.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            queue.state().closed = true;
            queue.changed.notify_one();
        }
    }
}

/// Removes the queue of a runtime when its task ends.
struct RemoveQueue {
    id: Id,
    queues: Queues,
}

impl Drop for RemoveQueue {
    fn drop(&mut self) {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).retain(|(id, _)| *id != self.id);
    }
}

impl Queue {
    async fn run(&self) {
        loop {
            let (due, next) = {
                let mut state = self.state();
                if state.closed {
                    return;
                }
                let later = state.due.split_off(&(Instant::now(), u64::MAX));
                let due = std::mem::replace(&mut state.due, later);
                state.wakes_at = state.due.keys().next().map(|(at, _)| *at);
                (due, state.wakes_at)
            };
            due.into_values().for_each(|lease| lease.attend());
            match next {
                Some(at) => {
                    tokio::select! {
                        () = sleep_until(at) => {}
                        () = self.changed.notified() => {}
                    }
                }
                None => self.changed.notified().await,
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ScheduleEntry {
    fn drop(&mut self) {
        let lease = self.queue.state().due.remove(&self.at);
        // Not under the lock: the lease may hold the last reference to the ledger, whose drop takes the lock again.
        drop(lease);
    }
}
