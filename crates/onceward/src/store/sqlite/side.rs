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

/// The files that SQLite opens, by what follows the name of the ledger. SQLite itself refuses links in their place.
#[cfg(unix)]
const OF_SQLITE: [&str; 3] = ["", "-wal", "-shm"];

/// The files that are opened here.
#[cfg(unix)]
const OF_ONCEWARD: [&str; 2] = [OWNERS, MARK];

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
        Err(error) if error.kind() == ErrorKind::AlreadyExists => open_existing(&path, true),
        Err(error) => Err(error),
    }
}

/// Opens a file beside the ledger for reading only. It is not created.
pub(super) fn open_to_read(ledger: &Path, suffix: &str) -> io::Result<File> {
    open_existing(&beside(ledger, suffix), false)
}

/// Opens a file beside the ledger for reading and writing. It is not created.
pub(super) fn open_to_write(ledger: &Path, suffix: &str) -> io::Result<File> {
    open_existing(&beside(ledger, suffix), true)
}

/// A link, a folder, a pipe or a device lies in the place of a side file. Writing to it could destroy a foreign file.
#[derive(Debug, thiserror::Error)]
#[error("{} is not a regular file; move it away", .0.display())]
struct NotRegular(PathBuf);

/// Whether something else than a file lies in the place of a side file.
pub(super) fn is_not_regular(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|source| source.is::<NotRegular>())
}

/// Neither follows a link nor waits for the other end of a pipe.
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
        // Links, folders and sockets already fail to open, each with an error of its own.
        Err(error) => match std::fs::symlink_metadata(path) {
            Ok(found) if !found.is_file() => Err(not_regular()),
            _ => Err(error),
        },
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
    for suffix in OF_SQLITE {
        let path = beside(ledger, suffix);
        // Not opened: closing a second handle would drop the locks that SQLite has on the file.
        let Ok(found) = std::fs::symlink_metadata(&path) else { continue };
        tighten_one(&path, &found, || {
            use nix::fcntl::AT_FDCWD;
            use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};
            let mode = Mode::S_IRUSR | Mode::S_IWUSR;
            Ok(fchmodat(AT_FDCWD, &path, mode, FchmodatFlags::NoFollowSymlink)?)
        });
    }
    for suffix in OF_ONCEWARD {
        // What cannot be opened, or is not a regular file, is reported when it is used.
        let Ok(file) = open_to_read(ledger, suffix) else { continue };
        let Ok(found) = file.metadata() else { continue };
        tighten_one(&beside(ledger, suffix), &found, || {
            file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(PRIVATE))
        });
    }
}

#[cfg(unix)]
fn tighten_one(path: &Path, found: &std::fs::Metadata, set: impl FnOnce() -> io::Result<()>) {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let mode = found.permissions().mode() & 0o777;
    if !found.is_file() || mode & !PRIVATE == 0 {
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
pub(super) fn tighten(_ledger: &Path) {}
