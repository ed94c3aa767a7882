//! The outbox: queues entries, takes due ones for a courier, and carries out what people decide about them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio::time::Instant;

use onceward_core::decide::{Again, Command, CommandResult, Decision, Enqueue, LeaseEntry, Take, Undelivered};
use onceward_core::json::Value;
use onceward_core::name::Identity;
use onceward_core::outbox::{AfterAttempt, Destination, Entry, Priority};
use onceward_core::policy::{DEFAULT_MAX_ATTEMPTS, LARGEST_PAYLOAD, Policy, Terms};
use onceward_core::record::Seen;

use super::begin::{Attempt, GIVE_BACK_PAUSE, new_fence, take, withdrawal};
use super::guard::{Guard, WriteResult};
use super::lease::{Renewal, renew_after};
use super::owned_claim::shortened;
use super::settle::{Resolved, Resolver};
use super::{Call, CallBuilder, Ledger};
use crate::error::{Error, Invalid};
use crate::plant::{Plant, planted};
use crate::step::{Step, reached};
use crate::store::{self, AuditEvent, DueEntries, DueQuery, EventKind, without_nul};

/// How an entry is queued.
#[derive(Clone, Copy, Debug, Default)]
pub struct EnqueueOptions {
    /// How long to wait before the first attempt.
    pub delay: Duration,
    /// Which entries go first.
    pub priority: Priority,
    /// The entry is tried only for this long; then it is dead. `None` means without a limit.
    pub deliver_within: Option<Duration>,
    /// Keeps the payload in the record after delivery. Otherwise it is erased.
    pub keep_payload: bool,
}

/// The answer to [`CallBuilder::enqueue`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// This call queued the entry.
    Created,
    /// The intent is there already. The decision says how it stands: queued, in flight, in doubt, done with its outcome, or dead.
    Existing(Decision),
}

impl CallBuilder {
    /// Queues the intent for a courier, with this payload. The payload is also the intent that a key is derived from and that
    /// repeats are compared with, unless [`CallBuilder::intent`] names another one. Ten calls make one entry.
    pub async fn enqueue<T: Serialize + ?Sized>(
        &self,
        payload: &T,
        options: EnqueueOptions,
    ) -> Result<Enqueued, Error> {
        let text = serde_json::to_vec(payload).map_err(|error| Invalid::Payload(error.to_string()))?;
        self.enqueue_json(text, options).await
    }

    /// The same for a payload that is JSON text already. It is kept byte for byte.
    pub async fn enqueue_json(&self, payload: Vec<u8>, options: EnqueueOptions) -> Result<Enqueued, Error> {
        let value = Value::parse(&payload).map_err(Invalid::from)?;
        let call = match self.has_intent() {
            true => self.call()?,
            false => self.clone().intent_value(value).call()?,
        };
        self.ledger.enqueue(&call, payload, options).await
    }
}

/// An entry that a courier has taken.
#[derive(Debug)]
pub struct TakenEntry {
    /// The claim. Its lease is renewed until the attempt has ended.
    pub guard: Guard,
    /// The record, with the payload and the destination of this attempt.
    pub seen: Seen,
    /// An earlier attempt may have happened: the sink must be asked before anything is sent.
    pub probe_first: bool,
}

/// The answer to [`Ledger::take_entry`].
#[derive(Debug)]
pub enum Taking {
    /// The entry is this courier's.
    Taken(Box<TakenEntry>),
    /// It is another courier's, it was set aside, or it is no longer due.
    NotTaken,
}

impl Ledger {
    /// Queues a call for a courier.
    pub async fn enqueue(&self, call: &Call, payload: Vec<u8>, options: EnqueueOptions) -> Result<Enqueued, Error> {
        if payload.len() > LARGEST_PAYLOAD {
            return Err(Invalid::LargePayload { size: payload.len() }.into());
        }
        let entry = Entry {
            priority: options.priority,
            deliver_within: options.deliver_within,
            keeps_payload: options.keep_payload,
            ..Entry::default()
        };
        let terms = terms_of_entry(&call.policy);
        self.home(&call.identity.operation).queue(call, terms, payload.into(), entry, options.delay).await
    }

