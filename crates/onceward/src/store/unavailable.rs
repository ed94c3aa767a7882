//! A store that could not be opened. A list can then go on with the other stores of a ledger, and report this one.

use async_trait::async_trait;

use onceward_core::hash::Digest;
use onceward_core::name::{Operation, Tenant};
use onceward_core::record::{Draft, Seen};

use super::{
    AuditEntry, AuditEvent, Counts, Cursor, DueEntries, DueQuery, Durability, Error, Filter, Inserted, Page, Purged,
    Replace, Replaced, Store,
};

/// A store that could not be opened: every call fails with the reason.
#[derive(Debug)]
pub struct Unavailable(pub Error);

impl Unavailable {
    fn failed<T>(&self) -> Result<T, Error> {
        Err(self.0.clone())
    }
}

#[async_trait]
impl Store for Unavailable {
    async fn insert(&self, _draft: Draft, _max_records: Option<u64>) -> Result<Inserted, Error> {
        self.failed()
    }

    async fn replace(&self, _replace: Replace) -> Result<Replaced, Error> {
        self.failed()
    }

    async fn get(&self, _id: Digest) -> Result<Option<Seen>, Error> {
        self.failed()
    }

    async fn due(&self, _queue: &DueQuery) -> Result<DueEntries, Error> {
        self.failed()
    }

    async fn purge(&self, _limit: usize) -> Result<Purged, Error> {
        self.failed()
    }

    async fn list(&self, _filter: &Filter, _after: Option<Cursor>, _limit: usize) -> Result<Page, Error> {
        self.failed()
    }

    async fn counts(&self, _tenant: Option<&Tenant>) -> Result<Counts, Error> {
        self.failed()
    }

    async fn append(&self, _id: Digest, _event: AuditEvent) -> Result<(), Error> {
        self.failed()
    }

    async fn trail(&self, _id: Digest) -> Result<Vec<AuditEntry>, Error> {
        self.failed()
    }

    async fn durability(&self) -> Result<Durability, Error> {
        self.failed()
    }

    async fn claim_operations(&self, _names: &[Operation]) -> Result<(), Error> {
        self.failed()
    }

    async fn operations(&self) -> Result<Vec<String>, Error> {
        self.failed()
    }
}
