//! Under `in_doubt = "probe"`, asks another tool whether an earlier attempt took effect, before the call runs.

use std::time::Duration;

use onceward::clock::{Clock, SystemClock};
use onceward::core::decide::Decision;
use onceward::core::outcome::{JSON, Outcome, Verdict};
use onceward::core::time::Timestamp;
use onceward::{Call, Guard, Ledger};
use tokio::time::timeout;

use super::gate::{Gate, GuardedCall, log_error};
use super::members::Members;
use super::probe_call::{self, ProbeResult};
use super::reply::Reply;
use super::transport::Transport;
use onceward_runtime::config::Probe;

/// How long the probe's call may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);

impl Gate {
    /// Probes if the claim says so. Returns the guard if the call may run, or the reply to send instead.
    pub(super) async fn probe_first(
        &self,
        ledger: &Ledger,
        guarded: &GuardedCall<'_>,
        guard: Guard,
        key: &str,
        transport: &impl Transport,
    ) -> Result<Guard, Reply> {
        let configured = self.tools.configured(&guarded.tool_call.tool).and_then(|tool| tool.probe.as_ref());
        let claim = guard.claim();
        let Some(probe) = configured.filter(|_| claim.probe_first()) else { return Ok(guard) };
        let now = SystemClock.now();
        let sent = guarded.tool_call.filled(&self.tools, key);
        let (mut result, answer) = self.run_probe(probe, guarded, &sent, transport).await;
        // An attempt whose owner is gone may still act until its maximum runtime is over.
        let after = probe.after.map_or(guarded.call.policy.max_runtime, |after| after.0);
        let left = after.saturating_sub(time_in_doubt(ledger, guarded.call, now).await.unwrap_or_default());
        if result == ProbeResult::DidNotHappen && !left.is_zero() {
            let (tool, seconds) = (&probe.tool, left.as_secs() + 1);
            result = ProbeResult::Unknown(format!("it is too early for {tool} to show it; wait {seconds} seconds"));
        }
        match result {
            ProbeResult::Happened => {
                let found = probe_call::found(probe, guarded.shown, &answer.unwrap_or_default());
                let outcome = Outcome::of(Verdict::Success, JSON, found.to_json());
                log_error(guard.finish(outcome.clone()).await.err());
                let replay = Decision::Replay { outcome, finished_at: now, expires_at: None };
                Err(self.replies.decided(guarded.about(), replay, now))
            }
            ProbeResult::DidNotHappen => match claim.not_found().await {
                Ok(()) => Ok(guard),
                Err(error) => Err(self.replies.failed(guarded.about(), &error)),
            },
            ProbeResult::Unknown(why) => {
                log_error(guard.doubt(Some(&why)).await.err());
                Err(self.replies.lost(guarded.about(), &why, now))
            }
        }
    }

    async fn run_probe(
        &self,
        probe: &Probe,
        guarded: &GuardedCall<'_>,
        sent: &Members,
        transport: &impl Transport,
    ) -> (ProbeResult, Option<Members>) {
        let parameters = match probe_call::parameters(probe, sent, guarded.tool_call.meta()) {
            Ok(parameters) => parameters,
            Err(why) => return (ProbeResult::Unknown(why), None),
        };
        match timeout(PROBE_TIMEOUT, transport.ask("tools/call", parameters)).await {
            Ok(Ok(answer)) => (probe_call::read(probe, &answer), Some(answer)),
            Ok(Err(_)) | Err(_) => (ProbeResult::Unknown(format!("{} did not respond", probe.tool)), None),
        }
    }
}

/// How long the outcome has been in doubt.
async fn time_in_doubt(ledger: &Ledger, call: &Call, now: Timestamp) -> Option<Duration> {
    let intent = ledger.get(&call.identity).await.ok().flatten()?;
    Some(intent.seen.record.doubt_since?.until(now))
}
