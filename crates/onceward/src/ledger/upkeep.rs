//! Which claims fall due when. Most work is over before its lease is to be renewed, so a claim has no timer and no task of
//! its own until then: it has a place in a list, and each runtime has one task that goes through its list.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::claiming::Stage;

/// The lists of a ledger, one for each runtime that it is used on.
#[derive(Default)]
pub(super) struct Upkeep {
    lists: Lists,
}

type Lists = Arc<Mutex<Vec<(Id, Arc<List>)>>>;

#[derive(Default)]
struct List {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    due: BTreeMap<(Instant, u64), Arc<Stage>>,
    /// Claims so far; it tells those apart that fall due together.
    count: u64,
    /// When the task looks again by itself; `None` when only a change wakes it.
    wakes_at: Option<Instant>,
    closed: bool,
}

/// A place in a list, given up when this is dropped.
pub(super) struct Due {
    list: Arc<List>,
    at: (Instant, u64),
}

impl Upkeep {
    /// Has a claim looked after from `due` on.
    pub(super) fn keep(&self, runtime: &Handle, due: Instant, stage: &Arc<Stage>) -> Due {
        let list = self.list(runtime);
        let mut state = list.state();
        state.count += 1;
        let at = (due, state.count);
        state.due.insert(at, Arc::clone(stage));
        // It mostly wakes soon enough anyway: a claim that has ended leaves its time of waking behind.
        let sooner = state.wakes_at.is_none_or(|wakes_at| due < wakes_at);
        if sooner {
            state.wakes_at = Some(due);
        }
        drop(state);
        if sooner {
            list.changed.notify_one();
        }
        Due { list, at }
    }

    fn list(&self, runtime: &Handle) -> Arc<List> {
        let id = runtime.id();
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, list)) = lists.iter().find(|(known, _)| *known == id) {
            return Arc::clone(list);
        }
        let list = Arc::new(List::default());
        lists.push((id, Arc::clone(&list)));
        drop(lists);
        // Dropped with its runtime, and then the list is dropped too.
        let gone = Gone { id, lists: Arc::clone(&self.lists) };
        let mine = Arc::clone(&list);
        runtime.spawn(async move {
            let _gone = gone;
            mine.go_through().await;
        });
        list
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        for (_, list) in self.lists.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            list.state().closed = true;
            list.changed.notify_one();
        }
    }
}

struct Gone {
    id: Id,
    lists: Lists,
}

impl Drop for Gone {
    fn drop(&mut self) {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner).retain(|(id, _)| *id != self.id);
    }
}

impl List {
    async fn go_through(&self) {
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
            due.into_values().for_each(|stage| stage.look_after());
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

impl Drop for Due {
    fn drop(&mut self) {
        let stage = self.list.state().due.remove(&self.at);
        // Not under the lock: with the claim may go the last of the ledger.
        drop(stage);
    }
}

impl fmt::Debug for Upkeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upkeep").finish_non_exhaustive()
    }
}
