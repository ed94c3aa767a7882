//! Looking, listing, settling and sweeping.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::Serialize;

use onceward_core::decide::{Answer, Command, Refusal, Resolution};
use onceward_core::name::{Identity, Tenant};
use onceward_core::plant::{Plant, planted};
use onceward_core::policy::LARGEST_KEEP_LIMIT;
use onceward_core::record::{Seen, Status};

use super::begin::fence;
use super::{Inner, Ledger, Operation};
use crate::error::Error;
use crate::store::{self, Counts, Cursor, Entry, Event, Filter, Page, Purged, What};

/// A ledger sweeps by itself once in this many claims, the first included, so that no table grows without bound
/// and short-lived processes take their share.
const SWEEP_EVERY: u64 = 256;

/// How much one sweep frees at the most, in how many steps: each step holds up the writer for a few
/// milliseconds at the most.
const SWEEP_STEPS: usize = 10;
const SWEEP_STEP: usize = 100;

/// An intent as it stands now.
#[derive(Clone, Debug, Serialize)]
pub struct Intent {
    /// The record, with the store's time.
    #[serde(flatten)]
    pub seen: Seen,
    /// What the record does not tell: late owners, and what people decided.
    pub trail: Vec<Entry>,
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
    /// It is settled.
    Settled,
    /// It cannot be settled like this.
    Refused(Refusal),
}

/// Who settles an intent, for the audit trail.
#[derive(Clone, Copy, Debug, Default)]
pub struct Who<'a> {
    /// As they say themselves.
    pub by: Option<&'a str>,
    /// The name of their token, which the surface has checked.
    pub token: Option<&'a str>,
}

impl Operation {
    /// Looks at the intent without touching it.
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
    /// Looks at an intent without touching it.
    pub async fn get(&self, identity: &Identity) -> Result<Option<Intent>, Error> {
        let id = identity.digest();
        let Some(seen) = self.inner.store.get(id).await? else { return Ok(None) };
        let trail = self.inner.store.trail(id).await?;
        Ok(Some(Intent { seen, trail }))
    }

    /// Lists intents, the newest first.
    pub async fn list(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Result<Page, store::Error> {
        self.inner.store.list(filter, after, limit).await
    }

    /// How many intents stand how.
    pub async fn counts(&self) -> Result<Counts, store::Error> {
        self.inner.store.counts(None).await
    }

    /// How many intents of one tenant stand how. Tombstones have no names any more, so they are nobody's.
    pub async fn counts_of(&self, tenant: &Tenant) -> Result<Counts, store::Error> {
        self.inner.store.counts(Some(tenant)).await
    }

    /// Settles an intent: it happened, with this outcome; it did not; or it did not and the key is free again. Or turns
    /// running work into a doubt, which can then be settled. `version` is that of the record on which the decision is
    /// based: if the record has changed since, nothing is written.
    pub async fn resolve(
        &self,
        identity: &Identity,
        version: u64,
        resolution: Resolution,
        by: Option<&str>,
        note: Option<&str>,
    ) -> Result<Resolved, Error> {
        self.resolve_as(identity, version, resolution, Who { by, token: None }, note).await
    }

    /// The same for a caller that is known by a token.
    pub async fn resolve_as(
        &self,
        identity: &Identity,
        version: u64,
        resolution: Resolution,
        who: Who<'_>,
        note: Option<&str>,
    ) -> Result<Resolved, Error> {
        let id = identity.digest();
        let (what, resolution) = match resolution {
            Resolution::Happened(outcome) => {
                (What::ResolvedHappened, Resolution::Happened(outcome.within(LARGEST_KEEP_LIMIT)))
            }
            Resolution::DidNotHappen => (What::ResolvedDidNotHappen, Resolution::DidNotHappen),
            Resolution::Reset => (What::ResolvedReset, Resolution::Reset),
            Resolution::Force => (What::ForcedInDoubt, Resolution::Force),
        };
        let command = Command::Resolve { version, resolution, fence: fence()? };
        let seen = self.inner.store.get(id).await?;
        // The head of a stream goes on, and its trail stays: so each entry says which item it is about.
        let item = seen.as_ref().and_then(|seen| seen.record.sequence).map(|number| format!("item {number}"));
        let note = [item.as_deref(), note].into_iter().flatten().collect::<Vec<_>>().join(": ");
        let (by, token) = (who.by.map(str::to_owned), who.token.map(str::to_owned));
        let event = Event { what, by, token, note: Some(note).filter(|note| !note.is_empty()) };
        let event = (!planted(Plant::ResolveNotAudited)).then_some(event);
        let driven = match self.inner.drive(seen, &command, event).await {
            Ok(driven) => driven,
            Err(stuck) => return Err(stuck.about(identity.to_string())),
        };
        if let Some(seen) = &driven.written {
            self.inner.cache.keep(&seen.record);
            self.inner.waiters.wake(&id);
        }
        Ok(match driven.answer {
            Answer::Refused(refusal) => Resolved::Refused(refusal),
            Answer::Accepted | Answer::Stale { .. } | Answer::Decision(_) | Answer::Archived => Resolved::Settled,
        })
    }

    /// Lets the processes that this one starts from now on keep its claims alive: should this one be killed, its claims
    /// lapse at once only when they have ended too. For callers whose work is another process.
    pub fn lend_claims(&self) {
        self.inner.store.lend();
    }

    /// Frees at most `limit` expired records. The ledger does this by itself now and then.
    pub async fn purge(&self, limit: usize) -> Result<Purged, store::Error> {
        self.inner.store.purge(limit).await
    }
}

impl Inner {
    /// Sweeps in the background when it is time, given how many claims there were before this one.
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

/// One sweep at a time; however it ends, the next one may begin.
struct Sweep(Arc<Inner>);

impl Drop for Sweep {
    fn drop(&mut self) {
        self.0.sweeping.store(false, Ordering::Release);
    }
}
