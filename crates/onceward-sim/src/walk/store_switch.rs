//! A store that can be made unavailable, or lose its answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use onceward::core::hash::Digest;
use onceward::core::record::{Draft, Seen};
use onceward::core::time::Timestamp;
use onceward::store::{
    AuditEntry, AuditEvent, Counts, Cursor, DueEntries, DueQuery, Error, Filter, Inserted, Page, Purged, Replace,
    Replaced, Store,
};

/// Passes every call on until it is closed, and fails every call after that.
#[derive(Debug)]
pub struct StoreSwitch {
    behind: Arc<dyn Store>,
    closed: AtomicBool,
    loses_answers: AtomicBool,
}

impl StoreSwitch {
    pub fn before(behind: Arc<dyn Store>) -> Self {
        Self { behind, closed: AtomicBool::new(false), loses_answers: AtomicBool::new(false) }
    }

    pub fn close(&self, closed: bool) {
        self.closed.store(closed, Ordering::SeqCst);
    }

    /// From now on, writes are made and not answered.
    pub fn lose_answers(&self, loses: bool) {
        self.loses_answers.store(loses, Ordering::SeqCst);
    }

    fn open(&self) -> Result<&dyn Store, Error> {
        match self.closed.load(Ordering::SeqCst) {
            true => Err(Error::Unreachable("unplugged".to_owned())),
            false => Ok(&*self.behind),
        }
    }
}

#[async_trait]
impl Store for StoreSwitch {
    async fn insert(&self, draft: Draft, most: Option<u64>) -> Result<Inserted, Error> {
        self.open()?.insert(draft, most).await
    }

    async fn replace(&self, replace: Replace) -> Result<Replaced, Error> {
        let answer = self.open()?.replace(replace).await;
        match self.loses_answers.load(Ordering::SeqCst) {
            true => Err(Error::Unreachable("the answer is lost".to_owned())),
            false => answer,
        }
    }

    async fn get(&self, id: Digest) -> Result<Option<Seen>, Error> {
        self.open()?.get(id).await
    }

    async fn due(&self, queue: &DueQuery) -> Result<DueEntries, Error> {
        self.open()?.due(queue).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        self.open()?.purge(limit).await
    }

    async fn list(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Result<Page, Error> {
        self.open()?.list(filter, after, limit).await
    }

    async fn counts(&self, tenant: Option<&onceward::core::name::Tenant>) -> Result<Counts, Error> {
        self.open()?.counts(tenant).await
    }

    async fn append(&self, id: Digest, event: AuditEvent) -> Result<(), Error> {
        self.open()?.append(id, event).await
    }

    async fn trail(&self, id: Digest) -> Result<Vec<AuditEntry>, Error> {
        self.open()?.trail(id).await
    }

    fn now(&self) -> Option<Timestamp> {
        self.behind.now()
    }
}
