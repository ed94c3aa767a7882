//! The journal of one worker: a line before every call and a line after its answer, with a clock that all processes of the machine
//! share. A worker that is killed leaves calls without answers.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::time::{ClockId, clock_gettime};
use onceward::Outcome;
use onceward::core::outcome::Body;
use onceward::core::record::{Record, State};
use serde_json::{Value, json};

/// Appends lines, each with one write.
pub struct Journal {
    file: Mutex<File>,
    next: AtomicU64,
}

impl Journal {
    pub fn open(path: &Path) -> Self {
        Self { file: Mutex::new(append_to(path)), next: AtomicU64::new(0) }
    }

    /// Notes a call. Returns its number, for the answer.
    pub fn call(&self, operation: &str, key: &str, fence: Option<&str>) -> u64 {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        self.write(&json!({ "call": number, "at": now(), "operation": operation, "key": key, "fence": fence }));
        number
    }

    /// Notes an answer.
    pub fn answer(&self, number: u64, answer: &str, detail: Option<&str>) {
        self.write(&json!({ "return": number, "at": now(), "answer": answer, "detail": detail }));
    }

    /// Notes something that belongs to no call.
    pub fn write(&self, line: &Value) {
        let text = format!("{line}\n");
        self.file
            .lock()
            .expect("no thread panics in here")
            .write_all(text.as_bytes())
            .expect("the journal can be written");
    }
}

pub fn append_to(path: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(path).expect("the file can be written")
}

/// Nanoseconds of the machine's monotonic clock.
fn now() -> i64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("the machine has this clock");
    time.tv_sec() * 1_000_000_000 + time.tv_nsec()
}

/// The text of a finished record's outcome.
pub fn outcome(record: &Record) -> Option<String> {
    match &record.state {
        State::Done { outcome, .. } => Some(text(outcome)),
        _ => None,
    }
}

/// The text of an outcome.
pub fn text(outcome: &Outcome) -> String {
    match &outcome.body {
        Body::Kept(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Body::TooLarge { .. } => "too large".to_owned(),
    }
}
