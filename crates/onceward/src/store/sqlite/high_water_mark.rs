//! The high-water mark: a small file beside the ledger with a number that rises as the ledger is written. A ledger with a lower
//! number than its mark was restored from an older copy, has lost the work since then, and is not opened.
//!
//! The number rises in the ledger's own transactions, about once a second while it is written to. Only a number that is on disk
//! in the ledger is written into the file, so the mark may lag behind the ledger but never leads it. The file has two slots that
//! are written alternately, each with a checksum: if a power cut tears one, the other is intact. The file is not synced, because it may lag. Copies of a
//! ledger keep its id, in the table `ledger`.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior};

use onceward_core::hash::{Digest, Fields};

use super::sqlite_error::store_error;
use super::{schema, side_files};
use crate::store::Error;

/// How often the number rises. Writes since the last rise can be lost unnoticed in a restore; each rise costs a page of log.
const RAISE_INTERVAL: Duration = Duration::from_secs(1);

/// Each slot is one disk sector: a torn write damages only one of them.
const SLOT_SIZE: usize = 512;
const SLOTS: u64 = 2;

/// The first word of a slot, with the version of its format.
const FORMAT: &str = "onceward-mark-1";

/// The ledger's id: sixteen random bytes.
type LedgerId = [u8; 16];

/// The ledger's id and its number, from a slot of the mark or from the ledger itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MarkValue {
    id: LedgerId,
    number: u64,
}

/// The mark that was found beside a ledger.
#[derive(Debug)]
pub(super) struct FoundMark {
    exists: bool,
    values: Vec<MarkValue>,
}

/// Reads the mark before the ledger is opened, because the ledger's number can only rise meanwhile. A mark without a ledger
/// means that the ledger was deleted or moved.
pub(super) fn find(path: &Path) -> Result<FoundMark, Error> {
    let Ok(absolute) = std::path::absolute(path) else { return Ok(FoundMark { exists: false, values: Vec::new() }) };
    let ledger = side_files::resolve(&absolute);
    let found = read(&ledger).map_err(|error| unreadable(path, &ledger, &error))?;
    if !found.values.is_empty() && !ledger.exists() {
        return Err(Error::Missing { path: path.to_owned() });
    }
    Ok(found)
}

/// Reads a mark and skips unreadable slots. Only a file that does not exist counts as missing: after any other error there may
/// be a mark with a higher number than the ledger's.
fn read(ledger: &Path) -> io::Result<FoundMark> {
    let file = match side_files::open_to_read(ledger, side_files::MARK) {
        // A missing folder means that the file is missing too.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(FoundMark { exists: false, values: Vec::new() });
        }
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.take(SLOTS * SLOT_SIZE as u64).read_to_end(&mut bytes)?;
    Ok(FoundMark { exists: true, values: bytes.chunks(SLOT_SIZE).filter_map(MarkValue::parse).collect() })
}

/// The error for a mark that exists and cannot be read. An error about a non-regular file already names the file.
fn unreadable(path: &Path, ledger: &Path, error: &io::Error) -> Error {
    if side_files::is_not_regular(error) {
        return Error::SideFile { path: path.to_owned(), reason: error.to_string() };
    }
    let mark = side_files::beside(ledger, side_files::MARK);
    let reason = format!(
        "its mark {} cannot be read ({error}). Without the mark, Onceward cannot detect a ledger that was restored from an \
         older copy: make the mark readable, then try again",
        mark.display()
    );
    Error::SideFile { path: path.to_owned(), reason }
}

impl MarkValue {
    fn of(connection: &Connection) -> rusqlite::Result<Self> {
        connection.query_row("SELECT id, mark FROM ledger", [], |row| {
            let number: i64 = row.get(1)?;
            Ok(Self { id: row.get(0)?, number: number.unsigned_abs() })
        })
    }

    fn parse(slot: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(slot).ok()?.trim_end_matches(['\0', '\n', ' ']);
        let mut words = text.split(' ');
        let (format, id, number, sum) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let value = Self { id: from_hex(id)?, number: number.parse().ok()? };
        (format == FORMAT && words.next().is_none() && value.checksum() == sum).then_some(value)
    }

    /// The bytes of a whole slot, so that nothing of an earlier one remains.
    fn slot(&self) -> Vec<u8> {
        let mut slot = format!("{FORMAT} {} {} {}", hex(&self.id), self.number, self.checksum()).into_bytes();
        slot.resize(SLOT_SIZE - 1, b' ');
        slot.push(b'\n');
        slot
    }

