//! What a superseded owner reports: it changes nothing, but it is not forgotten.

use onceward_core::hash::Digest;
use onceward_core::outcome::Outcome;
use onceward_core::plant::{Plant, planted};

use super::{Inner, count};
use crate::store::{Event, What};

/// How much of a late outcome the audit trail keeps: enough for a receipt.
const LARGEST_NOTE: usize = 4 * 1024;

/// A remote owner may report as often as it likes. Beyond this many entries nobody reads them, and they only fill the
/// disk.
const LONGEST_TRAIL: usize = 100;

/// Whose report it is.
pub(super) struct Reporter<'a> {
    /// The intent in messages: never the key.
    pub(super) intent: &'a str,
    /// Which of its owners.
    pub(super) who: String,
    /// It may come again with the same report, whose answer it did not get.
    pub(super) repeats: bool,
}

impl Inner {
    /// Puts the outcome into the audit trail, which is the only place where it is kept: a charge id may be in it.
    pub(super) async fn keep_late(&self, id: Digest, reporter: Reporter<'_>, outcome: &Outcome, contradicts: bool) {
        let Reporter { intent, who, repeats } = reporter;
        let reported = serde_json::to_string(&outcome.clone().within(LARGEST_NOTE)).unwrap_or_default();
        let what = if contradicts { What::Contradiction } else { What::StaleFinish };
        let event = Event { what, by: None, token: None, note: Some(format!("{who} reported {reported}")) };
        if repeats && self.is_known(id, &event).await {
            return;
        }
        if contradicts {
            count(&self.stats.contradictions);
            tracing::error!(intent, "a late owner contradicts the record: look at it");
        }
        if planted(Plant::LateOutcomeDropped) {
            return;
        }
        if let Err(error) = self.store.append(id, event).await {
            tracing::error!(intent, %error, "a late outcome could not be put into the audit trail");
        }
    }

    /// Whether the trail has it already, or is full.
    async fn is_known(&self, id: Digest, event: &Event) -> bool {
        match self.store.trail(id).await {
            Ok(trail) => trail.len() >= LONGEST_TRAIL || trail.iter().any(|entry| entry.event == *event),
            Err(_) => false,
        }
    }
}
