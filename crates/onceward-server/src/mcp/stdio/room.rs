//! Whether a line can be written without waiting for who reads it. Then it need not be handed to a thread that may wait, and
//! a call is spared two changes of threads.

use std::os::fd::AsFd;

use nix::libc::PIPE_BUF;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{SFlag, fstat};

/// Whether a pipe or a socket takes all of a line at once. Holds for as long as nobody else writes to it.
///
/// A pipe that can be written to has room for `PIPE_BUF` bytes, and a socket that says so has more. A terminal may say so
/// and have less.
pub(super) fn is_there(to: impl AsFd, line: &[u8]) -> bool {
    if line.len() > PIPE_BUF || !is_pipe(&to) {
        return false;
    }
    let mut asked = [PollFd::new(to.as_fd(), PollFlags::POLLOUT)];
    poll(&mut asked, PollTimeout::ZERO) == Ok(1) && asked[0].revents() == Some(PollFlags::POLLOUT)
}

fn is_pipe(to: &impl AsFd) -> bool {
    let Ok(status) = fstat(to) else { return false };
    let kind = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT;
    kind == SFlag::S_IFIFO || kind == SFlag::S_IFSOCK
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Fills it for as long as there is room for another line; every such write has to come back.
    fn fill(to: BorrowedFd<'_>, mut write: impl FnMut(&[u8])) -> usize {
        let line = [b'x'; PIPE_BUF];
        // Lines that leave gaps, so that no piece of memory is used up to its end.
        let lengths = [PIPE_BUF, 1, PIPE_BUF - 1, 600, PIPE_BUF / 2 + 1];
        let mut written = 0;
        for length in lengths.iter().cycle() {
            if !is_there(to, &line[..*length]) {
                break;
            }
            write(&line[..*length]);
            written += length;
        }
        written
    }

    #[test]
    fn what_has_room_takes_the_line_and_what_is_full_says_so() {
        let (mut from, mut to) = std::io::pipe().unwrap();
        let pipe = to.try_clone().unwrap();
        assert!(fill(pipe.as_fd(), |line| to.write_all(line).unwrap()) > 2 * PIPE_BUF);
        assert!(!is_there(&pipe, b"x"));
        from.read_exact(&mut vec![0; 4 * PIPE_BUF]).unwrap();
        assert!(is_there(&pipe, b"x"));
        let (mut near, _far) = UnixStream::pair().unwrap();
        let socket = near.try_clone().unwrap();
        assert!(fill(socket.as_fd(), |line| near.write_all(line).unwrap()) > 2 * PIPE_BUF);
    }

    #[test]
    fn what_is_long_or_gone_or_no_pipe_has_none() {
        let (from, to) = std::io::pipe().unwrap();
        assert!(!is_there(&to, &[b'x'; PIPE_BUF + 1]));
        drop(from);
        assert!(!is_there(&to, b"x"));
        assert!(!is_there(std::fs::File::open("/dev/null").unwrap(), b"x"));
    }
}