    fn checksum(&self) -> String {
        let digest: Digest = Fields::new().field(FORMAT).field(self.id).field(self.number.to_be_bytes()).digest();
        digest.to_hex()[..16].to_owned()
    }

    /// Writes a slot, and creates the file if it is missing.
    fn write(&self, ledger: &Path, slot: u64) -> io::Result<()> {
        self.write_to(side_files::open(ledger, side_files::MARK)?, slot)
    }

    fn write_to(&self, mut file: File, slot: u64) -> io::Result<()> {
        file.seek(SeekFrom::Start(slot * SLOT_SIZE as u64))?;
        file.write_all(&self.slot())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<LedgerId> {
    let mut id = LedgerId::default();
    let pairs = text.as_bytes().chunks(2);
    if text.len() != 2 * id.len() {
        return None;
    }
    for (byte, pair) in id.iter_mut().zip(pairs) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(id)
}

/// What is wrong with the mark of an open ledger, if no mark was found before it was opened. If another process created the
/// ledger meanwhile, it wrote the mark before it raised the number, so the mark is read again. The numbers are not compared,
/// because the other process may have raised both.
fn problem_with(value: &MarkValue, ledger: &Path) -> Option<&'static str> {
    if value.number == 0 {
        return None;
    }
    match read(ledger) {
        Ok(found) if found.values.iter().any(|found| found.id == value.id) => None,
        Ok(found) if !found.exists => Some("is missing"),
        _ => Some("cannot be read"),
    }
}

/// The mark of an open ledger.
#[derive(Debug)]
pub(super) struct HighWaterMark {
    ledger: PathBuf,
    id: LedgerId,
    /// When this process last raised the number.
    raised: Option<Instant>,
    /// The ledger was written since.
    is_behind: bool,
    /// A failure to write the file was logged. It is logged only once.
    has_warned: bool,
}

impl HighWaterMark {
    /// Compares the ledger with the mark that was found beside it.
    pub(super) fn check(found: &FoundMark, connection: &Connection, ledger: &Path, path: &Path) -> Result<Self, Error> {
        let value = MarkValue::of(connection).map_err(|error| store_error(path, &error))?;
        let marked = found.values.iter().filter(|found| found.id == value.id).map(|found| found.number).max();
        match marked {
            Some(mark) if mark > value.number => {
                return Err(Error::Behind { path: path.to_owned(), ledger: value.number, mark });
            }
            None if !found.values.is_empty() => return Err(Error::Replaced { path: path.to_owned() }),
            None => {
                if let Some(what) = problem_with(&value, ledger) {
                    tracing::warn!(
                        ledger = %path.display(),
                        "the mark of the ledger {what}: if the ledger was restored from an older copy, work that was done \
                         since then runs again"
                    );
                }
            }
            Some(_) => {}
        }
        let mut mark =
            Self { ledger: ledger.to_owned(), id: value.id, raised: None, is_behind: false, has_warned: false };
        if marked.is_none() {
            // From here on a mark exists, so that a missing one is a warning sign.
            let written = value.write(ledger, value.number % SLOTS);
            mark.warn_once(written);
        }
        Ok(mark)
    }

    /// Whether the next transaction should raise the number.
    pub(super) fn is_due(&self) -> bool {
        self.raised.is_none_or(|raised| raised.elapsed() >= RAISE_INTERVAL)
    }

    /// How long the writer may wait for jobs before it has to raise the number; `None` if nothing was written since.
    pub(super) fn due_in(&self) -> Option<Duration> {
        let raised = self.raised.filter(|_| self.is_behind)?;
        Some(RAISE_INTERVAL.saturating_sub(raised.elapsed()))
    }

    /// Whether the ledger was written since the number was raised.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Makes the next transaction raise the number, however recent the last rise was.
    pub(super) fn raise_next(&mut self) {
        self.raised = None;
    }

    /// A transaction is on disk. `raised` is the new number, if it raised the number.
    pub(super) fn committed(&mut self, raised: Option<u64>) {
        self.is_behind = raised.is_none();
        if let Some(number) = raised {
            self.raised = Some(Instant::now());
            let written = self.write(number);
            self.warn_once(written);
        }
    }

    /// A transaction failed: raising the number is tried again later.
    pub(super) fn failed(&mut self) {
        self.raised = Some(Instant::now());
    }

