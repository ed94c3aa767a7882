//! Lines out of a pipe. Whoever waits for one sleeps in the runtime and not in a thread of its own: a line that comes wakes
//! the thread that deals with it, and no other.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use memchr::memchr;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::mpsc;

use super::room::is_pipe;
use crate::output;

/// The longest line. A server that takes more than this in one message has other limits.
const LONGEST: usize = 256 * 1024 * 1024;

/// What is read at once.
const PIECE: usize = 64 * 1024;

/// What is kept for the next line of what a long one needed.
const KEPT: usize = 1024 * 1024;

/// How long a pipe is left alone that is empty and says so instead of waiting.
const PAUSE: Duration = Duration::from_millis(5);

/// How many pieces may wait that a thread has read.
const AHEAD: usize = 4;

/// The lines of one who speaks.
pub(in crate::mcp) struct Lines {
    from: Source,
    who: &'static str,
    /// What was read, of which the part before `taken` was handed out, and the part before `searched` has no line's end.
    read: Vec<u8>,
    taken: usize,
    searched: usize,
    is_over: bool,
    piece: Box<[u8]>,
}

enum Source {
    /// It says when there is something to read.
    Ready(Receiver),
    /// It cannot say so, as a file: a thread reads it.
    Thread(mpsc::Receiver<Vec<u8>>),
}

impl Lines {
    /// Must be called in a runtime.
    pub(in crate::mcp) fn of(pipe: OwnedFd, who: &'static str) -> io::Result<Self> {
        let from = match is_pipe(&pipe) {
            true => Source::Ready(Receiver::from_owned_fd_unchecked(pipe)?),
            false => Source::Thread(by_thread(pipe.into())?),
        };
        Ok(Self { from, who, read: Vec::new(), taken: 0, searched: 0, is_over: false, piece: vec![0; PIECE].into() })
    }

    /// The next line, with its end; the last one need not have one.
    pub(in crate::mcp) async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = memchr(b'\n', &self.read[self.searched..]) {
                return Some(self.take(self.searched + end + 1));
            }
            self.searched = self.read.len();
            if self.searched - self.taken >= LONGEST {
                too_long(self.who);
                self.is_over = true;
                return None;
            }
            if self.is_over || !self.fill().await {
                self.is_over = true;
                return (self.taken < self.read.len()).then(|| self.take(self.read.len()));
            }
        }
    }

    fn take(&mut self, until: usize) -> Vec<u8> {
        // A line that is all there is need not be copied.
        if self.taken == 0 && until == self.read.len() {
            self.searched = 0;
            return mem::take(&mut self.read);
        }
        let line = self.read[self.taken..until].to_vec();
        (self.taken, self.searched) = (until, until);
        if until == self.read.len() {
            (self.taken, self.searched) = (0, 0);
            self.read.clear();
            self.give_back();
        }
        line
    }

    /// What a long line needed is not kept once it is gone.
    fn give_back(&mut self) {
        if self.read.len() <= KEPT {
            self.read.shrink_to(KEPT);
        }
    }

    /// Reads what is there, or waits for something. False when nothing more will come.
    async fn fill(&mut self) -> bool {
        if self.taken > 0 {
            self.read.drain(..self.taken);
            (self.taken, self.searched) = (0, self.searched - self.taken);
            self.give_back();
        }
        match &mut self.from {
            Source::Ready(pipe) => loop {
                if pipe.readable().await.is_err() {
                    return false;
                }
                match pipe.try_io(|| read_at_once(pipe, &mut self.piece)) {
                    Ok(length) => {
                        self.read.extend_from_slice(&self.piece[..length]);
                        return length > 0;
                    }
                    Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                    Err(_) => return false,
                }
            },
            Source::Thread(pieces) => match pieces.recv().await {
                Some(piece) => {
                    self.read.extend_from_slice(&piece);
                    true
                }
                None => false,
            },
        }
    }
}

/// Reads what is there. The pipe may be one that waits: it is shared with who gave it to us, and stays as it is. So it is asked
/// first whether reading comes back at once: with something, with the end, or with an error.
fn read_at_once(from: &Receiver, into: &mut [u8]) -> io::Result<usize> {
    let mut asked = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
    match poll(&mut asked, PollTimeout::ZERO)? {
        0 => Err(ErrorKind::WouldBlock.into()),
        _ => Ok(nix::unistd::read(from, into)?),
    }
}

