//! Processes that share a ledger take turns to write. Left to itself, SQLite lets a process that waits sleep for up to
//! 100 ms, while the one that has just committed begins again: most processes starve.
//!
//! A turn is a lock on one byte of the side file, which the kernel frees with the process. A second byte is held by the
//! process that is next, so that the one that ends its turn cannot begin another before it. Only fairness depends on this;
//! SQLite's own lock decides who writes. So a process that was stopped during its turn holds the others up once, for a
//! limited time, and then they write without taking turns.

use std::path::Path;

#[cfg(target_os = "linux")]
pub(super) use linux::{Turn, Turns};

#[cfg(target_os = "linux")]
mod linux {
    use std::cell::Cell;
    use std::fs::File;
    use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
    use std::thread::JoinHandle;
    use std::time::{Duration, Instant};

    use nix::errno::Errno;
    use nix::fcntl::{FcntlArg, fcntl};

    use super::super::owner::byte;
    use super::super::side;
    use super::Path;

    /// Ids of owners are offsets below 2^62 in the same file.
    const TURN: u64 = 1 << 62;
    const NEXT: u64 = TURN + 1;

    /// Many times what a commit takes on a slow disk, and less than callers wait for an answer.
    const LONGEST_WAIT: Duration = Duration::from_secs(1);

    /// How long after a wait a process queues for its turns. Without one, it takes them directly: half the system calls.
    const QUEUES_FOR: Duration = Duration::from_secs(1);

    /// The turns of one open ledger.
    #[derive(Debug)]
    pub(in super::super) struct Turns {
        line: Option<Arc<Line>>,
        /// When this process last had to wait for another.
        waited: Cell<Option<Instant>>,
        /// The thread that waits for the kernel.
        waiter: Option<JoinHandle<()>>,
    }

    /// A turn, or the lack of one after too long a wait. It ends when it is dropped.
    #[derive(Debug)]
    pub(in super::super) struct Turn<'a>(Option<&'a Line>);

    #[derive(Debug)]
    struct Line {
        /// An open file of its own: another process must not inherit a turn.
        side: File,
        state: Mutex<State>,
        changed: Condvar,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum State {
        /// Nobody waits.
        Idle,
        /// The writer waits; the other thread asks the kernel.
        Wanted,
        /// The turn was given.
        Granted,
        /// The kernel has no such locks here.
        Refused,
        /// The writer has waited long enough and went on. The other thread still waits.
        Abandoned,
        Closed,
    }

    impl Turns {
        /// Opens the side file of a ledger. Where that fails, there are no turns.
        pub(in super::super) fn open(ledger: &Path) -> Self {
            let Ok(side) = side::open(ledger, side::OWNERS) else {
                return Self { line: None, waited: Cell::new(None), waiter: None };
            };
            let line = Arc::new(Line { side, state: Mutex::new(State::Idle), changed: Condvar::new() });
            let asking = Arc::clone(&line);
            let waiter = std::thread::Builder::new().name("onceward-turn".to_owned()).spawn(move || asking.ask()).ok();
            Self { line: waiter.is_some().then_some(line), waited: Cell::new(None), waiter }
        }

        /// Waits for the turn, but not for too long.
        pub(in super::super) fn take(&self) -> Turn<'_> {
            let Some(line) = self.line.as_deref().filter(|line| line.is_open()) else { return Turn(None) };
            let queues = self.waited.get().is_some_and(|waited| waited.elapsed() < QUEUES_FOR);
            if line.take_now(queues) {
                return Turn(Some(line));
            }
            let granted = line.wait();
            self.waited.set(Some(Instant::now()));
            Turn(granted.then_some(line))
        }
    }

    impl Drop for Turns {
        fn drop(&mut self) {
            let Some(line) = &self.line else { return };
            let state = std::mem::replace(&mut *line.state(), State::Closed);
            line.changed.notify_all();
            // Unless it waits for a process that was stopped, it ends at once, and with it the side file is closed.
            if let Some(waiter) = self.waiter.take().filter(|_| state != State::Abandoned) {
                let _ = waiter.join();
            }
        }
    }

    impl Drop for Turn<'_> {
        fn drop(&mut self) {
            if let Some(line) = self.0 {
                line.unlock(TURN);
            }
        }
    }

    impl Line {
        fn is_open(&self) -> bool {
            !matches!(*self.state(), State::Abandoned | State::Refused)
        }

        /// Takes the turn if it is free, and if no other process is next where that is asked for. Otherwise the byte of the
        /// next may be held now.
        fn take_now(&self, queues: bool) -> bool {
            if !queues {
                return self.try_lock(TURN);
            }
            let taken = self.try_lock(NEXT) && self.try_lock(TURN);
            if taken {
                self.unlock(NEXT);
            }
            taken
        }

        /// Nothing ends a wait in the kernel early, so another thread does that, and this one waits for it.
        fn wait(&self) -> bool {
            let mut state = self.state();
            *state = State::Wanted;
            self.changed.notify_all();
            let waited = self.changed.wait_timeout_while(state, LONGEST_WAIT, |state| *state == State::Wanted);
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            match *state {
                State::Granted => {
                    *state = State::Idle;
                    true
                }
                State::Wanted => {
                    tracing::warn!("another process has held its turn to write for too long; writing without turns");
                    *state = State::Abandoned;
                    false
                }
                _ => false,
            }
        }

        /// The other thread.
        fn ask(&self) {
            let mut state = self.state();
            loop {
                match *state {
                    State::Closed => return,
                    State::Wanted => {}
                    _ => {
                        state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                        continue;
                    }
                }
                drop(state);
                // The byte of the next may be held already, by this very ledger: then the kernel agrees at once.
                let locked = self.lock(NEXT) && self.lock(TURN);
                self.unlock(NEXT);
                state = self.state();
                *state = match *state {
                    State::Wanted if locked => State::Granted,
                    State::Wanted => State::Refused,
                    // The writer has gone on without it.
                    other => {
                        self.unlock(TURN);
                        if other == State::Abandoned { State::Idle } else { other }
                    }
                };
                self.changed.notify_all();
            }
        }

        fn state(&self) -> MutexGuard<'_, State> {
            self.state.lock().unwrap_or_else(PoisonError::into_inner)
        }

        fn try_lock(&self, at: u64) -> bool {
            byte(at, nix::libc::F_WRLCK).is_some_and(|wanted| fcntl(&self.side, FcntlArg::F_OFD_SETLK(&wanted)).is_ok())
        }

        fn lock(&self, at: u64) -> bool {
            let Some(wanted) = byte(at, nix::libc::F_WRLCK) else { return false };
            loop {
                match fcntl(&self.side, FcntlArg::F_OFD_SETLKW(&wanted)) {
                    Ok(_) => return true,
                    // A signal was handled on this thread.
                    Err(Errno::EINTR) => {}
                    Err(_) => return false,
                }
            }
        }

        fn unlock(&self, at: u64) {
            if let Some(held) = byte(at, nix::libc::F_UNLCK) {
                let _ = fcntl(&self.side, FcntlArg::F_OFD_SETLK(&held));
            }
        }
    }
}

/// Elsewhere SQLite's own lock is all there is.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(super) struct Turns;

#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(super) struct Turn;

#[cfg(not(target_os = "linux"))]
impl Turns {
    pub(super) fn open(_ledger: &Path) -> Self {
        Self
    }

    pub(super) fn take(&self) -> Turn {
        Turn
    }
}
