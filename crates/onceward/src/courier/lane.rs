//! The entries of one operation that a courier has seen and has on their way.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use onceward_core::hash::Digest;
use onceward_core::name::{Operation, Tenant};
use onceward_core::record::{Record, Seen, State};

use super::delivery::{Deliverer, bound_to};
use super::dependency::{Dependency, StartPermit};
use super::sink::Sink;
use crate::ledger::Ledger;
use crate::store::{self, DueQuery};

/// How many entries one look reads at the most. They wait in memory with their payloads until there is room for them.
const LARGEST_LOOK: usize = 256;

/// How many due entries a trial is chosen from.
const TRIAL_CHOICE: usize = 16;

/// How many entries are left to other couriers without a mark: half of a look.
const MOST_LEFT: usize = LARGEST_LOOK / 2;

/// One operation of a courier.
#[derive(Debug)]
pub(super) struct OperationQueue {
    pub(super) operation: Operation,
    deliverer: Deliverer,
    /// Delivers while the breaker of the first one is open.
    fallback: Option<Deliverer>,
    /// Opened by a person who pauses the queue.
    pub(super) pause: Dependency,
    /// When an entry of this lane is due again.
    pub(super) retry_at: Option<Instant>,
    /// Due entries that wait for room, and when they were found.
    waiting: VecDeque<(Seen, Instant)>,
    under_way: HashSet<Digest>,
    /// The tenant at which the next look begins.
    after: Option<Tenant>,
    /// Another courier was quicker, so the next look begins at a random place.
    meets_others: bool,
    /// How many entries the last look found that are bound to sinks which this courier does not have.
    elsewhere: usize,
}

impl OperationQueue {
    pub(super) fn new(
        operation: Operation,
        deliverer: Deliverer,
        fallback: Option<Deliverer>,
        pause: Dependency,
    ) -> Self {
        Self {
            operation,
            deliverer,
            fallback,
            pause,
            retry_at: None,
            waiting: VecDeque::new(),
            under_way: HashSet::new(),
            after: None,
            meets_others: false,
            elsewhere: 0,
        }
    }

    /// Where its entries go.
    pub(super) fn sinks(&self) -> impl Iterator<Item = &dyn Sink> {
        std::iter::once(&self.deliverer).chain(&self.fallback).map(|deliverer| &*deliverer.route.sink)
    }

    /// Who delivers now, and whether attempts may begin.
    pub(super) async fn may_start(&self) -> (Deliverer, StartPermit) {
        let first = self.deliverer.clone();
        if let closed @ StartPermit::Closed { .. } = self.pause.may_start().await {
            return (first, closed);
        }
        let permit = first.dependency.may_start().await;
        if let (StartPermit::Closed { .. }, Some(fallback)) = (permit, &self.fallback) {
            let other = fallback.dependency.may_start().await;
            if !matches!(other, StartPermit::Closed { .. }) {
                return (fallback.clone(), other);
            }
        }
        (first, permit)
    }

    /// Who has to deliver an entry because of an earlier attempt that may have happened, if it is not the one who delivers now.
    pub(super) fn bound_deliverer(&self, seen: &Seen, now: &Deliverer) -> Option<Deliverer> {
        let sink = &bound_to(&seen.record)?.sink;
        let known = [Some(&self.deliverer), self.fallback.as_ref()].into_iter().flatten();
        let bound = known.into_iter().find(|known| known.route.sink_name == *sink)?;
        (*sink != now.route.sink_name).then(|| bound.clone())
    }

    /// Whether an entry is in doubt at a sink that this courier does not have, or whose breaker is open while the fallback is used.
    /// An attempt that was cut off is first recorded as a doubt.
    fn is_elsewhere(&self, record: &Record, now: &Deliverer) -> bool {
        let State::InDoubt { .. } = record.state else { return false };
        let mut usable = [Some(now), self.fallback.as_ref()].into_iter().flatten();
        bound_to(record).is_some_and(|bound| usable.all(|usable| usable.route.sink_name != bound.sink))
    }

    fn room(&self) -> usize {
        self.deliverer.route.concurrency.max(1).saturating_sub(self.under_way.len())
    }

