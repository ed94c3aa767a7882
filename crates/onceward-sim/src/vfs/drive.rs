//! The journal of one folder: what was written, what was synced, and where the power is cut or an operation fails.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::image::{Change, Image, Loss, settle};
use super::operation::{Kind, Moment, Operation, Part, Role};
use crate::dice::Dice;

/// Longer than a few commits take, at each of several operations.
const HOLD_UP: Duration = Duration::from_millis(5);

/// Which syncs are reported as done although nothing was done: to see that the harness notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swallow {
    /// None: the disk is honest.
    None,
    /// All of them.
    All,
    /// Those of one file.
    Of(Part),
}

/// An operation that fails.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Which one.
    pub operation: Operation,
    /// The how manieth of its sort, from 1.
    pub nth: u64,
    /// What SQLite is told.
    pub code: i32,
    /// It fails from then on, and not just once.
    pub lasting: bool,
}

/// A disk under one folder.
#[derive(Debug)]
pub struct Drive {
    folder: PathBuf,
    state: Mutex<State>,
    /// The thread that carries the log over is held up at everything it does.
    holds_up_the_carrier: AtomicBool,
}

#[derive(Debug)]
struct State {
    inodes: BTreeMap<u64, Inode>,
    /// As everybody sees them.
    names: BTreeMap<String, u64>,
    /// As they are on the disk.
    synced_names: BTreeMap<String, u64>,
    /// Made (`Some`) or deleted since the folder was synced.
    unsynced_names: Vec<(String, Option<u64>)>,
    next: u64,
    swallow: Swallow,
    cut: Option<(Moment, u64)>,
    fault: Option<Fault>,
    has_failed: bool,
    /// Files whose sync has failed, and how many syncs of them have been granted since.
    failed_syncs: BTreeMap<u64, u64>,
    counts: BTreeMap<Operation, u64>,
    left: Option<(Image, Loss)>,
    dice: Dice,
}

#[derive(Debug, Default)]
struct Inode {
    synced: Vec<u8>,
    unsynced: Vec<Change>,
    /// How often a sync of this file has failed.
    failures: u64,
}

/// A file that SQLite has opened.
#[derive(Debug)]
pub struct Handle {
    drive: Arc<Drive>,
    inode: u64,
    part: Part,
    /// The first sync of a new log or journal syncs the folder as well.
    syncs_folder: bool,
    /// Each open file is told once of a failed sync, whoever asked for it: as Linux does since 4.13.
    failures: u64,
}

/// What the VFS does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Hands it on.
    Pass,
    /// Hands nothing on, and says this.
    Fail(i32),
    /// Hands so many bytes on, and says this: a disk that is full may have taken a part.
    Partly(usize, i32),
}

/// What becomes of an operation before it is known what it is.
enum Gate {
    Open,
    /// The power goes, before or after it has taken effect.
    Cut {
        after: bool,
    },
    /// It fails.
    Fault(Fault),
    /// There is no power.
    Dark,
}

