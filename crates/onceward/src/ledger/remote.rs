//! A claim whose owner is not in this process: a remote caller that holds the fence and comes back with it. Nothing is
//! renewed on its behalf, and the end of this process says nothing about it: only the lease does.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use onceward_core::claim::ClaimId;
use onceward_core::decide::{Acquired, Answer, Command, Decision};
use onceward_core::name::Identity;
use onceward_core::outcome::Outcome;
use onceward_core::policy::{LARGEST_KEEP_LIMIT, LONGEST_LEASE};
use onceward_core::record::{Fence, Seen, downstream_key};

use super::begin::{MOST_LAPSES, Won, fence, given_back, set_fence};
use super::carried_on::CarriedOn;
use super::drive::{Driven, Stuck};
use super::guard::{renewed_after, shortened};
use super::late::Reporter;
use super::wait::{Waited, is_running};
use super::{Call, Ledger, count};
use crate::error::Error;

/// What a remote begin leads to.
#[derive(Debug)]
pub enum Granted {
    /// The remote caller may do the work, once it has been told so.
    Acquired(Box<Grant>),
    /// Nothing is to be done: this is why.
    Answered(Decision),
    /// The store is down, and the policy lets the work run all the same, with this downstream key.
    Unguarded(String),
    /// The claim that was made with the same claim id is over: released, doubted or taken over. A new one needs a new id.
    Stale,
}

/// A claim that is on its way to its remote owner. Dropped before [`Grant::hand_over`], it is given back: no caller knows
/// its fence, so none can have begun the work. A claim that was granted again to a repeat of the same request is left as it
/// is: the answer to the first request may have arrived.
pub struct Grant {
    ledger: Ledger,
    call: Call,
    acquired: Acquired,
    seen: Seen,
    runtime: Handle,
    handed_over: bool,
    claim: Option<ClaimId>,
    /// The same claim may have been granted to another request with the same claim id.
    shared: bool,
}

/// A remote owner of a claim, as its fence names it.
#[derive(Clone, Debug)]
pub struct Holder {
    ledger: Ledger,
    identity: Identity,
    fence: Fence,
}

/// What came of a remote owner's write.
#[derive(Clone, Debug)]
pub enum Held {
    /// The record is as the owner wanted; this is it.
    Written(Box<Seen>),
    /// The claim is no longer this owner's. Nothing changed, and a late outcome is in the audit trail.
    Stale,
}

impl Ledger {
    /// Asks for a claim on behalf of a remote caller, and waits up to `wait` if somebody else is at it. A lease of its own
    /// replaces the policy's.
    ///
    /// A caller that goes away before it has the answer leaves a released claim. With a claim id it may repeat the request:
    /// while the claim is held, the repeat is granted the same one, whichever server answers.
    pub async fn grant(
        &self,
        call: &Call,
        claim: Option<ClaimId>,
        lease: Option<Duration>,
        wait: Duration,
    ) -> Result<Granted, Error> {
        let lease = lease.unwrap_or_else(|| call.policy.lease()).min(LONGEST_LEASE);
        let mut granted = match self.grant_now(call, claim, lease).await {
            // Only before anything was answered: afterwards somebody else may be at it.
            Err(Error::Store(error)) if call.runs_without(&error) => {
                let intent = call.name();
                tracing::warn!(%intent, %error, "the store is down and the policy says open: running unguarded");
                count(&self.inner.stats.unguarded);
                return Ok(Granted::Unguarded(downstream_key(&call.intent(), "", 0)));
            }
            granted => granted?,
        };
        let mut waiting = None;
        while let Granted::Answered(decision) = &granted
            && is_running(decision)
            && !wait.is_zero()
        {
            let waiting = waiting.get_or_insert_with(|| self.waiting(call, wait));
            match self.watch(call, waiting).await? {
                Waited::Ask => granted = self.grant_now(call, claim, lease).await?,
                Waited::Doubt(since) => return Ok(Granted::Answered(Decision::InDoubt { since })),
                Waited::TooLong => break,
            }
        }
        Ok(granted)
    }

    async fn grant_now(&self, call: &Call, claim: Option<ClaimId>, lease: Duration) -> Result<Granted, Error> {
        // The owner is somewhere else: whether this process lives says nothing about it.
        let (mut command, mut take) = match self.asked(call, lease, None, claim)? {
            Ok(asked) => asked,
            Err(decision) => return Ok(Granted::Answered(decision)),
        };
        let (ledger, call) = (self.clone(), call.clone());
        let asking = async move {
            for _ in 0..MOST_LAPSES {
                let from = Instant::now();
                match ledger.contest(&call, &command, take).await? {
                    Won::Answered(decision) => return Ok(Granted::Answered(decision)),
                    Won::Stale => return Ok(Granted::Stale),
                    Won::Acquired(acquired, seen) => {
                        let (ledger, call, runtime) = (ledger.clone(), call.clone(), Handle::current());
                        let shared = acquired.fence != take;
                        let mut grant =
                            Grant { ledger, call, acquired, seen, runtime, handed_over: false, claim, shared };
                        if grant.is_fresh(from, lease).await {
                            return Ok(Granted::Acquired(Box::new(grant)));
                        }
                    }
                }
                // It was lost before anybody had it, so nothing was done under it.
                take = fence()?;
                set_fence(&mut command, take);
            }
            Err(Error::Contended { intent: call.name() })
        };
        // If nobody waits for it any more, it goes on, and what it grants is dropped.
        CarriedOn::new(&Handle::current(), asking).await
    }

    /// The remote owner that this fence names. Whether it still is the owner is said by each of its writes.
    pub fn holder(&self, identity: Identity, fence: Fence) -> Holder {
        Holder { ledger: self.clone(), identity, fence }
    }
}

