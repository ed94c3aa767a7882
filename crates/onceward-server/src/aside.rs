//! What is said on stderr while nobody may wait for whoever reads it. A gateway that is one thread would stop with all its
//! calls, because a client does not read what it took for a log: so another thread writes it, and what is too much is dropped.

use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// How many bytes may wait to be written.
const MOST: usize = 256 * 1024;

/// How long the last words may take.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What waits, once somebody has asked for it.
static ASIDE: OnceLock<Aside> = OnceLock::new();

#[derive(Default)]
struct Aside {
    unsaid: Mutex<Unsaid>,
    changed: Condvar,
}

#[derive(Default)]
struct Unsaid {
    /// The first one is being written, and stays until it is.
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
}

/// From now on nobody waits for stderr.
pub(crate) fn begin() -> io::Result<()> {
    if ASIDE.get().is_some() {
        return Ok(());
    }
    thread::Builder::new().name("stderr".to_owned()).spawn(|| {
        let aside = ASIDE.get_or_init(Aside::default);
        loop {
            aside.write_next(|line| drop(crate::output::write_err(line)));
        }
    })?;
    ASIDE.get_or_init(Aside::default);
    Ok(())
}

/// Takes what is to be said, or drops it. `false` when nobody has asked for that, so that it may be written as ever.
pub(crate) fn say(line: &[u8]) -> bool {
    ASIDE.get().map(|aside| aside.take(line)).is_some()
}

/// Waits for what is not written yet, for a short time.
pub(crate) fn end() {
    if let Some(aside) = ASIDE.get() {
        aside.over(LAST_WORDS);
    }
}

impl Aside {
    fn unsaid(&self) -> MutexGuard<'_, Unsaid> {
        self.unsaid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, line: &[u8]) {
        let mut unsaid = self.unsaid();
        if unsaid.bytes + line.len() > MOST {
            return;
        }
        unsaid.bytes += line.len();
        unsaid.lines.push_back(line.to_vec());
        self.changed.notify_all();
    }

    /// Waits for a line, and writes it while nobody is kept from saying another.
    fn write_next(&self, write: impl FnOnce(&[u8])) {
        let unsaid = self.changed.wait_while(self.unsaid(), |unsaid| unsaid.lines.is_empty());
        let line = unsaid.unwrap_or_else(PoisonError::into_inner).lines.front().cloned().unwrap_or_default();
        write(&line);
        let mut unsaid = self.unsaid();
        unsaid.bytes -= line.len();
        unsaid.lines.pop_front();
        self.changed.notify_all();
    }

    fn over(&self, patience: Duration) {
        drop(self.changed.wait_timeout_while(self.unsaid(), patience, |unsaid| !unsaid.lines.is_empty()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use super::*;

    #[test]
    fn what_nobody_reads_holds_nobody_up_and_what_fits_is_written_in_order() {
        let aside = Arc::new(Aside::default());
        let lines: Vec<Vec<u8>> = (0..MOST / 1000 + 10).map(|number| vec![number.to_le_bytes()[0]; 1000]).collect();
        let fit = MOST / 1000;
        lines.iter().for_each(|line| aside.take(line));
        let begun = Instant::now();
        aside.over(Duration::from_millis(20));
        assert!(begun.elapsed() < Duration::from_secs(10) && aside.unsaid().lines.len() == fit);
        let (to, written) = channel();
        let writing = Arc::clone(&aside);
        thread::spawn(move || (0..=fit).for_each(|_| writing.write_next(|line| to.send(line.to_vec()).unwrap())));
        aside.over(Duration::from_secs(60));
        assert_eq!(written.iter().take(fit).collect::<Vec<_>>(), lines[..fit]);
        // There is room again.
        aside.take(b"more");
        assert_eq!(written.recv().unwrap(), b"more");
    }
}
