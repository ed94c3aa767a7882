//! The only way to the terminal. A reader that has gone away is nobody's fault, so a failed write is dropped.

use std::io::{IsTerminal, Write};

/// Writes bytes to stdout as they are.
pub(crate) fn out_bytes(bytes: &[u8]) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(bytes).and_then(|()| stdout.flush());
}

/// Writes bytes to stderr as they are.
pub(crate) fn err_bytes(bytes: &[u8]) {
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(bytes).and_then(|()| stderr.flush());
}

/// Writes a line, or several, to stdout.
pub(crate) fn out(text: &str) {
    out_bytes(format!("{text}\n").as_bytes());
}

/// Says something to the person on stderr. One write, so that lines of several processes do not mix.
pub(crate) fn say(text: &str) {
    err_bytes(format!("onceward: {text}\n").as_bytes());
}

/// Overwrites the current line on stderr, if somebody is looking at it.
pub(crate) fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        err_bytes(format!("\r\x1b[K{text}").as_bytes());
    }
}

/// One JSON document on one line, to stdout.
pub(crate) fn json(value: &impl serde::Serialize) {
    match serde_json::to_string(value) {
        Ok(text) => out(&text),
        Err(error) => say(&format!("the answer cannot be written as JSON: {error}")),
    }
}