    /// Queues a call in this store.
    pub(super) async fn queue(
        &self,
        call: &Call,
        terms: Terms,
        payload: Bytes,
        entry: Entry,
        delay: Duration,
    ) -> Result<Enqueued, Error> {
        self.check_durability(call).await?;
        self.inner.place(&call.identity).await?;
        let identity = call.identity.clone();
        let (key_digest, fingerprint) = (call.key_digest, call.fingerprint);
        let command = Command::Enqueue(Enqueue { identity, key_digest, fingerprint, terms, payload, entry, delay });
        if planted(Plant::EntryNotWritten) {
            return Ok(Enqueued::Created);
        }
        let applied = self.inner.apply(None, &command, None).await.map_err(|error| error.about(call.name()))?;
        match applied.answer {
            CommandResult::Decision(Decision::Queued { created: true }) => {
                reached(Step::EntryQueued);
                self.inner.queued.notify_one();
                Ok(Enqueued::Created)
            }
            CommandResult::Decision(decision @ (Decision::Mismatch | Decision::Collision | Decision::MixedUse)) => {
                Err(Error::of_decision(call.name(), decision))
            }
            CommandResult::Decision(decision) => Ok(Enqueued::Existing(decision)),
            _ => Err(Error::Contended { intent: call.name() }),
        }
    }

    /// Resolves when this process has queued an entry, also if that was before the call. Entries of other processes are found by
    /// looking.
    pub async fn entry_queued(&self) {
        let queued = self.parts().map(|(_, ledger)| Box::pin(ledger.inner.queued.notified()));
        futures_util::future::select_all(queued).await;
    }

    /// The entries of an operation that are due.
    pub async fn due(&self, queue: &DueQuery) -> Result<DueEntries, store::Error> {
        self.home(&queue.operation).inner.store.due(queue).await
    }

    /// Takes an entry that was due, to make one attempt. If it was found a while ago, `seen.now` says what time it is meanwhile,
    /// unless the store knows its time without a query. An entry that may not be tried any more is set aside in the same step:
    /// it is dead, or it waits for a person.
    pub async fn take_entry(
        &self,
        mut seen: Seen,
        destination: Destination,
        policy: &Arc<Policy>,
    ) -> Result<Taking, Error> {
        let Some(identity) = seen.record.identity.clone() else { return Ok(Taking::NotTaken) };
        let ledger = self.home(&identity.operation).clone();
        // Meanwhile the downstream may have forgotten the key, or the time for the delivery may be over.
        if let Some(now) = ledger.inner.store.now().filter(|_| !planted(Plant::LookIsBelieved)) {
            seen.now = seen.now.max(now);
        }
        let (key_digest, fingerprint) = (seen.record.key_digest, seen.record.fingerprint);
        let call =
            Call { identity, key_digest, fingerprint, policy: Arc::clone(policy), item: None, again: Again::default() };
        let due = Instant::now() + renew_after(policy.lease());
        let this = ledger.clone();
        let attempt = Box::pin(async move { this.lease(call, seen, destination).await });
        match ledger.inner.leases.begin(due, attempt).await? {
            Attempt::Acquired(guard) => {
                let (seen, probe_first) = (guard.seen(), guard.claim().probe_first());
                Ok(Taking::Taken(Box::new(TakenEntry { guard, seen, probe_first })))
            }
            Attempt::Answered(_) | Attempt::Undecided | Attempt::Stale => Ok(Taking::NotTaken),
        }
    }

