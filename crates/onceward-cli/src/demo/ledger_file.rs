//! The file of the demo's ledger. The ledger of an earlier demo is replaced; any other file is left alone.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use onceward::Ledger;
use onceward::store::Filter;

use super::DemoError;
use super::world::World;

/// More records than any demo writes; a ledger with more is not the demo's.
const MAX_RECORDS: usize = 500;

/// The suffixes of all files that belong to a ledger.
const SUFFIXES: [&str; 5] = ["", "-wal", "-shm", "-owners", "-mark"];

/// The file of the ledger, in a folder that no other demo uses at the same time.
#[derive(Debug)]
pub(super) struct LedgerFile {
    path: PathBuf,
    _folder_lock: File,
}

impl LedgerFile {
    /// Locks the folder, and removes the ledger of an earlier demo.
    pub(super) async fn prepare(store: &str) -> Result<Self, DemoError> {
        let path = Path::new(store.strip_prefix("file:").unwrap_or(store));
        if store == "memory:" || store.contains("://") {
            // The message does not repeat the URL, which may hold a password.
            return Err(DemoError::Failed("the demo needs a file for its ledger: name one with --store".to_owned()));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder_lock = File::open(folder)
            .map_err(|error| DemoError::Failed(format!("cannot use the folder {}: {error}", folder.display())))?;
        if let Err(TryLockError::WouldBlock) = folder_lock.try_lock() {
            return Err(DemoError::Failed(format!(
                "another demo is running in {}: wait until it ends, or choose a file in another folder with --store",
                folder.display()
            )));
        }
        let file = Self { path: path.to_owned(), _folder_lock: folder_lock };
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(cannot_use(path, &error.to_string())),
            Ok(found) if !found.is_file() || found.len() == 0 => return Err(cannot_use(path, "it is not a ledger")),
            Ok(_) => file.remove_earlier_demo().await?,
        }
        Ok(file)
    }

    /// The URL of the ledger.
    pub(super) fn url(&self) -> String {
        format!("file:{}", self.path.display())
    }

    /// The path as the user wrote it.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    async fn remove_earlier_demo(&self) -> Result<(), DemoError> {
        let ledger =
            Ledger::open(&self.url()).await.map_err(|error| DemoError::Failed(format!("{error} (with --store)")))?;
        let page = ledger.list(&Filter::default(), None, MAX_RECORDS).await;
        ledger.close().await;
        let page = page.map_err(|error| cannot_use(&self.path, &error.to_string()))?;
        let is_ours = |tenant: &str| World::ALL.iter().any(|world| world.tenant() == Some(tenant));
        let are_all_ours = page.next.is_none()
            && page.listed.iter().all(|listed| {
                listed.seen.record.identity.as_ref().is_some_and(|identity| is_ours(identity.tenant.as_str()))
            });
        if !are_all_ours {
            return Err(cannot_use(&self.path, "it is a ledger with intents that are not from a demo"));
        }
        if page.listed.is_empty() {
            // It may be a new ledger of the user: it is used as it is, and not removed.
            return Ok(());
        }
        for suffix in SUFFIXES {
            let mut name = self.path.as_os_str().to_owned();
            name.push(suffix);
            match fs::remove_file(&name) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(cannot_use(&self.path, &error.to_string()));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn cannot_use(path: &Path, reason: &str) -> DemoError {
    DemoError::Failed(format!(
        "cannot use {} for the demo: {reason}. The file was not changed; choose another one with --store",
        path.display()
    ))
}
