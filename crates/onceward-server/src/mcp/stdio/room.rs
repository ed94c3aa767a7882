//! Writing as much as whoever reads takes at once. What is written that way need not be handed to a thread that may wait, and
//! a call is spared two changes of threads.

use std::io;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::libc::PIPE_BUF;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::write;

/// Writes what a pipe or a socket takes without waiting, and says how much that is. Nobody else may write to it meanwhile.
pub(super) fn write_at_once(to: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let mut written = 0;
    if !is_pipe(&to) {
        return Ok(written);
    }
    while written < bytes.len() && has_room(&to) {
        let piece = &bytes[written..bytes.len().min(written + PIPE_BUF)];
        match write(&to, piece) {
            Ok(0) | Err(Errno::EAGAIN) => break,
            Ok(length) => written += length,
            Err(Errno::EINTR) => {}
            // Whoever writes the rest meets it again.
            Err(_) if written > 0 => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(written)
}

/// A pipe that can be written to has room for `PIPE_BUF` bytes, and a socket that says so has more. A terminal may say so
/// and have less.
fn has_room(to: &impl AsFd) -> bool {
    let mut asked = [PollFd::new(to.as_fd(), PollFlags::POLLOUT)];
    poll(&mut asked, PollTimeout::ZERO) == Ok(1) && asked[0].revents() == Some(PollFlags::POLLOUT)
}

/// Whether it is a pipe or a socket, which say when they can be read and written.
pub(super) fn is_pipe(to: &impl AsFd) -> bool {
    let Ok(status) = fstat(to) else { return false };
    let kind = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT;
    kind == SFlag::S_IFIFO || kind == SFlag::S_IFSOCK
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{PipeReader, Read};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Fills it for as long as there is room. Every such write has to come back, and none of it may be lost.
    fn fill(to: impl AsFd) -> usize {
        // Lines that leave gaps, so that no piece of memory is used up to its end.
        let lengths = [PIPE_BUF, 1, PIPE_BUF - 1, 600, PIPE_BUF / 2 + 1, 3 * PIPE_BUF + 5];
        let mut filled = 0;
        for length in lengths.into_iter().cycle() {
            let written = write_at_once(&to, &vec![b'x'; length]).unwrap();
            filled += written;
            if written < length {
                break;
            }
        }
        assert_eq!(write_at_once(&to, b"x").unwrap(), 0);
        filled
    }

    #[test]
    fn what_has_room_takes_what_it_can_and_what_is_full_says_so() {
        let (mut from, to) = io::pipe().unwrap();
        let filled = fill(&to);
        assert!(filled > 2 * PIPE_BUF);
        from.read_exact(&mut vec![0; filled]).unwrap();
        assert_eq!(write_at_once(&to, b"again").unwrap(), 5);
        assert_eq!(left(from, to), b"again");
        let (near, mut far) = UnixStream::pair().unwrap();
        let filled = fill(&near);
        assert!(filled > 2 * PIPE_BUF);
        far.read_exact(&mut vec![0; filled]).unwrap();
    }

    fn left(mut from: PipeReader, to: impl AsFd) -> Vec<u8> {
        drop(to);
        let mut left = Vec::new();
        from.read_to_end(&mut left).unwrap();
        left
    }

    #[test]
    fn what_is_no_pipe_or_has_no_reader_is_left_to_who_can_wait() {
        let (from, to) = io::pipe().unwrap();
        drop(from);
        assert_eq!(write_at_once(&to, b"x").unwrap(), 0);
        assert_eq!(write_at_once(File::options().write(true).open("/dev/null").unwrap(), b"x").unwrap(), 0);
    }
}
