//! Every store passes the same suite.

use std::sync::Arc;

use onceward::clock::ManualClock;
use onceward::conformance::Fixture;
use onceward::store::memory::Memory;
use onceward::store::sqlite::Sqlite;

mod memory {
    use super::*;

    async fn open(clock: ManualClock) -> Fixture {
        Fixture { store: Arc::new(Memory::new(Arc::new(clock))), keep: Box::new(()) }
    }

    onceward::conformance!(open);
}

mod sqlite {
    use super::*;

    async fn open(clock: ManualClock) -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(&folder.path().join("ledger.db"), Arc::new(clock)).await.unwrap();
        Fixture { store: Arc::new(store), keep: Box::new(folder) }
    }

    onceward::conformance!(open);
}