    fn warn_once(&mut self, written: io::Result<()>) {
        if let (Err(error), false) = (written, self.has_warned) {
            self.has_warned = true;
            tracing::warn!(%error, "the mark of the ledger cannot be written, so a restored older copy will not be detected");
        }
    }

    /// Writes the file, unless another process has written a higher number. It is not synced, because a mark may lag. A missing
    /// file is not created again: the ledger may have been removed with it, and a mark without a ledger would prevent the next
    /// ledger at this path from being opened.
    fn write(&self, number: u64) -> io::Result<()> {
        let found = read(&self.ledger)?.values.into_iter().filter(|found| found.id == self.id);
        if found.map(|found| found.number).max().is_some_and(|newest| newest >= number) {
            return Ok(());
        }
        match side_files::open_to_write(&self.ledger, side_files::MARK) {
            Ok(file) => MarkValue { id: self.id, number }.write_to(file, number % SLOTS),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The result of [`accept`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The number in the ledger before.
    pub ledger: u64,
    /// The number in the mark before, if there was a mark of this ledger.
    pub mark: Option<u64>,
}

/// Accepts a ledger as it is, although it is behind its mark or the mark belongs to another ledger. Raises the number above
/// both, so that every older copy is still detected.
pub fn accept(path: &Path) -> Result<Accepted, Error> {
    let fault = |error: rusqlite::Error| store_error(path, &error);
    let absolute = std::path::absolute(path).map_err(|error| schema::cannot_open(path, &error))?;
    let resolved = side_files::resolve(&absolute);
    let found = read(&resolved).map_err(|error| unreadable(path, &resolved, &error))?;
    if !found.exists && !resolved.exists() {
        // Probably a wrong path: a new ledger there would hide the mistake.
        let reason = "there is no ledger and no mark here. Nothing was changed; check the path".to_owned();
        return Err(Error::CannotOpen { path: path.to_owned(), reason });
    }
    let (mut connection, ledger) = schema::open(path)?;
    let highest = found.values.iter().map(|value| value.number).max().unwrap_or(0);
    let highest = i64::try_from(highest).unwrap_or(i64::MAX - 1);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fault)?;
    let before = MarkValue::of(&transaction).map_err(fault)?;
    transaction.execute("UPDATE ledger SET mark = max(mark, ?1) + 1", [highest]).map_err(fault)?;
    let after = MarkValue::of(&transaction).map_err(fault)?;
    transaction.commit().map_err(fault)?;
    for slot in 0..SLOTS {
        after.write(&ledger, slot).map_err(|error| schema::cannot_open(path, &error))?;
    }
    let mark = found.values.iter().filter(|value| value.id == before.id).map(|value| value.number).max();
    Ok(Accepted { ledger: before.number, mark })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_round_trips_and_a_torn_slot_is_not_read() {
        let value = MarkValue { id: [0xA7; 16], number: 4711 };
        let slot = value.slot();
        assert_eq!(slot.len(), SLOT_SIZE);
        assert_eq!(MarkValue::parse(&slot), Some(value));
        let older = MarkValue { id: [0xA7; 16], number: 4709 }.slot();
        for cut in 1..80 {
            let torn = [&slot[..cut], &older[cut..]].concat();
            let parsed = MarkValue::parse(&torn);
            assert!(parsed.is_none() || torn == slot || torn == older, "cut at {cut}: {parsed:?}");
        }
        assert_eq!(MarkValue::parse(&[0; SLOT_SIZE]), None);
    }

    #[test]
    fn a_mark_that_another_process_wrote_during_opening_is_not_reported_as_missing() {
        let folder = tempfile::tempdir().expect("there is a folder");
        let path = folder.path().join("ledger.db");
        // Both processes start before the ledger exists.
        let found = find(&path).expect("nothing is wrong");
        let (other, file) = schema::open(&path).expect("the other process creates the ledger");
        HighWaterMark::check(&found, &other, &file, &path).expect("the ledger is new");
        accept(&path).expect("the other process raises the number");
        let value = MarkValue::of(&other).expect("the number is read");
        assert!(value.number > 0);
        assert_eq!(problem_with(&value, &file), None);
        std::fs::remove_file(side_files::beside(&file, side_files::MARK)).expect("the mark is there");
        assert_eq!(problem_with(&value, &file), Some("is missing"));
        std::fs::write(side_files::beside(&file, side_files::MARK), [0; SLOT_SIZE]).expect("the mark is replaced");
        assert_eq!(problem_with(&value, &file), Some("cannot be read"));
    }
}
