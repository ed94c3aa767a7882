//! The journal of the outside world: one append-only file that outlives every process. An effect *is* its line; marks
//! around it show where a kill landed. One file, so that all processes have one order of lines.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// One line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// When it was written, in milliseconds of the clock that the ledger uses too.
    pub at: i64,
    /// The intent, if the line is about one.
    pub intent: u64,
    /// The name of one attempt, unique in the run; also the value that it returns.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub nonce: String,
    /// What happened.
    pub event: Event,
}

/// An event of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The work begins: the ledger has granted the claim.
    Try {
        /// The number of the attempt, by the ledger.
        attempt: u32,
        /// When the record was created, which tells its generations apart; 0 if the claim was lost already.
        created: i64,
        /// Until when the lease lasts without renewal.
        until: i64,
        /// When the caller asked.
        asked: i64,
    },
    /// The work is about to mark `sent`.
    Sending,
    /// `sent` is marked.
    Sent,
    /// A probe found no effect of an earlier attempt, and is about to say so.
    NotFound,
    /// The effect.
    Effect {
        /// The downstream key.
        key: String,
    },
    /// The work is about to return.
    End(Ending),
    /// The ledger acknowledged this outcome.
    Ack {
        /// The outcome.
        value: String,
    },
    /// The ledger replayed this outcome.
    Replay {
        /// The outcome.
        value: String,
        /// When the caller asked.
        asked: i64,
    },
    /// The ledger gave another answer.
    Answered {
        /// The answer.
        answer: CallResult,
        /// When the caller asked.
        asked: i64,
        /// The message.
        detail: String,
    },
    /// A call with another request under the same key got another answer than a mismatch.
    NoMismatch {
        /// The answer.
        got: String,
    },
    /// The caller was dropped before its work began.
    Left,
    /// This worker kills itself now.
    Dies {
        /// At this step.
        step: String,
    },
    /// The parent settled the intent.
    Settled {
        /// The outcome; `None` when it did not happen.
        value: Option<String>,
        /// How many attempts the decision covers.
        attempts: u32,
        /// When the record was created.
        created: i64,
        /// When the parent began to settle it.
        from: i64,
    },
}

/// What the work reports to the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// An outcome to keep.
    Finish,
    /// A proof that this attempt did nothing.
    Release,
    /// The result is unknown.
    Doubt,
}

/// An answer other than an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallResult {
    /// Another owner is at work.
    InFlight,
    /// An operator has to settle it.
    InDoubt,
    /// Done, and the outcome is not kept any more.
    NotKept,
    /// The attempt of this call failed, and the failure is not kept.
    Failed,
    /// The attempt that this call waited for failed.
    OwnerFailed,
    /// The claim was lost.
    ClaimLost,
    /// The record changed too often.
    Contended,
    /// The store failed.
    Store,
    /// The work panicked or was dropped.
    Gone,
    /// An answer that a correct call never gets: mismatch, collision, dead, queued, unreadable.
    Wrong,
}

/// Milliseconds since the epoch.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Writes lines.
#[derive(Debug)]
pub struct JournalWriter(File);

impl JournalWriter {
    /// Opens the journal for appending.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        Ok(Self(OpenOptions::new().append(true).create(true).open(path)?))
    }

    /// Appends one line in one write.
    pub fn write(&self, intent: u64, nonce: &str, event: Event) {
        let line = Line { at: now(), intent, nonce: nonce.to_owned(), event };
        // A kill during a write may leave a torn line; starting with a new line keeps it from tearing the next one.
        let mut text = b"\n".to_vec();
        serde_json::to_writer(&mut text, &line).expect("a line is plain data");
        text.push(b'\n');
        (&self.0).write_all(&text).expect("the harness can write its journal");
    }
}

/// Reads lines as they come.
#[derive(Debug)]
pub struct JournalReader {
    file: File,
    read: u64,
}

impl JournalReader {
    /// Opens the journal at its start.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        Ok(Self { file: File::open(path)?, read: 0 })
    }

    /// How far it has read.
    pub fn position(&self) -> u64 {
        self.read
    }

    /// Continues from a position.
    pub fn seek(&mut self, position: u64) {
        self.read = position;
    }

    /// All lines since the last read. A torn line never took place: its process was killed before it was whole.
    pub fn read_new(&mut self) -> std::io::Result<Vec<Line>> {
        self.file.seek(SeekFrom::Start(self.read))?;
        let mut text = Vec::new();
        self.read += self.file.read_to_end(&mut text)? as u64;
        let lines = text.split(|byte| *byte == b'\n');
        Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_does_not_hide_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let writer = JournalWriter::open(&path).unwrap();
        writer.write(1, "a", Event::Sending);
        (&writer.0).write_all(b"\n{\"at\":1,\"intent\":2,\"wh").unwrap();
        writer.write(3, "b", Event::End(Ending::Doubt));
        let mut reader = JournalReader::open(&path).unwrap();
        let intents: Vec<u64> = reader.read_new().unwrap().iter().map(|line| line.intent).collect();
        assert_eq!(intents, [1, 3]);
        assert!(reader.read_new().unwrap().is_empty());
        writer.write(4, "c", Event::Sent);
        assert_eq!(reader.read_new().unwrap()[0].event, Event::Sent);
    }
}
