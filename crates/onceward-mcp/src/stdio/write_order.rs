//! The order in which lines are written to a server. Calls are recorded before they are passed on, several at once, and still
//! reach the server in the order in which they came: many servers carry out one request after the other, and an agent that
//! creates something and then uses it counts on that.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// How long a line that is not ready to be written holds up those behind it. A ledger that is stuck does not hold up requests
/// that need no ledger. It counts from when that line came.
const NOT_READY_LIMIT: Duration = Duration::from_secs(2);

/// How many lines may wait, and how many bytes they may hold, before there is no room for more.
const MAX_LINES: usize = 1000;
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// The lines that have yet to be written. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct WriteOrder(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// Told whenever a line leaves, for tasks that wait for room.
    left: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Queue {
    next: u64,
    lines: BTreeMap<u64, QueuedLine>,
    /// Lines that have room but no place yet.
    reserved: usize,
    bytes: usize,
}

#[derive(Debug)]
struct QueuedLine {
    since: Instant,
    bytes: usize,
    /// It is being written, or waits for nothing but the lines before it.
    is_ready: bool,
    /// Dropped with the line. Only the next line waits for that, so that a line that is written wakes one task at most.
    left: watch::Sender<()>,
}

/// A place in the order, until it is dropped.
#[derive(Debug)]
pub(super) struct WriteTicket {
    order: WriteOrder,
    number: u64,
}

/// Room for a line that gets its place later, until it is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    order: WriteOrder,
    bytes: usize,
}

/// A line that has to leave first; one that is not ready only until a deadline.
struct LineBefore {
    left: watch::Receiver<()>,
    until: Option<Instant>,
}

