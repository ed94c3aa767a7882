//! A claim as its owner holds it. Its lease is renewed while the work runs, and however the work ends, the record says so.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::plant::{Plant, planted};
use onceward_core::decide::{Acquired, Command};
use onceward_core::hash::digest;
use onceward_core::outcome::Outcome;
use onceward_core::policy::LARGEST_KEEP_LIMIT;
use onceward_core::record::{Fence, Record, Seen, State};

use super::begin::withdrawal;
use super::claim::Claim;
use super::delivery::Delivery;
use super::lease::{FinishOnDrop, Renewal, RenewalHandle};
use super::owned_claim::{OwnedClaim, no_answer, shortened};
use super::{Call, Ledger, remote};
use crate::error::Error;
use crate::step::{Step, reached};
use crate::store;

/// How long an owner waits for its outcome to be recorded before the caller is told that it could not be. A finished outcome
/// is too good to lose, so the tries go on in the background. Longer than the embedded store waits for a lock.
const RECORD_TIMEOUT: Duration = Duration::from_secs(30);

/// Whether a write of the owner was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteResult {
    /// The record says so now.
    Written,
    /// The claim was superseded: another caller took over, or a person settled the intent. The record did not change, and a
    /// late outcome is in the audit trail.
    Stale,
}

/// The right to do the work, as its owner holds it. End it with [`finish`](Self::finish), [`release`](Self::release),
/// [`withdraw`](Self::withdraw) or [`doubt`](Self::doubt). Dropping it means that the outcome is unknown: the intent is in
/// doubt from then on.
#[must_use = "a guard that is dropped puts its intent in doubt"]
pub struct Guard {
    claim: Arc<OwnedClaim>,
    /// Keeps the lease renewed; `None` until the caller has the guard.
    renewal: Option<RenewalHandle>,
    runtime: Handle,
    /// The caller has the guard, so it may have begun the work.
    started: bool,
    ended: bool,
}

impl Guard {
    /// A claim whose lease is counted from before it was asked for.
    pub(super) fn new(ledger: Ledger, call: &Call, acquired: Acquired, seen: Seen, from: Instant) -> (Self, Renewal) {
        let claim = Arc::new(OwnedClaim::new(ledger, call, acquired, seen));
        let renewal = Renewal::new(Arc::clone(&claim), from);
        (Self { claim, renewal: None, runtime: Handle::current(), started: false, ended: false }, renewal)
    }

    /// Hands the guard to its caller.
    pub(super) fn start(&mut self, renewal: RenewalHandle) {
        self.started = true;
        self.renewal = Some(renewal);
    }

    fn stop_renewing(&mut self) {
        self.claim.guard_ended.store(true, Ordering::SeqCst);
        self.renewal = None;
    }

    /// The claim, for the work.
    pub fn claim(&self) -> Claim {
        Claim::of(&self.claim)
    }

    /// A downstream key for this record rather than for its intent: the same on every attempt until the record is forgotten,
    /// and another one for the next record of the intent. For keys that hold for a while only, where a later equal call is
    /// meant, and the downstream may remember keys for longer.
    pub fn record_key(&self) -> String {
        let created_at = self.claim.last().record.created_at.as_millis();
        let text = format!("{} {created_at}", self.claim().downstream_key());
        format!("once_v1_{}", &digest(text.as_bytes()).to_hex()[..32])
    }

    /// The owner of this claim, for an outcome that arrives after [`doubt`](Self::doubt): it settles the doubt of this attempt,
    /// and never that of a later one.
    pub fn late_owner(&self) -> remote::Owner {
        remote::Owner::of_claim(&self.claim)
    }

    /// Records whether the caller got the answer to this claim, once there is one: for policies with
    /// [`after_delivery`](crate::Policy::after_delivery) or [`InDoubt::Tell`](crate::InDoubt::Tell).
    pub fn delivery(&self) -> Delivery {
        Delivery::of_claim(&self.claim.ledger, self.claim.acquired.fence, &self.claim.last)
    }

    /// Records that the work is finished: the outcome is kept and given to every repeat. An outcome over the policy's limit
    /// is remembered as done and not kept.
    pub async fn finish(self, outcome: Outcome) -> Result<WriteResult, Error> {
        let outcome = outcome.within(self.claim.call.policy.keep_limit.min(LARGEST_KEEP_LIMIT));
        let claim = Arc::clone(&self.claim);
        let command = Command::Finish { fence: self.claim.acquired.fence, outcome: outcome.clone() };
        reached(Step::FinishDecided);
        let ended = self.end(command).await;
        reached(Step::FinishWritten);
        ended.map_err(|source| Error::NotRecorded { intent: claim.call.name(), outcome: Box::new(outcome), source })
    }

