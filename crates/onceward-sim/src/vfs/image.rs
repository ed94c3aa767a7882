//! What is left of a file when the power goes: everything that was synced, and a random part of the rest.
//!
//! Modelled: each unsynced write is there, or not, or in part; parts are sectors of 512 bytes, any of which may be new
//! or old, and one of which may be torn at any byte; sometimes only the length of the file has grown; sometimes older
//! writes land after newer ones; truncations are done or not; a name that was created or deleted is on the disk only
//! after its folder was synced. Not modelled: damage to bytes outside of a write, and drives that lie about a sync
//! (ignored syncs cover that).

use std::collections::BTreeMap;

use crate::rng::Rng;

/// What drives write at once. Nothing depends on it: a sector may be torn as well.
const SECTOR: usize = 512;

/// The files on a disk, by name.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// Their bytes.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// What the cuts have taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loss {
    /// Unsynced changes that were on the disk.
    pub kept: u64,
    /// Unsynced changes that were lost.
    pub dropped: u64,
    /// Unsynced changes that were there in part.
    pub torn: u64,
    /// Names whose creation or deletion was lost.
    pub names: u64,
}

impl Loss {
    /// Whether anything differs from when the power went.
    pub fn is_any(&self) -> bool {
        self.dropped + self.torn + self.names > 0
    }

    /// Both together.
    pub fn add(&mut self, other: Self) {
        self.kept += other.kept;
        self.dropped += other.dropped;
        self.torn += other.torn;
        self.names += other.names;
    }
}

/// A change that was made and not synced.
#[derive(Clone, Debug)]
pub enum Change {
    /// Bytes at an offset.
    Write(usize, Vec<u8>),
    /// Another length.
    Truncate(usize),
}

impl Change {
    /// Applies it.
    pub fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write(offset, data) => put(bytes, *offset, data),
            Self::Truncate(size) => bytes.resize(*size, 0),
        }
    }
}

fn put(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(data);
}

#[derive(Clone, Copy)]
enum Fortune {
    /// Everything is lost.
    Nothing,
    /// Everything is there.
    Everything,
    /// The first ones are there, the next one may be torn.
    Prefix,
    /// Each one is decided separately.
    Each,
}

/// Decides at random about what was not synced.
pub fn settle(bytes: &mut Vec<u8>, mut changes: Vec<Change>, rng: &mut Rng) -> Loss {
    let mut loss = Loss::default();
    let fortune =
        rng.weighted(&[(3, Fortune::Nothing), (1, Fortune::Everything), (4, Fortune::Prefix), (4, Fortune::Each)]);
    let end = rng.below(changes.len() as u64 + 1);
    if matches!(fortune, Fortune::Each) && rng.one_in(4) {
        rng.shuffle(&mut changes);
    }
    for (index, change) in (0u64..).zip(&changes) {
        let fate = match fortune {
            Fortune::Nothing => Fate::Dropped,
            Fortune::Everything => Fate::Kept,
            Fortune::Prefix if index < end => Fate::Kept,
            Fortune::Prefix if index == end => rng.weighted(&[(1, Fate::Dropped), (2, Fate::Torn)]),
            Fortune::Prefix => Fate::Dropped,
            Fortune::Each => rng.weighted(&[(4, Fate::Kept), (2, Fate::Dropped), (3, Fate::Torn), (1, Fate::Grown)]),
        };
        fate.befall(change, bytes, rng, &mut loss);
    }
    loss
}

#[derive(Clone, Copy)]
enum Fate {
    Kept,
    Dropped,
    Torn,
    /// The file is as long as if the bytes were there, but they are not.
    Grown,
}

impl Fate {
    fn befall(self, change: &Change, bytes: &mut Vec<u8>, rng: &mut Rng, loss: &mut Loss) {
        match (self, change) {
            (Self::Kept, change) => {
                change.apply(bytes);
                loss.kept += 1;
            }
            (Self::Torn, Change::Write(offset, data)) => {
                tear(bytes, *offset, data, rng);
                loss.torn += 1;
            }
            (Self::Grown, Change::Write(offset, data)) => {
                bytes.resize(bytes.len().max(offset + data.len()), 0);
                loss.torn += 1;
            }
            (_, _) => loss.dropped += 1,
        }
    }
}

/// Writes some sectors and not the others; one of them may be torn itself.
fn tear(bytes: &mut Vec<u8>, offset: usize, data: &[u8], rng: &mut Rng) {
    let mut start = 0;
    while start < data.len() {
        let end = data.len().min(start + SECTOR - (offset + start) % SECTOR);
        match rng.below(8) {
            0..4 => put(bytes, offset + start, &data[start..end]),
            4 => {
                let middle = start + usize::try_from(rng.below((end - start) as u64)).unwrap_or(0);
                put(bytes, offset + start, &data[start..middle]);
            }
            _ => {}
        }
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_written_is_never_touched() {
        for seed in 0..500 {
            let mut rng = Rng::of(&[seed]);
            let mut bytes = vec![7; 5000];
            settle(&mut bytes, vec![Change::Write(700, vec![9; 3000]), Change::Write(2000, vec![8; 100])], &mut rng);
            assert!(bytes[..700].iter().chain(&bytes[3700..]).all(|byte| *byte == 7), "seed {seed}");
            assert_eq!(bytes.len(), 5000);
        }
    }

    #[test]
    fn every_fate_comes_up() {
        let mut all = Loss::default();
        let mut whole = 0;
        for seed in 0..200 {
            let mut rng = Rng::of(&[seed]);
            let mut bytes = vec![0; 4096];
            let changes = vec![Change::Write(0, vec![1; 4096]), Change::Truncate(100), Change::Write(50, vec![2; 100])];
            all.add(settle(&mut bytes, changes, &mut rng));
            whole += u64::from(bytes == [vec![1; 50], vec![2; 100]].concat());
        }
        assert!(all.kept > 50 && all.dropped > 50 && all.torn > 20 && whole > 5, "{all:?} {whole}");
    }
}
