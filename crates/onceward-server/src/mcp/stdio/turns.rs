//! Whose turn it is to be written. Calls are recorded before they are passed on, several at once, and reach the server in the
//! order in which they came all the same: many servers carry out one after the other, and an agent that creates something
//! and then uses it counts on that.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// How long a line that is not ready to be written keeps others from it. A ledger that is stuck does not hold up what needs
/// none.
const PATIENCE: Duration = Duration::from_secs(2);

/// How many lines may wait, and how much they may hold, before nobody is let in.
const MOST: usize = 1000;
const MOST_BYTES: usize = 8 * 1024 * 1024;

/// Who has yet to be written.
#[derive(Clone, Debug)]
pub(super) struct Turns(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    open: Mutex<Open>,
    /// Somebody has gone: news for who waits for room.
    gone: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    places: BTreeMap<u64, Place>,
    bytes: usize,
}

#[derive(Debug)]
struct Place {
    since: Instant,
    bytes: usize,
    /// It is being written, or waits for nothing but its turn.
    is_ready: bool,
    /// Dropped with it. Only who is next waits for that, so that a line that is written wakes nobody in vain.
    gone: watch::Sender<()>,
}

/// A place in the order, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Turns,
    number: u64,
}

/// What somebody waits for: that another one goes, who has time until then, or any time.
struct Other {
    gone: watch::Receiver<()>,
    until: Option<Instant>,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self(Arc::new(Shared { open: Mutex::default(), gone: watch::Sender::new(()) }))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Behind everybody who is there.
    pub(super) fn next(&self, bytes: usize) -> Turn {
        let mut open = self.open();
        let number = open.next;
        open.next += 1;
        open.bytes += bytes;
        open.places
            .insert(number, Place { since: Instant::now(), bytes, is_ready: false, gone: watch::Sender::new(()) });
        Turn { turns: self.clone(), number }
    }

    /// Nobody waits.
    pub(super) fn are_over(&self) -> bool {
        self.open().places.is_empty()
    }

    /// Waits until there is room for one more.
    pub(super) async fn room(&self) {
        if self.open().has_room() {
            return;
        }
        let mut gone = self.0.gone.subscribe();
        while !self.open().has_room() {
            let _ = gone.changed().await;
        }
    }
}

impl Open {
    fn has_room(&self) -> bool {
        self.places.len() < MOST && self.bytes < MOST_BYTES
    }

    /// Somebody is ready. Says for whom to wait first: for the nearest one who is ready too, however long the server takes to
    /// read, or who may yet be. Those before are waited for by that one.
    fn come(&mut self, number: u64, now: Instant) -> Option<Other> {
        if let Some(place) = self.places.get_mut(&number) {
            place.is_ready = true;
        }
        let mut before = self.places.range(..number).rev().map(|(_, place)| place);
        let other = before.find(|other| other.is_ready || now < other.since + PATIENCE)?;
        let until = if other.is_ready { None } else { Some(other.since + PATIENCE) };
        Some(Other { gone: other.gone.subscribe(), until })
    }
}

impl Turn {
    /// Waits for those before, for as long as that makes sense.
    pub(super) async fn come(&self) {
        loop {
            let other = self.turns.open().come(self.number, Instant::now());
            let Some(Other { mut gone, until }) = other else { return };
            match until {
                None => drop(gone.changed().await),
                Some(until) => drop(timeout_at(until, gone.changed()).await),
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut open = self.turns.open();
        let place = open.places.remove(&self.number);
        open.bytes -= place.as_ref().map_or(0, |place| place.bytes);
        drop(open);
        drop(place);
        self.turns.0.gone.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{sleep, timeout};

    use super::*;

    const MOMENT: Duration = Duration::from_millis(20);

    async fn has_come(turn: &Turn) -> bool {
        timeout(MOMENT, turn.come()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn one_after_the_other_and_who_steps_back_lets_only_those_behind_go() {
        let turns = Turns::new();
        let (one, two, three) = (turns.next(0), turns.next(0), turns.next(0));
        assert!(has_come(&one).await && !has_come(&two).await && !has_come(&three).await);
        // It will not be written. The one behind it still waits for the first.
        drop(two);
        assert!(!has_come(&three).await);
        drop(one);
        assert!(has_come(&three).await && !turns.are_over());
        drop(three);
        assert!(turns.are_over() && has_come(&turns.next(0)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_stuck_holds_up_nobody_for_ever_and_late_comers_not_at_all() {
        let turns = Turns::new();
        let (stuck, behind, last) = (turns.next(0), turns.next(0), turns.next(0));
        assert!(timeout(PATIENCE + MOMENT, behind.come()).await.is_ok());
        // The one before it is being written now.
        assert!(!has_come(&last).await);
        drop(behind);
        assert!(has_come(&last).await);
        drop(last);
        assert!(has_come(&turns.next(0)).await);
        // Once it comes, it is waited for again.
        assert!(has_come(&stuck).await && !has_come(&turns.next(0)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_being_written_is_waited_for_however_long_that_takes() {
        let turns = Turns::new();
        let (writing, second, third) = (turns.next(0), turns.next(0), turns.next(0));
        writing.come().await;
        let order = Arc::new(Mutex::new(Vec::new()));
        // The third one asks first, and both have waited for long when it is written.
        for (turn, number) in [(third, 3), (second, 2)] {
            let order = Arc::clone(&order);
            tokio::spawn(async move {
                turn.come().await;
                order.lock().unwrap().push(number);
            });
        }
        sleep(10 * PATIENCE).await;
        assert!(order.lock().unwrap().is_empty());
        drop(writing);
        sleep(MOMENT).await;
        assert_eq!(*order.lock().unwrap(), [2, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_holds_too_much_keeps_others_out_until_it_is_gone() {
        let turns = Turns::new();
        let has_room = async || timeout(MOMENT, turns.room()).await.is_ok();
        let (small, large) = (turns.next(1), turns.next(MOST_BYTES - 1));
        assert!(!has_room().await);
        drop(small);
        assert!(has_room().await);
        let many: Vec<Turn> = (1..MOST).map(|_| turns.next(0)).collect();
        assert!(!has_room().await);
        let waiting = tokio::spawn({
            let turns = turns.clone();
            async move { turns.room().await }
        });
        sleep(MOMENT).await;
        drop(large);
        timeout(MOMENT, waiting).await.unwrap().unwrap();
        drop(many);
        assert!(turns.are_over() && has_room().await);
    }
}
