//! What a call means that was made before: whether it runs again, and what it is told.

use std::time::Duration;

use onceward::clock::{Clock, SystemClock};
use onceward::core::decide::{Again, Decision};
use onceward::core::name::Tenant;
use onceward::core::outcome::Outcome;
use onceward::core::policy::Policy;
use onceward::core::record::{Standing, State};
use onceward::core::time::Timestamp;
use onceward::{Begun, Call, Delivery, Error, Intent, Ledger, Operation};

use super::call::Asked;
use super::delivery::Overlap;
use super::gate::{Gate, One, Request, log};
use super::repeats::Rule;
use super::reply::{About, Reply, unfit};

/// How long another process may take to write that an answer was delivered: a second, and some more on a busy machine.
pub(super) const WRITTEN_WITHIN: Duration = Duration::from_millis(1250);

/// How long it is kept when the last call was answered that ends what others have made: longer than any retention of a session.
const ENDED_FOR: Duration = Duration::from_secs(30 * 24 * 60 * 60);

impl Gate {
    /// Whether finished work is done again for a call.
    pub(super) async fn again(
        &self,
        ledger: &Ledger,
        call: &Call,
        rule: Rule,
        steps: bool,
        request: &Request,
    ) -> Again {
        if !rule.needs_delivery() {
            return call.again;
        }
        let patience = if request.announces { Duration::MAX } else { self.naming.patience };
        let id = call.identity.digest();
        let has_others = self.equals.has_others_between(&id, &request.from.connection, request.came);
        match self.equals.overlap(&id, request.came, patience).await {
            Overlap::Beside if (steps || has_others) && rule == Rule::Causal => Again::Always,
            Overlap::Beside | Overlap::Instead => Again::Never,
            Overlap::None if rule == Rule::Outward => match self.echo_ended(ledger, &call.identity.tenant).await {
                Some(ended) => Again::IfDeliveredBefore(ended),
                None => Again::IfDelivered,
            },
            Overlap::None => Again::IfDelivered,
        }
    }

    /// When a call of this server was last answered that ends what others have made. Any process may have made it.
    async fn echo_ended(&self, ledger: &Ledger, tenant: &Tenant) -> Option<Timestamp> {
        let call = self.ending(ledger, tenant).call().ok()?;
        let intent = ledger.get(&call.identity).await.ok().flatten()?;
        intent.status().is_some().then_some(intent.seen.record.updated_at)
    }

    /// A call was answered that ends what others have made: what was delivered before is no longer repeated.
    pub(super) async fn end_echo(&self, ledger: &Ledger, asked: &Asked) {
        if !self.tools.has_outward() {
            return;
        }
        let Ok(call) = self.ending(ledger, &asked.tenant).call() else { return };
        let call = Call { again: Again::Always, ..call };
        if let Ok(Begun::Acquired(guard)) = ledger.begin(&call).await {
            log(guard.finish(Outcome::success("")).await.err());
        }
    }

    /// Where it is kept when that was: an intent like any other.
    fn ending(&self, ledger: &Ledger, tenant: &Tenant) -> Operation {
        let operation = ledger.operation("onceward:echo-ended").tenant(tenant.as_str()).key(&self.naming.server);
        operation.policy(Policy::window(ENDED_FOR))
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
