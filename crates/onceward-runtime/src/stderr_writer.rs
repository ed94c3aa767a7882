//! Non-blocking stderr writer. A single-threaded gateway would stop all its calls when a client does not read its stderr.
//! So another thread writes the lines, and lines that do not fit into the queue are dropped.

use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// Maximum size of the queue.
const MAX_QUEUED_BYTES: usize = 256 * 1024;

/// How long to wait for queued lines at the end of the process.
const FLUSH_LIMIT: Duration = Duration::from_millis(500);

/// The queue, once [`start`] was called.
static QUEUE: OnceLock<LineQueue> = OnceLock::new();

#[derive(Default)]
struct LineQueue {
    pending: Mutex<PendingLines>,
    changed: Condvar,
}

#[derive(Default)]
struct PendingLines {
    /// The first line is being written and stays until it is.
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
}

/// Starts the writer thread. From now on no caller waits for stderr.
pub fn start() -> io::Result<()> {
    if QUEUE.get().is_some() {
        return Ok(());
    }
    thread::Builder::new().name("stderr".to_owned()).spawn(|| {
        let queue = QUEUE.get_or_init(LineQueue::default);
        loop {
            queue.write_next(|line| drop(crate::output::write_err(line)));
        }
    })?;
    QUEUE.get_or_init(LineQueue::default);
    Ok(())
}

/// Queues a line, or drops it if the queue is full. Returns `false` if the writer was not started: then the caller writes
/// the line itself.
pub fn enqueue(line: &[u8]) -> bool {
    QUEUE.get().map(|queue| queue.push(line)).is_some()
}

/// Waits a short time for queued lines to be written.
pub fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.wait_until_empty(FLUSH_LIMIT);
    }
}

impl LineQueue {
    fn pending(&self) -> MutexGuard<'_, PendingLines> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: &[u8]) {
        let mut pending = self.pending();
        if pending.bytes + line.len() > MAX_QUEUED_BYTES {
            return;
        }
        pending.bytes += line.len();
        pending.lines.push_back(line.to_vec());
        self.changed.notify_all();
    }

    /// Waits for a line and writes it. The lock is not held while writing.
    fn write_next(&self, write: impl FnOnce(&[u8])) {
        let pending = self.changed.wait_while(self.pending(), |pending| pending.lines.is_empty());
        let line = pending.unwrap_or_else(PoisonError::into_inner).lines.front().cloned().unwrap_or_default();
        write(&line);
        let mut pending = self.pending();
        pending.bytes -= line.len();
        pending.lines.pop_front();
        self.changed.notify_all();
    }

    fn wait_until_empty(&self, limit: Duration) {
        drop(self.changed.wait_timeout_while(self.pending(), limit, |pending| !pending.lines.is_empty()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_full_queue_blocks_no_caller_and_the_lines_that_fit_are_written_in_order() {
        let queue = Arc::new(LineQueue::default());
        let fit = MAX_QUEUED_BYTES / 1000;
        let lines: Vec<Vec<u8>> = (0..fit + 10).map(|number| vec![number.to_le_bytes()[0]; 1000]).collect();
        lines.iter().for_each(|line| queue.push(line));
        let begun = Instant::now();
        queue.wait_until_empty(Duration::from_millis(20));
        assert!(begun.elapsed() < Duration::from_secs(10) && queue.pending().lines.len() == fit);
        let (to, written) = channel();
        let writing = Arc::clone(&queue);
        thread::spawn(move || (0..=fit).for_each(|_| writing.write_next(|line| to.send(line.to_vec()).unwrap())));
        queue.wait_until_empty(Duration::from_secs(60));
        assert_eq!(written.iter().take(fit).collect::<Vec<_>>(), lines[..fit]);
        // The queue has space again.
        queue.push(b"more");
        assert_eq!(written.recv().unwrap(), b"more");
    }
}