fn by_thread(mut from: File) -> io::Result<mpsc::Receiver<Vec<u8>>> {
    let (sender, pieces) = mpsc::channel(AHEAD);
    let read = move || {
        let mut piece = vec![0; PIECE];
        loop {
            match from.read(&mut piece) {
                Ok(0) => return,
                Ok(length) => {
                    if sender.blocking_send(piece[..length].to_vec()).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(PAUSE),
                Err(_) => return,
            }
        }
    };
    thread::Builder::new().name("reader".to_owned()).spawn(read)?;
    Ok(pieces)
}

/// Hands every line to somebody, on a thread that may wait.
pub(in crate::mcp) fn each(from: impl Read, who: &str, mut told: impl FnMut(Vec<u8>)) {
    let mut from = BufReader::with_capacity(PIECE, from);
    let mut line = Vec::new();
    loop {
        let left = (LONGEST - line.len()) as u64;
        match from.by_ref().take(left).read_until(b'\n', &mut line) {
            Ok(_) if line.len() == LONGEST => return too_long(who),
            Ok(0) if line.is_empty() => return,
            Ok(length) => {
                told(mem::take(&mut line));
                if length == 0 {
                    return;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(PAUSE),
            Err(_) => return,
        }
    }
}

fn too_long(who: &str) {
    output::say(&format!("a message of the {who} is over {LONGEST} bytes; nothing more is read."));
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    async fn all(pipe: impl Into<OwnedFd>) -> Vec<Vec<u8>> {
        let mut lines = Lines::of(pipe.into(), "client").unwrap();
        let mut heard = Vec::new();
        while let Some(line) = lines.next().await {
            heard.push(line);
        }
        assert!(lines.next().await.is_none(), "the end stays the end");
        heard
    }

    fn expected() -> Vec<Vec<u8>> {
        let mut long = vec![b'x'; 3 * PIECE];
        long.push(b'\n');
        vec![b"one\n".to_vec(), b"\n".to_vec(), long, b"two\r\n".to_vec(), b"without an end".to_vec()]
    }

    #[tokio::test]
    async fn a_pipe_is_read_line_by_line_however_it_is_written() {
        for step in [1000, 3 * PIECE + 2, usize::MAX] {
            let (from, mut to) = io::pipe().unwrap();
            let writing = thread::spawn(move || {
                for piece in expected().concat().chunks(step) {
                    to.write_all(piece).unwrap();
                    thread::sleep(Duration::from_micros(100));
                }
            });
            assert_eq!(all(from).await, expected());
            writing.join().unwrap();
        }
    }

    #[tokio::test]
    async fn a_file_is_read_by_a_thread_and_nothing_is_an_end() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&expected().concat()).unwrap();
        io::Seek::rewind(&mut file).unwrap();
        assert_eq!(all(file).await, expected());
        assert!(all(File::open("/dev/null").unwrap()).await.is_empty());
        let (from, to) = io::pipe().unwrap();
        drop(to);
        assert!(all(from).await.is_empty());
    }

    #[tokio::test]
    async fn what_a_long_line_needed_is_given_back_also_when_more_came_with_it() {
        let (from, mut to) = io::pipe().unwrap();
        let writing = thread::spawn(move || {
            // The end of the long line and half of the next one come together.
            let mut bytes = vec![b'x'; 8 * KEPT];
            bytes.extend_from_slice(b"\nhalf");
            to.write_all(&bytes).unwrap();
            thread::sleep(Duration::from_millis(50));
            // A line that is all there is would take the memory with it.
            to.write_all(b" and half\nmore").unwrap();
        });
        let mut lines = Lines::of(from.into(), "client").unwrap();
        assert_eq!(lines.next().await.unwrap().len(), 8 * KEPT + 1);
        assert_eq!(lines.next().await.unwrap(), b"half and half\n");
        writing.join().unwrap();
        assert!(lines.read.capacity() <= 2 * KEPT, "{}", lines.read.capacity());
    }

    #[tokio::test]
    async fn a_pipe_that_does_not_wait_is_waited_for() {
        let (from, mut to) = io::pipe().unwrap();
        let flags = nix::fcntl::OFlag::O_NONBLOCK;
        nix::fcntl::fcntl(&from, nix::fcntl::FcntlArg::F_SETFL(flags)).unwrap();
        let writing = thread::spawn(move || {
            for line in ["a\n", "b", "\n"] {
                thread::sleep(Duration::from_millis(10));
                to.write_all(line.as_bytes()).unwrap();
            }
        });
        assert_eq!(all(from).await, [b"a\n".to_vec(), b"b\n".to_vec()]);
        writing.join().unwrap();
    }
}
