//! Decides about calls that were made before: whether they run again, and which reply they get.

use std::time::Duration;

use onceward::clock::{Clock, SystemClock};
use onceward::core::decide::{Again, Decision};
use onceward::core::name::Tenant;
use onceward::core::outcome::Outcome;
use onceward::core::policy::Policy;
use onceward::core::record::{Standing, State};
use onceward::core::time::Timestamp;
use onceward::{Begun, Call, CallBuilder, Delivery, Error, Intent, Ledger};

use super::call::ToolCall;
use super::delivery::Overlap;
use super::gate::{Gate, GuardedCall, Request, log_error};
use super::repeat_rule::Rule;
use super::reply::{Reply, ReplyContext, invalid_call};

/// How long another process may take to record that a response was delivered: a second, and more on a busy machine.
pub(super) const DELIVERY_WRITE_TIME: Duration = Duration::from_millis(1250);

/// How long the time of the last ending call is stored: longer than any retention of a session. An ending call is one like
/// `cancel_order`, after which the same order may be wanted again.
const END_RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);

impl Gate {
    /// Whether a call may run although an equal call is done.
    pub(super) async fn again(&self, call: &Call, rule: Rule, steps: bool, request: &Request) -> Again {
        if !rule.needs_delivery() {
            return call.again;
        }
        let patience = if request.announces { Duration::MAX } else { self.settings.patience };
        match self.equals.overlap(&call.identity.digest(), request.came, patience).await {
            Overlap::Beside if steps && rule == Rule::Causal => Again::Always,
            Overlap::Beside | Overlap::Instead => Again::Never,
            Overlap::None => Again::IfDelivered,
        }
    }

    /// When an ending call finished: an outward call that was delivered before may run again although its echo is not over. Read only
    /// for repeats, so that other calls save the lookup.
    pub(super) async fn ended_before(
        &self,
        ledger: &Ledger,
        guarded: &GuardedCall<'_>,
        decision: &Decision,
    ) -> Option<Timestamp> {
        let is_kept = matches!(decision, Decision::Replay { .. } | Decision::OutcomeNotKept { .. });
        if guarded.rule != Rule::Outward || !is_kept {
            return None;
        }
        self.echo_ended(ledger, &guarded.call.identity.tenant).await
    }

    /// When an ending call of this server was last done, in any process.
    async fn echo_ended(&self, ledger: &Ledger, tenant: &Tenant) -> Option<Timestamp> {
        let call = self.ending(ledger, tenant).call().ok()?;
        let intent = ledger.get(&call.identity).await.ok().flatten()?;
        intent.status().is_some().then_some(intent.seen.record.updated_at)
    }

    /// Records that an ending call is done: outward calls that were delivered before may run again.
    pub(super) async fn end_echo(&self, ledger: &Ledger, tool_call: &ToolCall) {
        if !self.tools.has_outward() {
            return;
        }
        let Ok(call) = self.ending(ledger, &tool_call.tenant).call() else { return };
        let call = Call { again: Again::Always, ..call };
        if let Ok(Begun::Acquired(guard)) = ledger.begin(&call).await {
            log_error(guard.finish(Outcome::success("")).await.err());
        }
    }

    /// The intent that stores when the last ending call was done.
    fn ending(&self, ledger: &Ledger, tenant: &Tenant) -> CallBuilder {
        let operation = ledger.operation("onceward:echo-ended").tenant(tenant.as_str()).key(&self.settings.server);
        operation.policy(Policy::window(END_RETENTION))
    }

    /// The reply to a repeat, and what records its delivery. A reply about a doubt gives the reason.
    pub(super) async fn decided(
        &self,
        ledger: &Ledger,
        guarded: &GuardedCall<'_>,
        decision: Decision,
    ) -> (Reply, Option<Delivery>) {
        let is_doubt = matches!(decision, Decision::InDoubt { .. });
        let is_kept = matches!(decision, Decision::Replay { .. } | Decision::OutcomeNotKept { .. });
        let is_marked = is_doubt || (is_kept && guarded.rule.needs_delivery());
        if !is_marked {
            return (self.replies.decided(guarded.about(), decision, SystemClock.now()), None);
        }
        let intent = ledger.get(&guarded.call.identity).await.ok().flatten();
        let reply = match decision {
            Decision::InDoubt { since } => {
                let why = intent.as_ref().and_then(|intent| intent.seen.record.last_error.clone());
                self.replies.in_doubt(guarded.about(), since, why.as_deref())
            }
            ref decision => self.replies.decided(guarded.about(), decision.clone(), SystemClock.now()),
        };
        // Another call may have changed the record since the decision.
        let delivery = intent.filter(|intent| is_about(intent, &decision)).and_then(|intent| ledger.delivery(intent));
        (reply, delivery)
    }

    /// A deliberate repeat is allowed only after the previous call is done. A done call stays done until its record expires, so it is
    /// safe to check first.
    pub(super) async fn check_previous_repeat(&self, ledger: &Ledger, guarded: &GuardedCall<'_>) -> Option<Reply> {
        if guarded.tool_call.repeat < 2 {
            return None;
        }
        let failed = |error: Error| Some(self.replies.failed(guarded.about(), &error));
        // A repeat that has begun is a call like any other.
        match ledger.get(&guarded.call.identity).await {
            Ok(Some(intent)) if intent.status().is_some() => return None,
            Ok(_) => {}
            Err(error) => return failed(error),
        }
        let before = match guarded.tool_call.call(ledger, &self.settings, &self.tools, guarded.tool_call.repeat - 1) {
            Ok(before) => before,
            Err(why) => return Some(invalid_call(&why.0)),
        };
        let about = ReplyContext { call: &before, repeat: guarded.tool_call.repeat - 1, ..guarded.about() };
        let intent = match ledger.get(&before.identity).await {
            Ok(intent) => intent,
            Err(error) => return failed(error),
        };
        let Some((intent, standing)) =
            intent.and_then(|intent| intent.seen.standing().map(|standing| (intent, standing)))
        else {
            return Some(self.replies.too_early(guarded.about()));
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
            _ => Some(self.replies.too_early(guarded.about())),
        }
    }
}

/// Whether a call finished so recently that its delivery may not be recorded yet.
pub(super) fn is_recent(finished_at: Timestamp) -> bool {
    let now = SystemClock.now();
    finished_at <= now && finished_at.until(now) < DELIVERY_WRITE_TIME
}

/// Whether a record still is the one that a decision was about.
fn is_about(intent: &Intent, decision: &Decision) -> bool {
    match (&intent.seen.record.state, decision) {
        (State::Done { finished_at, .. }, Decision::Replay { finished_at: replayed, .. }) => finished_at == replayed,
        (State::Done { .. }, Decision::OutcomeNotKept { .. }) => true,
        // The time of the doubt is not compared: it is new where the owner is gone.
        (_, Decision::InDoubt { .. }) => matches!(intent.seen.standing(), Some(Standing::InDoubt { .. })),
        _ => false,
    }
}
