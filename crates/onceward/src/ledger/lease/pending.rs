//! A begin that is under way. While its caller polls it, it is a part of the caller's task. When a third of its lease is
//! over, a task of its own polls it: a caller that is busy elsewhere must neither lose the claim nor be granted a claim that
//! it has lost. A caller that goes away leaves a withdrawn claim, not a doubt about work that never started.

use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::renewal::Renewal;
use super::schedule::{Schedule, ScheduleEntry};
use crate::error::Error;
use crate::ledger::begin::Attempt;
use crate::ledger::guard::Guard;
use crate::store;

/// An attempt to begin. A claim comes with what is left to do for its lease.
pub(in crate::ledger) type AttemptFuture =
    Pin<Box<dyn Future<Output = Result<Attempt<(Guard, Renewal)>, Error>> + Send>>;

/// One claim, from its begin to its end. Its caller and the schedule share it.
pub(super) struct Lease {
    state: Mutex<State>,
}

enum State {
    /// The caller polls the attempt, and last polled it with this waker.
    Beginning(AttemptFuture, Option<Waker>),
    /// A task polls the attempt, because the caller did not. It sends the answer here.
    HandedOver(oneshot::Receiver<Result<Attempt<Guard>, Error>>, AbortHandle),
    /// The caller has the claim, and the lease is not due for renewal yet.
    Granted(Renewal),
    /// A task renews the lease.
    Renewing(AbortHandle),
    /// The claim has ended, or there was none.
    Ended,
}

/// The future of a begin.
pub(in crate::ledger) struct PendingClaim {
    lease: Arc<Lease>,
    /// `None` once the caller has its answer.
    entry: Option<ScheduleEntry>,
    runtime: Handle,
}

/// Keeps the lease of a granted claim renewed until it is dropped.
pub(in crate::ledger) struct RenewalHandle {
    lease: Arc<Lease>,
    _entry: Option<ScheduleEntry>,
}

impl PendingClaim {
    pub(super) fn new(schedule: &Schedule, due: Instant, attempt: AttemptFuture) -> Self {
        let lease = Arc::new(Lease { state: Mutex::new(State::Beginning(attempt, None)) });
        let runtime = Handle::current();
        let entry = Some(schedule.add(&runtime, due, &lease));
        Self { lease, entry, runtime }
    }

    /// Hands the answer to the caller. From now on a claim is the caller's.
    fn hand_out(&mut self, mut answer: Result<Attempt<Guard>, Error>) -> Result<Attempt<Guard>, Error> {
        let entry = self.entry.take();
        if let Ok(Attempt::Acquired(guard)) = &mut answer {
            guard.start(RenewalHandle { lease: Arc::clone(&self.lease), _entry: entry });
        }
        answer
    }
}

impl Future for PendingClaim {
    type Output = Result<Attempt<Guard>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let lease = Arc::clone(&self.lease);
        // Any executor may poll this; the tasks that it starts belong to the runtime on which it was begun.
        let runtime = self.runtime.clone();
        let _inside = runtime.enter();
        // The lock keeps the schedule from taking the attempt over while it is polled. An attempt that panics is gone from
        // the state.
        let mut state = lease.state();
        match mem::replace(&mut *state, State::Ended) {
            State::Beginning(mut attempt, waker) => match attempt.as_mut().poll(context) {
                Poll::Pending => {
                    let same = waker.filter(|waker| waker.will_wake(context.waker()));
                    *state = State::Beginning(attempt, same.or_else(|| Some(context.waker().clone())));
                    Poll::Pending
                }
                Poll::Ready(answer) => {
                    let answer = answer.map(|attempt| {
                        attempt.map(|(guard, renewal)| {
                            // Still under the lock, so that the schedule finds the renewal when it comes.
                            *state = State::Granted(renewal);
                            guard
                        })
                    });
                    drop(state);
                    Poll::Ready(self.hand_out(answer))
                }
            },
            State::HandedOver(mut answer, task) => match Pin::new(&mut answer).poll(context) {
                Poll::Pending => {
                    *state = State::HandedOver(answer, task);
                    Poll::Pending
                }
                Poll::Ready(answer) => {
                    *state = State::Renewing(task);
                    drop(state);
                    Poll::Ready(self.hand_out(answer.unwrap_or(Err(Error::Store(store::Error::Closed)))))
                }
            },
            // It was ready before.
            other @ (State::Granted(_) | State::Renewing(_) | State::Ended) => {
                *state = other;
                Poll::Pending
            }
        }
    }
}

impl Drop for PendingClaim {
    fn drop(&mut self) {
        if self.entry.is_none() {
            return;
        }
        let state = mem::replace(&mut *self.lease.state(), State::Ended);
        if let State::Beginning(attempt, _) = state {
            // The guard is dropped before it has started, which withdraws the claim.
            self.runtime.spawn(async move { drop(attempt.await) });
        }
    }
}

impl Lease {
    /// Takes over from the caller: a third of the lease is over. To be called on the runtime of the caller.
    pub(super) fn attend(self: &Arc<Self>) {
        let mut state = self.state();
        *state = match mem::replace(&mut *state, State::Ended) {
            State::Beginning(attempt, waker) => {
                let (reply, answer) = oneshot::channel();
                let task = tokio::spawn(async move {
                    let mut renewal = None;
                    let answer = attempt.await.map(|attempt| {
                        attempt.map(|(guard, of_guard)| {
                            renewal = Some(of_guard);
                            guard
                        })
                    });
                    // If the caller has gone away, or goes away before it looks, the guard is dropped before it has started.
                    drop(reply.send(answer));
                    if let Some(renewal) = renewal {
                        renewal.run().await;
                    }
                });
                // The caller has to wait for its answer in another place.
                if let Some(waker) = waker {
                    waker.wake();
                }
                State::HandedOver(answer, task.abort_handle())
            }
            State::Granted(renewal) => State::Renewing(tokio::spawn(renewal.run()).abort_handle()),
            state @ (State::HandedOver(..) | State::Renewing(_) | State::Ended) => state,
        };
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RenewalHandle {
    fn drop(&mut self) {
        let state = mem::replace(&mut *self.lease.state(), State::Ended);
        if let State::Renewing(task) = state {
            task.abort();
        }
    }
}
