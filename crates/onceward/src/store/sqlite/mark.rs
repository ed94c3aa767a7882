//! The high-water mark: a small file beside the ledger that says how far the ledger had come. A ledger behind its mark was
//! restored from an older copy, has forgotten what was done since, and is not opened.
//!
//! The number rises in the ledger's own transactions, about once a second while it is written to. Only a number that is on
//! the disk is written into the file, so the mark may lag the ledger, and never leads it. It has two slots that take turns,
//! each with a checksum: if a power cut tears one, the other one is whole.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior};

use onceward_core::hash::{Digest, Fields};

use super::fault::named;
use super::{schema, side};
use crate::store::Error;

/// What is lost between two rises goes unnoticed after a restore; each rise costs a page of log.
const EVERY: Duration = Duration::from_secs(1);

/// The slots lie in sectors of their own: a torn write damages one of them.
const SLOT: usize = 512;
const SLOTS: u64 = 2;

/// The first word of a slot, with the version of its form.
const FORM: &str = "onceward-mark-1";

/// Sixteen random bytes.
type Id = [u8; 16];

/// What a mark says, or the row of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Height {
    id: Id,
    number: u64,
}

/// What was found beside a ledger.
#[derive(Debug)]
pub(super) struct Found {
    is_there: bool,
    heights: Vec<Height>,
}

/// Looks for a mark, before the ledger is opened: the ledger can only have come further since. A mark without a ledger
/// means that the ledger was taken away.
pub(super) fn find(path: &Path) -> Result<Found, Error> {
    let Ok(absolute) = std::path::absolute(path) else { return Ok(Found { is_there: false, heights: Vec::new() }) };
    let ledger = side::resolve(&absolute);
    let found = read(&ledger).map_err(|error| unreadable(path, &ledger, &error))?;
    if !found.heights.is_empty() && !ledger.exists() {
        return Err(Error::Missing { path: path.to_owned() });
    }
    Ok(found)
}

/// Reads a mark. A slot that cannot be read is left out. Only a file that does not exist is missing: after any other error
/// there may be a mark that the ledger is behind.
fn read(ledger: &Path) -> io::Result<Found> {
    let file = match side::open_to_read(ledger, side::MARK) {
        // Without the folder there is no file in it.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Found { is_there: false, heights: Vec::new() });
        }
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.take(SLOTS * SLOT as u64).read_to_end(&mut bytes)?;
    Ok(Found { is_there: true, heights: bytes.chunks(SLOT).filter_map(Height::parse).collect() })
}

/// The mark exists and cannot be read. An error about something else in its place already names it.
fn unreadable(path: &Path, ledger: &Path, error: &io::Error) -> Error {
    if side::is_not_regular(error) {
        return Error::SideFile { path: path.to_owned(), reason: error.to_string() };
    }
    let mark = side::beside(ledger, side::MARK);
    let reason = format!(
        "its mark {} cannot be read ({error}). Without it, a ledger that was restored from an older copy goes unnoticed: \
         make the mark readable, then try again",
        mark.display()
    );
    Error::SideFile { path: path.to_owned(), reason }
}

impl Height {
    fn of(connection: &Connection) -> rusqlite::Result<Self> {
        connection.query_row("SELECT id, mark FROM ledger", [], |row| {
            let number: i64 = row.get(1)?;
            Ok(Self { id: row.get(0)?, number: number.unsigned_abs() })
        })
    }

    fn parse(slot: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(slot).ok()?.trim_end_matches(['\0', '\n', ' ']);
        let mut words = text.split(' ');
        let (form, id, number, sum) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let height = Self { id: from_hex(id)?, number: number.parse().ok()? };
        (form == FORM && words.next().is_none() && height.sum() == sum).then_some(height)
    }

    /// The whole slot, so that nothing of an earlier one is left in it.
    fn slot(&self) -> Vec<u8> {
        let mut slot = format!("{FORM} {} {} {}", hex(&self.id), self.number, self.sum()).into_bytes();
        slot.resize(SLOT - 1, b' ');
        slot.push(b'\n');
        slot
    }

    fn sum(&self) -> String {
        let digest: Digest = Fields::new().field(FORM).field(self.id).field(self.number.to_be_bytes()).digest();
        digest.to_hex()[..16].to_owned()
    }

