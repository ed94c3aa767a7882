//! Whether a client that ends has read everything that was written to it. A client that ends in order closes our input and
//! reads on; one that was killed is gone from both ends at once.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nix::libc::{FIONREAD, c_int};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{SFlag, fstat};
use tokio::time::{Instant, sleep};

/// How long a client may take to read the rest, and how often that is checked.
const READ_LIMIT: Duration = Duration::from_millis(500);
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Whether the reader is there and has read everything.
pub(super) async fn has_read_everything(to: impl AsFd) -> bool {
    let until = Instant::now() + READ_LIMIT;
    while has_reader(&to) {
        match unread(&to) {
            Ok(0) => return true,
            Ok(_) if Instant::now() < until => sleep(CHECK_INTERVAL).await,
            _ => return false,
        }
    }
    false
}

fn has_reader(to: &impl AsFd) -> bool {
    let mut polled = [PollFd::new(to.as_fd(), PollFlags::empty())];
    let gone = PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL;
    match poll(&mut polled, PollTimeout::ZERO) {
        Ok(_) => polled[0].revents().is_none_or(|events| !events.intersects(gone)),
        Err(_) => false,
    }
}

/// How many bytes the reader has yet to take. A file or a terminal has no reader to wait for.
fn unread(to: &impl AsFd) -> io::Result<c_int> {
    let kind = SFlag::from_bits_truncate(fstat(to)?.st_mode) & SFlag::S_IFMT;
    let fd = to.as_fd().as_raw_fd();
    let mut bytes = 0;
    match kind {
        SFlag::S_IFIFO => system::in_pipe(fd, &mut bytes)?,
        SFlag::S_IFSOCK => system::in_socket(fd, &mut bytes)?,
        _ => return Ok(0),
    };
    Ok(bytes)
}

#[allow(unsafe_code)]
mod system {
    use std::os::fd::RawFd;

    use super::{FIONREAD, c_int};

    nix::ioctl_read_bad!(waiting_in_pipe, FIONREAD, c_int);
    #[cfg(target_os = "linux")]
    nix::ioctl_read_bad!(waiting_in_socket, nix::libc::TIOCOUTQ, c_int);

    pub(super) fn in_pipe(fd: RawFd, bytes: &mut c_int) -> nix::Result<c_int> {
        // SAFETY: the call writes one integer, to where this reference points.
        unsafe { waiting_in_pipe(fd, bytes) }
    }

    /// `SIOCOUTQ` is the same number.
    #[cfg(target_os = "linux")]
    pub(super) fn in_socket(fd: RawFd, bytes: &mut c_int) -> nix::Result<c_int> {
        // SAFETY: as above.
        unsafe { waiting_in_socket(fd, bytes) }
    }

    /// Other systems do not report it, so the last responses count as not delivered.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn in_socket(_fd: RawFd, bytes: &mut c_int) -> nix::Result<c_int> {
        *bytes = c_int::MAX;
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn a_reader_that_has_read_everything_is_distinguished_from_one_that_is_gone() {
        let (mut from, mut to) = io::pipe().unwrap();
        assert!(has_read_everything(&to).await);
        to.write_all(b"answer").unwrap();
        assert!(!has_read_everything(&to).await, "it does not read");
        let mut read = [0; 6];
        from.read_exact(&mut read).unwrap();
        assert!(has_read_everything(&to).await);
        drop(from);
        assert!(!has_read_everything(&to).await, "it is gone");
    }

    #[tokio::test]
    async fn a_socket_is_treated_like_a_pipe() {
        let (mut from, mut to) = UnixStream::pair().unwrap();
        assert!(has_read_everything(&to).await);
        to.write_all(b"answer").unwrap();
        assert!(!has_read_everything(&to).await);
        let mut read = [0; 6];
        from.read_exact(&mut read).unwrap();
        assert!(has_read_everything(&to).await);
        drop(from);
        assert!(!has_read_everything(&to).await);
    }
}
