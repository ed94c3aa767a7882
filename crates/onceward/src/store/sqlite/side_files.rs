//! The files of a ledger and their permissions: only the owner may read them. Creates files and sets their modes.
//!
//! A new file is created with mode 0600, whatever the umask is, before SQLite opens it. SQLite gives its log and shared index the mode of the ledger
//! itself.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Suffix of the file in which open ledgers hold locks.
pub(super) const OWNERS: &str = "-owners";

/// Suffix of SQLite's write-ahead log.
pub(super) const LOG: &str = "-wal";

/// Suffix of the file with the high-water mark.
pub(super) const MARK: &str = "-mark";

/// Suffixes of the files that SQLite opens. SQLite itself refuses symbolic links in their place.
#[cfg(unix)]
const SQLITE_SUFFIXES: [&str; 3] = ["", LOG, "-shm"];

/// Suffixes of the files that Onceward opens.
#[cfg(unix)]
const ONCEWARD_SUFFIXES: [&str; 2] = [OWNERS, MARK];

/// Read and write for the owner only: a ledger contains keys and outcomes.
#[cfg(unix)]
const PRIVATE_MODE: u32 = 0o600;

/// The limit of symbolic links to follow, the same as in Linux.
const MAX_LINKS: usize = 40;

/// The path of a side file. The path of the ledger must have its symbolic links resolved.
pub(super) fn beside(ledger: &Path, suffix: &str) -> PathBuf {
    let mut name = ledger.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Follows the symbolic links of a path, whether or not there is a file.
pub(super) fn resolve(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(target) = std::fs::read_link(&path) else { break };
        path = path.parent().map_or_else(|| target.clone(), |folder| folder.join(&target));
    }
    path
}

/// Opens a side file, and creates it if it is missing.
pub(super) fn open(ledger: &Path, suffix: &str) -> io::Result<File> {
    let path = beside(ledger, suffix);
    match create(&path) {
        Ok(file) => {
            give_to_owner(&file, ledger);
            Ok(file)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => open_existing(&path, true),
        Err(error) => Err(error),
    }
}

/// Opens an existing side file for reading.
pub(super) fn open_to_read(ledger: &Path, suffix: &str) -> io::Result<File> {
    open_existing(&beside(ledger, suffix), false)
}

/// Opens an existing side file for reading and writing.
pub(super) fn open_to_write(ledger: &Path, suffix: &str) -> io::Result<File> {
    open_existing(&beside(ledger, suffix), true)
}

/// There is a link, a folder, a pipe or a device in the place of a side file. Writing to it could destroy another file.
#[derive(Debug, thiserror::Error)]
#[error("{} is not a regular file; move it away", .0.display())]
struct NotRegular(PathBuf);

/// Whether there is something other than a file in the place of a side file.
pub(super) fn is_not_regular(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|source| source.is::<NotRegular>())
}

/// Opens a regular file. Does not follow links, and does not wait for the other end of a pipe.
fn open_existing(path: &Path, write: bool) -> io::Result<File> {
    let not_regular = || io::Error::new(ErrorKind::InvalidInput, NotRegular(path.to_owned()));
    let mut options = OpenOptions::new();
    options.read(true).write(write);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK | nix::libc::O_CLOEXEC,
    );
    match options.open(path) {
        Ok(file) if file.metadata()?.is_file() => Ok(file),
        Ok(_) => Err(not_regular()),
        // Links, folders and sockets fail to open, each with a different error.
        Err(error) => match std::fs::symlink_metadata(path) {
            Ok(found) if !found.is_file() => Err(not_regular()),
            _ => Err(error),
        },
    }
}

/// Creates an empty file at the end of the path's links. Returns false if the file exists. The handle is closed again, which
/// drops every lock that this process has on the file: no other thread may open it meanwhile.
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
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(PRIVATE_MODE).open(path)?;
    // The umask may have removed permissions that the owner needs.
    if file.metadata()?.permissions().mode() & 0o777 != PRIVATE_MODE {
        file.set_permissions(std::fs::Permissions::from_mode(PRIVATE_MODE))?;
    }
    Ok(file)
}

#[cfg(not(unix))]
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).open(path)
}

/// Gives a side file that root creates to the owner of the ledger, as SQLite does with its own files.
#[cfg(unix)]
fn give_to_owner(file: &File, ledger: &Path) {
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
fn give_to_owner(_file: &File, _ledger: &Path) {}

/// Removes the permissions of other users from the files of an existing ledger, if this user owns them.
#[cfg(unix)]
pub(super) fn restrict_modes(ledger: &Path) {
    for suffix in SQLITE_SUFFIXES {
        let path = beside(ledger, suffix);
        // The file is not opened: closing a second handle would drop the locks that SQLite has on it.
        let Ok(found) = std::fs::symlink_metadata(&path) else { continue };
        restrict_mode(&path, &found, || {
            use nix::fcntl::AT_FDCWD;
            use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};
            let mode = Mode::S_IRUSR | Mode::S_IWUSR;
            Ok(fchmodat(AT_FDCWD, &path, mode, FchmodatFlags::NoFollowSymlink)?)
        });
    }
    for suffix in ONCEWARD_SUFFIXES {
        // A file that cannot be opened, or is not a regular file, is reported when it is used.
        let Ok(file) = open_to_read(ledger, suffix) else { continue };
        let Ok(found) = file.metadata() else { continue };
        restrict_mode(&beside(ledger, suffix), &found, || {
            file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(PRIVATE_MODE))
        });
    }
}

#[cfg(unix)]
fn restrict_mode(path: &Path, found: &std::fs::Metadata, set: impl FnOnce() -> io::Result<()>) {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let mode = found.permissions().mode() & 0o777;
    if !found.is_file() || mode & !PRIVATE_MODE == 0 {
        return;
    }
    let (file, was) = (path.display(), format!("{mode:03o}"));
    if found.uid() != nix::unistd::geteuid().as_raw() {
        tracing::warn!(%file, mode = was, "other users may read this file of the ledger: set its mode to 600");
        return;
    }
    match set() {
        Ok(()) => tracing::warn!(%file, was, "other users could read this file of the ledger; its mode is now 600"),
        Err(error) => tracing::warn!(%file, %error, "other users may read this file of the ledger"),
    }
}

#[cfg(not(unix))]
pub(super) fn restrict_modes(_ledger: &Path) {}
