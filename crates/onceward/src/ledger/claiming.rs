//! A claim that is being asked for. As long as its caller looks, it is a part of the caller's own task and costs nothing.
//! When a third of its lease is over, somebody else looks after it: a caller that is busy elsewhere must neither lose
//! what it was granted nor be granted what it has lost. And a caller that goes away leaves a released claim, not a doubt
//! about work that never started.

use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::begin::Begun;
use super::guard::{Guard, Renewal};
use super::upkeep::{Due, Upkeep};
use crate::error::Error;
use crate::store;

/// What asking for a claim leads to.
pub(super) enum Asked {
    Acquired(Guard, Renewal),
    Answered(onceward_core::decide::Decision),
}

type Asking = Pin<Box<dyn Future<Output = Result<Asked, Error>> + Send>>;

/// How far a claim has come. Its caller and the upkeep share it.
pub(super) struct Stage {
    part: Mutex<Part>,
}

enum Part {
    /// The caller polls it, and was last polled with this waker.
    Asking(Asking, Option<Waker>),
    /// A task polls it, because the caller did not.
    HandedOver(oneshot::Receiver<Result<Begun, Error>>, AbortHandle),
    /// The caller has it. It is not time yet to renew it.
    Granted(Renewal),
    /// A task renews it.
    Renewing(AbortHandle),
    /// Nothing is left to look after.
    Over,
}

/// The future of a begin.
pub(super) struct Claiming {
    stage: Arc<Stage>,
    kept: Option<Due>,
    runtime: Handle,
}

/// A granted claim is renewed until this is dropped.
pub(super) struct Renewed {
    stage: Arc<Stage>,
    _kept: Option<Due>,
}

impl Claiming {
    /// Asks, and has it looked after from `due` on.
    pub(super) fn new(upkeep: &Upkeep, due: Instant, asking: Asking) -> Self {
        let stage = Arc::new(Stage { part: Mutex::new(Part::Asking(asking, None)) });
        let runtime = Handle::current();
        let kept = Some(upkeep.keep(&runtime, due, &stage));
        Self { stage, kept, runtime }
    }

    /// The caller has it, or has its answer.
    fn given(&mut self, begun: Result<Begun, Error>) -> Result<Begun, Error> {
        let kept = self.kept.take();
        match begun {
            Ok(Begun::Acquired(mut guard)) => {
                guard.start(Renewed { stage: Arc::clone(&self.stage), _kept: kept });
                Ok(Begun::Acquired(guard))
            }
            begun => begun,
        }
    }
}

impl Future for Claiming {
    type Output = Result<Begun, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let stage = Arc::clone(&self.stage);
        // Whoever polls: what it starts belongs to the runtime on which it was begun.
        let runtime = self.runtime.clone();
        let _inside = runtime.enter();
        // Nobody can hand it over while it is polled, and it is gone from its place if it panics.
        let mut part = stage.part();
        match mem::replace(&mut *part, Part::Over) {
            Part::Asking(mut asking, waker) => match asking.as_mut().poll(context) {
                Poll::Pending => {
                    let same = waker.filter(|waker| waker.will_wake(context.waker()));
                    *part = Part::Asking(asking, same.or_else(|| Some(context.waker().clone())));
                    Poll::Pending
                }
                Poll::Ready(asked) => {
                    let begun = match asked {
                        Ok(Asked::Acquired(guard, renewal)) => {
                            // Before anybody else can look: who comes to look after it finds it.
                            *part = Part::Granted(renewal);
                            Ok(Begun::Acquired(guard))
                        }
                        Ok(Asked::Answered(decision)) => Ok(Begun::Answered(decision)),
                        Err(error) => Err(error),
                    };
                    drop(part);
                    Poll::Ready(self.given(begun))
                }
            },
            Part::HandedOver(mut answer, task) => match Pin::new(&mut answer).poll(context) {
                Poll::Pending => {
                    *part = Part::HandedOver(answer, task);
                    Poll::Pending
                }
                Poll::Ready(begun) => {
                    *part = Part::Renewing(task);
                    drop(part);
                    Poll::Ready(self.given(begun.unwrap_or(Err(Error::Store(store::Error::Closed)))))
                }
            },
            // It was ready before.
            other @ (Part::Granted(_) | Part::Renewing(_) | Part::Over) => {
                *part = other;
                Poll::Pending
            }
        }
    }
}

impl Drop for Claiming {
    fn drop(&mut self) {
        if self.kept.is_none() {
            return;
        }
        let part = mem::replace(&mut *self.stage.part(), Part::Over);
        if let Part::Asking(asking, _) = part {
            // The guard is dropped unstarted, which is a release.
            self.runtime.spawn(async move { drop(asking.await) });
        }
    }
}

impl Stage {
    /// It is time to look after it. To be called on the runtime of its caller.
    pub(super) fn look_after(self: &Arc<Self>) {
        let mut part = self.part();
        *part = match mem::replace(&mut *part, Part::Over) {
            Part::Asking(asking, waker) => {
                let (reply, answer) = oneshot::channel();
                let task = tokio::spawn(async move {
                    let (begun, renewal) = match asking.await {
                        Ok(Asked::Acquired(guard, renewal)) => (Ok(Begun::Acquired(guard)), Some(renewal)),
                        Ok(Asked::Answered(decision)) => (Ok(Begun::Answered(decision)), None),
                        Err(error) => (Err(error), None),
                    };
                    // If nobody is there any more, or goes away before looking, the guard is dropped unstarted.
                    drop(reply.send(begun));
                    if let Some(renewal) = renewal {
                        renewal.until_over().await;
                    }
                });
                // It has to look for its answer in another place.
                if let Some(waker) = waker {
                    waker.wake();
                }
                Part::HandedOver(answer, task.abort_handle())
            }
            Part::Granted(renewal) => Part::Renewing(tokio::spawn(renewal.until_over()).abort_handle()),
            part @ (Part::HandedOver(..) | Part::Renewing(_) | Part::Over) => part,
        };
    }

    fn part(&self) -> MutexGuard<'_, Part> {
        self.part.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Renewed {
    fn drop(&mut self) {
        let part = mem::replace(&mut *self.stage.part(), Part::Over);
        if let Part::Renewing(task) = part {
            task.abort();
        }
    }
}