    /// Looks for due entries if there is room for more than are waiting.
    pub(super) async fn fill(
        &mut self,
        ledger: &Ledger,
        now: &Deliverer,
        is_trial: bool,
        with_abandoned: bool,
    ) -> Result<(), store::Error> {
        if self.retry_at.is_some_and(|at| at <= Instant::now()) {
            self.retry_at = None;
        }
        let room = self.room();
        // A trial chooses among several: the first one may fail because of what is in it.
        let (wanted, enough) = if is_trial { (TRIAL_CHOICE, TRIAL_CHOICE) } else { (room, 1) };
        if room == 0 || (self.waiting.len() >= enough && !with_abandoned) {
            return Ok(());
        }
        // Entries that are under way may still be found as due: their claims are being written.
        let limit = (wanted * 2 + self.under_way.len() + self.elsewhere).min(LARGEST_LOOK);
        let (operation, after, asked_at) = (self.operation.clone(), self.after.clone(), Instant::now());
        let queue = DueQuery { operation, tenant: None, after, limit, with_abandoned };
        let found = ledger.due(&queue).await?;
        self.after = found.reached;
        let known: HashSet<Digest> = self.waiting.iter().map(|(seen, _)| seen.record.id).collect();
        let is_new = |seen: &Seen| !self.under_way.contains(&seen.record.id) && !known.contains(&seen.record.id);
        let (mut entries, elsewhere): (Vec<Seen>, Vec<Seen>) =
            found.entries.into_iter().filter(is_new).partition(|seen| !self.is_elsewhere(&seen.record, now));
        self.leave(elsewhere, &mut entries);
        if self.meets_others && !entries.is_empty() {
            let start = getrandom::u32().unwrap_or_default() as usize % entries.len();
            entries.rotate_left(start);
        }
        self.meets_others = false;
        self.waiting.extend(entries.into_iter().map(|seen| (seen, asked_at)));
        Ok(())
    }

    /// Leaves entries to the couriers that have their sinks. If there are so many that they would hide the others, they are set
    /// aside for a while.
    fn leave(&mut self, elsewhere: Vec<Seen>, entries: &mut Vec<Seen>) {
        if self.elsewhere == 0 && !elsewhere.is_empty() {
            let (operation, count) = (&self.operation, elsewhere.len());
            tracing::warn!(%operation, count, "entries in doubt wait for their sink, which this courier does not have, or does not use now");
        }
        self.elsewhere = elsewhere.len();
        if self.elsewhere > MOST_LEFT {
            entries.extend(elsewhere);
        }
    }

    /// Puts an entry first that was tried less often than others, and any of these, so that an entry that fails because of what is
    /// in it is not the trial again and again.
    pub(super) fn choose_trial(&mut self) {
        let Some(fewest) = self.waiting.iter().map(|(seen, _)| seen.record.attempts).min() else { return };
        let fewest: Vec<usize> =
            (0..self.waiting.len()).filter(|index| self.waiting[*index].0.record.attempts == fewest).collect();
        let chosen = fewest[getrandom::u32().unwrap_or_default() as usize % fewest.len()];
        self.waiting.swap(0, chosen);
    }

    /// The next entry, if there is room for it. It may have waited for long, and what may be done with it depends on the time.
    pub(super) fn next(&mut self) -> Option<Seen> {
        if self.room() == 0 {
            return None;
        }
        let (mut seen, found_at) = self.waiting.pop_front()?;
        seen.now = seen.now.after(found_at.elapsed());
        self.under_way.insert(seen.record.id);
        Some(seen)
    }

    /// Puts an entry back that is not tried now.
    pub(super) fn put_back(&mut self, seen: Seen) {
        self.under_way.remove(&seen.record.id);
        self.waiting.push_front((seen, Instant::now()));
    }

    pub(super) fn ended(&mut self, id: &Digest, was_taken_by_another: bool, retry_in: Option<Duration>) {
        self.under_way.remove(id);
        self.meets_others |= was_taken_by_another;
        if let Some(retry_in) = retry_in {
            let at = Instant::now() + retry_in;
            self.retry_at = Some(self.retry_at.map_or(at, |earlier| earlier.min(at)));
        }
    }
}
