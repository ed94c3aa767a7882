//! A ledger file in memory, open as a store, and open a second time to write any row into it.

use std::cell::OnceCell;
use std::path::Path;
use std::sync::Arc;

use onceward::clock::ManualClock;
use onceward::store::sqlite::Sqlite;
use rusqlite::Connection;
use rusqlite::types::Value;
use tokio::runtime::Runtime;

use crate::row::{COLUMNS, Row};

pub(crate) struct LedgerFile {
    store: Sqlite,
    raw: Connection,
    runtime: Runtime,
    _folder: tempfile::TempDir,
}

thread_local! {
    static LEDGER: OnceCell<LedgerFile> = const { OnceCell::new() };
}

impl LedgerFile {
    /// The ledger of this thread. It is opened once: opening takes longer than a thousand rows.
    pub(crate) fn with(act: impl FnOnce(&Self)) {
        LEDGER.with(|ledger| act(ledger.get_or_init(Self::open)));
    }

    fn open() -> Self {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let folder = folder.expect("there is room");
        let path = folder.path().join("ledger.db");
        let store = Sqlite::open_blocking(&path, Arc::new(ManualClock::default())).expect("a new ledger");
        let raw = Connection::open(&path).expect("the same file");
        raw.pragma_update(None, "synchronous", "off").expect("this is known");
        raw.busy_timeout(std::time::Duration::from_secs(10)).expect("this is known");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        Self { store, raw, runtime, _folder: folder }
    }

    pub(crate) fn store(&self) -> &Sqlite {
        &self.store
    }

    pub(crate) fn wait<A>(&self, future: impl Future<Output = A>) -> A {
        self.runtime.block_on(future)
    }

    pub(crate) fn clear(&self) {
        self.raw.prepare_cached("DELETE FROM intent").and_then(|mut all| all.execute([])).expect("it can be emptied");
    }

    /// Writes a row, if the table accepts it: its columns have types, and some must not be null.
    pub(crate) fn put(&self, row: &Row) -> bool {
        let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
        // A text of any bytes, which a Rust string cannot hold.
        let marks: Vec<String> = (1..=names.len())
            .map(|number| match &row[number - 1] {
                (Value::Blob(_), true) => format!("CAST(?{number} AS TEXT)"),
                _ => format!("?{number}"),
            })
            .collect();
        let sql = format!("INSERT INTO intent ({}) VALUES ({})", names.join(", "), marks.join(", "));
        let mut statement = self.raw.prepare_cached(&sql).expect("the columns are known");
        statement.execute(rusqlite::params_from_iter(row.iter().map(|(value, _)| value))).is_ok()
    }
}