impl Drive {
    /// A disk with these files, under this folder; the files are made.
    pub fn mount(folder: &Path, image: Image, swallow: Swallow, dice: Dice) -> Arc<Self> {
        std::fs::create_dir_all(folder).expect("a folder can be made");
        let folder = folder.canonicalize().expect("the folder is there");
        let (mut inodes, mut names) = (BTreeMap::new(), BTreeMap::new());
        for (number, (name, bytes)) in (0u64..).zip(image.files) {
            std::fs::write(folder.join(&name), &bytes).expect("a file can be written");
            inodes.insert(number, Inode { synced: bytes, ..Inode::default() });
            names.insert(name, number);
        }
        let state = State {
            next: inodes.len() as u64,
            inodes,
            synced_names: names.clone(),
            names,
            unsynced_names: Vec::new(),
            swallow,
            cut: None,
            fault: None,
            has_failed: false,
            failed_syncs: BTreeMap::new(),
            counts: BTreeMap::new(),
            left: None,
            dice,
        };
        let holds_up_the_carrier = AtomicBool::new(false);
        let drive = Arc::new(Self { folder, state: Mutex::new(state), holds_up_the_carrier });
        super::plug(&drive);
        drive
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts the power at the `nth` such moment from now on.
    pub fn cut_at(&self, moment: Moment, nth: u64) {
        self.state().cut = Some((moment, nth.max(1)));
    }

    /// Cuts the power now, if it is still on.
    pub fn cut_now(&self) {
        self.state().darken();
    }

    /// From now on the thread that carries the log over is slow, so that nothing may depend on its being fast.
    pub fn hold_up_the_carrier(&self) {
        self.holds_up_the_carrier.store(true, Ordering::SeqCst);
    }

    /// Whoever is held up waits before anybody else would have to.
    fn wait(&self) {
        let held_up = self.holds_up_the_carrier.load(Ordering::SeqCst) && Role::of_this_thread() == Role::Carrier;
        if held_up && !self.is_dark() {
            std::thread::sleep(HOLD_UP);
        }
    }

    /// Whether the power is gone.
    pub fn is_dark(&self) -> bool {
        self.state().left.is_some()
    }

    /// At which moment the power was cut, if that was planned.
    pub fn moment_of_cut(&self) -> Option<Moment> {
        self.state().cut.filter(|(_, left)| *left == 0).map(|(moment, _)| moment)
    }

    /// Does something only if the power is still on; it stays on until that is done.
    pub fn while_on(&self, act: impl FnOnce()) {
        let state = self.state();
        if state.left.is_none() {
            act();
        }
    }

    /// What the power cut has left, and what it took.
    pub fn left(&self) -> Option<(Image, Loss)> {
        self.state().left.clone()
    }

    /// Lets an operation fail.
    pub fn fail(&self, fault: Option<Fault>) {
        self.state().fault = fault;
    }

    /// Whether it has failed.
    pub fn has_failed(&self) -> bool {
        self.state().has_failed
    }

    /// How many syncs were granted of files whose sync had failed before.
    pub fn syncs_after_a_failed_one(&self) -> u64 {
        self.state().failed_syncs.values().sum()
    }

    /// Forgets that syncs have failed: the ledger is opened anew.
    pub fn forgive(&self) {
        let mut state = self.state();
        state.failed_syncs.clear();
        state.fault = None;
    }

    /// How often each operation was done.
    pub fn counts(&self) -> BTreeMap<Operation, u64> {
        self.state().counts.clone()
    }

    /// A file is about to be opened.
    pub fn before_open(&self, part: Part) -> Verdict {
        let mut state = self.state();
        match state.gate(part, Kind::Open, 0) {
            Gate::Open => Verdict::Pass,
            Gate::Fault(fault) => Verdict::Fail(fault.code),
            Gate::Cut { .. } => {
                state.darken();
                Verdict::Fail(Kind::Open.error())
            }
            Gate::Dark => Verdict::Fail(Kind::Open.error()),
        }
    }

    /// A file was opened, and made if there was none.
    pub fn opened(self: Arc<Self>, name: &str, part: Part, creates: bool) -> Handle {
        let mut state = self.state();
        let inode = match state.names.get(name) {
            Some(inode) => *inode,
            None => state.make(name),
        };
        let failures = state.inodes.get(&inode).map_or(0, |inode| inode.failures);
        drop(state);
        Handle { drive: self, inode, part, syncs_folder: creates && part != Part::Main, failures }
    }

    /// A file is about to be deleted.
    pub fn before_delete(&self, part: Part) -> Verdict {
        let mut state = self.state();
        match state.gate(part, Kind::Delete, 0) {
            Gate::Open => Verdict::Pass,
            Gate::Fault(fault) => Verdict::Fail(fault.code),
            Gate::Cut { .. } => {
                state.darken();
                Verdict::Fail(Kind::Delete.error())
            }
            Gate::Dark => Verdict::Fail(Kind::Delete.error()),
        }
    }

    /// A file was deleted, and the folder synced if that was asked for.
    pub fn deleted(&self, name: &str, syncs_folder: bool) {
        let mut state = self.state();
        if state.names.remove(name).is_some() {
            state.unsynced_names.push((name.to_owned(), None));
        }
        if syncs_folder && state.swallow == Swallow::None {
            state.sync_folder();
        }
    }
}

impl Handle {
    /// Anything that leaves the disk as it is.
    pub fn touch(&self, kind: Kind) -> Verdict {
        self.drive.wait();
        match self.drive.state().gate(self.part, kind, 0) {
            Gate::Fault(fault) => Verdict::Fail(fault.code),
            // Locks and the shared index are no part of the disk.
            Gate::Dark if kind == Kind::Read => Verdict::Fail(kind.error()),
            Gate::Open | Gate::Cut { .. } | Gate::Dark => Verdict::Pass,
        }
    }