    /// Writes a slot, into a new file if there is none.
    fn write(&self, ledger: &Path, slot: u64) -> io::Result<()> {
        self.write_to(side::open(ledger, side::MARK)?, slot)
    }

    fn write_to(&self, mut file: File, slot: u64) -> io::Result<()> {
        file.seek(SeekFrom::Start(slot * SLOT as u64))?;
        file.write_all(&self.slot())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Id> {
    let mut id = Id::default();
    let pairs = text.as_bytes().chunks(2);
    if text.len() != 2 * id.len() {
        return None;
    }
    for (byte, pair) in id.iter_mut().zip(pairs) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(id)
}

/// What is wrong with the mark of an open ledger, if no mark was found before it was opened. A process that created the
/// ledger meanwhile wrote the mark before it raised the number, so the mark is read again. It is not compared: the other
/// process may have raised both since.
fn lost(height: &Height, ledger: &Path) -> Option<&'static str> {
    if height.number == 0 {
        return None;
    }
    match read(ledger) {
        Ok(found) if found.heights.iter().any(|found| found.id == height.id) => None,
        Ok(found) if !found.is_there => Some("is missing"),
        _ => Some("cannot be read"),
    }
}

/// The mark of an open ledger.
#[derive(Debug)]
pub(super) struct Mark {
    ledger: PathBuf,
    id: Id,
    /// When the number was last raised here.
    raised: Option<Instant>,
    /// Something was written since.
    behind: bool,
    /// It is told once that the file cannot be written.
    told: bool,
}

impl Mark {
    /// Compares the ledger with the mark that was found beside it.
    pub(super) fn check(found: &Found, connection: &Connection, ledger: &Path, path: &Path) -> Result<Self, Error> {
        let height = Height::of(connection).map_err(|error| named(path, &error))?;
        let marked = found.heights.iter().filter(|found| found.id == height.id).map(|found| found.number).max();
        match marked {
            Some(mark) if mark > height.number => {
                return Err(Error::Behind { path: path.to_owned(), ledger: height.number, mark });
            }
            None if !found.heights.is_empty() => return Err(Error::Replaced { path: path.to_owned() }),
            None => {
                if let Some(what) = lost(&height, ledger) {
                    tracing::warn!(
                        ledger = %path.display(),
                        "the mark beside the ledger {what}: if the ledger was restored from an older copy, what was done \
                         since then runs again"
                    );
                }
            }
            Some(_) => {}
        }
        let mut mark = Self { ledger: ledger.to_owned(), id: height.id, raised: None, behind: false, told: false };
        if marked.is_none() {
            // From here on there is one, so that a missing one means something.
            let written = height.write(ledger, height.number % SLOTS);
            mark.tell(written);
        }
        Ok(mark)
    }

    /// Whether the next transaction raises the number.
    pub(super) fn is_due(&self) -> bool {
        self.raised.is_none_or(|raised| raised.elapsed() >= EVERY)
    }

    /// How long the writer may wait for work before it raises the number by itself; `None` when nothing was written since.
    pub(super) fn patience(&self) -> Option<Duration> {
        let raised = self.raised.filter(|_| self.behind)?;
        Some(EVERY.saturating_sub(raised.elapsed()))
    }

    /// Whether something was written since the number was raised.
    pub(super) fn is_behind(&self) -> bool {
        self.behind
    }

    /// The number is to be raised by the next transaction, however long ago the last time was.
    pub(super) fn hurry(&mut self) {
        self.raised = None;
    }

    /// A transaction is on the disk, with this number if it has raised it.
    pub(super) fn committed(&mut self, raised: Option<u64>) {
        self.behind = raised.is_none();
        if let Some(number) = raised {
            self.raised = Some(Instant::now());
            self.follow(number);
        }
    }

    /// A transaction failed: the number is tried again later.
    pub(super) fn failed(&mut self) {
        self.raised = Some(Instant::now());
    }

    /// Writes the file, unless another process has written a higher number. It need not reach the disk: a mark may lag. It is
    /// not created again: where it was removed, the ledger may have been removed with it, and a mark without a ledger would
    /// keep the next ledger at this path from being opened.
    fn follow(&mut self, number: u64) {
        let written = self.write(number);
        self.tell(written);
    }