    /// Records a proof that this attempt did nothing. The next begin may try, after `not_before`.
    pub async fn release(self, not_before: Duration, error: Option<&str>) -> Result<WriteResult, Error> {
        let command = Command::Release { fence: self.claim.acquired.fence, not_before, error: error.map(shortened) };
        let ended = self.end(command).await;
        reached(Step::ReleaseWritten);
        Ok(ended?)
    }

    /// Gives up before anything was sent. Like a release; besides, a caller that waits for this attempt begins in its turn,
    /// instead of being told that the attempt failed.
    pub async fn withdraw(self, error: Option<&str>) -> Result<WriteResult, Error> {
        let command = Command::Withdraw { fence: self.claim.acquired.fence, error: error.map(shortened) };
        let ended = self.end(command).await;
        reached(Step::ReleaseWritten);
        Ok(ended?)
    }

    /// Records that it is unknown whether this attempt did anything. If nothing was sent yet, this is a release.
    pub async fn doubt(self, error: Option<&str>) -> Result<WriteResult, Error> {
        let command = Command::Doubt { fence: self.claim.acquired.fence, error: error.map(shortened) };
        let ended = self.end(command).await;
        reached(Step::DoubtWritten);
        Ok(ended?)
    }

    /// Ends the claim of an entry that its sink says it has finished itself, in a transaction of its own. Gives the guard back if
    /// the record does not say so.
    pub(crate) async fn finished_by_sink(mut self) -> Result<Option<Self>, Error> {
        let (inner, id) = (&self.claim.ledger.inner, self.claim.last().record.id);
        let record = inner.store.get(id).await?.map(|seen| seen.record);
        let is_ours = |record: &Record| matches!(record.state, State::Done { fence, .. } if fence == self.fence());
        let Some(record) = record.filter(is_ours) else { return Ok(Some(self)) };
        inner.after_owner_write(&record);
        self.ended = true;
        self.stop_renewing();
        Ok(None)
    }

    pub(super) fn fence(&self) -> Fence {
        self.claim.acquired.fence
    }

    /// The record as this owner last wrote it.
    pub(super) fn seen(&self) -> Seen {
        self.claim.last().clone()
    }

    /// Writes how the claim ended. A caller that goes away now must not turn a known end into a doubt.
    pub(super) async fn end(mut self, command: Command) -> Result<WriteResult, store::Error> {
        self.ended = true;
        self.stop_renewing();
        if planted(Plant::FinishNotWritten) && matches!(command, Command::Finish { .. }) {
            return Ok(WriteResult::Written);
        }
        let (claim, home) = (Arc::clone(&self.claim), self.runtime.clone());
        let writing = FinishOnDrop::new(&self.runtime, async move {
            match claim.try_write(&command).await {
                Ok(result) => Ok(result),
                // Trying again takes timers, and the runtime that polls this may go away before a write has held.
                Err(_) => {
                    let insisting = home.spawn(async move { claim.insist(&command).await });
                    insisting.await.unwrap_or(Err(store::Error::Closed))
                }
            }
        });
        tokio::time::timeout(RECORD_TIMEOUT, writing).await.unwrap_or_else(|_| Err(no_answer()))
    }

    /// Resolves when another caller may go on with the work, so that this owner should stop.
    pub async fn lost(&self) {
        self.claim.lost.received().await;
    }

    pub(crate) fn call(&self) -> &Call {
        &self.claim.call
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        self.stop_renewing();
        let claim = Arc::clone(&self.claim);
        let fence = claim.acquired.fence;
        let command = if self.started && !planted(Plant::DroppedWorkReleased) {
            Command::Doubt { fence, error: Some("the work was dropped before it ended".to_owned()) }
        } else {
            withdrawal(fence, "the caller went away before the work began")
        };
        self.runtime.spawn(async move {
            if let Err(error) = claim.insist(&command).await {
                tracing::warn!(intent = claim.call.name(), %error, "a dropped claim is left to lapse");
            }
        });
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&format_args!("{}", self.claim.call.name())).finish()
    }
}
