//! What a call means that was made before: whether it runs again, and what it is told.

use std::sync::PoisonError;
use std::time::Duration;

use onceward::clock::{Clock, SystemClock};
use onceward::core::decide::{Again, Decision};
use onceward::core::record::{Standing, State};
use onceward::core::time::Timestamp;
use onceward::{Call, Delivery, Error, Intent, Ledger};

use super::gate::{Gate, One};
use super::repeats::Rule;
use super::reply::{About, Reply, unfit};

/// How long another process may take to write that an answer was delivered: a second, and some more on a busy machine.
pub(super) const WRITTEN_WITHIN: Duration = Duration::from_millis(1250);

impl Gate {
    /// Whether finished work is done again for a call that came then.
    pub(super) async fn again(&self, call: &Call, rule: Rule, steps: bool, came: u64) -> Again {
        if !rule.needs_delivery() {
            return call.again;
        }
        let overlaps = self.equals.overlap(&call.identity.digest(), came).await;
        let ended = *self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        match ended {
            _ if overlaps && steps && rule == Rule::Causal => Again::Always,
            _ if overlaps => Again::Never,
            Some(ended) if rule == Rule::Outward => Again::IfDeliveredBefore(ended),
            _ => Again::IfDelivered,
        }
    }

    /// What a repeat is told, and what records that it was. A doubt says what is known of it.
    pub(super) async fn decided(
        &self,
        ledger: &Ledger,
        one: &One<'_>,
        decision: Decision,
    ) -> (Reply, Option<Delivery>) {
        let is_doubt = matches!(decision, Decision::InDoubt { .. });
        let is_kept = matches!(decision, Decision::Replay { .. } | Decision::OutcomeNotKept { .. });
        let is_marked = is_doubt || (is_kept && one.rule.needs_delivery());
        if !is_marked {
            return (self.replies.decided(one.about(), decision, SystemClock.now()), None);
        }
        let intent = ledger.get(&one.call.identity).await.ok().flatten();
        let reply = match decision {
            Decision::InDoubt { since } => {
                let why = intent.as_ref().and_then(|intent| intent.seen.record.last_error.clone());
                self.replies.in_doubt(one.about(), since, why.as_deref())
            }
            ref decision => self.replies.decided(one.about(), decision.clone(), SystemClock.now()),
        };
        // Another call may have come in between, whose answer this is not.
        let delivery = intent.filter(|intent| stands_for(intent, &decision)).and_then(|intent| ledger.delivery(intent));
        (reply, delivery)
    }

    /// A repeat that is meant needs the one before it to be done. What is done stays so until it is forgotten, so that
    /// looking first is safe.
    pub(super) async fn before_a_repeat(&self, ledger: &Ledger, one: &One<'_>) -> Option<Reply> {
        if one.asked.repeat < 2 {
            return None;
        }
        let failed = |error: Error| Some(self.replies.failed(one.about(), &error));
        // Once begun, it is a call like any other.
        match ledger.get(&one.call.identity).await {
            Ok(Some(intent)) if intent.status().is_some() => return None,
            Ok(_) => {}
            Err(error) => return failed(error),
        }
        let before = match one.asked.call(ledger, &self.naming, &self.tools, one.asked.repeat - 1) {
            Ok(before) => before,
            Err(why) => return Some(unfit(&why.0)),
        };
        let about = About { call: &before, repeat: one.asked.repeat - 1, ..one.about() };
        let intent = match ledger.get(&before.identity).await {
            Ok(intent) => intent,
            Err(error) => return failed(error),
        };
        let Some((intent, standing)) =
            intent.and_then(|intent| intent.seen.standing().map(|standing| (intent, standing)))
        else {
            return Some(self.replies.too_early(one.about()));
        };
        if intent.seen.record.fingerprint != before.fingerprint {
            return Some(self.replies.decided(about, Decision::Mismatch, SystemClock.now()));
        }
        match standing {
            Standing::Done | Standing::Tombstone => None,
            Standing::InDoubt { since } => {
                Some(self.replies.in_doubt(about, since, intent.seen.record.last_error.as_deref()))
            }
            Standing::Running { .. } => {
                let running = Decision::InFlight { retry_after: Duration::ZERO, running: true, attempt: 1 };
                Some(self.replies.decided(about, running, SystemClock.now()))
            }
            _ => Some(self.replies.too_early(one.about())),
        }
    }
}

/// Whether it was finished less than a moment ago.
pub(super) fn is_recent(finished_at: Timestamp) -> bool {
    let now = SystemClock.now();
    finished_at <= now && finished_at.until(now) < WRITTEN_WITHIN
}

/// Whether a record is the one that a decision was about.
fn stands_for(intent: &Intent, decision: &Decision) -> bool {
    match (&intent.seen.record.state, decision) {
        (State::Done { finished_at, .. }, Decision::Replay { finished_at: told, .. }) => finished_at == told,
        (State::Done { .. }, Decision::OutcomeNotKept { .. }) => true,
        // Since when is counted from now on where the owner is gone.
        (_, Decision::InDoubt { .. }) => matches!(intent.seen.standing(), Some(Standing::InDoubt { .. })),
        _ => false,
    }
}
