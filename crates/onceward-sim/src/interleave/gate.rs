//! A store in which every call waits at a gate before it is carried out, and its answer at another one before it
//! arrives. The schedule decides who passes next, so that calls overtake each other in every possible order.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::FutureExt;
use onceward::clock::Clock;
use onceward::core::hash::Digest;
use onceward::core::record::{Draft, Fence, Lease, Record, Seen, State, Status};
use onceward::core::time::{Timestamp, When};
use onceward::store::memory::Memory;
use onceward::store::{
    AuditEntry, AuditEvent, Counts, Cursor, DueEntries, DueQuery, Error, Filter, Inserted, Page, Purged, Replace,
    Replaced, Store,
};
use tokio::sync::oneshot;

use super::Fault;
use super::history::History;
use super::plan::actor_of_lease;
use crate::standing;

tokio::task_local! {
    /// The caller in whose own task a call is made.
    pub static ACTOR: usize;
}

/// What happens to a call at its gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is carried out and answered.
    Pass,
    /// It is not carried out, and the answer is an error.
    Fail,
    /// It is carried out, and the answer is an error.
    Lose,
}

/// A call or an answer that waits at a gate.
#[derive(Debug)]
pub struct WaitingCall {
    /// True for a call that is not carried out yet; false for an answer that has not arrived, or a caller that has not
    /// begun.
    pub is_call: bool,
    pub open: oneshot::Sender<Fate>,
}

/// What all ledgers of one schedule share.
#[derive(Debug)]
pub struct SharedStore {
    real: Memory,
    clock: Arc<dyn Clock>,
    fault: Option<Fault>,
    state: Mutex<Traffic>,
}

/// The state of the gates.
#[derive(Debug, Default)]
pub struct Traffic {
    pub waiting: Vec<WaitingCall>,
    pub history: History,
    /// How many steps the schedule has made.
    pub step: u64,
    /// Callers that were told that an owner is at work, and have not asked since.
    pub asleep: Vec<Sleeper>,
    /// Ends of claims that have arrived at their ledger: ledger, intent, and step.
    pub ends: Vec<(usize, Digest, u64)>,
    /// Callers that kept sleeping although the end that they waited for had arrived.
    pub missed: Vec<String>,
    pub conflicts: u64,
    pub faults: u64,
}

impl Traffic {
    /// When no task can continue without the store, no caller may still sleep that began to wait before an end of its
    /// intent arrived in the same ledger: the end wakes every waiter.
    pub fn look_for_sleepers(&mut self) {
        let Self { asleep, ends, missed, .. } = self;
        asleep.retain(|one| {
            let of_it = |(ledger, id, _): &&(usize, Digest, u64)| (*ledger, *id) == (one.ledger, one.id);
            let Some((_, _, step)) = ends.iter().filter(of_it).find(|(_, _, step)| *step > one.asked) else {
                return true;
            };
            missed.push(format!("caller {} was not woken by the end in step {step}: {one:?}", one.actor));
            false
        });
    }
}

/// A caller that waits for the owner's answer.
#[derive(Clone, Copy, Debug)]
pub struct Sleeper {
    pub actor: usize,
    pub ledger: usize,
    pub id: Digest,
    /// When it began to wait.
    pub asked: u64,
}

impl SharedStore {
    pub fn new(clock: Arc<dyn Clock>, fault: Option<Fault>, keys: &[Digest]) -> Arc<Self> {
        let real = Memory::new(Arc::clone(&clock));
        let traffic = Traffic { history: History::of(keys, clock.now()), ..Traffic::default() };
        Arc::new(Self { real, clock, fault, state: Mutex::new(traffic) })
    }

    pub fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Waits at a gate.
    pub async fn pass(&self, is_call: bool) -> Fate {
        let (open, opened) = oneshot::channel();
        self.traffic().waiting.push(WaitingCall { is_call, open });
        opened.await.unwrap_or(Fate::Pass)
    }
}

/// The store of one ledger.
#[derive(Debug)]
pub struct GatedStore {
    ledger: usize,
    shared: Arc<SharedStore>,
}

impl GatedStore {
    pub fn new(ledger: usize, shared: &Arc<SharedStore>) -> Arc<Self> {
        Arc::new(Self { ledger, shared: Arc::clone(shared) })
    }

    /// Carries a call out between two gates, in its own task: as with a real store, a caller that is dropped does not
    /// undo what it has sent.
    async fn call<A: Send + 'static>(
        &self,
        planned: impl FnOnce(&SharedStore) -> Result<A, Error> + Send + 'static,
    ) -> Result<A, Error> {
        let shared = Arc::clone(&self.shared);
        let carried = tokio::spawn(async move {
            let fate = shared.pass(true).await;
            let lost = || Err(Error::Unreachable("failed by the schedule".into()));
            if fate != Fate::Pass {
                shared.traffic().faults += 1;
            }
            let answer = if fate == Fate::Fail { lost() } else { planned(&shared) };
            shared.pass(false).await;
            if fate == Fate::Lose { lost() } else { answer }
        });
        carried.await.unwrap_or(Err(Error::Closed))
    }

    fn wakes_up(&self, actor: Option<usize>) {
        self.shared.traffic().asleep.retain(|one| Some(one.actor) != actor);
    }
}

