//! Writes as much to a pipe as it takes at once. Only the rest needs a thread that may block, so most calls are spared two
//! changes of threads.

use std::io;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::libc::PIPE_BUF;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::write;

/// Writes what a pipe or a socket takes without blocking, and returns the number of bytes. No other task may write to it meanwhile.
pub(super) fn write_available(to: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
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
            // Writing the rest reports the error again.
            Err(_) if written > 0 => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(written)
}

/// A pipe that is writable has room for `PIPE_BUF` bytes, and a writable socket has more. A terminal may report that it is
/// writable and have less.
fn has_room(to: &impl AsFd) -> bool {
    let mut polled = [PollFd::new(to.as_fd(), PollFlags::POLLOUT)];
    poll(&mut polled, PollTimeout::ZERO) == Ok(1) && polled[0].revents() == Some(PollFlags::POLLOUT)
}

/// Whether it is a pipe or a socket, which report when they can be read and written.
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

    /// Fills it for as long as there is room. Every such write has to return, and none of it may be lost.
    fn fill(to: impl AsFd) -> usize {
        // Lines that leave gaps, so that no piece of memory is used up to its end.
        let lengths = [PIPE_BUF, 1, PIPE_BUF - 1, 600, PIPE_BUF / 2 + 1, 3 * PIPE_BUF + 5];
        let mut filled = 0;
        for length in lengths.into_iter().cycle() {
            let written = write_available(&to, &vec![b'x'; length]).unwrap();
            filled += written;
            if written < length {
                break;
            }
        }
        assert_eq!(write_available(&to, b"x").unwrap(), 0);
        filled
    }

    #[test]
    fn a_pipe_with_room_takes_what_fits_and_a_full_one_takes_nothing() {
        let (mut from, to) = io::pipe().unwrap();
        let filled = fill(&to);
        assert!(filled > 2 * PIPE_BUF);
        from.read_exact(&mut vec![0; filled]).unwrap();
        assert_eq!(write_available(&to, b"again").unwrap(), 5);
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
    fn a_file_or_a_pipe_without_a_reader_is_left_to_a_thread_that_may_block() {
        let (from, to) = io::pipe().unwrap();
        drop(from);
        assert_eq!(write_available(&to, b"x").unwrap(), 0);
        assert_eq!(write_available(File::options().write(true).open("/dev/null").unwrap(), b"x").unwrap(), 0);
    }
}
