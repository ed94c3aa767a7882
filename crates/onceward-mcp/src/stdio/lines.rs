//! Reads lines from a pipe. A reader waits as a task of the runtime and not in a thread of its own: a line that comes wakes the
//! thread that handles it, and no other.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use memchr::memchr;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::mpsc;

use super::nonblocking_write::is_pipe;
use onceward_runtime::output;

/// The longest line. A server that takes more than this in one message has other limits.
const MAX_LINE: usize = 256 * 1024 * 1024;

/// How many bytes are read at once.
const CHUNK: usize = 64 * 1024;

/// How much memory of a long line is kept for the next one.
const KEPT_BYTES: usize = 1024 * 1024;

/// The pause before a non-blocking pipe that is empty is read again.
const PAUSE: Duration = Duration::from_millis(5);

/// How many chunks a thread may read ahead.
const MAX_CHUNKS: usize = 4;

/// Reads the lines of the client or of a server.
pub(super) struct LineReader {
    from: Source,
    /// The sender, for messages on stderr.
    sender: &'static str,
    /// What was read. The part before `taken` was handed out, and the part before `searched` has no line end.
    read: Vec<u8>,
    taken: usize,
    searched: usize,
    is_over: bool,
    chunk: Box<[u8]>,
}

enum Source {
    /// A pipe, which reports when it can be read.
    Pipe(Receiver),
    /// Anything else, such as a file: a thread reads it.
    Thread(mpsc::Receiver<Vec<u8>>),
}

impl LineReader {
    /// Must be called in a runtime.
    pub(super) fn new(pipe: OwnedFd, sender: &'static str) -> io::Result<Self> {
        let from = match is_pipe(&pipe) {
            true => Source::Pipe(Receiver::from_owned_fd_unchecked(pipe)?),
            false => Source::Thread(read_in_thread(pipe.into())?),
        };
        Ok(Self { from, sender, read: Vec::new(), taken: 0, searched: 0, is_over: false, chunk: vec![0; CHUNK].into() })
    }

    /// The next line, with its line end; the last one need not have one.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = memchr(b'\n', &self.read[self.searched..]) {
                return Some(self.take(self.searched + end + 1));
            }
            self.searched = self.read.len();
            if self.searched - self.taken >= MAX_LINE {
                too_long(self.sender);
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
        // A line that is all of the buffer need not be copied.
        if self.taken == 0 && until == self.read.len() {
            self.searched = 0;
            return mem::take(&mut self.read);
        }
        let line = self.read[self.taken..until].to_vec();
        (self.taken, self.searched) = (until, until);
        if until == self.read.len() {
            (self.taken, self.searched) = (0, 0);
            self.read.clear();
            self.free_memory();
        }
        line
    }

    /// Frees the memory of a long line that was handed out.
    fn free_memory(&mut self) {
        if self.read.len() <= KEPT_BYTES {
            self.read.shrink_to(KEPT_BYTES);
        }
    }

    /// Reads what is there, or waits for more. Returns `false` at the end.
    async fn fill(&mut self) -> bool {
        if self.taken > 0 {
            self.read.drain(..self.taken);
            (self.taken, self.searched) = (0, self.searched - self.taken);
            self.free_memory();
        }
        match &mut self.from {
            Source::Pipe(pipe) => loop {
                if pipe.readable().await.is_err() {
                    return false;
                }
                match pipe.try_io(|| read_available(pipe, &mut self.chunk)) {
                    Ok(length) => {
                        self.read.extend_from_slice(&self.chunk[..length]);
                        return length > 0;
                    }
                    Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                    Err(_) => return false,
                }
            },
            Source::Thread(chunks) => match chunks.recv().await {
                Some(chunk) => {
                    self.read.extend_from_slice(&chunk);
                    true
                }
                None => false,
            },
        }
    }
}

/// Reads what is there. The pipe may be a blocking one: it is shared with the process that passed it on, so its flags are left
/// alone. So `poll` asks first whether a read returns at once: with bytes, with the end, or with an error.
fn read_available(from: &Receiver, into: &mut [u8]) -> io::Result<usize> {
    let mut asked = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
    match poll(&mut asked, PollTimeout::ZERO)? {
        0 => Err(ErrorKind::WouldBlock.into()),
        _ => Ok(nix::unistd::read(from, into)?),
    }
}

fn read_in_thread(mut from: File) -> io::Result<mpsc::Receiver<Vec<u8>>> {
    let (sender, chunks) = mpsc::channel(MAX_CHUNKS);
    let read = move || {
        let mut chunk = vec![0; CHUNK];
        loop {
            match from.read(&mut chunk) {
                Ok(0) => return,
                Ok(length) => {
                    if sender.blocking_send(chunk[..length].to_vec()).is_err() {
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
    Ok(chunks)
}

fn too_long(sender: &str) {
    output::say(&format!("a message of the {sender} is over {MAX_LINE} bytes; nothing more is read."));
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    async fn all(pipe: impl Into<OwnedFd>) -> Vec<Vec<u8>> {
        let mut lines = LineReader::new(pipe.into(), "client").unwrap();
        let mut heard = Vec::new();
        while let Some(line) = lines.next().await {
            heard.push(line);
        }
        assert!(lines.next().await.is_none(), "the end stays the end");
        heard
    }

    fn expected() -> Vec<Vec<u8>> {
        let mut long = vec![b'x'; 3 * CHUNK];
        long.push(b'\n');
        vec![b"one\n".to_vec(), b"\n".to_vec(), long, b"two\r\n".to_vec(), b"without an end".to_vec()]
    }

    #[tokio::test]
    async fn a_pipe_is_read_line_by_line_however_it_is_written() {
        for step in [1000, 3 * CHUNK + 2, usize::MAX] {
            let (from, mut to) = io::pipe().unwrap();
            let writing = thread::spawn(move || {
                for chunk in expected().concat().chunks(step) {
                    to.write_all(chunk).unwrap();
                    thread::sleep(Duration::from_micros(100));
                }
            });
            assert_eq!(all(from).await, expected());
            writing.join().unwrap();
        }
    }

    #[tokio::test]
    async fn a_file_is_read_by_a_thread_and_an_empty_input_ends_at_once() {
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
    async fn the_memory_of_a_long_line_is_freed_also_when_more_came_with_it() {
        let (from, mut to) = io::pipe().unwrap();
        let writing = thread::spawn(move || {
            // The end of the long line and half of the next one come together.
            let mut bytes = vec![b'x'; 8 * KEPT_BYTES];
            bytes.extend_from_slice(b"\nhalf");
            to.write_all(&bytes).unwrap();
            thread::sleep(Duration::from_millis(50));
            // A line that is all of the buffer would take the memory with it.
            to.write_all(b" and half\nmore").unwrap();
        });
        let mut lines = LineReader::new(from.into(), "client").unwrap();
        assert_eq!(lines.next().await.unwrap().len(), 8 * KEPT_BYTES + 1);
        assert_eq!(lines.next().await.unwrap(), b"half and half\n");
        writing.join().unwrap();
        assert!(lines.read.capacity() <= 2 * KEPT_BYTES, "{}", lines.read.capacity());
    }

    #[tokio::test]
    async fn a_non_blocking_pipe_is_waited_for() {
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
