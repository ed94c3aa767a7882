//! Batches of due entries for workers in other processes. A worker names its request by a lease id. The same id never gets a
//! second batch: before an entry is leased, a record of the ledger says which entries belong to the id.
//!
//! The record names each entry and the version at which it was chosen, and no fence. Which entries are held is in their own
//! records: each remembers the lease id of its claim. A repeat therefore gets what is still held, and leases what was chosen and
//! never leased, because the server ended in between.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::time::Instant;

use onceward_core::claim::ClaimId;
use onceward_core::decide::{
    Acquired, Again, Command, CommandResult, Decision, LeaseEntry, Refusal, Take, Write, decide,
};
use onceward_core::fingerprint;
use onceward_core::hash::Digest;
use onceward_core::name::{Identity, Key, Operation, Tenant};
use onceward_core::outbox::Destination;
use onceward_core::outcome::{Body, Outcome};
use onceward_core::policy::{InDoubt, LONGEST_LEASE, Policy, Retention};
use onceward_core::record::{Lease, Phase, Record, Seen, State, downstream_key};

use super::begin::{Begun, new_fence};
use super::guard::WriteResult;
use super::lease::FinishOnDrop;
use super::remote::{self, ClaimOffer};
use super::{Call, Ledger};
use crate::error::{Error, Invalid};
use crate::store::{self, DueQuery};

/// The operation of the records that say which entries belong to a lease id. Not for callers.
pub const LEASES: &str = "onceward/leases";

/// The sink of entries that workers fetch.
pub const SINK: &str = "pull";

/// The most entries of one batch: one write leases them all.
pub const MAX_ENTRIES: usize = 100;

/// The most operations of one request: each of them is looked at in turn.
pub const MAX_OPERATIONS: usize = 20;

/// The most payload bytes of one batch, unless its first entry alone has more. A batch is built in memory.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// How often to look again while nothing is due: entries of other processes, and those whose time comes, are found by looking.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// How often to ask for the batch of another request with the same id.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// How often to look again at once, because the entries that were found may not be tried any more and were set aside.
const MAX_LOOKS: usize = 32;

/// How long to wait for a request with the same id that is about to record its batch. That takes two writes.
const OTHER_REQUEST: Duration = Duration::from_secs(5);

/// How long a batch is remembered at least: longer than proxies and clients repeat a request.
const SHORTEST_MEMORY: Duration = Duration::from_secs(600);

/// A worker that asks for entries.
#[derive(Clone, Debug)]
pub struct PullRequest {
    /// Only entries of this tenant.
    pub tenant: Tenant,
    /// The id that the worker chose for this request.
    pub lease_id: ClaimId,
    /// The entries of these operations.
    pub operations: Vec<Operation>,
    /// At most this many entries, and never more than [`MAX_ENTRIES`].
    pub limit: usize,
    /// How long to wait until an entry is due.
    pub wait: Duration,
    /// How long each entry is leased. Unless given, as the policy of its operation says.
    pub lease: Option<Duration>,
    /// The worker marks each entry as sent before it acts.
    pub marks_sent: bool,
    /// The worker asks the downstream first when it is told to.
    pub probes: bool,
}

/// The answer to [`Ledger::pull`].
#[derive(Debug)]
pub enum Pulled {
    /// The entries are the worker's, once it has been told so. There are none if nothing was due.
    Leased(Vec<ClaimOffer>),
    /// What is still held of the batch that an earlier request with this id got.
    LeasedBefore(Vec<ClaimOffer>),
    /// An earlier request with this id asked for something else.
    Mismatch,
}

/// An entry of a batch, as the record of the batch names it.
#[derive(Debug, Serialize, Deserialize)]
struct Listed {
    operation: Operation,
    id: Digest,
    /// It is leased only while its record has this version: later, it may be another worker's.
    version: u64,
}

/// What is known of a lease id.
enum Batch {
    New,
    /// Another request with this id is about to record its batch.
    BeingRecorded,
    Recorded(Vec<Listed>),
    Mismatch,
}

/// What requests of this process are at: the records of their batches, so that one request waits for another with the same id,
/// and the entries that they are about to lease, so that no other request chooses those meanwhile.
#[derive(Clone, Debug, Default)]
pub(super) struct InProgress(Arc<Mutex<HashSet<Digest>>>);

/// A request in progress. Dropped, the next one with the same id goes on.
struct Request {
    batch: Digest,
    in_progress: InProgress,
}

/// Entries that one request has chosen. Dropped, they can be chosen again.
struct Choice {
    entries: Vec<Seen>,
    /// Some may not be tried any more, and have made room for others.
    set_aside: bool,
    in_progress: InProgress,
}

