//! A disk under one folder: what SQLite does to its files goes into a journal, or fails, or finds no power.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::image::{Change, Image, Loss};
use super::journal::{Fault, Gate, IgnoredSyncs, Journal};
use super::operation::{FilePart, Kind, Moment, Operation, Role};
use crate::rng::Rng;

/// Longer than a few commits take, at each of several operations.
const HOLD_UP: Duration = Duration::from_millis(5);

/// A disk under one folder.
#[derive(Debug)]
pub struct Drive {
    folder: PathBuf,
    journal: Mutex<Journal>,
    /// The checkpoint thread is delayed at each of its operations.
    holds_up_the_carrier: AtomicBool,
}

/// A file that SQLite has opened.
#[derive(Debug)]
pub struct Handle {
    drive: Arc<Drive>,
    inode: u64,
    part: FilePart,
    /// The first sync of a new log or journal syncs the folder as well.
    syncs_folder: bool,
    /// Each open file gets the error of a failed sync once, whichever file asked for it: as Linux does since 4.13.
    failures: u64,
}

/// What the VFS does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Passes it on.
    Pass,
    /// Does not pass it on, and returns this code.
    Fail(i32),
    /// Passes this many bytes on, and returns this code: a full disk may have taken a part.
    Partly(usize, i32),
}

impl Drive {
    /// Creates a disk with these files, under this folder.
    pub fn mount(folder: &Path, image: Image, ignored_syncs: IgnoredSyncs, rng: Rng) -> Arc<Self> {
        std::fs::create_dir_all(folder).expect("a folder can be made");
        let folder = folder.canonicalize().expect("the folder is there");
        for (name, bytes) in &image.files {
            std::fs::write(folder.join(name), bytes).expect("a file can be written");
        }
        let journal = Journal::of(image.files.into_iter().collect(), ignored_syncs, rng);
        let holds_up_the_carrier = AtomicBool::new(false);
        let drive = Arc::new(Self { folder, journal: Mutex::new(journal), holds_up_the_carrier });
        super::plug(&drive);
        drive
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts the power at the `nth` such moment from now on.
    pub fn cut_at(&self, moment: Moment, nth: u64) {
        self.journal().cut = Some((moment, nth.max(1)));
    }

    /// Cuts the power now, if it is still on.
    pub fn cut_now(&self) {
        self.journal().darken();
    }

    /// From now on the checkpoint thread is slow, so that nothing may depend on its speed.
    pub fn hold_up_the_carrier(&self) {
        self.holds_up_the_carrier.store(true, Ordering::SeqCst);
    }

    /// Delays the checkpoint thread, before any lock is taken.
    fn wait(&self) {
        let held_up = self.holds_up_the_carrier.load(Ordering::SeqCst) && Role::of_this_thread() == Role::Carrier;
        if held_up && !self.is_dark() {
            std::thread::sleep(HOLD_UP);
        }
    }

    /// Whether the power is gone.
    pub fn is_dark(&self) -> bool {
        self.journal().left.is_some()
    }

    /// The planned moment at which the power was cut, if there was one.
    pub fn moment_of_cut(&self) -> Option<Moment> {
        self.journal().cut.filter(|(_, left)| *left == 0).map(|(moment, _)| moment)
    }

    /// Does something only if the power is on; it stays on until that is done.
    pub fn while_on(&self, act: impl FnOnce()) {
        let journal = self.journal();
        if journal.left.is_none() {
            act();
        }
    }

    /// What the power cut has left, and what it took.
    pub fn left(&self) -> Option<(Image, Loss)> {
        self.journal().left.clone()
    }

    /// Lets an operation fail.
    pub fn fail(&self, fault: Option<Fault>) {
        self.journal().fault = fault;
    }

    /// Whether it has failed.
    pub fn has_failed(&self) -> bool {
        self.journal().has_failed
    }

    /// How many syncs succeeded of files whose sync had failed before.
    pub fn syncs_after_a_failed_one(&self) -> u64 {
        self.journal().failed_syncs.values().sum()
    }

    /// Forgets that syncs have failed: the ledger is opened again.
    pub fn forgive(&self) {
        let mut journal = self.journal();
        journal.failed_syncs.clear();
        journal.fault = None;
    }

    /// How often each operation was done.
    pub fn counts(&self) -> BTreeMap<Operation, u64> {
        self.journal().counts.clone()
    }

    /// A file is about to be opened.
    pub fn before_open(&self, part: FilePart) -> Verdict {
        let mut journal = self.journal();
        match journal.gate(part, Kind::Open, 0) {
            Gate::Open => Verdict::Pass,
            Gate::Fault(fault) => Verdict::Fail(fault.code),
            Gate::Cut { .. } => {
                journal.darken();
                Verdict::Fail(Kind::Open.error())
            }
            Gate::Dark => Verdict::Fail(Kind::Open.error()),
        }
    }

    /// A file was opened, and created if there was none.
    pub fn opened(self: Arc<Self>, name: &str, part: FilePart, creates: bool) -> Handle {
        let mut journal = self.journal();
        let inode = match journal.names.get(name) {
            Some(inode) => *inode,
            None => journal.make(name),
        };
        let failures = journal.inodes.get(&inode).map_or(0, |inode| inode.failures);
        drop(journal);
        Handle { drive: self, inode, part, syncs_folder: creates && part != FilePart::Main, failures }
    }

    /// A file is about to be deleted.
    pub fn before_delete(&self, part: FilePart) -> Verdict {
        let mut journal = self.journal();
        match journal.gate(part, Kind::Delete, 0) {
            Gate::Open => Verdict::Pass,
            Gate::Fault(fault) => Verdict::Fail(fault.code),
            Gate::Cut { .. } => {
                journal.darken();
                Verdict::Fail(Kind::Delete.error())
            }
            Gate::Dark => Verdict::Fail(Kind::Delete.error()),
        }
    }

    /// A file was deleted, and the folder synced if that was asked for.
    pub fn deleted(&self, name: &str, syncs_folder: bool) {
        let mut journal = self.journal();
        if journal.names.remove(name).is_some() {
            journal.unsynced_names.push((name.to_owned(), None));
        }
        if syncs_folder && journal.ignored_syncs == IgnoredSyncs::None {
            journal.sync_folder();
        }
    }
}

impl Handle {
    /// An operation that does not change the disk.
    pub fn touch(&self, kind: Kind) -> Verdict {
        self.drive.wait();
        match self.drive.journal().gate(self.part, kind, 0) {
            Gate::Fault(fault) => Verdict::Fail(fault.code),
            // Locks and the shared index are not on the disk.
            Gate::Dark if kind == Kind::Read => Verdict::Fail(kind.error()),
            Gate::Open | Gate::Cut { .. } | Gate::Dark => Verdict::Pass,
        }
    }

