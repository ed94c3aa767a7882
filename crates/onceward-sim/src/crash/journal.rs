//! The outside world: one append-only file that outlives every process. An effect *is* its line; around it stand
//! marks that say where a kill landed. One file, so that its lines have one order for all processes.

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
    /// The intent, where it is about one.
    pub intent: u64,
    /// Names one attempt in all of the run; also the value that it returns.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub nonce: String,
    /// What happened.
    pub what: What,
}

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// The work begins: the ledger has given the claim.
    Try {
        /// Which attempt the ledger says it is.
        attempt: u32,
        /// When the record was made, by which its generations are told apart; 0 if the claim was lost already.
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
        /// The key that the other side gets.
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
    Told {
        /// The answer.
        answer: Answer,
        /// When the caller asked.
        asked: i64,
        /// What it said.
        detail: String,
    },
    /// A call with another request under the same key got something else than a mismatch.
    NoMismatch {
        /// What it got.
        got: String,
    },
    /// The caller went away before its work began.
    Left,
    /// This worker kills itself now.
    Dies {
        /// At this step.
        step: String,
    },
    /// The parent settled the intent.
    Settled {
        /// The outcome; none when it did not happen.
        value: Option<String>,
        /// How many attempts the decision covers.
        attempts: u32,
        /// When the record was made.
        created: i64,
        /// When the parent set about it.
        from: i64,
    },
}

/// What the work tells the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// An outcome to keep.
    Finish,
    /// A proof that this attempt did nothing.
    Release,
    /// Nobody knows.
    Doubt,
}

/// An answer that is no outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Somebody is at it.
    InFlight,
    /// Somebody has to settle it.
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
    /// What a right call never gets: mismatch, collision, dead, queued, unreadable.
    Wrong,
}

/// Milliseconds since the epoch.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Writes lines.
#[derive(Debug)]
pub struct Pen(File);

impl Pen {
    /// Opens the journal for appending.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        Ok(Self(OpenOptions::new().append(true).create(true).open(path)?))
    }

    /// Appends one line in one write.
    pub fn write(&self, intent: u64, nonce: &str, what: What) {
        let line = Line { at: now(), intent, nonce: nonce.to_owned(), what };
        // A kill in the middle of a write may leave a torn line; starting anew keeps it from tearing the next one.
        let mut text = b"\n".to_vec();
        serde_json::to_writer(&mut text, &line).expect("a line is plain data");
        text.push(b'\n');
        (&self.0).write_all(&text).expect("the harness can write its journal");
    }
}

/// Reads lines as they come.
#[derive(Debug)]
pub struct Eye {
    file: File,
    read: u64,
}

impl Eye {
    /// Opens the journal at its start.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        Ok(Self { file: File::open(path)?, read: 0 })
    }

    /// How far it has read.
    pub fn position(&self) -> u64 {
        self.read
    }

    /// Goes on from a position.
    pub fn seek(&mut self, position: u64) {
        self.read = position;
    }

    /// All lines since the last look. A torn line never took place: its process was killed before it was whole.
    pub fn look(&mut self) -> std::io::Result<Vec<Line>> {
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
        let pen = Pen::open(&path).unwrap();
        pen.write(1, "a", What::Sending);
        (&pen.0).write_all(b"\n{\"at\":1,\"intent\":2,\"wh").unwrap();
        pen.write(3, "b", What::End(Ending::Doubt));
        let mut eye = Eye::open(&path).unwrap();
        let intents: Vec<u64> = eye.look().unwrap().iter().map(|line| line.intent).collect();
        assert_eq!(intents, [1, 3]);
        assert!(eye.look().unwrap().is_empty());
        pen.write(4, "c", What::Sent);
        assert_eq!(eye.look().unwrap()[0].what, What::Sent);
    }
}
