//! Whose turn it is to be written. Calls are recorded before they are passed on, several at once, and reach the server in the
//! order in which they came all the same: many servers carry out one after the other, and an agent that creates something
//! and then uses it counts on that.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// How long a line waits for those before it. A ledger that is stuck does not hold up what needs none.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who has yet to be written.
#[derive(Clone, Debug)]
pub(super) struct Turns(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    open: Mutex<Open>,
    /// Everybody before this number was written, or will not be.
    first: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    numbers: BTreeSet<u64>,
}

/// A place in the order, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Turns,
    number: u64,
    since: Instant,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self(Arc::new(Shared { open: Mutex::default(), first: watch::Sender::new(0) }))
    }

    /// Behind everybody who is there.
    pub(super) fn next(&self) -> Turn {
        let mut open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        let number = open.next;
        open.next += 1;
        open.numbers.insert(number);
        Turn { turns: self.clone(), number, since: Instant::now() }
    }

    /// Nobody waits.
    pub(super) fn are_over(&self) -> bool {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner).numbers.is_empty()
    }
}

impl Turn {
    /// Waits for those before, for as long as that makes sense since it came.
    pub(super) async fn come(&self) {
        let mut first = self.turns.0.first.subscribe();
        let come = first.wait_for(|first| *first >= self.number);
        let _ = timeout_at(self.since + PATIENCE, come).await;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut open = self.turns.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.numbers.remove(&self.number);
        let first = open.numbers.first().copied().unwrap_or(open.next);
        // Said while it is held, so that nobody says it later who knows less.
        self.turns.0.first.send_if_modified(|before| std::mem::replace(before, first) != first);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    async fn has_come(turn: &Turn) -> bool {
        timeout(Duration::from_millis(20), turn.come()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn one_after_the_other_and_who_steps_back_lets_only_those_behind_go() {
        let turns = Turns::new();
        let (one, two, three) = (turns.next(), turns.next(), turns.next());
        assert!(has_come(&one).await && !has_come(&two).await && !has_come(&three).await);
        // It will not be written. The one behind it still waits for the first.
        drop(two);
        assert!(!has_come(&three).await);
        drop(one);
        assert!(has_come(&three).await && !turns.are_over());
        drop(three);
        assert!(turns.are_over() && has_come(&turns.next()).await);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever() {
        let turns = Turns::new();
        let (_stuck, behind, last) = (turns.next(), turns.next(), turns.next());
        assert!(timeout(PATIENCE + Duration::from_millis(10), behind.come()).await.is_ok());
        // It has waited as long.
        assert!(has_come(&last).await);
    }
}