impl Grant {
    /// The claim itself.
    pub fn acquired(&self) -> &Acquired {
        &self.acquired
    }

    /// Which intent it is about.
    pub fn identity(&self) -> &Identity {
        &self.call.identity
    }

    /// The record as it was written.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// The key to pass to the other side: the same on every attempt of this intent, and of nothing else.
    pub fn downstream_key(&self) -> String {
        downstream_key(&self.call.intent(), "", self.acquired.generation)
    }

    /// The remote owner has been told: from now on nobody else knows what it does.
    pub fn hand_over(mut self) {
        self.handed_over = true;
    }

    /// Whether it is still this one's. A claim that nobody looked at in time is renewed before it is granted: the record
    /// may have changed hands.
    async fn is_fresh(&mut self, from: Instant, lease: Duration) -> bool {
        if from.elapsed() < renewed_after(lease) {
            return true;
        }
        let holder = self.ledger.holder(self.call.identity.clone(), self.acquired.fence);
        match holder.write(Command::Renew { fence: self.acquired.fence, lease }).await {
            Ok(Held::Written(seen)) => {
                // Another write in between was that of a repeat, which has the claim too.
                self.shared |= seen.record.version != self.seen.record.version + 1;
                self.seen = *seen;
                true
            }
            Ok(Held::Stale) => false,
            // It is held for as long as it was written for. Its owner will be told if it is lost.
            Err(_) => from.elapsed() < lease,
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if self.handed_over || self.shared {
            return;
        }
        let _inside = self.runtime.enter();
        let (fence, version) = (self.acquired.fence, self.seen.record.version);
        let why = "the caller went away before it had the claim";
        let command = match self.claim {
            None => given_back(fence, why),
            Some(_) => Command::GiveBack { fence, version, error: Some(why.to_owned()) },
        };
        self.ledger.give_back(self.call.identity.digest(), command, Duration::ZERO);
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Grant").field(&format_args!("{}", self.call.name())).finish()
    }
}

impl Holder {
    /// The first byte is about to leave. From here on a missing answer is a doubt.
    pub async fn sent(&self, lease: Option<Duration>) -> Result<Held, Error> {
        self.write(Command::Sent { fence: self.fence, lease: self.lease(lease) }).await
    }

    /// The work goes on.
    pub async fn renew(&self, lease: Option<Duration>) -> Result<Held, Error> {
        self.write(Command::Renew { fence: self.fence, lease: self.lease(lease) }).await
    }

    /// The work is finished: the outcome is kept and given to every repeat. One over the policy's limit is remembered as
    /// done, and not kept.
    pub async fn finish(&self, outcome: Outcome) -> Result<Held, Error> {
        let limit = self.ledger.policy_of(&self.identity).keep_limit.min(LARGEST_KEEP_LIMIT);
        self.write(Command::Finish { fence: self.fence, outcome: outcome.within(limit) }).await
    }

    /// It is proven that this attempt did nothing. The next begin may try, after `not_before`.
    pub async fn release(&self, not_before: Duration, error: Option<&str>) -> Result<Held, Error> {
        self.write(Command::Release { fence: self.fence, not_before, error: error.map(shortened) }).await
    }

    /// Nobody knows whether this attempt did anything. If nothing was sent yet, this is a release.
    pub async fn doubt(&self, error: Option<&str>) -> Result<Held, Error> {
        self.write(Command::Doubt { fence: self.fence, error: error.map(shortened) }).await
    }

    /// The other side was asked, and has seen nothing of any earlier attempt: the doubt is settled.
    pub async fn not_found(&self) -> Result<Held, Error> {
        self.write(Command::NotFound { fence: self.fence }).await
    }

    fn lease(&self, lease: Option<Duration>) -> Duration {
        lease.unwrap_or_else(|| self.ledger.policy_of(&self.identity).lease()).min(LONGEST_LEASE)
    }

    /// One write of the owner. It is carried out to its end although the caller goes away: a known end must not turn into
    /// a doubt.
    async fn write(&self, command: Command) -> Result<Held, Error> {
        let holder = self.clone();
        let writing = CarriedOn::new(&Handle::current(), async move { holder.try_write(&command).await });
        writing.await.map_err(|stuck| stuck.about(self.identity.to_string()))
    }

    async fn try_write(&self, command: &Command) -> Result<Held, Stuck> {
        let inner = &self.ledger.inner;
        let id = self.identity.digest();
        let Driven { answer, written, found } = inner.drive_by_id(id, command, None).await?;
        if let Some(seen) = &written {
            inner.wrote(&seen.record);
        }
        let was_there = written.is_some() || found.is_some();
        match (answer, written.or(found)) {
            (Answer::Accepted | Answer::Decision(_), Some(seen)) => Ok(Held::Written(Box::new(seen))),
            (Answer::Stale { contradicts }, _) => {
                // A record that is gone has no trail either.
                if let Command::Finish { outcome, .. } = command
                    && was_there
                {
                    let who = format!("claim {}…", &String::from(self.fence)[..4]);
                    let reporter = Reporter { intent: &self.identity.to_string(), who, repeats: true };
                    inner.keep_late(id, reporter, outcome, contradicts).await;
                }
                Ok(Held::Stale)
            }
            _ => Ok(Held::Stale),
        }
    }
}

impl Ledger {
    /// The policy that is configured for an intent's operation.
    fn policy_of(&self, identity: &Identity) -> Arc<onceward_core::policy::Policy> {
        let settings = self.inner.operations.get(identity.operation.as_str());
        settings.map(|settings| Arc::clone(&settings.policy)).unwrap_or_default()
    }
}
