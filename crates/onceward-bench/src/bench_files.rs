//! The files of a measurement. They are always new, so that no existing ledger is filled with millions of records.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use onceward_runtime::exit::Fault;

/// The files of a ledger, and the bare log.
const SUFFIXES: [&str; 6] = ["", "-wal", "-shm", "-owners", "-mark", RAW_LOG];

const RAW_LOG: &str = "-bare-log";

/// The files of one measurement, removed on drop.
#[derive(Debug)]
pub(super) struct BenchFiles {
    /// `None` for a store in memory.
    path: Option<PathBuf>,
    keeps_ledger: Cell<bool>,
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
        Ok(Self { path, keeps_ledger: Cell::new(false) })
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
