//! Compares the two ledgers of a copy: what they hold, and what they survive.

use std::sync::Arc;

use onceward_core::hash::Digest;
use onceward_core::record::{Record, State};
use onceward_core::time::Timestamp;

use super::{CopyError, CopyProgress, Mover, PAGE, Side};
use crate::clock::{Clock, SystemClock};
use crate::store::transfer::{Seal, Totals, Transfer};
use crate::store::{self, Durability, Store};

/// What the target survives, if that is less than what the source does. Only before a copy has begun: then it was accepted.
pub async fn weaker(from: &Side, to: &Side) -> Result<Option<Durability>, CopyError> {
    if !matches!(from.transfer()?.seal().await?, Seal::Open | Seal::Received(_)) {
        return Ok(None);
    }
    let rank = |durability: &Durability| match durability {
        Durability::Durable => 2,
        Durability::BestEffort { .. } => 1,
        Durability::Volatile => 0,
    };
    let (source, target) = (from.store.durability().await?, to.store.durability().await?);
    Ok(Some(target).filter(|target| rank(target) < rank(&source)))
}

impl Mover<'_> {
    /// Reads both ledgers again and compares them.
    pub(super) async fn verify(&self) -> Result<Totals, CopyError> {
        let total = count(&self.from.store).await?;
        let quiet = |_| {};
        let report = |records| (self.progress)(CopyProgress::Verifying { records, total });
        // One time for both sides. A store that keeps time by itself may already have dropped such a tombstone.
        let now = self.from.store.now().or_else(|| self.to.store.now()).unwrap_or_else(|| SystemClock.now());
        let (source, target) =
            tokio::try_join!(totals(self.from.transfer()?, now, &quiet), totals(self.to.transfer()?, now, &report))?;
        if source != target {
            let (from, to) = (self.from.name.clone(), self.to.name.clone());
            return Err(CopyError::Differs { from, to, source_count: source.count(), target_count: target.count() });
        }
        Ok(source)
    }
}

pub(super) async fn count(store: &Arc<dyn Store>) -> Result<u64, store::Error> {
    Ok(store.counts(None).await?.0.values().sum())
}

/// Reads a whole ledger. Tombstones that may be forgotten do not count: nothing depends on them any more.
async fn totals(
    transfer: &dyn Transfer,
    now: Timestamp,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Totals, store::Error> {
    let is_kept = |record: &Record| !matches!(record.state, State::Tombstone { forget_at, .. } if forget_at <= now);
    let mut totals = Totals::default();
    let mut after: Option<Digest> = None;
    loop {
        let page = transfer.export(after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(totals) };
        after = Some(last.record.id);
        page.iter().filter(|exported| is_kept(&exported.record)).for_each(|exported| totals.add(exported));
        progress(totals.count());
    }
}