    /// Bytes are about to be written.
    pub fn write(&self, offset: u64, data: &[u8]) -> Verdict {
        let mut journal = self.drive.journal();
        let at = usize::try_from(offset).expect("the file is small");
        let whole = || Change::Write(at, data.to_vec());
        match journal.gate(self.part, Kind::Write, offset) {
            Gate::Open => {
                journal.change(self.inode, whole());
                Verdict::Pass
            }
            Gate::Fault(fault) => {
                let taken = usize::try_from(journal.rng.below(data.len() as u64)).unwrap_or(0);
                if taken == 0 {
                    return Verdict::Fail(fault.code);
                }
                journal.change(self.inode, Change::Write(at, data[..taken].to_vec()));
                Verdict::Partly(taken, fault.code)
            }
            Gate::Cut { after } => {
                if after {
                    journal.change(self.inode, whole());
                }
                journal.darken();
                Verdict::Fail(Kind::Write.error())
            }
            Gate::Dark => Verdict::Fail(Kind::Write.error()),
        }
    }

    /// The length is about to be changed.
    pub fn truncate(&self, size: u64) -> Verdict {
        let mut journal = self.drive.journal();
        let change = Change::Truncate(usize::try_from(size).expect("the file is small"));
        match journal.gate(self.part, Kind::Truncate, 0) {
            Gate::Open => {
                journal.change(self.inode, change);
                Verdict::Pass
            }
            Gate::Fault(fault) => Verdict::Fail(fault.code),
            Gate::Cut { after } => {
                if after {
                    journal.change(self.inode, change);
                }
                journal.darken();
                Verdict::Fail(Kind::Truncate.error())
            }
            Gate::Dark => Verdict::Fail(Kind::Truncate.error()),
        }
    }

    /// Written bytes must be on the disk. This is never passed on: the journal is the disk.
    pub fn sync(&mut self) -> Verdict {
        let drive = Arc::clone(&self.drive);
        let mut journal = drive.journal();
        match journal.gate(self.part, Kind::Sync, 0) {
            Gate::Open => self.sync_now(&mut journal),
            Gate::Fault(fault) => {
                journal.fail_sync(self.inode);
                self.failures = journal.failures(self.inode);
                Verdict::Fail(fault.code)
            }
            Gate::Cut { after } => {
                if after {
                    self.sync_now(&mut journal);
                }
                journal.darken();
                Verdict::Fail(Kind::Sync.error())
            }
            Gate::Dark => Verdict::Fail(Kind::Sync.error()),
        }
    }

    fn sync_now(&mut self, journal: &mut Journal) -> Verdict {
        let failures = journal.failures(self.inode);
        if failures > self.failures {
            self.failures = failures;
            return Verdict::Fail(Kind::Sync.error());
        }
        match journal.ignored_syncs {
            IgnoredSyncs::All => return Verdict::Pass,
            IgnoredSyncs::Of(part) if part == self.part => return Verdict::Pass,
            IgnoredSyncs::None | IgnoredSyncs::Of(_) => {}
        }
        journal.sync(self.inode);
        if std::mem::take(&mut self.syncs_folder) {
            journal.sync_folder();
        }
        Verdict::Pass
    }
}
