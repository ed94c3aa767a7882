//! What the store held at each moment: the one order of writes against which every answer is judged.

use onceward::core::hash::Digest;
use onceward::core::record::{Fence, Record, State};
use onceward::core::time::Timestamp;

use super::plan::actor_of_lease;

/// A point in the order of writes, and on the clock.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// How many calls the store had carried out.
    pub position: usize,
    pub time: Timestamp,
}

/// A change of one intent.
#[derive(Clone, Debug)]
pub struct Change {
    pub at: Moment,
    pub record: Option<Record>,
}

/// All changes of all intents.
#[derive(Debug, Default)]
pub struct History {
    position: usize,
    intents: Vec<(Digest, Vec<Change>)>,
}

impl History {
    pub fn of(keys: &[Digest], now: Timestamp) -> Self {
        let start = Change { at: Moment { position: 0, time: now }, record: None };
        // The first call is number 1: nothing is written at the start itself.
        Self { position: 1, intents: keys.iter().map(|id| (*id, vec![start.clone()])).collect() }
    }

    pub fn keys(&self) -> Vec<Digest> {
        self.intents.iter().map(|(id, _)| *id).collect()
    }

    pub fn moment(&self, time: Timestamp) -> Moment {
        Moment { position: self.position, time }
    }

    /// Adds the record of an intent, if it has changed.
    pub fn note(&mut self, id: Digest, time: Timestamp, record: Option<Record>) {
        let at = self.moment(time);
        let Some((_, changes)) = self.intents.iter_mut().find(|(known, _)| *known == id) else { return };
        if changes.last().is_none_or(|last| last.record != record) {
            changes.push(Change { at, record });
        }
    }

    /// One more call was carried out.
    pub fn passed(&mut self) {
        self.position += 1;
    }

    pub fn changes(&self, id: Digest) -> &[Change] {
        self.intents.iter().find(|(known, _)| *known == id).map_or(&[], |(_, changes)| changes)
    }

    /// The records of an intent between two moments, each with the times at which it was visible.
    pub fn between(&self, id: Digest, from: Moment, to: Moment) -> Vec<(Option<&Record>, Timestamp, Timestamp)> {
        let changes = self.changes(id);
        let mut found = Vec::new();
        for (index, change) in changes.iter().enumerate() {
            let next = changes.get(index + 1).map(|next| next.at);
            let is_over = next.is_some_and(|next| next.position < from.position);
            if change.at.position >= to.position || is_over {
                continue;
            }
            let since = change.at.time.max(from.time);
            let until = next.map_or(to.time, |next| next.time.min(to.time));
            found.push((change.record.as_ref(), since, until.max(since)));
        }
        found
    }

    /// How often a record that says that nothing happened was forgotten: the next record starts over, or there is none.
    pub fn forgotten(&self) -> usize {
        let is_open = |change: &Change| matches!(change.record, Some(Record { state: State::Open { .. }, .. }));
        let is_other = |change: &Change| change.record.as_ref().is_none_or(|next| next.created_at == change.at.time);
        let pairs = self.intents.iter().flat_map(|(_, changes)| changes.windows(2));
        pairs.filter(|pair| is_open(&pair[0]) && is_other(&pair[1])).count()
    }

    /// The caller that got the claim with this fence, known by the length of the lease at the moment of the claim.
    pub fn owner(&self, id: Digest, fence: Fence) -> Option<usize> {
        self.changes(id).iter().find_map(|change| match &change.record.as_ref()?.state {
            State::Leased(lease) if lease.fence == fence => actor_of_lease(change.at.time.until(lease.until)),
            _ => None,
        })
    }
}
