//! The files of a measurement. They are always new, so that no existing ledger is filled with millions of records.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::block_in_place;
use tokio::time::timeout;

use onceward::Ledger;
use onceward_runtime::exit::Fault;

use super::pairs;

/// The files of a ledger, and the bare log.
const SUFFIXES: [&str; 6] = ["", "-wal", "-shm", "-owners", "-mark", RAW_LOG];

const RAW_LOG: &str = "-bare-log";

/// How long a ledger may take to close: it copies its log into its file. The files are removed anyway.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The files of one measurement, removed on drop.
#[derive(Debug)]
pub(super) struct BenchFiles {
    /// `None` for a store in memory.
    path: Option<PathBuf>,
    keeps_ledger: Cell<bool>,
    /// The ledger that was opened last. It is closed before its files are removed: its threads could create them again.
    ledger: RefCell<Option<Ledger>>,
}

impl BenchFiles {
    /// New files at the path of a store URL, or in the working directory.
    pub(super) fn create(store: Option<&str>) -> Result<Self, Fault> {
        let path = match store {
            Some("memory:") => None,
            Some(url) if url.contains("://") => {
                return Err(Fault::usage("this store cannot be measured yet: name a file, or memory:"));
            }
            Some(url) => Some(PathBuf::from(url.strip_prefix("file:").unwrap_or(url))),
            None => Some(PathBuf::from(format!("onceward-bench-{}.db", std::process::id()))),
        };
        if let Some(path) = &path
            && SUFFIXES.iter().any(|suffix| std::fs::symlink_metadata(with(path, suffix)).is_ok())
        {
            let path = path.display();
            return Err(Fault::usage(format!(
                "{path} already exists; nothing was done.\n  A measurement writes many records: name a new file with \
                 --store."
            )));
        }
        Ok(Self { path, keeps_ledger: Cell::new(false), ledger: RefCell::new(None) })
    }

    /// Opens the ledger, to the end even if the measurement is interrupted: an open that is given up goes on creating files.
    pub(super) fn open(&self) -> Result<Ledger, Fault> {
        self.ledger.take();
        let ledger = block_in_place(|| Handle::current().block_on(pairs::open(&self.url())))?;
        self.ledger.replace(Some(ledger.clone()));
        Ok(ledger)
    }

    pub(super) fn url(&self) -> String {
        match &self.path {
            Some(path) => format!("file:{}", path.display()),
            None => "memory:".to_owned(),
        }
    }

    /// The bare log, next to the ledger: on the same disk.
    pub(super) fn raw_log(&self) -> Option<PathBuf> {
        self.path.as_deref().map(|path| with(path, RAW_LOG))
    }

    /// The size of the ledger on disk.
    pub(super) fn bytes(&self) -> Option<u64> {
        let path = self.path.as_deref()?;
        let length = |suffix: &&str| std::fs::metadata(with(path, suffix)).map_or(0, |file| file.len());
        Some(SUFFIXES[..2].iter().map(length).sum())
    }

    /// Keeps the ledger.
    pub(super) fn keep(&self) {
        self.keeps_ledger.set(true);
    }
}

impl Drop for BenchFiles {
    fn drop(&mut self) {
        if let (Some(ledger), Ok(runtime)) = (self.ledger.take(), Handle::try_current()) {
            let _ = block_in_place(|| runtime.block_on(async { timeout(CLOSE_TIMEOUT, ledger.close()).await }));
        }
        let Some(path) = &self.path else { return };
        for suffix in SUFFIXES.iter().filter(|suffix| !self.keeps_ledger.get() || **suffix == RAW_LOG) {
            let _ = std::fs::remove_file(with(path, suffix));
        }
    }
}

fn with(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_measurement_that_is_interrupted_leaves_no_file_behind() {
        let folder = tempfile::tempdir().unwrap();
        let files = BenchFiles::create(folder.path().join("b.db").to_str()).unwrap();
        let measuring = async {
            let ledger = files.open().unwrap();
            let call = ledger.operation("charge").key("k");
            call.run(|_| async { Ok(1) }).await.unwrap();
            std::future::pending::<()>().await;
        };
        timeout(Duration::ZERO, measuring).await.unwrap_err();
        drop(files);
        // Long enough for threads that go on to make files again.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
