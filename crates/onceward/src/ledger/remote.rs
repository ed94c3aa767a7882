//! Claims whose owners are not in this process: a remote caller holds the fence, and comes back with it. The ledger renews
//! nothing on its behalf, and the end of this process says nothing about the owner: only the lease does.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use onceward_core::claim::ClaimId;
use onceward_core::decide::{self, Acquired, Command, CommandResult, Decision, Take};
use onceward_core::name::Identity;
use onceward_core::outbox::AfterAttempt;
use onceward_core::outcome::Outcome;
use onceward_core::policy::{LARGEST_KEEP_LIMIT, LONGEST_LEASE, LONGEST_NOT_BEFORE, Policy};
use onceward_core::record::{Fence, Seen, State, downstream_key};
use onceward_core::retry::backoff;

use super::apply::{Applied, ApplyError};
use super::begin::{Attempt, BeginRequest, Claimant, Prepared, take, undecided, withdrawal};
use super::late_report::LateReport;
use super::lease::{FinishOnDrop, renew_after};
use super::owned_claim::{OwnedClaim, shortened};
use super::start::StartResult;
use super::{Call, Ledger};
use crate::error::{Error, Invalid};

/// Options of [`Ledger::start_remote`].
#[derive(Clone, Copy, Debug, Default)]
pub struct StartOptions {
    wait: Option<Duration>,
    lease: Option<Duration>,
    claim_id: Option<ClaimId>,
}

impl StartOptions {
    /// How long to wait while another caller does the work. Unless given, the policy's `wait`.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// How long the claim lasts unless it is renewed. Unless given, the policy's lease.
    #[must_use]
    pub fn lease(mut self, lease: impl Into<Option<Duration>>) -> Self {
        self.lease = lease.into();
        self
    }

    /// Names the request, so that the caller can repeat it when its answer was lost: while the claim is held, the repeat
    /// gets the same claim, whichever server answers.
    #[must_use]
    pub fn claim_id(mut self, claim_id: impl Into<Option<ClaimId>>) -> Self {
        self.claim_id = claim_id.into();
        self
    }
}

/// The answer to [`Ledger::start_remote`].
#[derive(Debug)]
pub enum Started {
    /// The remote caller may do the work, once it has been told so.
    Acquired(Box<ClaimOffer>),
    /// There is no work to do. The decision says why.
    Answered(Decision),
    /// The store is down, and the policy lets the work run without a record. There is nothing to finish.
    Unguarded {
        /// The key to pass downstream.
        downstream_key: String,
    },
    /// The claim that was made with the same claim id is over: released, doubted or taken over. A new claim needs a new id.
    Stale,
}

/// A claim on its way to its remote owner. Dropped before [`ClaimOffer::hand_over`], it is given back: no caller knows its
/// fence, so none can have begun the work. A claim that was granted again to a repeat of the same request is left as it is:
/// the answer to the first request may have arrived.
#[must_use = "a claim that is dropped before it is handed over is given back"]
pub struct ClaimOffer {
    ledger: Ledger,
    call: Call,
    acquired: Acquired,
    seen: Seen,
    runtime: Handle,
    handed_over: bool,
    claim_id: Option<ClaimId>,
    /// The same claim may have been granted to another request with the same claim id.
    shared: bool,
}

/// The remote owner of a claim, named by its fence.
#[derive(Clone, Debug)]
pub struct Owner {
    ledger: Ledger,
    identity: Identity,
    fence: Fence,
    /// For its leases, and for the size of its outcome.
    policy: Arc<Policy>,
}

/// Whether a write of a remote owner was accepted.
#[derive(Clone, Debug)]
pub enum WriteResult {
    /// The record says so now; this is it.
    Written(Box<Seen>),
    /// The claim was superseded. The record did not change, and a late outcome is in the audit trail.
    Stale,
    /// A worker has finished an entry that it has not marked as sent, although it promised to. The record did not change.
    NotSent,
}

/// What a claim is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An entry of the outbox that is not delivered.
    Entry {
        /// How many attempts there were.
        attempts: u32,
    },
    /// A direct call.
    Direct,
    /// The claim is over.
    Over,
}

