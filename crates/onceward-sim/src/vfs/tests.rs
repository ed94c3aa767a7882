//! What the disk of the harness promises: a sync is durable, nothing else is, and a failed sync is not a sync.

use std::sync::Arc;

use rusqlite::ffi;

use super::drive::Verdict;
use super::{Drive, Fault, FilePart, IgnoredSyncs, Image, Kind, Operation, Role, scratch};
use crate::rng::Rng;

/// Plays on a new disk, once for each of many seeds, and returns in how many of them the cut has left this.
fn how_often(play: impl Fn(&Arc<Drive>), left: impl Fn(&Image) -> bool) -> usize {
    (0..60)
        .filter(|seed| {
            let folder = scratch("onceward-vfs-");
            let drive = Drive::mount(folder.path(), Image::default(), IgnoredSyncs::None, Rng::of(&[*seed]));
            play(&drive);
            drive.cut_now();
            super::unplug(drive.folder());
            left(&drive.left().expect("the power is gone").0)
        })
        .count()
}

fn is(image: &Image, name: &str, bytes: &[u8]) -> bool {
    image.files.get(name).is_some_and(|found| found == bytes)
}

#[test]
fn what_was_synced_is_there() {
    let play = |drive: &Arc<Drive>| {
        let mut log = drive.clone().opened("a-wal", FilePart::Log, true);
        assert_eq!(log.write(0, b"one"), Verdict::Pass);
        assert_eq!(log.sync(), Verdict::Pass);
    };
    assert_eq!(how_often(play, |image| is(image, "a-wal", b"one")), 60);
}

#[test]
fn what_was_not_synced_may_be_there_or_not_or_in_part() {
    let play = |drive: &Arc<Drive>| {
        let mut log = drive.clone().opened("a-wal", FilePart::Log, true);
        log.write(0, &[1; 2000]);
        log.sync();
        log.write(0, &[2; 2000]);
    };
    let old = how_often(play, |image| is(image, "a-wal", &[1; 2000]));
    let new = how_often(play, |image| is(image, "a-wal", &[2; 2000]));
    assert!(old > 5 && new > 5 && old + new < 60, "{old} {new}");
}

#[test]
fn a_name_is_there_for_certain_only_when_its_folder_was_synced() {
    let make = |drive: &Arc<Drive>| {
        let mut file = drive.clone().opened("a", FilePart::Main, true);
        file.write(0, b"one");
        file.sync();
    };
    let there = how_often(make, |image| image.files.contains_key("a"));
    assert!(there > 5 && there < 55, "{there}");
    // The first sync of a new log or journal syncs the folder, and with it every name.
    let both = |drive: &Arc<Drive>| {
        make(drive);
        drive.clone().opened("a-wal", FilePart::Log, true).sync();
    };
    assert_eq!(how_often(both, |image| is(image, "a", b"one")), 60);
    let delete = |drive: &Arc<Drive>| {
        both(drive);
        drive.deleted("a-wal", false);
    };
    let back = how_often(delete, |image| image.files.contains_key("a-wal"));
    assert!(back > 5 && back < 55, "{back}");
}

#[test]
fn a_failed_sync_is_reported_once_to_each_open_file_and_the_next_one_saves_nothing() {
    let operation = Operation { role: Role::Opener, part: FilePart::Log, kind: Kind::Sync };
    let play = |drive: &Arc<Drive>| {
        let mut one = drive.clone().opened("a-wal", FilePart::Log, true);
        let mut other = drive.clone().opened("a-wal", FilePart::Log, true);
        one.write(0, &[1; 2000]);
        one.sync();
        one.write(0, &[2; 2000]);
        drive.fail(Some(Fault { operation, nth: 2, code: ffi::SQLITE_IOERR_FSYNC, lasting: false }));
        assert_eq!(one.sync(), Verdict::Fail(ffi::SQLITE_IOERR_FSYNC));
        assert_eq!(other.sync(), Verdict::Fail(ffi::SQLITE_IOERR_FSYNC));
        assert_eq!((one.sync(), other.sync()), (Verdict::Pass, Verdict::Pass));
        assert_eq!(drive.syncs_after_a_failed_one(), 2);
        // A later open of the file does not get the error.
        assert_eq!(drive.clone().opened("a-wal", FilePart::Log, true).sync(), Verdict::Pass);
    };
    let new = how_often(play, |image| is(image, "a-wal", &[2; 2000]));
    assert!(new > 1 && new < 55, "{new}");
}

#[test]
fn without_power_nothing_is_written_down_or_read() {
    let folder = scratch("onceward-vfs-");
    let drive = Drive::mount(folder.path(), Image::default(), IgnoredSyncs::None, Rng::of(&[1]));
    let mut log = drive.clone().opened("a-wal", FilePart::Log, true);
    drive.cut_now();
    assert_eq!(log.write(0, b"one"), Verdict::Fail(ffi::SQLITE_IOERR_WRITE));
    assert_eq!(log.sync(), Verdict::Fail(ffi::SQLITE_IOERR_FSYNC));
    assert_eq!(log.touch(Kind::Read), Verdict::Fail(ffi::SQLITE_IOERR_READ));
    drive.while_on(|| panic!("the power is off"));
    super::unplug(drive.folder());
}