impl SharedStore {
    /// Adds a change of the store to the history, with the owner of the claim.
    fn note(&self) {
        let now = self.clock.now();
        let mut traffic = self.traffic();
        for id in traffic.history.keys() {
            let record = self.look(id).map(|seen| seen.record);
            traffic.history.note(id, now, record);
        }
        traffic.history.passed();
    }

    fn look(&self, id: Digest) -> Option<Seen> {
        self.real.get(id).now_or_never().and_then(Result::ok).flatten()
    }

    fn insert(&self, draft: Draft, most: Option<u64>) -> Result<Inserted, Error> {
        let inserted = self.real.insert(draft, most).now_or_never().unwrap_or(Err(Error::Closed))?;
        self.note();
        Ok(match (self.fault, inserted) {
            (Some(Fault::AlwaysCreated), Inserted::Exists(seen)) => Inserted::Created { now: seen.now },
            (_, inserted) => inserted,
        })
    }

    fn replace(&self, mut replace: Replace) -> Result<Replaced, Error> {
        if self.fault == Some(Fault::NoCompare)
            && let Some(seen) = self.look(replace.draft.id)
        {
            (replace.fence, replace.version, replace.time) = (seen.record.fence(), seen.record.version, None);
        }
        let replaced = self.real.replace(replace).now_or_never().unwrap_or(Err(Error::Closed))?;
        self.note();
        self.traffic().conflicts += u64::from(matches!(replaced, Replaced::Conflict(_)));
        Ok(replaced)
    }
}

/// The caller of a write: claims and renewals are known by the length of their lease, ends by their fence.
fn writer(draft: &Draft, expected: Option<Fence>, history: &History) -> Option<usize> {
    match &draft.state {
        State::Leased(Lease { until: When::In(lease), .. }) => actor_of_lease(*lease),
        _ => history.owner(draft.id, expected?),
    }
}

fn is_running(seen: &Seen) -> bool {
    standing::status(&seen.record, seen.now, seen.owner_gone) == Some(Status::Running)
}

fn is_leased<T>(record: &Record<T>) -> bool {
    matches!(record.state, State::Leased(_))
}

#[async_trait]
impl Store for GatedStore {
    async fn insert(&self, draft: Draft, most: Option<u64>) -> Result<Inserted, Error> {
        let actor = writer(&draft, None, &self.shared.traffic().history);
        self.wakes_up(actor);
        self.call(move |shared| shared.insert(draft, most)).await
    }

    async fn replace(&self, replace: Replace) -> Result<Replaced, Error> {
        let actor = writer(&replace.draft, replace.fence, &self.shared.traffic().history);
        self.wakes_up(actor);
        let (id, ends) = (replace.draft.id, !is_leased(&replace.draft));
        let answer = self.call(move |shared| shared.replace(replace)).await;
        if ends && matches!(answer, Ok(Replaced::Written { .. })) {
            let mut traffic = self.shared.traffic();
            let step = traffic.step;
            traffic.ends.push((self.ledger, id, step));
        }
        answer
    }

    async fn get(&self, id: Digest) -> Result<Option<Seen>, Error> {
        let actor = ACTOR.try_with(|actor| *actor).ok();
        self.wakes_up(actor);
        let asked = self.shared.traffic().step;
        let answer = self.call(move |shared| Ok(shared.look(id))).await;
        if let (Some(actor), Ok(Some(seen))) = (actor, &answer)
            && is_running(seen)
        {
            self.shared.traffic().asleep.push(Sleeper { actor, ledger: self.ledger, id, asked });
        }
        answer
    }

    async fn due(&self, queue: &DueQuery) -> Result<DueEntries, Error> {
        let queue = queue.clone();
        self.call(move |shared| shared.real.due(&queue).now_or_never().unwrap_or(Err(Error::Closed))).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        self.call(move |shared| {
            let purged = shared.real.purge(limit).now_or_never().unwrap_or(Err(Error::Closed));
            shared.note();
            purged
        })
        .await
    }

    async fn list(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Result<Page, Error> {
        self.shared.real.list(filter, after, limit).await
    }

    async fn counts(&self, tenant: Option<&onceward::core::name::Tenant>) -> Result<Counts, Error> {
        self.shared.real.counts(tenant).await
    }

    async fn append(&self, id: Digest, event: AuditEvent) -> Result<(), Error> {
        self.call(move |shared| shared.real.append(id, event).now_or_never().unwrap_or(Err(Error::Closed))).await
    }

    async fn trail(&self, id: Digest) -> Result<Vec<AuditEntry>, Error> {
        self.shared.real.trail(id).await
    }

    fn now(&self) -> Option<Timestamp> {
        let now = self.shared.clock.now();
        Some(match self.shared.fault {
            Some(Fault::SlowClock) => Timestamp::from_millis(now.as_millis() - 200),
            _ => now,
        })
    }
}
