//! The ledger for code without async. It has a small runtime of its own, on which leases are renewed while the caller's
//! thread does the work.
//!
//! ```
//! use onceward::blocking::Ledger;
//!
//! let ledger = Ledger::open("memory:")?;
//! for _ in 0..3 {
//!     let done = ledger.operation("send_email").key("welcome-7").run(|_claim| Ok("sent".to_owned()))?;
//!     assert_eq!(done.value, "sent"); // once
//! }
//! # Ok::<(), onceward::Error>(())
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;

use crate::error::{Error, Failure};
use crate::ledger::{self, Done, StartOptions, Started, replay, unguarded};
use crate::store;
use crate::store_url::StoreUrl;
use crate::{InDoubt, OnError, Policy, Tier};

/// A ledger whose calls block. Cheap to clone. Do not use it inside an async runtime. Keep it until the end of the program:
/// writes in the background end with the last clone.
#[derive(Clone, Debug)]
pub struct Ledger {
    inner: ledger::Ledger,
    runtime: Arc<Runtime>,
}

/// Builds a guarded call. See [`crate::CallBuilder`].
#[derive(Clone, Debug)]
#[must_use = "nothing happens until `run`"]
pub struct CallBuilder {
    inner: ledger::CallBuilder,
    ledger: Ledger,
}

/// The right to do the work, as the work itself sees it.
#[derive(Clone, Debug)]
pub struct Claim {
    inner: ledger::Claim,
    runtime: Arc<Runtime>,
}

impl Ledger {
    /// Opens a store: `memory:`, a path, or `file:PATH`.
    pub fn open(url: impl Into<StoreUrl>) -> Result<Self, store::Error> {
        Self::build(ledger::Ledger::builder(), url)
    }

    /// Opens a ledger with policies and recipes of its own.
    pub fn build(builder: ledger::Builder, url: impl Into<StoreUrl>) -> Result<Self, store::Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build();
        let runtime = Arc::new(runtime.map_err(|error| store::Error::Other(error.to_string()))?);
        let inner = runtime.block_on(builder.open(url))?;
        Ok(Self { inner, runtime })
    }

    /// Builds a guarded call of an operation.
    pub fn operation(&self, name: &str) -> CallBuilder {
        CallBuilder { inner: self.inner.operation(name), ledger: self.clone() }
    }

    /// Builds a guarded call for a message from a queue. See [`crate::Ledger::consume`].
    pub fn consume(&self, source: &str, message_id: &str) -> CallBuilder {
        CallBuilder { inner: self.inner.consume(source, message_id), ledger: self.clone() }
    }

    /// Builds a guarded call for an event of an event source. See [`crate::Ledger::consume_event`].
    pub fn consume_event(&self, source: &str, aggregate: &str, sequence: u64) -> CallBuilder {
        CallBuilder { inner: self.inner.consume_event(source, aggregate, sequence), ledger: self.clone() }
    }
}

/// The same builder methods as those of [`crate::CallBuilder`].
macro_rules! same {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*);)*) => {
        impl CallBuilder {
            $($(#[$doc])* pub fn $name(mut self $(, $argument: $kind)*) -> Self {
                self.inner = self.inner.$name($($argument),*);
                self
            })*
        }
    };
}

same! {
    /// The tenant that the intent belongs to.
    tenant(tenant: &str);
    /// The caller's session: part of a derived key.
    session(session: &str);
    /// The caller's own key.
    key(key: &str);
    /// One item of a stream, instead of a key. See [`crate::CallBuilder::item`].
    item(stream: &str, number: u64);
    /// The number with which the stream starts: 1 unless given.
    starts_at(number: u64);
    /// The intent as JSON text.
    intent_json(text: &[u8]);
    /// Uses this policy instead of the configured one.
    policy(policy: Policy);
    /// How much is at stake.
    tier(tier: Tier);
    /// What happens in doubt.
    in_doubt(in_doubt: InDoubt);
    /// What an error without a class means.
    on_error(on_error: OnError);
    /// How long the work should take at most: sizes the lease.
    max_runtime(max_runtime: Duration);
    /// How long the outcome is kept.
    retention(retention: Duration);
    /// How long a repeat waits for a running one.
    wait(wait: Duration);
    /// The work calls [`Claim::sent`] before the first byte leaves.
    marks_sent();
    /// The work asks the downstream first when [`Claim::probe_first`] says so.
    probes();
}

impl CallBuilder {
    /// The arguments that carry the intent.
    pub fn intent<T: Serialize + ?Sized>(mut self, intent: &T) -> Self {
        self.inner = self.inner.intent(intent);
        self
    }

    /// Runs the work once, on this thread. See [`crate::CallBuilder::run`].
    pub fn run<T>(&self, work: impl FnOnce(Claim) -> Result<T, Failure>) -> Result<Done<T>, Error>
    where
        T: Serialize + DeserializeOwned,
    {
        let runtime = &self.ledger.runtime;
        let call = self.inner.call()?;
        let to_work = |claim| Claim { inner: claim, runtime: Arc::clone(runtime) };
        let guard = match runtime.block_on(self.ledger.inner.start(&call, StartOptions::default()))? {
            Started::Acquired(guard) => guard,
            Started::Answered(decision) => return replay(call.name(), decision),
            Started::Unguarded { claim, .. } => return unguarded(&call, work(to_work(claim))),
        };
        let claim = guard.claim();
        let for_work = to_work(claim.clone());
        match catch_unwind(AssertUnwindSafe(|| work(for_work))) {
            Ok(result) => runtime.block_on(guard.settle(result, claim.marked_sent())),
            Err(panic) => {
                let _ = runtime.block_on(guard.doubt(Some("the work panicked")));
                resume_unwind(panic)
            }
        }
    }
}

impl Claim {
    /// The key to pass downstream: the same on every attempt of this intent.
    pub fn downstream_key(&self) -> &str {
        self.inner.downstream_key()
    }

    /// The key of the intent.
    pub fn key(&self) -> &str {
        self.inner.key()
    }

    /// The number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.inner.attempt()
    }

    /// Whether an earlier attempt may have happened, so that the work must ask the downstream before it sends anything.
    pub fn probe_first(&self) -> bool {
        self.inner.probe_first()
    }

    /// Records that the downstream was asked and knows of no earlier attempt: the doubt is settled.
    pub fn not_found(&self) -> Result<(), Error> {
        self.runtime.block_on(self.inner.not_found())
    }

    /// Marks that the first byte is about to leave. From here on a missing answer is a doubt.
    pub fn sent(&self) -> Result<(), Error> {
        self.runtime.block_on(self.inner.sent())
    }
}