/// The end of an attempt that did not deliver its entry, as its remote owner reports it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Undelivered<'a> {
    /// Whether the attempt may have happened. Otherwise there is a proof that it did not.
    pub may_have_happened: bool,
    /// How long to wait before the next attempt. Unless given, a random time that grows with the number of attempts.
    pub retry_in: Option<Duration>,
    /// There is no next attempt.
    pub give_up: bool,
    /// What went wrong.
    pub error: Option<&'a str>,
}

/// A server that begins on behalf of a remote caller.
#[derive(Clone, Copy)]
struct RemoteCaller {
    lease: Duration,
    claim_id: Option<ClaimId>,
}

impl Claimant for RemoteCaller {
    type Claim = Box<ClaimOffer>;
    type Won = Box<ClaimOffer>;

    fn take(&self, _: &Ledger, call: &Call) -> Take {
        // No owner: whether this process is alive says nothing about the remote one.
        Take { claim: self.claim_id, ..take(call, self.lease) }
    }

    async fn begin(&self, ledger: &Ledger, call: &Call) -> Result<Attempt<Box<ClaimOffer>>, Error> {
        let request = match ledger.prepare(self, call)? {
            Prepared::Answered(decision) => return Ok(Attempt::Answered(decision)),
            Prepared::Request(request) => request,
        };
        let (this, ledger) = (*self, ledger.clone());
        // If the caller stops waiting, the attempt is finished, and the offer that it leads to is dropped.
        FinishOnDrop::new(&Handle::current(), async move { ledger.claim(&this, request).await }).await
    }

    async fn won(
        &self,
        ledger: &Ledger,
        request: &BeginRequest,
        acquired: Acquired,
        seen: Seen,
    ) -> Option<Box<ClaimOffer>> {
        let mut offer = Box::new(ClaimOffer {
            ledger: ledger.clone(),
            call: request.call.clone(),
            acquired,
            seen,
            runtime: Handle::current(),
            handed_over: false,
            claim_id: self.claim_id,
            shared: acquired.fence != request.fence,
        });
        offer.is_held(request.started, self.lease).await.then_some(offer)
    }
}

impl Ledger {
    /// Starts a call on behalf of a remote caller, like [`Ledger::start`]. A caller that goes away before it has the answer
    /// leaves a withdrawn claim.
    pub async fn start_remote(&self, call: &Call, options: StartOptions) -> Result<Started, Error> {
        let lease = options.lease.unwrap_or_else(|| call.policy.lease()).min(LONGEST_LEASE);
        let caller = RemoteCaller { lease, claim_id: options.claim_id };
        let wait = options.wait.unwrap_or(call.policy.wait);
        Ok(match self.home(&call.identity.operation).start_as(&caller, call, wait, None).await? {
            StartResult::Begun(Attempt::Acquired(offer)) => Started::Acquired(offer),
            StartResult::Begun(Attempt::Answered(decision)) => Started::Answered(decision),
            StartResult::Begun(Attempt::Undecided) => Started::Answered(undecided()),
            StartResult::Begun(Attempt::Stale) => Started::Stale,
            StartResult::Unguarded(_) => Started::Unguarded { downstream_key: downstream_key(&call.intent(), "", 0) },
        })
    }

    /// The remote owner that this fence names. Each of its writes says whether it still is the owner.
    pub fn remote_owner(&self, identity: Identity, fence: Fence) -> Owner {
        let policy = self.policy_of(&identity);
        let ledger = self.home(&identity.operation).clone();
        Owner { ledger, identity, fence, policy }
    }

    /// The policy that is configured for an intent's operation.
    pub(super) fn policy_of(&self, identity: &Identity) -> Arc<Policy> {
        let settings = self.inner.operations.get(identity.operation.as_str());
        settings.map(|settings| Arc::clone(&settings.policy)).unwrap_or_default()
    }
}

impl ClaimOffer {
    /// The claim itself.
    pub fn acquired(&self) -> &Acquired {
        &self.acquired
    }

