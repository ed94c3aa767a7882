//! Which processes are alive. Each open ledger locks one byte of an empty side file, at an offset that is its
//! random id; the kernel frees the lock when the process is gone, however it went. So a crashed owner is known
//! at once, and there is nothing to clean up.

use std::path::Path;

use onceward_core::record::Owner;

#[derive(Debug)]
pub(super) struct Owners {
    #[cfg(target_os = "linux")]
    entered: Option<(std::fs::File, Owner)>,
}

#[cfg(target_os = "linux")]
impl Owners {
    /// Locks a byte for this handle. Where the file system has no such locks, owners stay unknown and only
    /// leases tell: slower, and just as safe.
    pub(super) fn enter(path: &Path) -> Self {
        let mut name = path.as_os_str().to_owned();
        name.push("-owners");
        let file = std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(name);
        let entered = file.ok().and_then(|file| {
            // Offsets are signed 64-bit numbers, and 0 is left out so that an id is never falsy elsewhere.
            let id = (getrandom::u64().ok()? >> 2) | 1;
            lock(&file, id).then_some((file, Owner(id)))
        });
        Self { entered }
    }

    pub(super) fn me(&self) -> Option<Owner> {
        self.entered.as_ref().map(|(_, owner)| *owner)
    }

    /// Whether the process that entered with this id is known to be gone.
    pub(super) fn gone(&self, owner: Owner) -> bool {
        match &self.entered {
            Some((_, me)) if *me == owner => false,
            Some((file, _)) => is_free(file, owner.0),
            None => false,
        }
    }
}

#[cfg(target_os = "linux")]
fn byte(id: u64, kind: i32) -> Option<nix::libc::flock> {
    Some(nix::libc::flock {
        l_type: i16::try_from(kind).ok()?,
        l_whence: i16::try_from(nix::libc::SEEK_SET).ok()?,
        l_start: i64::try_from(id).ok()?,
        l_len: 1,
        l_pid: 0,
    })
}

// Locks of the open file description, not of the process: they work between threads, and closing some other
// handle of the same file does not drop them.
#[cfg(target_os = "linux")]
fn lock(file: &std::fs::File, id: u64) -> bool {
    use nix::fcntl::{FcntlArg, fcntl};
    byte(id, nix::libc::F_WRLCK).is_some_and(|wanted| fcntl(file, FcntlArg::F_OFD_SETLK(&wanted)).is_ok())
}

#[cfg(target_os = "linux")]
fn is_free(file: &std::fs::File, id: u64) -> bool {
    use nix::fcntl::{FcntlArg, fcntl};
    let Some(mut found) = byte(id, nix::libc::F_WRLCK) else { return false };
    let asked = fcntl(file, FcntlArg::F_OFD_GETLK(&mut found)).is_ok();
    asked && i32::from(found.l_type) == nix::libc::F_UNLCK
}

#[cfg(not(target_os = "linux"))]
impl Owners {
    pub(super) fn enter(_path: &Path) -> Self {
        Self {}
    }

    pub(super) fn me(&self) -> Option<Owner> {
        None
    }

    pub(super) fn gone(&self, _owner: Owner) -> bool {
        false
    }
}
