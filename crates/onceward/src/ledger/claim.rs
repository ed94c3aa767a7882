//! A claim as the work itself sees it: the key to pass downstream, and the means to mark `sent`.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use crate::plant::{Plant, planted};
use onceward_core::decide::Command;
use onceward_core::name::Identity;
use onceward_core::policy::InDoubt;
use onceward_core::record::downstream_key;

use super::Call;
use super::guard::WriteResult;
use super::owned_claim::OwnedClaim;
use crate::error::Error;
use crate::step::{Step, reached};

/// The right to do the work, as the work itself sees it. Cheap to clone.
#[derive(Clone)]
pub struct Claim {
    source: Source,
    /// Computed on first use: hashing costs, and a gateway passes its client's own key on.
    names: OnceLock<Names>,
}

#[derive(Clone)]
enum Source {
    Owned(Arc<OwnedClaim>),
    /// The store was down, and the policy lets the work run without a record.
    Unguarded(Identity),
}

/// The names of the work, here and downstream.
#[derive(Clone)]
struct Names {
    identity: Identity,
    downstream_key: Arc<str>,
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Claim").field(&format_args!("{}", self.names().identity)).finish()
    }
}

impl Claim {
    pub(super) fn of(claim: &Arc<OwnedClaim>) -> Self {
        Self { source: Source::Owned(Arc::clone(claim)), names: OnceLock::new() }
    }

    /// A claim without a record.
    pub(super) fn unguarded(call: &Call) -> Self {
        Self { source: Source::Unguarded(call.intent()), names: OnceLock::new() }
    }

    fn owned(&self) -> Option<&Arc<OwnedClaim>> {
        match &self.source {
            Source::Owned(claim) => Some(claim),
            Source::Unguarded(_) => None,
        }
    }

    fn names(&self) -> &Names {
        self.names.get_or_init(|| {
            let (identity, generation) = match &self.source {
                Source::Owned(claim) if planted(Plant::DownstreamKeyPerAttempt) => {
                    (claim.call.intent(), claim.acquired.attempt)
                }
                Source::Owned(claim) => (claim.call.intent(), claim.acquired.generation),
                Source::Unguarded(identity) => (identity.clone(), 0),
            };
            Names { downstream_key: downstream_key(&identity, "", generation).into(), identity }
        })
    }

    /// The key to pass downstream: the same on every attempt of this intent, and different for every other intent.
    pub fn downstream_key(&self) -> &str {
        &self.names().downstream_key
    }

    /// The key of the intent.
    pub fn key(&self) -> &str {
        self.names().identity.key.as_str()
    }

    /// The number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.owned().map_or(1, |claim| claim.acquired.attempt)
    }

    /// Whether an earlier attempt may have happened, so that the work must ask the downstream before it sends anything. If
    /// the downstream knows nothing of it, call [`Claim::not_found`] and go on; otherwise return what it says.
    pub fn probe_first(&self) -> bool {
        self.owned().is_some_and(|claim| claim.acquired.probe_first)
    }

    /// Marks that the first byte is about to leave. From here on a missing answer is a doubt.
    pub async fn sent(&self) -> Result<(), Error> {
        let Some(claim) = self.owned() else { return Ok(()) };
        reached(Step::SentDecided);
        let command = Command::Sent { fence: claim.acquired.fence, lease: claim.call.policy.lease() };
        self.still_owned(claim.write(&command).await?)?;
        claim.marked_sent.store(true, Ordering::SeqCst);
        reached(Step::SentWritten);
        Ok(())
    }

    /// Records that the downstream was asked and knows of no earlier attempt: the doubt is settled.
    pub async fn not_found(&self) -> Result<(), Error> {
        let Some(claim) = self.owned() else { return Ok(()) };
        self.still_owned(claim.write(&Command::NotFound { fence: claim.acquired.fence }).await?)
    }

    /// Whether another caller may take the work over when this owner cannot keep its lease.
    pub fn may_be_taken_over(&self) -> bool {
        self.owned().is_some_and(|claim| claim.acquired.in_doubt != InDoubt::Hold)
    }

    /// Resolves when another caller may go on with the work, so that this owner should stop.
    pub async fn lost(&self) {
        match self.owned() {
            Some(claim) => claim.lost.received().await,
            None => std::future::pending().await,
        }
    }

    /// Whether the work has marked `sent` itself.
    pub(crate) fn marked_sent(&self) -> bool {
        self.owned().is_some_and(|claim| claim.marked_sent.load(Ordering::SeqCst))
    }

    fn still_owned(&self, result: WriteResult) -> Result<(), Error> {
        match result {
            WriteResult::Written => Ok(()),
            WriteResult::Stale => Err(Error::ClaimLost { intent: self.names().identity.to_string(), outcome: None }),
        }
    }
}