    /// The intent that it is about.
    pub fn identity(&self) -> &Identity {
        &self.call.identity
    }

    /// The record as it was written.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// The key to pass downstream: the same on every attempt of this intent, and different for every other intent.
    pub fn downstream_key(&self) -> String {
        let destination = self.seen.record.entry.as_ref().and_then(|entry| entry.destination.as_ref());
        match destination {
            Some(destination) => destination.key.clone(),
            None => downstream_key(&self.call.intent(), "", self.acquired.generation),
        }
    }

    /// The remote owner has been told. From now on it may be doing the work.
    pub fn hand_over(mut self) {
        self.handed_over = true;
    }

    /// A claim on an entry of the outbox. If `shared`, another request with the same id may have it too.
    pub(super) fn of_entry(
        ledger: Ledger,
        call: Call,
        acquired: Acquired,
        seen: Seen,
        claim_id: ClaimId,
        shared: bool,
    ) -> Self {
        let claim_id = Some(claim_id);
        Self { ledger, call, acquired, seen, runtime: Handle::current(), handed_over: false, claim_id, shared }
    }

    /// Whether the claim is still held, with enough of its lease left to be offered. A claim whose answer took long is
    /// renewed first: another caller may have taken it over.
    pub(super) async fn is_held(&mut self, from: Instant, lease: Duration) -> bool {
        if from.elapsed() < renew_after(lease) {
            return true;
        }
        let owner = self.ledger.remote_owner(self.call.identity.clone(), self.acquired.fence);
        match owner.write(Command::Renew { fence: self.acquired.fence, lease }).await {
            Ok(WriteResult::Written(seen)) => {
                // Another write in between was that of a repeat, which has the claim too.
                self.shared |= seen.record.version != self.seen.record.version + 1;
                self.seen = *seen;
                true
            }
            Ok(WriteResult::Stale | WriteResult::NotSent) => false,
            // It is held for as long as it was written for. Its owner will be told if it is lost.
            Err(_) => from.elapsed() < lease,
        }
    }
}

impl Drop for ClaimOffer {
    fn drop(&mut self) {
        if self.handed_over || self.shared {
            return;
        }
        let _inside = self.runtime.enter();
        let (fence, version) = (self.acquired.fence, self.seen.record.version);
        let why = "the caller went away before it had the claim";
        let command = match self.claim_id {
            None => withdrawal(fence, why),
            Some(_) => Command::GiveBack { fence, version, error: Some(why.to_owned()) },
        };
        self.ledger.give_back(self.call.identity.digest(), command, None, Duration::ZERO);
    }
}

impl fmt::Debug for ClaimOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClaimOffer").field(&format_args!("{}", self.call.name())).finish()
    }
}

impl Owner {
    /// The owner of a claim of this process, after the process has let go of the claim.
    pub(super) fn of_claim(claim: &OwnedClaim) -> Self {
        let OwnedClaim { ledger, call, acquired, .. } = claim;
        let (identity, policy) = (call.identity.clone(), Arc::clone(&call.policy));
        Self { ledger: ledger.clone(), identity, fence: acquired.fence, policy }
    }

    /// Marks that the first byte is about to leave. From here on a missing answer is a doubt.
    pub async fn sent(&self, lease: Option<Duration>) -> Result<WriteResult, Error> {
        self.write(Command::Sent { fence: self.fence, lease: self.lease(lease) }).await
    }

    /// Renews the lease: the work goes on.
    pub async fn renew(&self, lease: Option<Duration>) -> Result<WriteResult, Error> {
        self.write(Command::Renew { fence: self.fence, lease: self.lease(lease) }).await
    }

    /// Records that the work is finished: the outcome is kept and given to every repeat. An outcome over the policy's limit
    /// is remembered as done and not kept.
    pub async fn finish(&self, outcome: Outcome) -> Result<WriteResult, Error> {
        let limit = self.policy.keep_limit.min(LARGEST_KEEP_LIMIT);
        self.write(Command::Finish { fence: self.fence, outcome: outcome.within(limit) }).await
    }

