//! The C side: a VFS that asks the drive first and passes everything on to the system's own.

// SQLite takes files as C structures with function pointers; safe Rust cannot provide one.
#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use rusqlite::ffi::{self, sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs};

use super::drive::{Handle, Verdict};
use super::operation::{FilePart, Kind};

/// The system's own VFS.
static SYSTEM: AtomicPtr<sqlite3_vfs> = AtomicPtr::new(std::ptr::null_mut());

/// A file as SQLite sees it. The system's file follows it in memory, in the space that SQLite allocated for both.
#[repr(C)]
struct Opened {
    head: sqlite3_file,
    system: *mut sqlite3_file,
    handle: *mut Handle,
}

/// Registers the VFS as the default.
pub(super) fn register() {
    // SAFETY: the system's VFS lives for ever, and so does ours, which is leaked. Everything that is not replaced here
    // works with our structure as well, because it holds the same application data.
    let code = unsafe {
        let system = ffi::sqlite3_vfs_find(std::ptr::null());
        assert!(!system.is_null(), "SQLite has a VFS");
        SYSTEM.store(system, Ordering::SeqCst);
        let ours = Box::new(sqlite3_vfs {
            szOsFile: (*system).szOsFile + c_int::try_from(size_of::<Opened>()).expect("it is small"),
            pNext: std::ptr::null_mut(),
            zName: c"onceward-sim".as_ptr(),
            xOpen: Some(open),
            xDelete: Some(delete),
            ..*system
        });
        ffi::sqlite3_vfs_register(Box::leak(ours), 1)
    };
    assert_eq!(code, ffi::SQLITE_OK, "the VFS is registered");
}

/// Version 2: files are not mapped into memory, so that every change passes here.
static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

fn part(name: &str) -> FilePart {
    match name {
        name if name.ends_with("-wal") => FilePart::Log,
        name if name.ends_with("-journal") => FilePart::Journal,
        _ => FilePart::Main,
    }
}

/// # Safety
/// `name` is null or a C string.
unsafe fn path<'a>(name: *const c_char) -> Option<&'a Path> {
    if name.is_null() {
        return None;
    }
    // SAFETY: as promised above.
    Some(Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes())))
}

// SAFETY, for all functions below: SQLite calls them with files that `open` has filled in, until `close`, and never two
// at once for one file. The system's methods get the system's file.

unsafe extern "C" fn open(
    _: *mut sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    unsafe {
        let system = SYSTEM.load(Ordering::SeqCst);
        let Some(open) = (*system).xOpen else { return ffi::SQLITE_ERROR };
        let Some((drive, short)) = path(name).and_then(super::under) else {
            return open(system, name, file, flags, out);
        };
        (*file).pMethods = std::ptr::null();
        let part = part(&short);
        if let Verdict::Fail(code) | Verdict::Partly(_, code) = drive.before_open(part) {
            return code;
        }
        let opened = file.cast::<Opened>();
        let behind = opened.add(1).cast::<sqlite3_file>();
        let code = open(system, name, behind, flags, out);
        if code == ffi::SQLITE_OK {
            let creates = flags & ffi::SQLITE_OPEN_CREATE != 0;
            let handle = Box::into_raw(Box::new(Arc::clone(&drive).opened(&short, part, creates)));
            opened.write(Opened { head: sqlite3_file { pMethods: &raw const METHODS }, system: behind, handle });
        }
        code
    }
}

unsafe extern "C" fn delete(_: *mut sqlite3_vfs, name: *const c_char, sync_folder: c_int) -> c_int {
    unsafe {
        let system = SYSTEM.load(Ordering::SeqCst);
        let Some(delete) = (*system).xDelete else { return ffi::SQLITE_ERROR };
        let Some((drive, short)) = path(name).and_then(super::under) else {
            return delete(system, name, sync_folder);
        };
        if let Verdict::Fail(code) | Verdict::Partly(_, code) = drive.before_delete(part(&short)) {
            return code;
        }
        let code = delete(system, name, 0);
        if code == ffi::SQLITE_OK {
            drive.deleted(&short, sync_folder != 0);
        }
        code
    }
}

unsafe fn parts<'a>(file: *mut sqlite3_file) -> (&'a mut Handle, *mut sqlite3_file, &'a sqlite3_io_methods) {
    unsafe {
        let opened = &*file.cast::<Opened>();
        (&mut *opened.handle, opened.system, &*(*opened.system).pMethods)
    }
}

/// Calls the system's method of this name, or returns this code where it has none.
macro_rules! hand_on {
    ($file:ident.$method:ident($($argument:expr),*) else $missing:expr) => {{
        let (_, system, methods) = parts($file);
        match methods.$method {
            Some(method) => method(system $(, $argument)*),
            None => $missing,
        }
    }};
}

