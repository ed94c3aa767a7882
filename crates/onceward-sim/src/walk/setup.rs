//! The ledgers of one run, its intents, and their calls.

use std::sync::Arc;
use std::time::Duration;

use onceward::clock::{Clock, ManualClock};
use onceward::core::policy::{Policy, Retention};
use onceward::store::Store;
use onceward::store::memory::Memory;
use onceward::store::sqlite::Sqlite;
use onceward::{CallBuilder, InDoubt, Ledger, OnError};
use tempfile::TempDir;

use super::oracle::{Caller, MEMORY, RETENTION, RUNTIME, TOMBSTONE, Terms};
use super::store_switch::StoreSwitch;
use crate::private_store::PrivateStore;
use crate::rng::Rng;

/// One in this many runs is on files, which take a thousand times as long as memory.
const ON_FILES: u64 = 8;

/// Answers over this size are not kept.
pub const KEEP_LIMIT: usize = 64;

const TENANTS: [&str; 2] = ["acme", "umbra"];

/// A kind of effect, with its policy.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    name: &'static str,
    pub in_doubt: InDoubt,
    tombstone: i64,
    pub on_error: OnError,
}

const KINDS: [Kind; 4] = [
    Kind { name: "held", in_doubt: InDoubt::Hold, tombstone: TOMBSTONE, on_error: OnError::Classify },
    Kind { name: "retried", in_doubt: InDoubt::Retry, tombstone: TOMBSTONE, on_error: OnError::Doubt },
    Kind { name: "probed", in_doubt: InDoubt::Probe, tombstone: TOMBSTONE, on_error: OnError::Keep },
    Kind { name: "brief", in_doubt: InDoubt::Hold, tombstone: 0, on_error: OnError::Doubt },
];

/// An intent, by the numbers of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IntentId {
    pub tenant: usize,
    kind: usize,
    name: usize,
}

/// The name of the intent inside its tenant and operation.
enum Name {
    Key(&'static str),
    /// Derived from the arguments, in this session.
    Derived(&'static str),
}

const NAMES: [Name; 4] = [Name::Key("k0"), Name::Key("k1"), Name::Derived(""), Name::Derived("s")];

impl IntentId {
    /// Picks a few intents that differ in every part of their identity.
    pub fn some(rng: &mut Rng) -> Vec<Self> {
        let kinds = pair(rng, KINDS.len());
        let names = pair(rng, NAMES.len());
        let mut all = Vec::new();
        for tenant in 0..TENANTS.len() {
            for kind in kinds {
                all.extend(names.map(|name| Self { tenant, kind, name }));
            }
        }
        all
    }

    pub fn kind(self) -> Kind {
        KINDS[self.kind]
    }

    pub fn tenant(self) -> &'static str {
        TENANTS[self.tenant]
    }

    /// Whether the whole request is in the key, so that another request is another intent.
    pub fn is_derived(self) -> bool {
        matches!(NAMES[self.name], Name::Derived(_))
    }

    /// A caller with this request. One in four asks for looser terms than the record has, and some for stricter ones.
    pub fn caller(self, rng: &mut Rng) -> Caller {
        let kind = self.kind();
        let in_doubt = rng.weighted(&[(5, kind.in_doubt), (2, InDoubt::Retry), (1, InDoubt::Hold)]);
        let request = if self.is_derived() { 0 } else { u64::from(rng.one_in(5)) };
        Caller { request, terms: Terms { in_doubt, tombstone: kind.tombstone }, marks: rng.one_in(3) }
    }
}

impl std::fmt::Display for IntentId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match NAMES[self.name] {
            Name::Key(key) => key.to_owned(),
            Name::Derived("") => "derived".to_owned(),
            Name::Derived(session) => format!("derived in session {session}"),
        };
        write!(f, "{} {} {name}", self.tenant(), self.kind().name)
    }
}

fn pair(rng: &mut Rng, of: usize) -> [usize; 2] {
    let below = |rng: &mut Rng, end: usize| usize::try_from(rng.below(end as u64)).unwrap_or(0);
    let first = below(rng, of);
    [first, (first + 1 + below(rng, of - 1)) % of]
}

/// The ledgers of one run.
pub struct Setup {
    pub clock: ManualClock,
    /// Two, as two processes have them: on one store, each with its own cache.
    pub ledgers: Vec<Ledger>,
    /// In front of a store in memory.
    pub store_switch: Option<Arc<StoreSwitch>>,
    _folder: Option<TempDir>,
    _server: Option<PrivateStore>,
}

impl Setup {
    pub async fn set(run: u64) -> Self {
        let clock = ManualClock::default();
        if run % ON_FILES != ON_FILES - 1 {
            let store_switch = Arc::new(StoreSwitch::before(Arc::new(Memory::new(Arc::new(clock.clone())))));
            let ledgers = (0..2).map(|_| Ledger::builder().on(Arc::clone(&store_switch) as Arc<dyn Store>)).collect();
            return Self { clock, ledgers, store_switch: Some(store_switch), _folder: None, _server: None };
        }
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = folder.path().join("ledger.db");
        let mut ledgers = Vec::new();
        for _ in 0..2 {
            let store = Sqlite::open(&path, Arc::new(clock.clone())).await.expect("a ledger can be made");
            ledgers.push(Ledger::builder().on(Arc::new(store)));
        }
        Self { clock, ledgers, store_switch: None, _folder: Some(folder), _server: None }
    }

    /// A new ledger on a server.
    pub async fn on(server: &str) -> Self {
        let (clock, server) = (ManualClock::default(), PrivateStore::create(server).await);
        let mut ledgers = Vec::new();
        for _ in 0..2 {
            ledgers.push(Ledger::builder().on(server.open(Arc::new(clock.clone())).await));
        }
        Self { clock, ledgers, store_switch: None, _folder: None, _server: Some(server) }
    }

    pub fn now(&self) -> i64 {
        self.clock.now().as_millis()
    }

    /// The call, in one of its equivalent spellings.
    pub fn operation(&self, ledger: usize, id: IntentId, caller: Caller, rng: &mut Rng) -> CallBuilder {
        let kind = id.kind();
        let policy = Policy {
            in_doubt: caller.terms.in_doubt,
            on_error: kind.on_error,
            retention: Some(Retention::For(millis(RETENTION))),
            tombstone: Some(millis(caller.terms.tombstone)),
            max_runtime: millis(RUNTIME),
            honours_key_for: millis(MEMORY),
            marks_sent: caller.marks,
            probes: true,
            keep_limit: KEEP_LIMIT,
            ..Policy::default()
        };
        let amount = caller.request;
        let text = match rng.below(3) {
            0 => format!("{{\"amount\":{amount},\"to\":\"x\"}}"),
            1 => format!("{{\"to\":\"x\",\"amount\":{amount}}}"),
            _ => format!(" {{ \"to\" : \"\\u0078\" , \"amount\" : {amount}.0 }} "),
        };
        let call = self.ledgers[ledger].operation(kind.name).tenant(id.tenant()).policy(policy);
        let call = call.intent_json(text.as_bytes());
        match NAMES[id.name] {
            Name::Key(key) => call.key(key),
            Name::Derived(session) => call.session(session),
        }
    }
}

pub fn millis(millis: i64) -> Duration {
    Duration::from_millis(millis.unsigned_abs())
}
