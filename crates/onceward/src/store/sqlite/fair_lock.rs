//! A fair lock for the processes that share a ledger, so that they take turns to write. With SQLite's own lock alone, a
//! waiting process sleeps for up to 100 ms while the one that has just committed begins again, and most processes starve.
//!
//! A turn is a lock on one byte of the owners file, which the kernel frees when the process ends. The process that is next
//! holds a second byte, so that the process that ends its turn cannot take another turn first. Only fairness depends on this
//! lock; SQLite's own lock decides who writes. So a process that is stopped during its turn delays the others once, for a
//! limited time, and then they write without taking turns.

use std::path::Path;

#[cfg(target_os = "linux")]
pub(super) use linux::{FairLock, WriteTurn};

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
    use super::super::side_files;
    use super::Path;

    /// The byte that is locked during a turn. Owner ids are offsets below 2^62 in the same file.
    const TURN_BYTE: u64 = 1 << 62;
    /// The byte that the next process holds.
    const NEXT_BYTE: u64 = TURN_BYTE + 1;

    /// Many times longer than a commit on a slow disk, and shorter than callers wait for a result.
    const TURN_TIMEOUT: Duration = Duration::from_secs(1);

    /// How long a process keeps queueing after it last had to wait. Otherwise it takes turns directly, with half the system
    /// calls.
    const QUEUE_AFTER_WAIT: Duration = Duration::from_secs(1);

    /// The lock of one open ledger.
    #[derive(Debug)]
    pub(in super::super) struct FairLock {
        file: Option<Arc<LockFile>>,
        /// When this process last had to wait for another one.
        waited: Cell<Option<Instant>>,
        /// The thread that waits in the kernel.
        waiter: Option<JoinHandle<()>>,
    }

    /// A turn, which ends when it is dropped; or `None` if waiting for one took too long.
    #[derive(Debug)]
    pub(in super::super) struct WriteTurn<'a>(Option<&'a LockFile>);

    #[derive(Debug)]
    struct LockFile {
        /// Opened separately from the owner's handle: a child process must not inherit a turn.
        file: File,
        state: Mutex<WaitState>,
        changed: Condvar,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum WaitState {
        /// The writer does not wait.
        Idle,
        /// The writer waits; the waiting thread asks the kernel for the lock.
        Wanted,
        /// The kernel has granted the turn.
        Granted,
        /// The file system does not support these locks.
        Refused,
        /// The writer gave up and continued without a turn. The waiting thread still waits.
        Abandoned,
        Closed,
    }

    impl FairLock {
        /// Opens the owners file of a ledger. If that fails, there are no turns.
        pub(in super::super) fn open(ledger: &Path) -> Self {
            let Ok(file) = side_files::open(ledger, side_files::OWNERS) else {
                return Self { file: None, waited: Cell::new(None), waiter: None };
            };
            let file = Arc::new(LockFile { file, state: Mutex::new(WaitState::Idle), changed: Condvar::new() });
            let waiting = Arc::clone(&file);
            let waiter = std::thread::Builder::new()
                .name("onceward-turn".to_owned())
                .spawn(move || waiting.wait_in_kernel())
                .ok();
            Self { file: waiter.is_some().then_some(file), waited: Cell::new(None), waiter }
        }

        /// Waits for a turn, up to [`TURN_TIMEOUT`].
        pub(in super::super) fn take(&self) -> WriteTurn<'_> {
            let Some(file) = self.file.as_deref().filter(|file| file.is_usable()) else { return WriteTurn(None) };
            let queues = self.waited.get().is_some_and(|waited| waited.elapsed() < QUEUE_AFTER_WAIT);
            if file.take_now(queues) {
                return WriteTurn(Some(file));
            }
            let granted = file.wait();
            self.waited.set(Some(Instant::now()));
            WriteTurn(granted.then_some(file))
        }
    }

    impl Drop for FairLock {
        fn drop(&mut self) {
            let Some(file) = &self.file else { return };
            let state = std::mem::replace(&mut *file.state(), WaitState::Closed);
            file.changed.notify_all();
            // The thread ends at once and closes the file, unless it waits for a process that was stopped.
            if let Some(waiter) = self.waiter.take().filter(|_| state != WaitState::Abandoned) {
                let _ = waiter.join();
            }
        }
    }

    impl Drop for WriteTurn<'_> {
        fn drop(&mut self) {
            if let Some(file) = self.0 {
                file.unlock(TURN_BYTE);
            }
        }
    }

    impl LockFile {
        fn is_usable(&self) -> bool {
            !matches!(*self.state(), WaitState::Abandoned | WaitState::Refused)
        }

        /// Takes the turn if it is free; with `queues`, only if no other process is next. After a failure this process may
        /// hold [`NEXT_BYTE`].
        fn take_now(&self, queues: bool) -> bool {
            if !queues {
                return self.try_lock(TURN_BYTE);
            }
            let taken = self.try_lock(NEXT_BYTE) && self.try_lock(TURN_BYTE);
            if taken {
                self.unlock(NEXT_BYTE);
            }
            taken
        }

        /// Waits for the turn, with a timeout. A wait in the kernel cannot time out, so the waiting thread does that one.
        fn wait(&self) -> bool {
            let mut state = self.state();
            *state = WaitState::Wanted;
            self.changed.notify_all();
            let waited = self.changed.wait_timeout_while(state, TURN_TIMEOUT, |state| *state == WaitState::Wanted);
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            match *state {
                WaitState::Granted => {
                    *state = WaitState::Idle;
                    true
                }
                WaitState::Wanted => {
                    tracing::warn!("another process holds the write turn for too long; writing without waiting for it");
                    *state = WaitState::Abandoned;
                    false
                }
                _ => false,
            }
        }

        /// The loop of the waiting thread.
        fn wait_in_kernel(&self) {
            let mut state = self.state();
            loop {
                match *state {
                    WaitState::Closed => return,
                    WaitState::Wanted => {}
                    _ => {
                        state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                        continue;
                    }
                }
                drop(state);
                // If this ledger already holds the next byte, the kernel grants it at once.
                let locked = self.lock(NEXT_BYTE) && self.lock(TURN_BYTE);
                self.unlock(NEXT_BYTE);
                state = self.state();
                *state = match *state {
                    WaitState::Wanted if locked => WaitState::Granted,
                    WaitState::Wanted => WaitState::Refused,
                    // The writer has continued without a turn.
                    other => {
                        self.unlock(TURN_BYTE);
                        if other == WaitState::Abandoned { WaitState::Idle } else { other }
                    }
                };
                self.changed.notify_all();
            }
        }

        fn state(&self) -> MutexGuard<'_, WaitState> {
            self.state.lock().unwrap_or_else(PoisonError::into_inner)
        }

        fn try_lock(&self, at: u64) -> bool {
            byte(at, nix::libc::F_WRLCK).is_some_and(|wanted| fcntl(&self.file, FcntlArg::F_OFD_SETLK(&wanted)).is_ok())
        }

        fn lock(&self, at: u64) -> bool {
            let Some(wanted) = byte(at, nix::libc::F_WRLCK) else { return false };
            loop {
                match fcntl(&self.file, FcntlArg::F_OFD_SETLKW(&wanted)) {
                    Ok(_) => return true,
                    // A signal was handled on this thread.
                    Err(Errno::EINTR) => {}
                    Err(_) => return false,
                }
            }
        }

        fn unlock(&self, at: u64) {
            if let Some(held) = byte(at, nix::libc::F_UNLCK) {
                let _ = fcntl(&self.file, FcntlArg::F_OFD_SETLK(&held));
            }
        }
    }
}

/// On other systems there is only SQLite's own lock.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(super) struct FairLock;

#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(super) struct WriteTurn;

#[cfg(not(target_os = "linux"))]
impl FairLock {
    pub(super) fn open(_ledger: &Path) -> Self {
        Self
    }

    pub(super) fn take(&self) -> WriteTurn {
        WriteTurn
    }
}