impl InProgress {
    fn lock(&self) -> MutexGuard<'_, HashSet<Digest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other request with this id is in progress; `None` if that takes too long.
    async fn begin(&self, batch: Digest, until: Instant) -> Option<Arc<Request>> {
        while !self.lock().insert(batch) {
            if Instant::now() > until {
                return None;
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
        Some(Arc::new(Request { batch, in_progress: self.clone() }))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.in_progress.lock().remove(&self.batch);
    }
}

impl Choice {
    fn add(&mut self, seen: Seen) {
        if self.in_progress.lock().insert(seen.record.id) {
            self.entries.push(seen);
        }
    }

    /// Whether one more payload of this size has room.
    fn has_room_for(&self, payload: usize) -> bool {
        let size = |seen: &Seen| seen.record.payload.as_ref().map_or(0, |payload| payload.len());
        self.entries.is_empty() || self.entries.iter().map(size).sum::<usize>() + payload <= MAX_BYTES
    }
}

impl Drop for Choice {
    fn drop(&mut self) {
        let mut in_progress = self.in_progress.lock();
        for seen in &self.entries {
            in_progress.remove(&seen.record.id);
        }
    }
}

impl Ledger {
    /// Leases due entries to a worker in another process, and waits for some if there are none. A worker that goes away before
    /// it has the answer leaves entries that are given back.
    pub async fn pull(&self, request: &PullRequest) -> Result<Pulled, Error> {
        let call = request.call(self)?;
        let until = Instant::now() + request.wait;
        let contended = || Error::Contended { intent: call.name() };
        let begun = self.inner.in_progress.begin(call.identity.digest(), until + OTHER_REQUEST).await;
        let in_progress = begun.ok_or_else(contended)?;
        let mut set_aside = 0;
        loop {
            let home = self.home(request.operations.first().unwrap_or(&call.identity.operation)).clone();
            let mut queued = pin!(home.inner.queued.notified());
            queued.as_mut().enable();
            match self.batch(&call).await? {
                Batch::Recorded(listed) => return self.again(request, listed).await,
                Batch::Mismatch => return Ok(Pulled::Mismatch),
                Batch::BeingRecorded if Instant::now() > until + OTHER_REQUEST => return Err(contended()),
                Batch::BeingRecorded => {
                    tokio::time::sleep(ASK_AGAIN).await;
                    continue;
                }
                Batch::New => {}
            }
            let choice = self.choose(request).await?;
            if !choice.entries.is_empty() {
                match self.record_and_lease(&call, request, choice, &in_progress).await? {
                    Some(pulled) => return Ok(pulled),
                    // Another request with this id came first.
                    None => tokio::time::sleep(ASK_AGAIN).await,
                }
                continue;
            }
            if choice.set_aside && set_aside < MAX_LOOKS {
                set_aside += 1;
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Pulled::Leased(Vec::new()));
            }
            tokio::select! {
                () = queued => {}
                () = tokio::time::sleep(LOOK_AGAIN.min(left)) => {}
            }
        }
    }

    async fn batch(&self, call: &Call) -> Result<Batch, Error> {
        let home = self.home(&call.identity.operation);
        let Some(seen) = home.inner.store.get(call.identity.digest()).await? else { return Ok(Batch::New) };
        Ok(match (&seen.record.state, seen.standing()) {
            (_, None) => Batch::New,
            _ if seen.record.fingerprint != call.fingerprint => Batch::Mismatch,
            (State::Done { outcome, .. }, _) => recorded(outcome)?,
            _ if seen.has_living_owner() => Batch::BeingRecorded,
            _ => Batch::New,
        })
    }

    /// Chooses due entries. Those that may not be tried any more are set aside here, and belong to no batch.
    async fn choose(&self, request: &PullRequest) -> Result<Choice, Error> {
        let in_progress = self.inner.in_progress.clone();
        let mut choice = Choice { entries: Vec::new(), set_aside: false, in_progress };
        let limit = request.limit.clamp(1, MAX_ENTRIES);
        // Each request begins with another operation, so that none waits behind the backlog of the first.
        let first = usize::from(request.lease_id.to_bytes()[0]) % request.operations.len().max(1);
        for operation in request.operations.iter().cycle().skip(first).take(request.operations.len()) {
            let room = limit - choice.entries.len();
            if room == 0 {
                break;
            }
            // The first ones may be those that other requests have chosen.
            let ahead = choice.in_progress.lock().len().min(MAX_ENTRIES * 10);
            let (operation, tenant) = (operation.clone(), Some(request.tenant.clone()));
            let queue = DueQuery { operation, tenant, after: None, limit: room + ahead, with_abandoned: true };
            for seen in self.due(&queue).await?.entries {
                if choice.entries.len() == limit || !queue.is_for(&seen.record) {
                    continue;
                }
                let transition = decide(Some(&seen), &self.lease_command(request, &seen.record)?);
                match (transition.answer, transition.write) {
                    (CommandResult::Decision(Decision::Acquired(_)), _) => {
                        let payload = seen.record.payload.as_ref().map_or(0, |payload| payload.len());
                        if choice.has_room_for(payload) {
                            choice.add(seen);
                        }
                    }
                    (_, Write::Replace(_)) => {
                        self.lease_entry(request, seen).await?;
                        choice.set_aside = true;
                    }
                    _ => {}
                }
            }
        }
        Ok(choice)
    }

    /// Records the batch, then leases its entries. Finished even if the worker goes away: then they are given back. `None` if
    /// another request with this id came first.
    async fn record_and_lease(
        &self,
        call: &Call,
        request: &PullRequest,
        choice: Choice,
        in_progress: &Arc<Request>,
    ) -> Result<Option<Pulled>, Error> {
        let (this, call, request, in_progress) = (self.clone(), call.clone(), request.clone(), Arc::clone(in_progress));
        FinishOnDrop::new(&Handle::current(), async move {
            let _in_progress = in_progress;
            let guard = match this.begin(&call).await? {
                Begun::Acquired(guard) => guard,
                Begun::Answered(_) => return Ok(None),
            };
            let listed: Vec<_> = choice.entries.iter().filter_map(|seen| Listed::of(&seen.record)).collect();
            let text = serde_json::to_vec(&listed).map_err(|error| store::Error::Other(error.to_string()))?;
            match guard.finish(Outcome::success(text)).await {
                Ok(WriteResult::Written) => {}
                Ok(WriteResult::Stale) => return Ok(None),
                // Nothing is leased yet.
                Err(Error::NotRecorded { source, .. }) => return Err(Error::Store(source)),
                Err(error) => return Err(error),
            }
            let leased = join_all(choice.entries.iter().map(|seen| this.lease_entry(&request, seen.clone()))).await;
            Ok(Some(Pulled::Leased(offers(leased)?)))
        })
        .await
    }

    /// The answer to a repeat.
    async fn again(&self, request: &PullRequest, listed: Vec<Listed>) -> Result<Pulled, Error> {
        let (this, request) = (self.clone(), request.clone());
        FinishOnDrop::new(&Handle::current(), async move {
            let leased = join_all(listed.iter().map(|entry| this.lease_listed(&request, entry))).await;
            Ok(Pulled::LeasedBefore(offers(leased)?))
        })
        .await
    }

    async fn lease_listed(&self, request: &PullRequest, listed: &Listed) -> Result<Option<ClaimOffer>, Error> {
        let home = self.home(&listed.operation);
        let Some(seen) = home.inner.store.get(listed.id).await? else { return Ok(None) };
        let is_ours = seen.record.identity.as_ref().is_some_and(|identity| identity.tenant == request.tenant);
        match is_ours && seen.record.version == listed.version {
            true => self.lease_entry(request, seen).await,
            false if is_ours => self.granted_again(request, seen).await,
            false => Ok(None),
        }
    }

    /// Leases one entry as it was seen. `None` if it is another worker's by now, or was set aside.
    async fn lease_entry(&self, request: &PullRequest, seen: Seen) -> Result<Option<ClaimOffer>, Error> {
        let Some(call) = self.call_of(&seen.record) else { return Ok(None) };
        let ledger = self.home(&call.identity.operation).clone();
        let (started, id) = (Instant::now(), seen.record.id);
        let command = self.lease_command(request, &seen.record)?;
        let lease = request.lease_of(&call.policy);
        // After an error the entry may be leased. It is not given back: a repeat of the request may have been granted it.
        let applied = ledger.inner.apply_once(seen, &command).await.map_err(|error| error.about(call.name()))?;
        match (applied.answer, applied.written) {
            (CommandResult::Decision(Decision::Acquired(acquired)), Some(written)) => {
                let mut offer = ClaimOffer::of_entry(ledger, call, acquired, written, request.lease_id, false);
                Ok(offer.is_held(started, lease).await.then_some(offer))
            }
            // Perhaps by another request with the same id.
            (CommandResult::Refused(Refusal::Changed), _) => match ledger.inner.store.get(id).await? {
                Some(seen) => self.granted_again(request, seen).await,
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// Grants an entry to its worker once more, with the same fence and a new lease. Always written: the version rises, so that
    /// an entry whose first answer was lost is not given back on account of that answer.
    async fn granted_again(&self, request: &PullRequest, seen: Seen) -> Result<Option<ClaimOffer>, Error> {
        let State::Leased(lease) = seen.record.state else { return Ok(None) };
        let is_held = seen.record.claims.current == Some(request.lease_id) && lease.phase != Phase::Overdue;
        let Some(call) = self.call_of(&seen.record).filter(|_| is_held && seen.has_living_owner()) else {
            return Ok(None);
        };
        let owner = self.remote_owner(call.identity.clone(), lease.fence);
        let remote::WriteResult::Written(seen) = owner.renew(Some(request.lease_of(&call.policy))).await? else {
            return Ok(None);
        };
        let acquired = acquired(&seen.record, &lease);
        let ledger = self.home(&call.identity.operation).clone();
        Ok(Some(ClaimOffer::of_entry(ledger, call, acquired, *seen, request.lease_id, true)))
    }

    fn lease_command(&self, request: &PullRequest, record: &Record) -> Result<Command, Error> {
        let policy = record.identity.as_ref().map(|identity| self.policy_of(identity)).unwrap_or_default();
        let key = record.identity.as_ref().map(|identity| downstream_key(identity, SINK, record.generation));
        let take = Take {
            fence: new_fence()?,
            lease: request.lease_of(&policy),
            marks_sent: request.marks_sent,
            probes: request.probes,
            // Whether this process is alive says nothing about the worker.
            owner: None,
            claim: Some(request.lease_id),
        };
        let destination = Destination { sink: SINK.to_owned(), key: key.unwrap_or_default() };
        Ok(Command::Lease(LeaseEntry { take, destination }))
    }

    fn call_of(&self, record: &Record) -> Option<Call> {
        let identity = record.identity.clone()?;
        let policy = self.policy_of(&identity);
        let (key_digest, fingerprint) = (record.key_digest, record.fingerprint);
        Some(Call { identity, key_digest, fingerprint, policy, item: None, again: Again::default() })
    }
}

impl PullRequest {
    fn lease_of(&self, policy: &Policy) -> Duration {
        self.lease.unwrap_or_else(|| policy.lease()).clamp(Duration::from_millis(1), LONGEST_LEASE)
    }

    /// The call whose outcome is the batch. It is remembered for longer than an entry of it can be held without a renewal, and a
    /// worker that renews has the answer.
    fn call(&self, ledger: &Ledger) -> Result<Call, Error> {
        let longest = self.operations.iter().map(|operation| {
            let settings = ledger.inner.operations.get(operation.as_str());
            self.lease_of(&settings.map(|settings| Arc::clone(&settings.policy)).unwrap_or_default())
        });
        let longest = longest.max().unwrap_or_default();
        let policy = Policy {
            retention: Some(Retention::For((longest * 2).max(SHORTEST_MEMORY))),
            tombstone: Some(Duration::ZERO),
            honours_key_for: Duration::ZERO,
            // A server that ends before the batch is recorded has leased nothing.
            marks_sent: true,
            max_runtime: OTHER_REQUEST,
            ..Policy::default()
        };
        let operations = self.operations.iter().map(|operation| operation.as_str().as_bytes().to_vec());
        let flags = [u8::from(self.marks_sent), u8::from(self.probes)].to_vec();
        let asked: Vec<_> = std::iter::once(flags).chain(operations).collect();
        let key: String = self.lease_id.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let (operation, key) = (Operation::new(LEASES), Key::new(&key));
        Ok(Call {
            identity: Identity {
                tenant: self.tenant.clone(),
                operation: operation.map_err(Invalid::from)?,
                key: key.map_err(Invalid::from)?,
            },
            key_digest: None,
            fingerprint: fingerprint::of_arguments(&asked),
            policy: Arc::new(policy),
            item: None,
            again: Again::Never,
        })
    }
}

impl Listed {
    fn of(record: &Record) -> Option<Self> {
        let operation = record.identity.as_ref()?.operation.clone();
        Some(Self { operation, id: record.id, version: record.version })
    }
}

fn recorded(outcome: &Outcome) -> Result<Batch, Error> {
    let Body::Kept(text) = &outcome.body else { return Ok(Batch::Recorded(Vec::new())) };
    let listed = serde_json::from_slice(text).map_err(|error| store::Error::Other(error.to_string()))?;
    Ok(Batch::Recorded(listed))
}

/// All of them, or the first error. The entries that were leased are given back with it.
fn offers(leased: Vec<Result<Option<ClaimOffer>, Error>>) -> Result<Vec<ClaimOffer>, Error> {
    leased.into_iter().filter_map(Result::transpose).collect()
}

fn acquired(record: &Record, lease: &Lease) -> Acquired {
    Acquired {
        fence: lease.fence,
        phase: lease.phase,
        attempt: record.attempts,
        generation: record.generation,
        probe_first: record.terms.in_doubt == InDoubt::Probe && record.doubt_since.is_some(),
        in_doubt: record.terms.in_doubt,
    }
}
