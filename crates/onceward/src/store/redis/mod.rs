//! A ledger in Redis: a single server, Sentinel or Cluster.
//!
//! - `address`: reads the URL. `server_connection`: the way to the servers, its retries and time limits.
//!   `pipelined_connection`: the connection that all callers share.
//! - `keys`: the names of the keys. `codec`: a record as one value.
//! - `scripts`: the Lua scripts, in which every write happens. `reply`: their replies.
//! - `writing`, `quota`, `reading`, `listing`, `due`, `sweeping`: what a store does. `moving`: whole ledgers.
//! - `epoch`: notices a flushed server; `migrate` makes the epochs. `settings`: what the servers show. `condition`: what that
//!   promises.

mod address;
mod codec;
mod condition;
mod due;
mod epoch;
mod keys;
mod listing;
mod moving;
mod pipelined_connection;
mod quota;
mod reading;
mod reply;
mod scripts;
mod server_connection;
mod settings;
mod sweeping;
mod writing;

use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use redis::Cmd;

use onceward_core::hash::Digest;
use onceward_core::name::{Operation, Tenant};
use onceward_core::record::{Draft, Seen};
use onceward_core::time::Timestamp;

use self::address::Address;
use self::condition::Condition;
use self::keys::{Keys, Shard};
use self::server_connection::ServerConnection;
use super::server_time::ServerTime;
use super::transfer::Transfer;
use super::{
    AuditEntry, AuditEvent, Counts, Cursor, DueEntries, DueQuery, Durability, Error, Filter, Inserted, Page, Purged,
    Replace, Replaced, Store,
};
use crate::clock::Clock;
use crate::kept_answer::KeptAnswer;
use crate::plant::{Plant, planted};

/// A ledger in Redis.
pub struct Redis {
    link: ServerConnection,
    keys: Keys,
    epoch: String,
    condition: Condition,
    /// Whether the servers can be written, for health checks.
    writable: KeptAnswer<()>,
    /// Only in tests. Otherwise the time is that of the server.
    clock: Option<Arc<dyn Clock>>,
    server_time: ServerTime,
    export: Mutex<moving::Export>,
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis({})", self.link.name)
    }
}

impl Redis {
    /// Opens the ledger that a URL names: `redis://…`, `rediss://…`, `redis+sentinel://…` or `redis+cluster://…`. It must have
    /// been made by [`Redis::migrate`].
    pub async fn open(url: &str) -> Result<Self, Error> {
        Self::open_at(url, None).await
    }

    /// Opens a ledger whose time a test sets.
    #[doc(hidden)]
    pub async fn open_with_clock(url: &str, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        Self::open_at(url, Some(clock)).await
    }

    async fn open_at(url: &str, clock: Option<Arc<dyn Clock>>) -> Result<Self, Error> {
        let address = Address::parse(url)?;
        let keys = Keys::new(&address.prefix);
        let link = ServerConnection::open(address).await?;
        let condition = Condition::open(&link).await?;
        let epoch = epoch::find(&link, &keys).await?;
        let (server_time, writable, export) = (ServerTime::unknown(), KeptAnswer::default(), Mutex::default());
        Ok(Self { link, keys, epoch, condition, writable, clock, server_time, export })
    }

    /// Makes a ledger, or brings it up to date. Returns what it did, or with `dry_run` what it would do. It may run at any time,
    /// also while another one runs.
    pub async fn migrate(url: &str, dry_run: bool) -> Result<Vec<String>, Error> {
        let address = Address::parse(url)?;
        let keys = Keys::new(&address.prefix);
        let link = ServerConnection::open(address).await?;
        Condition::open(&link).await?;
        epoch::migrate(&link, &keys, dry_run).await
    }

    /// The first arguments of every script: its keys, the epoch and the time.
    fn arguments<'a>(&self, command: &mut Cmd, keys: impl IntoIterator<Item = &'a str, IntoIter: ExactSizeIterator>) {
        let keys = keys.into_iter();
        command.arg(keys.len());
        for key in keys {
            command.arg(key);
        }
        command.arg(&self.epoch);
        match &self.clock {
            Some(clock) => command.arg(clock.now().as_millis()),
            None if planted(Plant::ClientClock) => command.arg(crate::clock::SystemClock.now().as_millis()),
            None => command.arg(""),
        };
    }

    fn shard(&self, id: &Digest) -> &Shard {
        self.keys.of(id)
    }
}

/// Random bytes that name a write or an epoch.
fn random() -> Result<[u8; 16], Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Error::Other(format!("no random numbers: {error}")))?;
    Ok(bytes)
}

#[async_trait]
impl Store for Redis {
    async fn insert(&self, draft: Draft, max_records: Option<u64>) -> Result<Inserted, Error> {
        self.insert_record(draft, max_records).await
    }

    async fn replace(&self, replace: Replace) -> Result<Replaced, Error> {
        self.replace_record(replace).await
    }

    async fn get(&self, id: Digest) -> Result<Option<Seen>, Error> {
        Ok(self.read_record(id).await?.0)
    }

    async fn due(&self, queue: &DueQuery) -> Result<DueEntries, Error> {
        self.due_entries(queue).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        self.sweep(limit).await
    }

    async fn list(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Result<Page, Error> {
        self.list_records(filter, after, limit).await
    }

    async fn counts(&self, tenant: Option<&Tenant>) -> Result<Counts, Error> {
        self.count_records(tenant).await
    }

    async fn append(&self, id: Digest, event: AuditEvent) -> Result<(), Error> {
        self.append_event(id, &event).await
    }

    async fn trail(&self, id: Digest) -> Result<Vec<AuditEntry>, Error> {
        self.read_trail(id).await
    }

    async fn check(&self) -> Result<(), Error> {
        self.check_writable().await
    }

    async fn durability(&self) -> Result<Durability, Error> {
        self.condition.durability(&self.link).await
    }

    async fn claim_operations(&self, names: &[Operation]) -> Result<(), Error> {
        self.write_operations(names).await
    }

    async fn release_operations(&self, names: &[Operation]) -> Result<(), Error> {
        if names.is_empty() {
            return Ok(());
        }
        let mut remove = redis::cmd("SREM");
        remove.arg(&self.keys.operations);
        for name in names {
            remove.arg(name.as_str());
        }
        self.link.query(&remove).await.map(drop)
    }

    async fn has_operation(&self, name: &Operation) -> Result<bool, Error> {
        Ok(self.read_operations(name.as_str()).await?.number()? == 1)
    }

    async fn operations(&self) -> Result<Vec<String>, Error> {
        let names = self.read_operations("").await?.list().into_iter().map(redis::from_redis_value);
        names.collect::<Result<_, _>>().map_err(|error| Error::Other(error.to_string()))
    }

    fn transfer(&self) -> Option<&dyn Transfer> {
        Some(self)
    }

    fn now(&self) -> Option<Timestamp> {
        if let Some(clock) = &self.clock {
            return Some(clock.now());
        }
        self.server_time.now()
    }
}
