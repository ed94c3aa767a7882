//! The report of an owner that was superseded: it changes nothing, and is kept in the audit trail.

use crate::plant::{Plant, planted};
use onceward_core::hash::Digest;
use onceward_core::outcome::Outcome;

use super::{Inner, count};
use crate::store::{AuditEvent, EventKind};

/// How much of a late outcome the audit trail keeps: enough for a receipt.
const MAX_NOTE_BYTES: usize = 4 * 1024;

/// A remote caller may report as often as it likes, also under fences that were never granted. More entries than this help no
/// reader, and fill the disk; further reports are only logged and counted.
const MAX_TRAIL_ENTRIES: usize = 100;

/// An outcome that came too late.
pub(super) struct LateReport<'a> {
    /// The intent in messages: never the key.
    pub(super) intent: &'a str,
    /// Which of its owners reports.
    pub(super) owner: String,
    pub(super) outcome: &'a Outcome,
    /// The report cannot be true together with what the record says.
    pub(super) contradicts: bool,
    /// The owner may send the same report again, because it did not get the answer.
    pub(super) may_repeat: bool,
}

impl Inner {
    /// Puts the outcome into the audit trail, which is the only place where it is kept: a charge id may be in it.
    pub(super) async fn keep_late_report(&self, id: Digest, report: LateReport<'_>) {
        let LateReport { intent, owner, outcome, contradicts, may_repeat } = report;
        let reported = serde_json::to_string(&outcome.clone().within(MAX_NOTE_BYTES)).unwrap_or_default();
        let what = if contradicts { EventKind::Contradiction } else { EventKind::StaleFinish };
        let event = AuditEvent { what, by: None, token: None, note: Some(format!("{owner} reported {reported}")) };
        // If the trail cannot be read, the report is kept: it may then be there twice.
        let trail = if may_repeat { self.store.trail(id).await.unwrap_or_default() } else { Vec::new() };
        if trail.iter().any(|entry| entry.event == event) {
            return;
        }
        if contradicts {
            count(&self.stats.contradictions);
            tracing::error!(intent, "a late owner contradicts the record: look at it");
        }
        if trail.len() >= MAX_TRAIL_ENTRIES {
            tracing::error!(intent, "the report of a late owner is not kept: the audit trail of the intent is full");
            return;
        }
        if planted(Plant::LateOutcomeDropped) {
            return;
        }
        if let Err(error) = self.store.append(id, event).await {
            tracing::error!(intent, %error, "a late outcome could not be put into the audit trail");
        }
    }
}
