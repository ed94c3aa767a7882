//! A store around a real one that fails or is slow when a test says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use onceward::clock::SystemClock;
use onceward::core::hash::Digest;
use onceward::core::name::{Identity, Key, Operation, Tenant};
use onceward::core::record::{Draft, Record, Seen};
use onceward::core::time::Timestamp;
use onceward::store::memory::Memory;
use onceward::store::{
    AuditEntry, AuditEvent, Counts, Cursor, DueEntries, DueQuery, Error, Filter, Inserted, Page, Purged, Replace,
    Replaced, Store,
};

#[derive(Debug)]
pub(crate) struct FaultyStore {
    real: Arc<Memory>,
    /// Every call fails.
    pub(crate) down: AtomicBool,
    /// The next write succeeds, and its result is lost.
    pub(crate) lose_next_answer: AtomicBool,
    /// The next replace fails, and nothing is written.
    pub(crate) fail_next_replace: AtomicBool,
    /// The next replace is refused, and nothing is written.
    pub(crate) refuse_next_replace: AtomicBool,
    /// The next replace succeeds, and its result is lost.
    pub(crate) lose_next_replace_answer: AtomicBool,
    /// The store goes down after this many replaces; 0 means never.
    pub(crate) replaces_until_down: AtomicUsize,
    /// The next insert is not answered, and is made this much later.
    pub(crate) late_insert_millis: AtomicU64,
    /// Every insert takes this long.
    pub(crate) insert_millis: AtomicU64,
    pub(crate) calls: AtomicUsize,
}

impl FaultyStore {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            real: Arc::new(Memory::new(Arc::new(SystemClock))),
            down: AtomicBool::new(false),
            lose_next_answer: AtomicBool::new(false),
            fail_next_replace: AtomicBool::new(false),
            refuse_next_replace: AtomicBool::new(false),
            lose_next_replace_answer: AtomicBool::new(false),
            replaces_until_down: AtomicUsize::new(0),
            late_insert_millis: AtomicU64::new(0),
            insert_millis: AtomicU64::new(0),
            calls: AtomicUsize::new(0),
        })
    }

    pub(crate) fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    /// The record of a key of the default tenant.
    pub(crate) async fn record(&self, operation: &str, key: &str) -> Option<Record> {
        let identity = Identity {
            tenant: Tenant::default(),
            operation: Operation::new(operation).unwrap(),
            key: Key::new(key).unwrap(),
        };
        self.real.get(identity.digest()).await.unwrap().map(|seen| seen.record)
    }

    fn works(&self) -> Result<(), Error> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.down.load(Ordering::SeqCst) { Err(Error::Unreachable("unplugged".into())) } else { Ok(()) }
    }

    fn answered<A>(&self, answer: Result<A, Error>) -> Result<A, Error> {
        if self.lose_next_answer.swap(false, Ordering::SeqCst) {
            return Err(Error::Unreachable("the answer was lost".into()));
        }
        answer
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn insert(&self, draft: Draft, most: Option<u64>) -> Result<Inserted, Error> {
        self.works()?;
        let late = self.late_insert_millis.swap(0, Ordering::SeqCst);
        if late > 0 {
            let real = Arc::clone(&self.real);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(late)).await;
                let _ = real.insert(draft, most).await;
            });
            return Err(Error::Unanswered("it is stalled".into()));
        }
        let answer = self.real.insert(draft, most).await;
        tokio::time::sleep(Duration::from_millis(self.insert_millis.load(Ordering::SeqCst))).await;
        self.answered(answer)
    }

    async fn replace(&self, replace: Replace) -> Result<Replaced, Error> {
        self.works()?;
        if self.fail_next_replace.swap(false, Ordering::SeqCst) {
            return Err(Error::Unreachable("unplugged".into()));
        }
        if self.refuse_next_replace.swap(false, Ordering::SeqCst) {
            return Err(Error::Refused { store: "faulty".into(), reason: "its password was changed".into() });
        }
        let answer = self.real.replace(replace).await;
        let left =
            self.replaces_until_down.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left == Ok(1) {
            self.set_down(true);
        }
        if self.lose_next_replace_answer.swap(false, Ordering::SeqCst) {
            return Err(Error::Unreachable("the answer was lost".into()));
        }
        self.answered(answer)
    }

    async fn get(&self, id: Digest) -> Result<Option<Seen>, Error> {
        self.works()?;
        self.real.get(id).await
    }

    async fn due(&self, queue: &DueQuery) -> Result<DueEntries, Error> {
        self.real.due(queue).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        self.real.purge(limit).await
    }

    async fn list(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Result<Page, Error> {
        self.real.list(filter, after, limit).await
    }

    async fn counts(&self, tenant: Option<&onceward::core::name::Tenant>) -> Result<Counts, Error> {
        self.real.counts(tenant).await
    }

    async fn append(&self, id: Digest, event: AuditEvent) -> Result<(), Error> {
        self.works()?;
        self.real.append(id, event).await
    }

    async fn trail(&self, id: Digest) -> Result<Vec<AuditEntry>, Error> {
        self.real.trail(id).await
    }

    fn now(&self) -> Option<Timestamp> {
        self.real.now()
    }
}