    /// Bytes are about to be written.
    pub fn write(&self, offset: u64, data: &[u8]) -> Verdict {
        let mut state = self.drive.state();
        let at = usize::try_from(offset).expect("the file is small");
        let whole = || Change::Write(at, data.to_vec());
        match state.gate(self.part, Kind::Write, offset) {
            Gate::Open => {
                state.change(self.inode, whole());
                Verdict::Pass
            }
            Gate::Fault(fault) => {
                let taken = usize::try_from(state.dice.below(data.len() as u64)).unwrap_or(0);
                if taken == 0 {
                    return Verdict::Fail(fault.code);
                }
                state.change(self.inode, Change::Write(at, data[..taken].to_vec()));
                Verdict::Partly(taken, fault.code)
            }
            Gate::Cut { after } => {
                if after {
                    state.change(self.inode, whole());
                }
                state.darken();
                Verdict::Fail(Kind::Write.error())
            }
            Gate::Dark => Verdict::Fail(Kind::Write.error()),
        }
    }

    /// The length is about to be changed.
    pub fn truncate(&self, size: u64) -> Verdict {
        let mut state = self.drive.state();
        let change = Change::Truncate(usize::try_from(size).expect("the file is small"));
        match state.gate(self.part, Kind::Truncate, 0) {
            Gate::Open => {
                state.change(self.inode, change);
                Verdict::Pass
            }
            Gate::Fault(fault) => Verdict::Fail(fault.code),
            Gate::Cut { after } => {
                if after {
                    state.change(self.inode, change);
                }
                state.darken();
                Verdict::Fail(Kind::Truncate.error())
            }
            Gate::Dark => Verdict::Fail(Kind::Truncate.error()),
        }
    }

    /// What was written is to be on the disk. This is never handed on: the journal is the disk.
    pub fn sync(&mut self) -> Verdict {
        let drive = Arc::clone(&self.drive);
        let mut state = drive.state();
        match state.gate(self.part, Kind::Sync, 0) {
            Gate::Open => self.sync_now(&mut state),
            Gate::Fault(fault) => {
                state.fail_sync(self.inode);
                self.failures = state.failures(self.inode);
                Verdict::Fail(fault.code)
            }
            Gate::Cut { after } => {
                if after {
                    self.sync_now(&mut state);
                }
                state.darken();
                Verdict::Fail(Kind::Sync.error())
            }
            Gate::Dark => Verdict::Fail(Kind::Sync.error()),
        }
    }

