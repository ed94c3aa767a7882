//! A store in which every call waits at a gate before it is carried out, and its answer at another before it arrives.
//! Who may pass next is for the schedule to say, so that calls overtake each other in every way in which they can.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::FutureExt;
use onceward::clock::Clock;
use onceward::core::hash::Digest;
use onceward::core::record::{Draft, Fence, Lease, Record, Seen, State, Status};
use onceward::core::time::{Timestamp, When};
use onceward::store::memory::Memory;
use onceward::store::{Counts, Cursor, Entry, Error, Event, Filter, Inserted, Page, Purged, Replace, Replaced, Store};
use tokio::sync::oneshot;

use super::Lie;
use super::history::History;
use super::plan::actor_of_lease;
use crate::standing;

tokio::task_local! {
    /// The caller in whose own task a call is made.
    pub static ACTOR: usize;
}

/// What becomes of a call at its gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is carried out and answered.
    Pass,
    /// It is not carried out, and an error is the answer.
    Fail,
    /// It is carried out, and an error is the answer.
    Lose,
}

/// Somebody who waits at a gate.
#[derive(Debug)]
pub struct Waiting {
    /// A call that is not carried out yet; otherwise an answer that has not arrived, or a caller that has not begun.
    pub is_call: bool,
    pub open: oneshot::Sender<Fate>,
}

/// What all ledgers of one schedule share.
#[derive(Debug)]
pub struct Shared {
    real: Memory,
    clock: Arc<dyn Clock>,
    lie: Option<Lie>,
    state: Mutex<Traffic>,
}

/// What goes on at the gates.
#[derive(Debug, Default)]
pub struct Traffic {
    pub waiting: Vec<Waiting>,
    pub history: History,
    /// How many steps the schedule has made.
    pub step: u64,
    /// Callers that were told that somebody is at it, and have asked nothing since.
    pub asleep: Vec<Asleep>,
    /// Ends of claims that have arrived at their ledger: ledger, intent, and the step.
    pub ends: Vec<(usize, Digest, u64)>,
    /// Callers that slept on although the end that they waited for had arrived.
    pub missed: Vec<String>,
    pub conflicts: u64,
    pub faults: u64,
}

impl Traffic {
    /// At a moment when nobody has anything to do without the store, nobody may sleep who began to look before an end
    /// of that intent arrived in the same ledger: the end wakes everybody.
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
pub struct Asleep {
    pub actor: usize,
    pub ledger: usize,
    pub id: Digest,
    /// When it began to look.
    pub asked: u64,
}

impl Shared {
    pub fn new(clock: Arc<dyn Clock>, lie: Option<Lie>, keys: &[Digest]) -> Arc<Self> {
        let real = Memory::new(Arc::clone(&clock));
        let traffic = Traffic { history: History::of(keys, clock.now()), ..Traffic::default() };
        Arc::new(Self { real, clock, lie, state: Mutex::new(traffic) })
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
        self.traffic().waiting.push(Waiting { is_call, open });
        opened.await.unwrap_or(Fate::Pass)
    }
}

/// The store of one ledger.
#[derive(Debug)]
pub struct Gated {
    ledger: usize,
    shared: Arc<Shared>,
}

impl Gated {
    pub fn new(ledger: usize, shared: &Arc<Shared>) -> Arc<Self> {
        Arc::new(Self { ledger, shared: Arc::clone(shared) })
    }

    /// Carries a call out between two gates, in a task of its own: as with a real store, a caller that goes away takes
    /// back nothing that it has sent.
    async fn call<A: Send + 'static>(
        &self,
        act: impl FnOnce(&Shared) -> Result<A, Error> + Send + 'static,
    ) -> Result<A, Error> {
        let shared = Arc::clone(&self.shared);
        let carried = tokio::spawn(async move {
            let fate = shared.pass(true).await;
            let lost = || Err(Error::Unreachable("the schedule says so".into()));
            if fate != Fate::Pass {
                shared.traffic().faults += 1;
            }
            let answer = if fate == Fate::Fail { lost() } else { act(&shared) };
            shared.pass(false).await;
            if fate == Fate::Lose { lost() } else { answer }
        });
        carried.await.unwrap_or(Err(Error::Closed))
    }

    fn wakes_up(&self, actor: Option<usize>) {
        self.shared.traffic().asleep.retain(|one| Some(one.actor) != actor);
    }
}

impl Shared {
    /// What the store holds may have changed: the history has it, with the claim's owner.
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
        Ok(match (self.lie, inserted) {
            (Some(Lie::Everybody), Inserted::Exists(seen)) => Inserted::Created { now: seen.now },
            (_, inserted) => inserted,
        })
    }

    fn replace(&self, mut replace: Replace) -> Result<Replaced, Error> {
        if self.lie == Some(Lie::Blind)
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

/// Who makes a write: claims and renewals are known by the length of their lease, ends by their fence.
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
impl Store for Gated {
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
            self.shared.traffic().asleep.push(Asleep { actor, ledger: self.ledger, id, asked });
        }
        answer
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

    async fn append(&self, id: Digest, event: Event) -> Result<(), Error> {
        self.call(move |shared| shared.real.append(id, event).now_or_never().unwrap_or(Err(Error::Closed))).await
    }

    async fn trail(&self, id: Digest) -> Result<Vec<Entry>, Error> {
        self.shared.real.trail(id).await
    }

    fn now(&self) -> Option<Timestamp> {
        let now = self.shared.clock.now();
        Some(match self.shared.lie {
            Some(Lie::SlowClock) => Timestamp::from_millis(now.as_millis() - 200),
            _ => now,
        })
    }
}
