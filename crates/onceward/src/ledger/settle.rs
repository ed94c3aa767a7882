//! Reading, listing and settling intents, and freeing expired records.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::Serialize;

use crate::plant::{Plant, planted};
use onceward_core::decide::{Command, CommandResult, Refusal, Resolution};
use onceward_core::name::{Identity, Tenant};
use onceward_core::policy::LARGEST_KEEP_LIMIT;
use onceward_core::record::{Seen, Status};

use super::begin::new_fence;
use super::rerun::with_reruns;
use super::{CallBuilder, Inner, Ledger};
use crate::error::Error;
use crate::store::{self, AuditEntry, AuditEvent, Counts, Cursor, EventKind, Filter, Page, Purged, without_nul};

/// A ledger sweeps by itself once in this many claims, the first included: so no table grows without bound, and short-lived
/// processes take part.
const SWEEP_EVERY: u64 = 256;

/// How many records one sweep frees, and in how many steps: each step holds up the writer for a few milliseconds.
const SWEEP_STEPS: usize = 10;
const SWEEP_STEP: usize = 100;

/// An intent as it stands now.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Intent {
    /// The record, with the store's time.
    #[serde(flatten)]
    pub seen: Seen,
    /// The audit trail: reports of late owners, and decisions of people.
    pub trail: Vec<AuditEntry>,
}

impl Intent {
    /// How it stands; `None` when the record has expired and the key is free.
    pub fn status(&self) -> Option<Status> {
        self.seen.standing().map(|standing| standing.status())
    }
}

/// The answer to [`Ledger::resolve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// The intent is settled.
    Settled,
    /// The intent cannot be settled like this.
    Refused(Refusal),
}

/// The person or program that settles an intent, for the audit trail.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resolver<'a> {
    /// Their name, as they give it.
    pub by: Option<&'a str>,
    /// The name of their token, which the surface has checked.
    pub token: Option<&'a str>,
}

impl CallBuilder {
    /// Reads the intent without changing it.
    pub async fn get(&self) -> Result<Option<Intent>, Error> {
        let call = self.call()?;
        let newest = self.ledger.get(&call.identity).await?;
        let Some(item) = &call.item else { return Ok(newest) };
        // The head may hold another item of the stream.
        match newest.filter(|newest| newest.seen.record.sequence == Some(item.number)) {
            Some(newest) => Ok(Some(newest)),
            None => self.ledger.get(&item.identity()).await,
        }
    }
}

impl Ledger {
    /// Reads an intent without changing it.
    pub async fn get(&self, identity: &Identity) -> Result<Option<Intent>, Error> {
        let id = identity.digest();
        let home = self.holding(identity).await?;
        let Some(seen) = home.inner.store.get(id).await? else { return Ok(None) };
        let trail = with_reruns(&seen.record, home.inner.store.trail(id).await?);
        Ok(Some(Intent { seen, trail }))
    }

    /// Lists intents, the newest first. Fails if one of the stores fails.
    pub async fn list(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Result<Page, store::Error> {
        self.list_reachable(filter, after, limit).await.all()
    }

    /// Counts the intents in each state.
    pub async fn counts(&self) -> Result<Counts, store::Error> {
        self.counts_reachable(None).await.all()
    }

    /// Counts the intents of one tenant in each state. Tombstones have no names any more, so they belong to no tenant.
    pub async fn counts_of(&self, tenant: &Tenant) -> Result<Counts, store::Error> {
        self.counts_reachable(Some(tenant)).await.all()
    }

    /// Settles an intent: it happened, with this outcome; it did not happen; or it did not happen and the key is free again.
    /// Or turns running work into a doubt, which can then be settled. `version` is that of the record on which the decision
    /// is based: if the record has changed since, nothing is written.
    pub async fn resolve(
        &self,
        identity: &Identity,
        version: u64,
        resolution: Resolution,
        by: Option<&str>,
        note: Option<&str>,
    ) -> Result<Resolved, Error> {
        self.resolve_as(identity, version, resolution, Resolver { by, token: None }, note).await
    }

    /// Settles an intent for a caller that is known by a token.
    pub async fn resolve_as(
        &self,
        identity: &Identity,
        version: u64,
        resolution: Resolution,
        resolver: Resolver<'_>,
        note: Option<&str>,
    ) -> Result<Resolved, Error> {
        let id = identity.digest();
        let (what, resolution) = match resolution {
            Resolution::Happened(outcome) => {
                (EventKind::ResolvedHappened, Resolution::Happened(outcome.within(LARGEST_KEEP_LIMIT)))
            }
            Resolution::DidNotHappen => (EventKind::ResolvedDidNotHappen, Resolution::DidNotHappen),
            Resolution::Reset => (EventKind::ResolvedReset, Resolution::Reset),
            Resolution::Force => (EventKind::ForcedInDoubt, Resolution::Force),
        };
        let command = Command::Resolve { version, resolution, fence: new_fence()? };
        let inner = &self.holding(identity).await?.inner;
        let seen = inner.store.get(id).await?;
        // The head of a stream goes on and keeps its trail, so each entry says which item it is about.
        let item = seen.as_ref().and_then(|seen| seen.record.sequence).map(|number| format!("item {number}"));
        let note = [item.as_deref(), note].into_iter().flatten().collect::<Vec<_>>().join(": ");
        let (by, token) = (resolver.by.map(without_nul), resolver.token.map(without_nul));
        let note = Some(without_nul(&note)).filter(|note| !note.is_empty());
        let event = AuditEvent { what, by, token, note };
        let event = (!planted(Plant::ResolveNotAudited)).then_some(event);
        let applied = inner.apply(seen, &command, event).await;
        let applied = applied.map_err(|error| error.about(identity.to_string()))?;
        if let Some(seen) = &applied.written {
            inner.cache.keep(&seen.record);
            inner.waiters.wake(&id);
        }
        Ok(match applied.answer {
            CommandResult::Refused(refusal) => Resolved::Refused(refusal),
            CommandResult::Accepted
            | CommandResult::Stale { .. }
            | CommandResult::Decision(_)
            | CommandResult::Archived => Resolved::Settled,
        })
    }

    /// Lets the processes that this one starts from now on keep its claims alive: if this process is killed, its claims
    /// lapse only when they have ended too. For callers whose work is another process.
    pub fn lend_claims(&self) {
        for (_, ledger) in self.parts() {
            ledger.inner.store.share_with_children();
        }
    }

    /// Frees at most `limit` expired records. The ledger does this by itself now and then. If a store fails, the others have had
    /// their turn.
    pub async fn purge(&self, limit: usize) -> Result<Purged, store::Error> {
        self.purge_reachable(limit).await.all()
    }
}

impl Inner {
    /// Sweeps in the background when it is time, given how many claims came before this one.
    pub(super) fn sweep_now_and_then(self: &Arc<Self>, before: u64) {
        if !before.is_multiple_of(SWEEP_EVERY) || self.sweeping.swap(true, Ordering::AcqRel) {
            return;
        }
        let sweep = Sweep(Arc::clone(self));
        tokio::spawn(async move {
            for _ in 0..SWEEP_STEPS {
                let freed = sweep.0.store.purge(SWEEP_STEP).await;
                if !freed.is_ok_and(|purged| purged.total() == SWEEP_STEP) {
                    break;
                }
            }
        });
    }
}

/// One sweep at a time. However it ends, the next one may begin.
struct Sweep(Arc<Inner>);

impl Drop for Sweep {
    fn drop(&mut self) {
        self.0.sweeping.store(false, Ordering::Release);
    }
}
