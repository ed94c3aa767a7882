//! Where a measurement happens. It only ever makes new files: nobody's ledger is filled with millions of records.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use crate::exit::Fault;

/// Files that belong to a ledger, and the bare log.
const SUFFIXES: [&str; 6] = ["", "-wal", "-shm", "-owners", "-mark", RAW_LOG];

const RAW_LOG: &str = "-bare-log";

/// The files of one measurement. They go when it goes.
#[derive(Debug)]
pub(super) struct Place {
    /// `None` for a store in memory.
    path: Option<PathBuf>,
    stays: Cell<bool>,
}

impl Place {
    /// The place that a URL names, or one in the working directory.
    pub(super) fn take(store: Option<&str>) -> Result<Self, Fault> {
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
                "there is something at {path} already; nothing was done.\n  A measurement writes many records: name a new \
                 file with --store."
            )));
        }
        Ok(Self { path, stays: Cell::new(false) })
    }

    pub(super) fn url(&self) -> String {
        match &self.path {
            Some(path) => format!("file:{}", path.display()),
            None => "memory:".to_owned(),
        }
    }

    /// The file of the bare log, beside the ledger: on the same disk.
    pub(super) fn raw_log(&self) -> Option<PathBuf> {
        self.path.as_deref().map(|path| with(path, RAW_LOG))
    }

    /// How much the ledger takes on the disk.
    pub(super) fn bytes(&self) -> Option<u64> {
        let path = self.path.as_deref()?;
        let length = |suffix: &&str| std::fs::metadata(with(path, suffix)).map_or(0, |file| file.len());
        Some(SUFFIXES[..2].iter().map(length).sum())
    }

    /// Leaves the ledger where it is.
    pub(super) fn keep(&self) {
        self.stays.set(true);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(path) = &self.path else { return };
        for suffix in SUFFIXES.iter().filter(|suffix| !self.stays.get() || **suffix == RAW_LOG) {
            let _ = std::fs::remove_file(with(path, suffix));
        }
    }
}

fn with(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
