//! Replaces a file atomically and keeps a backup next to it.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use onceward::core::time::Timestamp;

/// How many names are tried for a backup when several are made within one second.
const MAX_BACKUPS_PER_SECOND: u32 = 100;

/// Replaces `old` by `new`, unless the file has changed meanwhile. Returns the path of the backup.
pub(super) fn replaced(path: &Path, old: &[u8], new: &[u8], now: Timestamp) -> Result<PathBuf, String> {
    let failed = |what: &str, error: &io::Error| format!("{what}: {error}; nothing was changed");
    // A symbolic link stays; its target is replaced.
    let file = path.canonicalize().map_err(|error| failed("it cannot be found", &error))?;
    let like = fs::metadata(&file).map_err(|error| failed("its metadata cannot be read", &error))?;
    let backup = kept(path, old, &like, now).map_err(|error| failed("a backup cannot be written", &error))?;
    let result = put(&file, old, new, &like);
    if result.is_err() {
        let _ = fs::remove_file(&backup);
    }
    result.map(|()| backup)
}

fn put(file: &Path, old: &[u8], new: &[u8], like: &Metadata) -> Result<(), String> {
    let failed = |error: io::Error| format!("it cannot be written: {error}; nothing was changed");
    let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else {
        return Err(failed(io::ErrorKind::InvalidInput.into()));
    };
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| format!("the system provides no random numbers: {error}"))?;
    let beside = folder.join(format!(".{}.onceward-{:016x}", name.to_string_lossy(), u64::from_ne_bytes(random)));
    let placed = written(&beside, new, like).map_err(failed).and_then(|()| {
        // Checked as late as possible, because clients write these files too.
        let found = fs::read(file).map_err(failed)?;
        if found != old {
            return Err(
                "another program has changed it meanwhile; nothing was written. Close its client and try again"
                    .to_owned(),
            );
        }
        fs::rename(&beside, file).map_err(failed)
    });
    if placed.is_err() {
        let _ = fs::remove_file(&beside);
        return placed;
    }
    // Not every file system can sync a folder; the file is already in place.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

/// Writes a backup next to the path that the user knows.
fn kept(path: &Path, old: &[u8], like: &Metadata, now: Timestamp) -> io::Result<PathBuf> {
    let when = jiff::Timestamp::from_millisecond(now.as_millis()).map_err(io::Error::other)?;
    let when = when.strftime("%Y%m%d-%H%M%S").to_string();
    for number in 1..=MAX_BACKUPS_PER_SECOND {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".onceward-backup-{when}"));
        if number > 1 {
            name.push(format!("-{number}"));
        }
        let backup = PathBuf::from(name);
        match written(&backup, old, like) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(()) => return Ok(backup),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Writes a new file with the owner and permissions of another. These files hold secrets, so it is created readable for this user
/// only.
fn written(path: &Path, bytes: &[u8], like: &Metadata) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let filled = fill(&mut file, bytes, like);
    if filled.is_err() {
        let _ = fs::remove_file(path);
    }
    filled
}

fn fill(file: &mut File, bytes: &[u8], like: &Metadata) -> io::Result<()> {
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
        fchown(&*file, Some(like.uid()), Some(like.gid()))?;
    }
    file.set_permissions(fs::Permissions::from_mode(like.mode() & 0o7777))?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_that_has_changed_meanwhile_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mcp.json");
        fs::write(&file, "theirs").unwrap();
        let error = replaced(&file, b"old", b"new", Timestamp::from_millis(0)).unwrap_err();
        assert!(error.starts_with("another program has changed it"), "{error}");
        assert_eq!((fs::read(&file).unwrap(), names(folder.path())), (b"theirs".to_vec(), vec!["mcp.json".to_owned()]));
    }

    #[test]
    fn every_backup_has_its_own_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mcp.json");
        fs::write(&file, "1").unwrap();
        let now = Timestamp::from_millis(1_794_821_445_000);
        for (old, new) in [("1", "2"), ("2", "3")] {
            let backup = replaced(&file, old.as_bytes(), new.as_bytes(), now).unwrap();
            assert_eq!(fs::read_to_string(backup).unwrap(), old);
        }
        let expected =
            ["mcp.json", "mcp.json.onceward-backup-20261116-093045", "mcp.json.onceward-backup-20261116-093045-2"];
        assert_eq!(names(folder.path()), expected);
        assert_eq!(fs::read_to_string(&file).unwrap(), "3");
    }
}
