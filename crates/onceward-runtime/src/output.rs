//! All output to the terminal. Ignores a reader that has gone away; reports every other write error.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::stderr_writer;

/// Pause before the next write to a non-blocking pipe that is full.
const FULL_PIPE_PAUSE: Duration = Duration::from_millis(5);

/// Makes foreign text safe to print on one line. Replaces control characters, which a terminal executes, and characters that
/// are invisible or change the writing direction.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_invisible(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Unicode format characters.
fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}')
}

/// Writes bytes unchanged to stdout.
pub fn write_out(bytes: &[u8]) -> io::Result<()> {
    write(&mut io::stdout().lock(), bytes)
}

/// Writes bytes unchanged to stderr.
pub fn write_err(bytes: &[u8]) -> io::Result<()> {
    write(&mut io::stderr().lock(), bytes)
}

/// Whether a write failed for another reason than a closed reader.
pub fn is_fault(error: &io::Error) -> bool {
    error.kind() != ErrorKind::BrokenPipe
}

/// Writes bytes unchanged to stdout and reports a failure.
pub fn out_bytes(bytes: &[u8]) {
    match write_out(bytes) {
        Err(error) if is_fault(&error) => say(&format!("cannot write the output: {error}")),
        _ => {}
    }
}

/// Like `write_all`, which loses count of the written bytes when a non-blocking pipe is full.
fn write(to: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match retry_when_full(|| to.write(bytes))? {
            0 => return Err(ErrorKind::WriteZero.into()),
            length => bytes = &bytes[length..],
        }
    }
    retry_when_full(|| to.flush())
}

/// Waits for the reader without a limit, as a blocking pipe would.
fn retry_when_full<T>(mut step: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match step() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(FULL_PIPE_PAUSE),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Writes one or more lines to stdout.
pub fn out(text: &str) {
    out_bytes(format!("{text}\n").as_bytes());
}

/// Set when another thread holds stderr and waits for a reader that does not read.
static MUTED: AtomicBool = AtomicBool::new(false);

/// Stops all messages to stderr.
pub fn mute() {
    MUTED.store(true, Ordering::Relaxed);
}

/// Writes a message for the user to stderr, with one write, so that lines of several processes do not mix.
pub fn say(text: &str) {
    if MUTED.load(Ordering::Relaxed) {
        return;
    }
    let line = format!("onceward: {text}\n");
    if !stderr_writer::enqueue(line.as_bytes()) {
        let _ = write_err(line.as_bytes());
    }
}

/// The writer for logs: stderr, one write per line.
#[derive(Debug, Default)]
pub struct Log;

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if stderr_writer::enqueue(line) { Ok(line.len()) } else { io::stderr().write(line) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Overwrites the current line on stderr, if it is a terminal.
pub fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        let _ = write_err(format!("\r\x1b[K{text}").as_bytes());
    }
}

/// Writes one JSON document on one line to stdout.
pub fn json(value: &impl serde::Serialize) {
    match serde_json::to_string(value) {
        Ok(text) => out(&text),
        Err(error) => say(&format!("cannot write the result as JSON: {error}")),
    }
}

/// Quotes text for a shell.
pub fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_invisible_characters_are_replaced() {
        let printed = printable("get_\u{202e}liam\u{200b}\u{feff}\u{e0041}\n");
        assert_eq!(printed, "get_\u{fffd}liam\u{fffd}\u{fffd}\u{fffd}\u{fffd}");
        assert_eq!(printable("größe 大小"), "größe 大小");
    }
}
