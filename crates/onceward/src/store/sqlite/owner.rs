//! Detects which processes are alive. Each open ledger locks one byte of an empty side file, at an offset that is its random
//! id. The kernel frees the lock when the process ends, for any reason. So a crashed owner is detected at once, and there is
//! nothing to clean up.
//!
//! A free byte proves something only about processes that locked this very file. If the side file is deleted while a process
//! has it open, the next process creates another one. So an id contains a tag of the file in which it was locked; an owner with
//! another tag may be alive, and only its lease decides.

use std::io;
use std::path::Path;

#[cfg(target_os = "linux")]
use crate::plant::{Plant, planted};
#[cfg(target_os = "linux")]
use onceward_core::hash::Fields;
use onceward_core::record::Owner;

#[cfg(target_os = "linux")]
use super::side_files;

/// The lower bits of an id are random, and the upper ones are the tag. Two live owners of one file practically never draw the
/// same number; if they do, the second one's lock fails, and it has no id.
#[cfg(target_os = "linux")]
const RANDOM_BITS: u32 = 42;

/// Two files have the same tag once in a million. Ids stay below 2^62, because offsets are signed 64-bit numbers.
#[cfg(target_os = "linux")]
const TAG_BITS: u32 = 20;

#[derive(Debug)]
pub(super) struct Owners {
    #[cfg(target_os = "linux")]
    registered: Option<(std::fs::File, Owner)>,
}

#[cfg(target_os = "linux")]
impl Owners {
    /// Locks a byte for this handle, in the side file of a ledger whose path has its symbolic links resolved. If the file system
    /// does not support such locks, owners have no ids, and only leases tell whether they are alive: slower, and just as safe.
    /// Fails only if there is something other than a file in the place of the side file.
    pub(super) fn register(file: &Path) -> io::Result<Self> {
        let side_file = match side_files::open(file, side_files::OWNERS) {
            Err(error) if side_files::is_not_regular(&error) => return Err(error),
            opened => opened.ok(),
        };
        let registered = side_file.and_then(|side_file| {
            // Never 0, because some languages treat 0 as false.
            let random = (getrandom::u64().ok()? >> (u64::BITS - RANDOM_BITS)) | 1;
            let id = (tag(&side_file)? << RANDOM_BITS) | random;
            lock(&side_file, id).then_some((side_file, Owner(id)))
        });
        Ok(Self { registered })
    }

    pub(super) fn own_id(&self) -> Option<Owner> {
        self.registered.as_ref().map(|(_, owner)| *owner)
    }

    /// Lets child processes that are started from now on inherit the lock: it belongs to the open file, and is freed when the
    /// last of them has ended.
    pub(super) fn share_with_children(&self) {
        use nix::fcntl::{FcntlArg, FdFlag, fcntl};
        if let Some((side_file, _)) = &self.registered {
            // If this fails, the owner counts as gone when this process ends, as without the call.
            let _ = fcntl(side_file, FcntlArg::F_SETFD(FdFlag::empty()));
        }
    }

    /// Whether the process with this id is known to have ended.
    pub(super) fn is_gone(&self, owner: Owner) -> bool {
        match &self.registered {
            Some((_, own)) if *own == owner => false,
            Some(_) if planted(Plant::OwnerTakenForDead) => true,
            Some((side_file, own)) => own.0 >> RANDOM_BITS == owner.0 >> RANDOM_BITS && is_free(side_file, owner.0),
            None => false,
        }
    }
}

/// A tag that identifies the file. While a process has it open, no other file has the same device and inode.
#[cfg(target_os = "linux")]
fn tag(side_file: &std::fs::File) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let metadata = side_file.metadata().ok()?;
    let digest = Fields::new().field(metadata.dev().to_be_bytes()).field(metadata.ino().to_be_bytes()).digest();
    let first = digest.as_bytes().first_chunk()?;
    Some(u64::from_be_bytes(*first) >> (u64::BITS - TAG_BITS))
}

/// A lock request for one byte of the side file.
#[cfg(target_os = "linux")]
pub(super) fn byte(id: u64, kind: i32) -> Option<nix::libc::flock> {
    Some(nix::libc::flock {
        l_type: i16::try_from(kind).ok()?,
        l_whence: i16::try_from(nix::libc::SEEK_SET).ok()?,
        l_start: i64::try_from(id).ok()?,
        l_len: 1,
        l_pid: 0,
    })
}

// These locks belong to the open file description, not to the process: they work between threads, and closing another handle of
// the same file does not drop them.
#[cfg(target_os = "linux")]
fn lock(file: &std::fs::File, id: u64) -> bool {
    use nix::fcntl::{FcntlArg, fcntl};
    byte(id, nix::libc::F_WRLCK).is_some_and(|wanted| fcntl(file, FcntlArg::F_OFD_SETLK(&wanted)).is_ok())
}

#[cfg(target_os = "linux")]
fn is_free(file: &std::fs::File, id: u64) -> bool {
    use nix::fcntl::{FcntlArg, fcntl};
    let Some(mut found) = byte(id, nix::libc::F_WRLCK) else { return false };
    let is_known = fcntl(file, FcntlArg::F_OFD_GETLK(&mut found)).is_ok();
    is_known && i32::from(found.l_type) == nix::libc::F_UNLCK
}

#[cfg(not(target_os = "linux"))]
impl Owners {
    #[allow(clippy::unnecessary_wraps, reason = "on Linux it can fail")]
    pub(super) fn register(_file: &Path) -> io::Result<Self> {
        Ok(Self {})
    }

    pub(super) fn own_id(&self) -> Option<Owner> {
        None
    }

    pub(super) fn share_with_children(&self) {}

    pub(super) fn is_gone(&self, _owner: Owner) -> bool {
        false
    }
}