    /// What the claim is about.
    pub async fn kind(&self) -> Result<Kind, Error> {
        let Some(seen) = self.ledger.inner.store.get(self.identity.digest()).await? else { return Ok(Kind::Over) };
        let record = &seen.record;
        let is_held = matches!(&record.state, State::Leased(lease) if lease.fence == self.fence);
        Ok(match record.payload.is_some() && record.entry.is_some() {
            true => Kind::Entry { attempts: record.attempts },
            false if is_held => Kind::Direct,
            false => Kind::Over,
        })
    }

    /// Records that an attempt did not deliver its entry. `attempts` is how many there were.
    pub async fn undelivered(&self, attempts: u32, end: Undelivered<'_>) -> Result<WriteResult, Error> {
        let retry_in = match end.retry_in {
            Some(given) => given.min(LONGEST_NOT_BEFORE),
            None => backoff::delay(attempts, &backoff::Settings::default(), random()?),
        };
        self.write(Command::Undelivered(decide::Undelivered {
            fence: self.fence,
            may_have_happened: end.may_have_happened,
            retry_in,
            after: if end.give_up { AfterAttempt::GiveUp } else { AfterAttempt::Retry },
            error: end.error.map(shortened),
        }))
        .await
    }

    /// Records a proof that this attempt did nothing. The next begin may try, after `not_before`.
    pub async fn release(&self, not_before: Duration, error: Option<&str>) -> Result<WriteResult, Error> {
        self.write(Command::Release { fence: self.fence, not_before, error: error.map(shortened) }).await
    }

    /// Records that it is unknown whether this attempt did anything. If nothing was sent yet, this is a release.
    pub async fn doubt(&self, error: Option<&str>) -> Result<WriteResult, Error> {
        self.write(Command::Doubt { fence: self.fence, error: error.map(shortened) }).await
    }

    /// Records that the downstream was asked and knows of no earlier attempt: the doubt is settled.
    pub async fn not_found(&self) -> Result<WriteResult, Error> {
        self.write(Command::NotFound { fence: self.fence }).await
    }

    fn lease(&self, lease: Option<Duration>) -> Duration {
        lease.unwrap_or_else(|| self.policy.lease()).min(LONGEST_LEASE)
    }

    /// One write of the owner. It is finished even if the caller goes away: a known end must not turn into a doubt.
    async fn write(&self, command: Command) -> Result<WriteResult, Error> {
        let owner = self.clone();
        let writing = FinishOnDrop::new(&Handle::current(), async move { owner.try_write(&command).await });
        writing.await.map_err(|error| error.about(self.identity.to_string()))
    }

    async fn try_write(&self, command: &Command) -> Result<WriteResult, ApplyError> {
        let inner = &self.ledger.inner;
        let id = self.identity.digest();
        let Applied { answer, written, found } = inner.apply_by_id(id, command, None).await?;
        if let Some(seen) = &written {
            inner.after_owner_write(&seen.record);
        }
        let exists = written.is_some() || found.is_some();
        match (answer, written.or(found)) {
            (CommandResult::Accepted | CommandResult::Decision(_), Some(seen)) => {
                Ok(WriteResult::Written(Box::new(seen)))
            }
            (CommandResult::Stale { contradicts }, _) => {
                // A record that does not exist has no audit trail either.
                if let Command::Finish { outcome, .. } = command
                    && exists
                {
                    let owner = format!("claim {}…", &String::from(self.fence)[..4]);
                    let intent = &self.identity.to_string();
                    let report = LateReport { intent, owner, outcome, contradicts, may_repeat: true };
                    inner.keep_late_report(id, report).await;
                }
                Ok(WriteResult::Stale)
            }
            (CommandResult::Refused(decide::Refusal::NotSent), _) => Ok(WriteResult::NotSent),
            _ => Ok(WriteResult::Stale),
        }
    }
}

fn random() -> Result<u64, Error> {
    let mut bits = [0; 8];
    getrandom::fill(&mut bits).map_err(|error| Invalid::Randomness(error.to_string()))?;
    Ok(u64::from_be_bytes(bits))
}
