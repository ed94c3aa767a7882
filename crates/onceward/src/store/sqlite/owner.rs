//! Which processes are alive. Each open ledger locks one byte of an empty side file, at an offset that is its
//! random id; the kernel frees the lock when the process is gone, however it went. So a crashed owner is known
//! at once, and there is nothing to clean up.
//!
//! A free byte proves something only about those who would lock it in this very file. Should the side file be
//! deleted while somebody holds it, the next process makes another; so an id carries a tag of the file it was
//! locked in, and of ids with another tag nothing is known: there the lease decides.

use std::io;
use std::path::Path;

#[cfg(target_os = "linux")]
use onceward_core::hash::Fields;
#[cfg(target_os = "linux")]
use onceward_core::plant::{Plant, planted};
use onceward_core::record::Owner;

#[cfg(target_os = "linux")]
use super::side;

/// The lower bits of an id are random, and the upper ones are the tag. Two live owners of one file draw the same
/// number about never, and if they do, the second one's lock fails and it has no id.
#[cfg(target_os = "linux")]
const RANDOM_BITS: u32 = 42;

/// Two files share a tag once in a million; ids stay below 2^62, because offsets are signed 64-bit numbers.
#[cfg(target_os = "linux")]
const TAG_BITS: u32 = 20;

#[derive(Debug)]
pub(super) struct Owners {
    #[cfg(target_os = "linux")]
    entered: Option<(std::fs::File, Owner)>,
}

#[cfg(target_os = "linux")]
impl Owners {
    /// Locks a byte for this handle, in the side file of a ledger whose path has no links in it. Where the file
    /// system has no such locks, owners stay unknown and only leases tell: slower, and just as safe.
    /// Fails only if something else than a file lies in the place of the side file.
    pub(super) fn enter(file: &Path) -> io::Result<Self> {
        let side = match side::open(file, side::OWNERS) {
            Err(error) if side::is_not_regular(&error) => return Err(error),
            opened => opened.ok(),
        };
        let entered = side.and_then(|side| {
            // 0 is left out so that an id is never falsy elsewhere.
            let random = (getrandom::u64().ok()? >> (u64::BITS - RANDOM_BITS)) | 1;
            let id = (tag(&side)? << RANDOM_BITS) | random;
            lock(&side, id).then_some((side, Owner(id)))
        });
        Ok(Self { entered })
    }

    pub(super) fn me(&self) -> Option<Owner> {
        self.entered.as_ref().map(|(_, owner)| *owner)
    }

    /// Lets processes that are started from now on inherit the lock: it belongs to the open file, and is free when the
    /// last of them has ended.
    pub(super) fn lend(&self) {
        use nix::fcntl::{FcntlArg, FdFlag, fcntl};
        if let Some((side, _)) = &self.entered {
            // If this fails, the end of this process alone is taken for the end, as without it.
            let _ = fcntl(side, FcntlArg::F_SETFD(FdFlag::empty()));
        }
    }

    /// Whether the process that entered with this id is known to be gone.
    pub(super) fn gone(&self, owner: Owner) -> bool {
        match &self.entered {
            Some((_, me)) if *me == owner => false,
            Some(_) if planted(Plant::OwnerTakenForDead) => true,
            Some((side, me)) => me.0 >> RANDOM_BITS == owner.0 >> RANDOM_BITS && is_free(side, owner.0),
            None => false,
        }
    }
}

/// Which file this is. While anybody has it open, no other file on this machine is the same.
#[cfg(target_os = "linux")]
fn tag(side: &std::fs::File) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let metadata = side.metadata().ok()?;
    let digest = Fields::new().field(metadata.dev().to_be_bytes()).field(metadata.ino().to_be_bytes()).digest();
    let first = digest.as_bytes().first_chunk()?;
    Some(u64::from_be_bytes(*first) >> (u64::BITS - TAG_BITS))
}

/// One byte of the side file, to lock or to free.
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
    #[allow(clippy::unnecessary_wraps, reason = "on Linux it can fail")]
    pub(super) fn enter(_file: &Path) -> io::Result<Self> {
        Ok(Self {})
    }

    pub(super) fn me(&self) -> Option<Owner> {
        None
    }

    pub(super) fn lend(&self) {}

    pub(super) fn gone(&self, _owner: Owner) -> bool {
        false
    }
}
