//! A simple store: records by identity.

use std::collections::BTreeMap;

use super::*;

/// Performs what is decided about the steps of a scenario.
#[derive(Default)]
pub(super) struct RecordMap(BTreeMap<[u8; 32], Record>);

impl RecordMap {
    pub(super) fn seen(&self, id: Digest, step: &ScenarioStep) -> Option<Seen> {
        let record = self.0.get(id.as_bytes())?.clone();
        Some(Seen { record, now: Timestamp::from_millis(step.at), owner_gone: step.owner_gone })
    }

    /// The record that a step is about: for an item the head, or the item's own record once the head is past it.
    pub(super) fn record_of(&self, step: &ScenarioStep) -> Digest {
        let Some(number) = step.item else { return step.identity().digest() };
        let head = stream().head().digest();
        let past = self.0.get(head.as_bytes()).is_some_and(|head| head.sequence.is_some_and(|newest| newest > number));
        if past { stream().item(number).digest() } else { head }
    }

    /// Decides, and performs the write.
    pub(super) fn apply(&mut self, id: Digest, step: &ScenarioStep, command: &Command, place: &str) -> CommandResult {
        let Transition { archive, write, answer } = decide(self.seen(id, step).as_ref(), command);
        if let Some(archive) = archive {
            let own = archive.id;
            let archived = self.apply(own, step, &Command::Archive(archive), place);
            if archived != CommandResult::Accepted {
                return archived;
            }
        }
        if step.stops && matches!(command, Command::BeginItem(_)) {
            return CommandResult::Accepted;
        }
        let now = Timestamp::from_millis(step.at);
        let before = self.0.get(id.as_bytes()).map(|record| record.version);
        match write {
            Write::None => {}
            Write::Insert(draft) => {
                assert_eq!((before, draft.version), (None, 1), "{place}: an insert where there is a record");
                self.0.insert(*id.as_bytes(), draft.stamp(now));
            }
            Write::Replace(draft) => {
                assert_eq!(before.map(|version| version + 1), Some(draft.version), "{place}: versions rise by one");
                self.0.insert(*id.as_bytes(), draft.stamp(now));
            }
            Write::Remove => {
                self.0.remove(id.as_bytes());
            }
        }
        match (answer, command) {
            (CommandResult::Archived, Command::BeginItem(call)) => {
                self.apply(self.record_of(step), step, &Command::Recall(call.clone()), place)
            }
            (answer, _) => answer,
        }
    }
}