    fn tell(&mut self, written: io::Result<()>) {
        if let (Err(error), false) = (written, self.told) {
            self.told = true;
            tracing::warn!(%error, "the mark beside the ledger cannot be written; restoring an older copy goes unnoticed");
        }
    }

    fn write(&self, number: u64) -> io::Result<()> {
        let found = read(&self.ledger)?.heights.into_iter().filter(|found| found.id == self.id);
        if found.map(|found| found.number).max().is_some_and(|newest| newest >= number) {
            return Ok(());
        }
        match side::open_to_write(&self.ledger, side::MARK) {
            Ok(file) => Height { id: self.id, number }.write_to(file, number % SLOTS),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// What became of [`accept`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Where the ledger stood.
    pub ledger: u64,
    /// Where the mark stood, if there was one of this ledger.
    pub mark: Option<u64>,
}

/// Takes a ledger as it is, although it is behind its mark, or the mark is of another ledger. The number goes past both,
/// so that every older copy is still noticed.
pub fn accept(path: &Path) -> Result<Accepted, Error> {
    let fault = |error: rusqlite::Error| named(path, &error);
    let absolute = std::path::absolute(path).map_err(|error| schema::cannot_open(path, &error))?;
    let resolved = side::resolve(&absolute);
    let found = read(&resolved).map_err(|error| unreadable(path, &resolved, &error))?;
    if !found.is_there && !resolved.exists() {
        // A wrong path: a new ledger there would hide the mistake.
        let reason = "there is no ledger and no mark of one; nothing was done. Check the path".to_owned();
        return Err(Error::CannotOpen { path: path.to_owned(), reason });
    }
    let (mut connection, ledger) = schema::open(path)?;
    let highest = found.heights.iter().map(|height| height.number).max().unwrap_or(0);
    let highest = i64::try_from(highest).unwrap_or(i64::MAX - 1);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fault)?;
    let before = Height::of(&transaction).map_err(fault)?;
    transaction.execute("UPDATE ledger SET mark = max(mark, ?1) + 1", [highest]).map_err(fault)?;
    let after = Height::of(&transaction).map_err(fault)?;
    transaction.commit().map_err(fault)?;
    for slot in 0..SLOTS {
        after.write(&ledger, slot).map_err(|error| schema::cannot_open(path, &error))?;
    }
    let mark = found.heights.iter().filter(|height| height.id == before.id).map(|height| height.number).max();
    Ok(Accepted { ledger: before.number, mark })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_read_as_it_was_written_and_a_torn_one_is_not_read() {
        let height = Height { id: [0xA7; 16], number: 4711 };
        let slot = height.slot();
        assert_eq!(slot.len(), SLOT);
        assert_eq!(Height::parse(&slot), Some(height));
        let older = Height { id: [0xA7; 16], number: 4709 }.slot();
        for cut in 1..80 {
            let torn = [&slot[..cut], &older[cut..]].concat();
            let parsed = Height::parse(&torn);
            assert!(parsed.is_none() || torn == slot || torn == older, "cut at {cut}: {parsed:?}");
        }
        assert_eq!(Height::parse(&[0; SLOT]), None);
    }

    #[test]
    fn a_mark_that_another_process_made_during_the_opening_is_not_reported_as_missing() {
        let folder = tempfile::tempdir().expect("there is a folder");
        let path = folder.path().join("ledger.db");
        // Both processes start before there is anything.
        let found = find(&path).expect("nothing is wrong");
        let (other, file) = schema::open(&path).expect("the other process creates the ledger");
        Mark::check(&found, &other, &file, &path).expect("the ledger is new");
        accept(&path).expect("the other process raises the number");
        let height = Height::of(&other).expect("the number is read");
        assert!(height.number > 0);
        assert_eq!(lost(&height, &file), None);
        std::fs::remove_file(side::beside(&file, side::MARK)).expect("the mark is there");
        assert_eq!(lost(&height, &file), Some("is missing"));
        std::fs::write(side::beside(&file, side::MARK), [0; SLOT]).expect("the mark is replaced");
        assert_eq!(lost(&height, &file), Some("cannot be read"));
    }
}
