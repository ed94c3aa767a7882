//! A disk that can lose power and fail. It sits between SQLite and the system's files as a VFS: everything is passed
//! on, and the journal of a [`Drive`] records what a real disk would hold if the power went now.
//!
//! - `drive`: the disk under one folder.
//! - `journal`: what was written, what was synced, and where to cut or to fail.
//! - `operation`: what is done to which file by which thread, so that a cut or a fault can be placed there.
//! - `image`: what is left of a file when the power goes.
//! - `shim`: the C side.
//!
//! The product is not changed for this: [`install`] makes it SQLite's default, and every ledger in a folder with a
//! drive goes through it. The index that processes share in memory (`-shm`) is passed on without a journal, because it
//! is created again after a restart.

mod drive;
mod image;
mod journal;
mod operation;
mod shim;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once, PoisonError};

use tempfile::TempDir;

pub use drive::Drive;
pub use image::{Image, Loss};
pub use journal::{Fault, IgnoredSyncs};
pub use operation::{FilePart, Kind, Moment, Operation, Role};

/// The drives of this process, by folder.
static DRIVES: Mutex<Option<HashMap<PathBuf, Arc<Drive>>>> = Mutex::new(None);

/// Makes the VFS SQLite's default, once.
pub fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(shim::register);
}

/// A folder for drives. What would be on the disk is in their journals, so the files themselves are in memory, where
/// the system offers that.
pub fn scratch(prefix: &str) -> TempDir {
    let mut builder = tempfile::Builder::new();
    let memory = builder.prefix(prefix).tempdir_in("/dev/shm");
    memory.or_else(|_| builder.tempdir()).expect("a temporary folder can be made")
}

/// Copies a folder for drives to disk, so that it can be examined later.
pub fn keep(scratch: &TempDir, prefix: &str) -> PathBuf {
    let kept = tempfile::Builder::new().prefix(prefix).tempdir().expect("a temporary folder can be made").keep();
    copy(scratch.path(), &kept).expect("the files can be copied");
    kept
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let (entry, to) = entry.map(|entry| (entry.path(), to.join(entry.file_name())))?;
        if entry.is_dir() {
            copy(&entry, &to)?;
        } else {
            std::fs::copy(&entry, &to)?;
        }
    }
    Ok(())
}

/// Puts a drive under a folder.
fn plug(drive: &Arc<Drive>) {
    let mut drives = DRIVES.lock().unwrap_or_else(PoisonError::into_inner);
    drives.get_or_insert_default().insert(drive.folder().to_owned(), Arc::clone(drive));
}

/// Removes the drive of a folder.
pub fn unplug(folder: &Path) {
    let mut drives = DRIVES.lock().unwrap_or_else(PoisonError::into_inner);
    drives.get_or_insert_default().remove(folder);
}

/// The drive under a file, and the file's name on it.
fn under(path: &Path) -> Option<(Arc<Drive>, String)> {
    let drives = DRIVES.lock().unwrap_or_else(PoisonError::into_inner);
    let drive = drives.as_ref()?.get(path.parent()?)?;
    Some((Arc::clone(drive), path.file_name()?.to_str()?.to_owned()))
}
