//! Lets a process fork while ledgers are open, and open them again in the child.
//!
//! SQLite remembers for each inode which locks this process holds. A child inherits that memory, but not the locks, so a
//! connection that it opened would not take them, and could lose its log to another process. The child therefore sees every file
//! with another device number: SQLite does not find what it remembers, and takes the locks anew. Nothing that was opened before
//! the fork is used or closed by SQLite in the child; its descriptors are closed here, because a lock on an owner's byte lives
//! as long as any copy of its descriptor.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::side_files::{LOG, MARK, OWNERS, beside, resolve};
use super::{query, schema};

/// The files of every ledger that this process has open, and how many handles it has.
static OPEN: Mutex<BTreeMap<PathBuf, usize>> = Mutex::new(BTreeMap::new());

/// Changes the device numbers that SQLite sees; 0 in a process that was not forked.
static SALT: AtomicU64 = AtomicU64::new(0);

/// Changes the upper byte of a device number, whose size differs between systems.
const SALT_STEP: u64 = 1 << (8 * (size_of::<nix::libc::dev_t>() - 1));

/// What the thread that forks holds, from before the fork until after it.
struct ForkLocks {
    open: MutexGuard<'static, BTreeMap<PathBuf, usize>>,
    _creating: MutexGuard<'static, ()>,
}

thread_local! {
    static HELD: RefCell<Option<ForkLocks>> = const { RefCell::new(None) };
}

/// Counts a ledger as open until it is dropped.
#[derive(Debug)]
pub(super) struct OpenFile(PathBuf);

impl OpenFile {
    pub(super) fn new(path: &Path) -> Self {
        let file = resolve(path);
        // The process may change its working directory.
        let file = std::path::absolute(&file).unwrap_or(file);
        *open_files().entry(file.clone()).or_default() += 1;
        Self(file)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let mut open = open_files();
        if let Some(count) = open.get_mut(&self.0) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.0);
            }
        }
    }
}

fn open_files() -> MutexGuard<'static, BTreeMap<PathBuf, usize>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no other thread is in the middle of something that the child would inherit half done.
pub(crate) fn prepare() {
    query::make_statements();
    let creating = schema::creating();
    let open = open_files();
    engine::lock_all();
    HELD.with(|held| *held.borrow_mut() = Some(ForkLocks { open, _creating: creating }));
}

/// Goes on in the parent.
pub(crate) fn resume_parent() {
    if let Some(held) = HELD.with(|held| held.borrow_mut().take()) {
        engine::unlock_all();
        drop(held);
    }
}

/// Goes on in the child.
pub(crate) fn resume_child() {
    let Some(mut held) = HELD.with(|held| held.borrow_mut().take()) else { return };
    engine::unlock_all();
    if SALT.fetch_add(SALT_STEP, Ordering::Relaxed) == 0 {
        engine::salt_devices();
    }
    let inherited = std::mem::take(&mut *held.open);
    drop(held);
    close_descriptors(inherited.keys());
}

/// Closes every descriptor of the files of these ledgers.
fn close_descriptors<'a>(ledgers: impl Iterator<Item = &'a PathBuf>) {
    use std::os::unix::fs::MetadataExt;
    let suffixes = ["", LOG, "-shm", OWNERS, MARK];
    let files = ledgers.flat_map(|ledger| suffixes.map(|suffix| beside(ledger, suffix)));
    let files: Vec<(u64, u64)> =
        files.filter_map(|file| std::fs::metadata(file).ok()).map(|file| (file.dev(), file.ino())).collect();
    if files.is_empty() {
        return;
    }
    for descriptor in descriptors() {
        if engine::inode_of(descriptor).is_some_and(|inode| files.contains(&inode)) {
            // It belongs to a connection that is never used again.
            let _ = nix::unistd::close(descriptor);
        }
    }
}

/// The descriptors of this process.
fn descriptors() -> Vec<RawFd> {
    let Ok(entries) = std::fs::read_dir("/dev/fd") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

#[allow(unsafe_code)]
mod engine {
    use std::ffi::{CStr, c_char};
    use std::mem::{MaybeUninit, transmute};

    use nix::libc;
    use rusqlite::ffi;

    use super::{AtomicU64, Ordering, RawFd, SALT, c_int};

    /// SQLite's global mutexes, in the order in which SQLite itself takes them: the one for memory is always the last.
    const MUTEXES: [c_int; 9] = [11, 12, 13, 4, 2, 5, 6, 7, 3];

    fn each_mutex(mutexes: impl Iterator<Item = c_int>, apply: unsafe extern "C" fn(*mut ffi::sqlite3_mutex)) {
        for id in mutexes {
            // SAFETY: these ids name static mutexes, which exist once SQLite is initialised, as it is when a ledger is open.
            // Null means that SQLite was built without mutexes.
            unsafe {
                let mutex = ffi::sqlite3_mutex_alloc(id);
                if !mutex.is_null() {
                    apply(mutex);
                }
            }
        }
    }

    pub(super) fn lock_all() {
        each_mutex(MUTEXES.into_iter(), ffi::sqlite3_mutex_enter);
    }

    /// By the thread that locked them, or by its copy in the child.
    pub(super) fn unlock_all() {
        each_mutex(MUTEXES.into_iter().rev(), ffi::sqlite3_mutex_leave);
    }

    fn salted(stat: *mut libc::stat, salt: &AtomicU64) {
        // SAFETY: SQLite passes a buffer of its own, which the system call has just filled.
        unsafe { (*stat).st_dev ^= salt.load(Ordering::Relaxed) as libc::dev_t };
    }

    unsafe extern "C" fn salted_stat(path: *const c_char, stat: *mut libc::stat) -> c_int {
        // SAFETY: the arguments are those of the system call.
        let result = unsafe { libc::stat(path, stat) };
        if result == 0 {
            salted(stat, &SALT);
        }
        result
    }

    unsafe extern "C" fn salted_fstat(descriptor: c_int, stat: *mut libc::stat) -> c_int {
        // SAFETY: the arguments are those of the system call.
        let result = unsafe { libc::fstat(descriptor, stat) };
        if result == 0 {
            salted(stat, &SALT);
        }
        result
    }

    /// Replaces the two system calls through which SQLite recognises a file.
    pub(super) fn salt_devices() {
        replace(c"stat", salted_stat as *const ());
        replace(c"fstat", salted_fstat as *const ());
    }

    fn replace(name: &CStr, function: *const ()) {
        // SAFETY: the function has the type of the system call that it replaces, and lives as long as the process. SQLite calls
        // it only with that type.
        unsafe {
            let vfs = ffi::sqlite3_vfs_find(std::ptr::null());
            if let Some(set) = vfs.as_ref().and_then(|vfs| vfs.xSetSystemCall) {
                let function = transmute::<*const (), ffi::sqlite3_syscall_ptr>(function);
                set(vfs, name.as_ptr(), function);
            }
        }
    }

    /// Device and inode of an open file.
    pub(super) fn inode_of(descriptor: RawFd) -> Option<(u64, u64)> {
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the call fills the buffer, or fails: also for a descriptor that is not open.
        let stat = unsafe { (libc::fstat(descriptor, stat.as_mut_ptr()) == 0).then(|| stat.assume_init())? };
        #[allow(clippy::unnecessary_cast, reason = "their types differ between systems")]
        Some((stat.st_dev as u64, stat.st_ino as u64))
    }
}