/// Asks the drive whether this may be done at all.
macro_rules! ask {
    ($file:ident, $kind:expr) => {
        if let Verdict::Fail(code) = parts($file).0.touch($kind) {
            return code;
        }
    };
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    unsafe {
        let code = hand_on!(file.xClose() else ffi::SQLITE_OK);
        drop(Box::from_raw((*file.cast::<Opened>()).handle));
        (*file).pMethods = std::ptr::null();
        code
    }
}

unsafe extern "C" fn read(file: *mut sqlite3_file, to: *mut c_void, amount: c_int, offset: sqlite3_int64) -> c_int {
    unsafe {
        ask!(file, Kind::Read);
        hand_on!(file.xRead(to, amount, offset) else ffi::SQLITE_IOERR_READ)
    }
}

unsafe extern "C" fn write(file: *mut sqlite3_file, from: *const c_void, amount: c_int, at: sqlite3_int64) -> c_int {
    unsafe {
        let (Ok(length), Ok(offset)) = (usize::try_from(amount), u64::try_from(at)) else {
            return ffi::SQLITE_IOERR_WRITE;
        };
        let data = std::slice::from_raw_parts(from.cast::<u8>(), length);
        match parts(file).0.write(offset, data) {
            Verdict::Pass => hand_on!(file.xWrite(from, amount, at) else ffi::SQLITE_IOERR_WRITE),
            Verdict::Fail(code) => code,
            Verdict::Partly(taken, code) => {
                let taken = c_int::try_from(taken).unwrap_or(0);
                hand_on!(file.xWrite(from, taken, at) else ffi::SQLITE_IOERR_WRITE);
                code
            }
        }
    }
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: sqlite3_int64) -> c_int {
    unsafe {
        match parts(file).0.truncate(u64::try_from(size).unwrap_or(0)) {
            Verdict::Fail(code) | Verdict::Partly(_, code) => code,
            Verdict::Pass => hand_on!(file.xTruncate(size) else ffi::SQLITE_IOERR_TRUNCATE),
        }
    }
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, _flags: c_int) -> c_int {
    unsafe {
        match parts(file).0.sync() {
            Verdict::Fail(code) | Verdict::Partly(_, code) => code,
            Verdict::Pass => ffi::SQLITE_OK,
        }
    }
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, size: *mut sqlite3_int64) -> c_int {
    unsafe {
        ask!(file, Kind::Size);
        hand_on!(file.xFileSize(size) else ffi::SQLITE_IOERR_FSTAT)
    }
}

unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    unsafe {
        ask!(file, Kind::Lock);
        hand_on!(file.xLock(level) else ffi::SQLITE_IOERR_LOCK)
    }
}

unsafe extern "C" fn unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    unsafe { hand_on!(file.xUnlock(level) else ffi::SQLITE_IOERR_UNLOCK) }
}

unsafe extern "C" fn check_reserved_lock(file: *mut sqlite3_file, found: *mut c_int) -> c_int {
    unsafe { hand_on!(file.xCheckReservedLock(found) else ffi::SQLITE_IOERR_CHECKRESERVEDLOCK) }
}

unsafe extern "C" fn file_control(file: *mut sqlite3_file, operation: c_int, argument: *mut c_void) -> c_int {
    unsafe { hand_on!(file.xFileControl(operation, argument) else ffi::SQLITE_NOTFOUND) }
}

unsafe extern "C" fn sector_size(file: *mut sqlite3_file) -> c_int {
    unsafe { hand_on!(file.xSectorSize() else 0) }
}

unsafe extern "C" fn device_characteristics(file: *mut sqlite3_file) -> c_int {
    // No file system is asked to write several pages at once: that would not pass here.
    unsafe { hand_on!(file.xDeviceCharacteristics() else 0) & !ffi::SQLITE_IOCAP_BATCH_ATOMIC }
}

unsafe extern "C" fn shm_map(
    file: *mut sqlite3_file,
    page: c_int,
    size: c_int,
    extend: c_int,
    to: *mut *mut c_void,
) -> c_int {
    unsafe {
        ask!(file, Kind::Map);
        hand_on!(file.xShmMap(page, size, extend, to) else ffi::SQLITE_IOERR_SHMMAP)
    }
}

unsafe extern "C" fn shm_lock(file: *mut sqlite3_file, offset: c_int, count: c_int, flags: c_int) -> c_int {
    unsafe {
        // Releasing a lock cannot fail.
        if flags & ffi::SQLITE_SHM_LOCK != 0 {
            ask!(file, Kind::MapLock);
        }
        hand_on!(file.xShmLock(offset, count, flags) else ffi::SQLITE_IOERR_SHMLOCK)
    }
}

unsafe extern "C" fn shm_barrier(file: *mut sqlite3_file) {
    unsafe { hand_on!(file.xShmBarrier() else ()) }
}

unsafe extern "C" fn shm_unmap(file: *mut sqlite3_file, delete: c_int) -> c_int {
    unsafe { hand_on!(file.xShmUnmap(delete) else ffi::SQLITE_OK) }
}
