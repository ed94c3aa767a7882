//! Where the demo's ledger goes. An earlier demo is replaced; anything else is left alone.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use onceward::Ledger;
use onceward::store::Filter;

use super::Trouble;
use super::world::World;

/// More records than any demo leaves; a ledger with more is not the demo's.
const MOST_RECORDS: usize = 500;

/// Files that belong to a ledger.
const SUFFIXES: [&str; 5] = ["", "-wal", "-shm", "-owners", "-mark"];

/// A place for the ledger that no other demo uses.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    _alone: File,
}

impl Place {
    /// Takes the place, and makes room where an earlier demo was.
    pub(super) async fn take(store: &str) -> Result<Self, Trouble> {
        let path = Path::new(store.strip_prefix("file:").unwrap_or(store));
        if store == "memory:" || store.contains("://") {
            // Not repeated here: it may hold a password.
            return Err(Trouble::Failed("the demo leaves its ledger in a file: name one with --store".to_owned()));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let alone = File::open(folder)
            .map_err(|error| Trouble::Failed(format!("the folder {} cannot be used: {error}", folder.display())))?;
        if let Err(TryLockError::WouldBlock) = alone.try_lock() {
            return Err(Trouble::Failed(format!(
                "another demo is running in {}: wait for it, or choose a file elsewhere with --store",
                folder.display()
            )));
        }
        let place = Self { path: path.to_owned(), _alone: alone };
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(cannot_use(path, &error.to_string())),
            Ok(found) if !found.is_file() || found.len() == 0 => return Err(cannot_use(path, "it is no ledger")),
            Ok(_) => place.make_room().await?,
        }
        Ok(place)
    }

    /// The URL of the ledger.
    pub(super) fn url(&self) -> String {
        format!("file:{}", self.path.display())
    }

    /// As the user wrote it.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    async fn make_room(&self) -> Result<(), Trouble> {
        let ledger =
            Ledger::open(&self.url()).await.map_err(|error| Trouble::Failed(format!("{error} (with --store)")))?;
        let page = ledger.list(&Filter::default(), None, MOST_RECORDS).await;
        ledger.close().await;
        let page = page.map_err(|error| cannot_use(&self.path, &error.to_string()))?;
        let ours = |tenant: &str| World::ALL.iter().any(|world| world.tenant() == Some(tenant));
        let all_ours = page.next.is_none()
            && page.listed.iter().all(|listed| {
                listed.seen.record.identity.as_ref().is_some_and(|identity| ours(identity.tenant.as_str()))
            });
        if !all_ours {
            return Err(cannot_use(&self.path, "it is a ledger with intents that no demo made"));
        }
        if page.listed.is_empty() {
            // Nobody's, perhaps somebody's: it can be used as it is.
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

fn cannot_use(path: &Path, reason: &str) -> Trouble {
    Trouble::Failed(format!(
        "{} cannot be used for the demo: {reason}. It was not touched; choose another file with --store",
        path.display()
    ))
}
