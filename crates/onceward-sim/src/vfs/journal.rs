//! The journal of a drive: what was written, what was synced, which names are on the disk, and where it is cut or
//! fails.

use std::collections::{BTreeMap, BTreeSet};

use super::image::{Change, Image, Loss, settle};
use super::operation::{FilePart, Kind, Moment, Operation, Role};
use crate::rng::Rng;

/// Which syncs are reported as done although nothing was done: to prove that the harness notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoredSyncs {
    /// None: the disk is honest.
    None,
    /// All of them.
    All,
    /// Those of one file.
    Of(FilePart),
}

/// An operation that fails.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Which one.
    pub operation: Operation,
    /// Its number among operations of its kind, from 1.
    pub nth: u64,
    /// The error code for SQLite.
    pub code: i32,
    /// It fails from then on, and not only once.
    pub lasting: bool,
}

#[derive(Debug)]
pub(super) struct Journal {
    pub(super) inodes: BTreeMap<u64, Inode>,
    /// As the running system sees them.
    pub(super) names: BTreeMap<String, u64>,
    /// As they are on the disk.
    pub(super) synced_names: BTreeMap<String, u64>,
    /// Created (`Some`) or deleted since the folder was synced.
    pub(super) unsynced_names: Vec<(String, Option<u64>)>,
    pub(super) next: u64,
    pub(super) ignored_syncs: IgnoredSyncs,
    pub(super) cut: Option<(Moment, u64)>,
    pub(super) fault: Option<Fault>,
    pub(super) has_failed: bool,
    /// Files whose sync has failed, and how many syncs of them have succeeded since.
    pub(super) failed_syncs: BTreeMap<u64, u64>,
    pub(super) counts: BTreeMap<Operation, u64>,
    pub(super) left: Option<(Image, Loss)>,
    pub(super) rng: Rng,
}

#[derive(Debug, Default)]
pub(super) struct Inode {
    pub(super) synced: Vec<u8>,
    pub(super) unsynced: Vec<Change>,
    /// How often a sync of this file has failed.
    pub(super) failures: u64,
}

/// What happens to an operation before its kind matters.
pub(super) enum Gate {
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

impl Journal {
    /// The journal of a disk with these files.
    pub(super) fn of(files: Vec<(String, Vec<u8>)>, ignored_syncs: IgnoredSyncs, rng: Rng) -> Self {
        let (mut inodes, mut names) = (BTreeMap::new(), BTreeMap::new());
        for (number, (name, bytes)) in (0u64..).zip(files) {
            inodes.insert(number, Inode { synced: bytes, ..Inode::default() });
            names.insert(name, number);
        }
        Self {
            next: inodes.len() as u64,
            inodes,
            synced_names: names.clone(),
            names,
            unsynced_names: Vec::new(),
            ignored_syncs,
            cut: None,
            fault: None,
            has_failed: false,
            failed_syncs: BTreeMap::new(),
            counts: BTreeMap::new(),
            left: None,
            rng,
        }
    }

    pub(super) fn gate(&mut self, part: FilePart, kind: Kind, offset: u64) -> Gate {
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
                    return Gate::Cut { after: self.rng.one_in(2) };
                }
            }
            _ => {}
        }
        Gate::Open
    }

    pub(super) fn make(&mut self, name: &str) -> u64 {
        let number = self.next;
        self.next += 1;
        self.inodes.insert(number, Inode::default());
        self.names.insert(name.to_owned(), number);
        self.unsynced_names.push((name.to_owned(), Some(number)));
        number
    }

    pub(super) fn change(&mut self, inode: u64, change: Change) {
        if let Some(inode) = self.inodes.get_mut(&inode) {
            inode.unsynced.push(change);
        }
    }

    pub(super) fn failures(&self, inode: u64) -> u64 {
        self.inodes.get(&inode).map_or(0, |inode| inode.failures)
    }

    pub(super) fn sync(&mut self, number: u64) {
        if let Some(granted) = self.failed_syncs.get_mut(&number) {
            *granted += 1;
        }
        if let Some(inode) = self.inodes.get_mut(&number) {
            for change in std::mem::take(&mut inode.unsynced) {
                change.apply(&mut inode.synced);
            }
        }
    }

    /// The system has tried to write what was unsynced. Whatever the result, it will not try again, and continues to
    /// show what it has in memory.
    pub(super) fn fail_sync(&mut self, number: u64) {
        self.failed_syncs.entry(number).or_default();
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.failures += 1;
            settle(&mut inode.synced, std::mem::take(&mut inode.unsynced), &mut self.rng);
        }
    }

    pub(super) fn sync_folder(&mut self) {
        for (name, inode) in std::mem::take(&mut self.unsynced_names) {
            match inode {
                Some(inode) => self.synced_names.insert(name, inode),
                None => self.synced_names.remove(&name),
            };
        }
    }

    /// The power goes.
    pub(super) fn darken(&mut self) {
        if self.left.is_some() {
            return;
        }
        let mut loss = Loss::default();
        let mut names = self.synced_names.clone();
        let unsynced = std::mem::take(&mut self.unsynced_names);
        let touched: BTreeSet<&String> = unsynced.iter().map(|(name, _)| name).collect();
        for name in touched {
            let entries: Vec<Option<u64>> =
                unsynced.iter().filter(|(other, _)| other == name).map(|(_, inode)| *inode).collect();
            // The entries of a folder change in order; how far is unknown.
            let kept = usize::try_from(self.rng.below(entries.len() as u64 + 1)).unwrap_or(0);
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
            loss.add(settle(&mut bytes, std::mem::take(&mut inode.unsynced), &mut self.rng));
            image.files.insert(name, bytes);
        }
        self.inodes.clear();
        self.left = Some((image, loss));
    }
}