impl WriteOrder {
    pub(super) fn new() -> Self {
        Self(Arc::new(Shared { queue: Mutex::default(), left: watch::Sender::new(()) }))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the place behind all lines that wait now.
    pub(super) fn join(&self, bytes: usize) -> WriteTicket {
        let mut queue = self.queue();
        let number = queue.next;
        queue.next += 1;
        queue.bytes += bytes;
        let line = QueuedLine { since: Instant::now(), bytes, is_ready: false, left: watch::Sender::new(()) };
        queue.lines.insert(number, line);
        WriteTicket { order: self.clone(), number }
    }

    /// Takes room for a line that cannot have its place yet.
    pub(super) fn reserve(&self, bytes: usize) -> Reservation {
        let mut queue = self.queue();
        queue.reserved += 1;
        queue.bytes += bytes;
        Reservation { order: self.clone(), bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue().lines.is_empty()
    }

    pub(super) fn has_room(&self) -> bool {
        self.queue().has_room()
    }

    /// Waits until there is room for one more line.
    pub(super) async fn room(&self) {
        if self.has_room() {
            return;
        }
        let mut left = self.0.left.subscribe();
        while !self.has_room() {
            let _ = left.changed().await;
        }
    }
}

impl Queue {
    fn has_room(&self) -> bool {
        self.lines.len() + self.reserved < MAX_LINES && self.bytes < MAX_BYTES
    }

    /// Marks a line as ready. Returns the line to wait for first: the nearest one before it that is ready too, however long the
    /// server takes to read it, or that may still become ready in time. That line waits for those before it.
    fn ready(&mut self, number: u64, now: Instant) -> Option<LineBefore> {
        if let Some(line) = self.lines.get_mut(&number) {
            line.is_ready = true;
        }
        let mut before = self.lines.range(..number).rev().map(|(_, line)| line);
        let line = before.find(|line| line.is_ready || now < line.since + NOT_READY_LIMIT)?;
        let until = if line.is_ready { None } else { Some(line.since + NOT_READY_LIMIT) };
        Some(LineBefore { left: line.left.subscribe(), until })
    }
}

impl WriteTicket {
    /// Waits until the line may be written.
    pub(super) async fn wait(&self) {
        loop {
            let before = self.order.queue().ready(self.number, Instant::now());
            let Some(LineBefore { mut left, until }) = before else { return };
            match until {
                None => drop(left.changed().await),
                Some(until) => drop(timeout_at(until, left.changed()).await),
            }
        }
    }
}

impl Drop for WriteTicket {
    fn drop(&mut self) {
        let mut queue = self.order.queue();
        let line = queue.lines.remove(&self.number);
        queue.bytes -= line.as_ref().map_or(0, |line| line.bytes);
        drop(queue);
        drop(line);
        self.order.0.left.send_replace(());
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut queue = self.order.queue();
        queue.reserved -= 1;
        queue.bytes -= self.bytes;
        drop(queue);
        self.order.0.left.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{sleep, timeout};

    use super::*;

    const MOMENT: Duration = Duration::from_millis(20);

    async fn may_be_written(ticket: &WriteTicket) -> bool {
        timeout(MOMENT, ticket.wait()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn lines_are_written_in_order_and_a_line_that_leaves_lets_only_those_behind_it_go() {
        let order = WriteOrder::new();
        let (one, two, three) = (order.join(0), order.join(0), order.join(0));
        assert!(may_be_written(&one).await && !may_be_written(&two).await && !may_be_written(&three).await);
        // It will not be written. The one behind it still waits for the first.
        drop(two);
        assert!(!may_be_written(&three).await);
        drop(one);
        assert!(may_be_written(&three).await && !order.is_empty());
        drop(three);
        assert!(order.is_empty() && may_be_written(&order.join(0)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_that_is_not_ready_holds_up_others_for_a_limited_time_and_later_ones_not_at_all() {
        let order = WriteOrder::new();
        let (stuck, behind, last) = (order.join(0), order.join(0), order.join(0));
        assert!(timeout(NOT_READY_LIMIT + MOMENT, behind.wait()).await.is_ok());
        // The one before it is being written now.
        assert!(!may_be_written(&last).await);
        drop(behind);
        assert!(may_be_written(&last).await);
        drop(last);
        assert!(may_be_written(&order.join(0)).await);
        // Once it is ready, others wait for it again.
        assert!(may_be_written(&stuck).await && !may_be_written(&order.join(0)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_that_is_being_written_is_waited_for_without_a_limit() {
        let order = WriteOrder::new();
        let (writing, second, third) = (order.join(0), order.join(0), order.join(0));
        writing.wait().await;
        let written = Arc::new(Mutex::new(Vec::new()));
        // The third line is ready first, and both have waited for long when the first one is written.
        for (ticket, number) in [(third, 3), (second, 2)] {
            let written = Arc::clone(&written);
            tokio::spawn(async move {
                ticket.wait().await;
                written.lock().unwrap().push(number);
            });
        }
        sleep(10 * NOT_READY_LIMIT).await;
        assert!(written.lock().unwrap().is_empty());
        drop(writing);
        sleep(MOMENT).await;
        assert_eq!(*written.lock().unwrap(), [2, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_no_room_while_too_many_lines_or_bytes_wait() {
        let order = WriteOrder::new();
        let has_room = async || timeout(MOMENT, order.room()).await.is_ok();
        let (small, large) = (order.join(1), order.join(MAX_BYTES - 1));
        assert!(!has_room().await);
        drop(small);
        assert!(has_room().await);
        let many: Vec<WriteTicket> = (1..MAX_LINES).map(|_| order.join(0)).collect();
        assert!(!has_room().await);
        let waiting = tokio::spawn({
            let order = order.clone();
            async move { order.room().await }
        });
        sleep(MOMENT).await;
        drop(large);
        timeout(MOMENT, waiting).await.unwrap().unwrap();
        drop(many);
        assert!(order.is_empty() && has_room().await);
        let reserved: Vec<Reservation> = (0..MAX_LINES).map(|_| order.reserve(0)).collect();
        assert!(order.is_empty() && !has_room().await);
        drop(reserved);
        assert!(has_room().await);
    }
}