    fn sync_now(&mut self, state: &mut State) -> Verdict {
        let failures = state.failures(self.inode);
        if failures > self.failures {
            self.failures = failures;
            return Verdict::Fail(Kind::Sync.error());
        }
        match state.swallow {
            Swallow::All => return Verdict::Pass,
            Swallow::Of(part) if part == self.part => return Verdict::Pass,
            Swallow::None | Swallow::Of(_) => {}
        }
        state.sync(self.inode);
        if std::mem::take(&mut self.syncs_folder) {
            state.sync_folder();
        }
        Verdict::Pass
    }
}

impl State {
    fn gate(&mut self, part: Part, kind: Kind, offset: u64) -> Gate {
        if self.left.is_some() {
            return Gate::Dark;
        }
        let operation = Operation { role: Role::of_this_thread(), part, kind };
        let count = self.counts.entry(operation).or_default();
        *count += 1;
        let count = *count;
        if let Some(fault) = self.fault
            && fault.operation == operation
            && (count == fault.nth || (fault.lasting && count > fault.nth))
        {
            self.has_failed = true;
            return Gate::Fault(fault);
        }
        match &mut self.cut {
            Some((moment, left)) if moment.is(part, kind, offset) => {
                *left -= 1;
                if *left == 0 {
                    return Gate::Cut { after: self.dice.one_in(2) };
                }
            }
            _ => {}
        }
        Gate::Open
    }

    fn make(&mut self, name: &str) -> u64 {
        let number = self.next;
        self.next += 1;
        self.inodes.insert(number, Inode::default());
        self.names.insert(name.to_owned(), number);
        self.unsynced_names.push((name.to_owned(), Some(number)));
        number
    }

    fn change(&mut self, inode: u64, change: Change) {
        if let Some(inode) = self.inodes.get_mut(&inode) {
            inode.unsynced.push(change);
        }
    }

    fn failures(&self, inode: u64) -> u64 {
        self.inodes.get(&inode).map_or(0, |inode| inode.failures)
    }

    fn sync(&mut self, number: u64) {
        if let Some(granted) = self.failed_syncs.get_mut(&number) {
            *granted += 1;
        }
        if let Some(inode) = self.inodes.get_mut(&number) {
            for change in std::mem::take(&mut inode.unsynced) {
                change.apply(&mut inode.synced);
            }
        }
    }

    /// The system has tried to write what was unsynced. Whatever came of it, it will not try again, and goes on to show
    /// what it has in memory.
    fn fail_sync(&mut self, number: u64) {
        self.failed_syncs.entry(number).or_default();
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.failures += 1;
            settle(&mut inode.synced, std::mem::take(&mut inode.unsynced), &mut self.dice);
        }
    }

    fn sync_folder(&mut self) {
        for (name, inode) in std::mem::take(&mut self.unsynced_names) {
            match inode {
                Some(inode) => self.synced_names.insert(name, inode),
                None => self.synced_names.remove(&name),
            };
        }
    }

    /// The power goes.
    fn darken(&mut self) {
        if self.left.is_some() {
            return;
        }
        let mut loss = Loss::default();
        let mut names = self.synced_names.clone();
        let unsynced = std::mem::take(&mut self.unsynced_names);
        let touched: std::collections::BTreeSet<&String> = unsynced.iter().map(|(name, _)| name).collect();
        for name in touched {
            let entries: Vec<Option<u64>> =
                unsynced.iter().filter(|(other, _)| other == name).map(|(_, inode)| *inode).collect();
            // One entry of a folder changes in order; how far it came, nobody knows.
            let kept = usize::try_from(self.dice.below(entries.len() as u64 + 1)).unwrap_or(0);
            loss.names += (entries.len() - kept) as u64;
            match entries[..kept].last() {
                Some(Some(inode)) => drop(names.insert(name.clone(), *inode)),
                Some(None) => drop(names.remove(name)),
                None => {}
            }
        }
        let mut image = Image::default();
        for (name, number) in names {
            let Some(inode) = self.inodes.get_mut(&number) else { continue };
            let mut bytes = std::mem::take(&mut inode.synced);
            loss.add(settle(&mut bytes, std::mem::take(&mut inode.unsynced), &mut self.dice));
            image.files.insert(name, bytes);
        }
        self.inodes.clear();
        self.left = Some((image, loss));
    }
}
