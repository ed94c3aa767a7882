//! Leases of claims whose owners are in this process: who keeps a claim alive from the moment that it is asked for until
//! its guard has ended.
//!
//! - `pending`: a begin that is under way, and the claim that it leads to.
//! - `schedule`: which claims need attention when.
//! - `renewal`: renews the lease of one claim while its owner works.
//! - `finish_on_drop`: a future that runs to its end although its caller stops waiting.

mod finish_on_drop;
mod pending;
mod renewal;
mod schedule;

use std::fmt;

use tokio::time::Instant;

pub(crate) use finish_on_drop::FinishOnDrop;
pub(super) use pending::{AttemptFuture, PendingClaim, RenewalHandle};
pub(super) use renewal::{LostSignal, Renewal, renew_after};
use schedule::Schedule;

/// Keeps the leases of one ledger's claims. Most work is over before its lease is to be renewed, so a claim costs neither a
/// timer nor a task until a third of its lease is over.
#[derive(Default)]
pub(super) struct LeaseKeeper {
    schedule: Schedule,
}

impl LeaseKeeper {
    /// Polls a begin as part of its caller's task. From `due` on the keeper polls it in the caller's place and renews the
    /// claim that it leads to, so that a caller that is busy elsewhere loses nothing.
    pub(super) fn begin(&self, due: Instant, attempt: AttemptFuture) -> PendingClaim {
        PendingClaim::new(&self.schedule, due, attempt)
    }
}

impl fmt::Debug for LeaseKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseKeeper").finish_non_exhaustive()
    }
}
