//! Which files a ledger consists of, and who may read them: the owner only. It creates files and sets their modes.
//!
//! A new file is created with mode 0600 whatever the umask is. SQLite gives its log and shared index the mode of the ledger
//! itself.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Locked by open ledgers.
pub(super) const OWNERS: &str = "-owners";

/// How far the ledger had come.
pub(super) const MARK: &str = "-mark";

/// Every file of a ledger, by what follows its name.
#[cfg(unix)]
const SUFFIXES: [&str; 5] = ["", "-wal", "-shm", OWNERS, MARK];

/// Read and write for the owner, nothing for anyone else: a ledger holds keys and answers.
#[cfg(unix)]
const PRIVATE: u32 = 0o600;

/// As many symbolic links as Linux follows.
const LINKS: usize = 40;

/// The path of a file beside the ledger, whose path has no links in it.
pub(super) fn beside(ledger: &Path, suffix: &str) -> PathBuf {
    let mut name = ledger.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Where a path leads, whether or not there is a file.
pub(super) fn resolve(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let Ok(target) = std::fs::read_link(&path) else { break };
        path = path.parent().map_or_else(|| target.clone(), |folder| folder.join(&target));
    }
    path
}

/// Opens a file beside the ledger, and creates it if it is missing.
pub(super) fn open(ledger: &Path, suffix: &str) -> io::Result<File> {
    let path = beside(ledger, suffix);
    match create(&path) {
        Ok(file) => {
            share_with_owner(&file, ledger);
            Ok(file)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => OpenOptions::new().read(true).write(true).open(path),
        Err(error) => Err(error),
    }
}

/// Creates an empty file where the path leads. False if there is one. The handle is closed again, which drops every lock
/// that this process has on the file: no other thread may open it meanwhile.
pub(super) fn create_empty(path: &Path) -> io::Result<bool> {
    match create(&resolve(path)) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(unix)]
fn create(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(PRIVATE).open(path)?;
    // The umask can only have taken bits away. The owner needs both of them.
    if file.metadata()?.permissions().mode() & 0o777 != PRIVATE {
        file.set_permissions(std::fs::Permissions::from_mode(PRIVATE))?;
    }
    Ok(file)
}

#[cfg(not(unix))]
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).open(path)
}

/// What root creates beside the ledger of another user must be open to that user, as SQLite's own files are.
#[cfg(unix)]
fn share_with_owner(file: &File, ledger: &Path) {
    use std::os::unix::fs::MetadataExt;
    let Ok(owner) = std::fs::metadata(ledger) else { return };
    if nix::unistd::geteuid().is_root()
        && owner.uid() != 0
        && let Err(error) = std::os::unix::fs::fchown(file, Some(owner.uid()), Some(owner.gid()))
    {
        tracing::warn!(%error, "a file beside the ledger could not be given to the ledger's owner");
    }
}

#[cfg(not(unix))]
fn share_with_owner(_file: &File, _ledger: &Path) {}

/// Takes the permissions of other users away from the files of an existing ledger, where this user owns them.
#[cfg(unix)]
pub(super) fn tighten(ledger: &Path) {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    for suffix in SUFFIXES {
        let path = beside(ledger, suffix);
        let Ok(found) = std::fs::metadata(&path) else { continue };
        let mode = found.permissions().mode() & 0o777;
        if mode & !PRIVATE == 0 {
            continue;
        }
        let (file, was) = (path.display(), format!("{mode:03o}"));
        if found.uid() != nix::unistd::geteuid().as_raw() {
            tracing::warn!(%file, mode = was, "other users may read this file of the ledger: set its mode to 600");
            continue;
        }
        match std::fs::set_permissions(&path, std::fs::Permissions::from_mode(PRIVATE)) {
            Ok(()) => tracing::warn!(%file, was, "other users could read this file of the ledger; its mode is now 600"),
            Err(error) => tracing::warn!(%file, %error, "other users may read this file of the ledger"),
        }
    }
}

#[cfg(not(unix))]
pub(super) fn tighten(_ledger: &Path) {}