    async fn lease(
        &self,
        call: Call,
        seen: Seen,
        destination: Destination,
    ) -> Result<Attempt<(Guard, Renewal)>, Error> {
        let started = Instant::now();
        let take = Take { fence: new_fence()?, owner: self.inner.store.owner(), ..take(&call, call.policy.lease()) };
        let command = Command::Lease(LeaseEntry { take, destination });
        let applied = match self.inner.apply_once(seen, &command).await {
            Ok(applied) => applied,
            Err(error) => {
                // The claim may have been written. Nothing was sent under it, so it is not left to lapse into a doubt.
                let why = "the store failed before the attempt began";
                if !planted(Plant::EntryNotGivenBack) {
                    self.give_back(call.identity.digest(), withdrawal(take.fence, why), None, GIVE_BACK_PAUSE);
                }
                return Err(error.about(call.name()));
            }
        };
        let (CommandResult::Decision(Decision::Acquired(acquired)), Some(written)) = (applied.answer, applied.written)
        else {
            return Ok(Attempt::Stale);
        };
        let (guard, mut renewal) = Guard::new(self.clone(), &call, acquired, written, started);
        // A guard that is dropped here has not started, and is withdrawn.
        Ok(if renewal.is_held().await { Attempt::Acquired((guard, renewal)) } else { Attempt::Stale })
    }

    /// Has a dead entry tried again. `version` is that of the record on which the decision is based.
    pub async fn requeue(
        &self,
        identity: &Identity,
        version: u64,
        fresh_key: bool,
        by: Resolver<'_>,
        note: Option<&str>,
    ) -> Result<Resolved, Error> {
        let resolved = self
            .decide_on_entry(identity, Command::Requeue { version, fresh_key }, EventKind::Requeued, by, note)
            .await?;
        if resolved == Resolved::Settled {
            self.home(&identity.operation).inner.queued.notify_one();
        }
        Ok(resolved)
    }

    /// Takes an entry out of the outbox that has not been delivered and is not being delivered.
    pub async fn cancel(
        &self,
        identity: &Identity,
        version: u64,
        by: Resolver<'_>,
        note: Option<&str>,
    ) -> Result<Resolved, Error> {
        self.decide_on_entry(identity, Command::Cancel { version }, EventKind::Cancelled, by, note).await
    }

    async fn decide_on_entry(
        &self,
        identity: &Identity,
        command: Command,
        what: EventKind,
        by: Resolver<'_>,
        note: Option<&str>,
    ) -> Result<Resolved, Error> {
        let [name, token, note] = [by.by, by.token, note].map(|text| text.map(without_nul));
        let event = AuditEvent { what, by: name, token, note };
        let home = self.holding(identity).await?;
        let applied = home.inner.apply_by_id(identity.digest(), &command, Some(event)).await;
        let applied = applied.map_err(|error| error.about(identity.to_string()))?;
        home.inner.waiters.wake(&identity.digest());
        Ok(match applied.answer {
            CommandResult::Refused(refusal) => Resolved::Refused(refusal),
            _ => Resolved::Settled,
        })
    }
}

/// The terms of an entry. Its attempts are counted.
pub(super) fn terms_of_entry(policy: &Policy) -> Terms {
    let max_attempts = policy.max_attempts.unwrap_or(DEFAULT_MAX_ATTEMPTS);
    Terms { max_attempts: Some(max_attempts), ..policy.terms() }
}

/// The end of an attempt that did not deliver its entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptFailure {
    /// Whether the attempt may have happened. Otherwise there is a proof that it did not.
    pub may_have_happened: bool,
    /// How long to wait before the next attempt.
    pub retry_in: Duration,
    /// Whether there is a next attempt.
    pub after: AfterAttempt,
    /// What went wrong.
    pub error: String,
}

impl Guard {
    /// Records that the attempt did not deliver the entry.
    pub async fn undelivered(self, failure: AttemptFailure) -> Result<WriteResult, Error> {
        let AttemptFailure { may_have_happened, retry_in, after, error } = failure;
        let (fence, error) = (self.fence(), Some(shortened(&error)));
        let end = Undelivered { fence, may_have_happened, retry_in, after, error };
        let ended = self.end(Command::Undelivered(end)).await;
        reached(Step::UndeliveredWritten);
        Ok(ended?)
    }
}
