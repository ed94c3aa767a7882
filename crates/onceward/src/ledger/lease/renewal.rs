//! Renews the lease of one claim while its owner works, and tells the owner when another caller may go on with the work. The
//! lease is counted on the monotonic clock, from before each write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use onceward_core::decide::Command;

use crate::ledger::apply::ApplyError;
use crate::ledger::guard::WriteResult;
use crate::ledger::owned_claim::{MAX_PAUSE, OwnedClaim, no_answer};
use crate::step::{Step, reached};

/// A lease is renewed when a third of it is over: two more tries are left before it lapses.
const RENEW_FRACTION: u32 = 3;

/// A timer cannot be set for longer; work that takes a year is not waited for.
const MAX_DEADLINE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The error in the record of an attempt that is past its deadline.
const OVERDUE: &str = "it is past its deadline and has not ended";

/// A claim that was renewed this often before it was granted is granted: its store is slower than its lease.
const MAX_EARLY_RENEWALS: u32 = 4;

/// When a lease is due for renewal.
pub(in crate::ledger) fn renew_after(lease: Duration) -> Duration {
    lease / RENEW_FRACTION
}

/// Says that another caller may go on with the work. Most work is over before there is anything to say.
#[derive(Default)]
pub(in crate::ledger) struct LostSignal {
    is_lost: AtomicBool,
    changed: Notify,
}

impl LostSignal {
    fn send(&self) {
        self.is_lost.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// Resolves once the claim is lost.
    pub(in crate::ledger) async fn received(&self) {
        // Created before the flag is read, so that a signal in between is not missed.
        let changed = self.changed.notified();
        if !self.is_lost.load(Ordering::SeqCst) {
            changed.await;
        }
    }
}

/// What is left to do for the lease of a granted claim.
pub(in crate::ledger) struct Renewal {
    claim: Arc<OwnedClaim>,
    /// When the lease was last written, or rather: just before.
    from: Instant,
}

impl Renewal {
    pub(in crate::ledger) fn new(claim: Arc<OwnedClaim>, from: Instant) -> Self {
        Self { claim, from }
    }

    /// Whether the claim is still held, with enough of its lease left to be granted. A claim whose answer took long is
    /// renewed first: another caller may have taken it over.
    pub(in crate::ledger) async fn is_held(&mut self) -> bool {
        // Nearly always, and then nothing is awaited.
        self.is_fresh() || Box::pin(self.renew_before_grant()).await
    }

    fn is_fresh(&self) -> bool {
        self.from.elapsed() < renew_after(self.claim.call.policy.lease())
    }

    async fn renew_before_grant(&mut self) -> bool {
        let lease = self.claim.call.policy.lease();
        for _ in 0..MAX_EARLY_RENEWALS {
            if self.is_fresh() {
                return true;
            }
            let command = Command::Renew { fence: self.claim.acquired.fence, lease };
            let started = Instant::now();
            match self.claim.try_write(&command).await {
                Ok(WriteResult::Written) => self.from = started,
                Ok(WriteResult::Stale) => return false,
                // It is held for as long as it was written for. The renewals to come keep trying, and say when it is lost.
                Err(_) => return self.from.elapsed() < lease,
            }
        }
        true
    }

    /// Renews until the guard has ended or the claim is lost, and reports once that the work is past its deadline.
    pub(super) async fn run(self) {
        let Self { claim, mut from } = self;
        let (lease, fence) = (claim.call.policy.lease(), claim.acquired.fence);
        let mut deadline = claim.call.policy.deadline.map(|deadline| from + deadline.min(MAX_DEADLINE));
        loop {
            let renewal = from + renew_after(lease);
            sleep_until(deadline.map_or(renewal, |deadline| deadline.min(renewal))).await;
            if claim.guard_ended.load(Ordering::SeqCst) {
                return;
            }
            let is_overdue = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            let command = match is_overdue {
                true => Command::Overdue { fence, lease, error: Some(OVERDUE.to_owned()) },
                false => Command::Renew { fence, lease },
            };
            let started = Instant::now();
            if !insist(&claim, &command, from, started).await {
                claim.lost.send();
                return;
            }
            reached(Step::Renewed);
            from = started;
            if is_overdue {
                tracing::warn!(intent = claim.call.name(), "past its deadline: in doubt until it ends");
                deadline = None;
            }
        }
    }
}

/// Tries to renew until the store answers. `false` when the claim is lost: another caller took over, a person has settled
/// it, or the lease has lapsed where another caller may take over.
async fn insist(claim: &OwnedClaim, command: &Command, from: Instant, started: Instant) -> bool {
    let lease = claim.call.policy.lease();
    loop {
        let limit = (from + lease).max(started + MAX_PAUSE);
        let written = timeout_at(limit, claim.try_write(command)).await;
        match written.unwrap_or_else(|_| Err(ApplyError::Store(no_answer()))) {
            Ok(WriteResult::Written) => return true,
            Ok(WriteResult::Stale) => return false,
            Err(_) => {
                if Instant::now() >= from + lease && claim.may_be_taken_over() {
                    return false;
                }
                sleep((lease / 20).clamp(Duration::from_millis(10), MAX_PAUSE)).await;
            }
        }
    }
}
