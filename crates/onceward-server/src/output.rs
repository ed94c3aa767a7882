//! The only way to the terminal. A reader that has gone away is nobody's fault, so that is dropped; what cannot be
//! written for another reason is said.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::aside;

/// How long a pipe is left alone that is full and says so instead of waiting.
const PAUSE: Duration = Duration::from_millis(5);

/// A text of somebody else's on one line, without anything that a terminal would obey.
pub(crate) fn tame(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Writes bytes to stdout as they are.
pub(crate) fn write_out(bytes: &[u8]) -> io::Result<()> {
    write(&mut io::stdout().lock(), bytes)
}

/// Writes bytes to stderr as they are.
pub(crate) fn write_err(bytes: &[u8]) -> io::Result<()> {
    write(&mut io::stderr().lock(), bytes)
}

/// Whether a write failed for another reason than that nobody reads any more.
pub(crate) fn is_fault(error: &io::Error) -> bool {
    error.kind() != ErrorKind::BrokenPipe
}

/// Writes bytes to stdout as they are, and says so if they cannot be written.
pub(crate) fn out_bytes(bytes: &[u8]) {
    match write_out(bytes) {
        Err(error) if is_fault(&error) => say(&format!("the output cannot be written: {error}")),
        _ => {}
    }
}

/// Not `write_all`, which loses count of what is written when a pipe is full that does not wait.
fn write(to: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match patiently(|| to.write(bytes))? {
            0 => return Err(ErrorKind::WriteZero.into()),
            length => bytes = &bytes[length..],
        }
    }
    patiently(|| to.flush())
}

/// Waits for the reader as a pipe that waits would do by itself: without a limit.
fn patiently<T>(mut step: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match step() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Writes a line, or several, to stdout.
pub(crate) fn out(text: &str) {
    out_bytes(format!("{text}\n").as_bytes());
}

/// Somebody holds stderr, and waits for a reader that does not read.
static SILENT: AtomicBool = AtomicBool::new(false);

/// From now on nothing is said any more.
pub(crate) fn be_silent() {
    SILENT.store(true, Ordering::Relaxed);
}

/// Says something to the person on stderr. One write, so that lines of several processes do not mix.
pub(crate) fn say(text: &str) {
    if SILENT.load(Ordering::Relaxed) {
        return;
    }
    let line = format!("onceward: {text}\n");
    if !aside::say(line.as_bytes()) {
        let _ = write_err(line.as_bytes());
    }
}

/// Where logs go: to stderr, one write a line.
#[derive(Debug, Default)]
pub(crate) struct Log;

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if aside::say(line) { Ok(line.len()) } else { io::stderr().write(line) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Overwrites the current line on stderr, if somebody is looking at it.
pub(crate) fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        let _ = write_err(format!("\r\x1b[K{text}").as_bytes());
    }
}

/// One JSON document on one line, to stdout.
pub(crate) fn json(value: &impl serde::Serialize) {
    match serde_json::to_string(value) {
        Ok(text) => out(&text),
        Err(error) => say(&format!("the answer cannot be written as JSON: {error}")),
    }
}

/// As a shell needs it.
pub(crate) fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}
