//! Under `in_doubt = "probe"`: another tool is asked whether an earlier attempt took effect, before anything runs.

use std::time::Duration;

use onceward::clock::{Clock, SystemClock};
use onceward::core::decide::Decision;
use onceward::core::outcome::{JSON, Outcome, Verdict};
use onceward::core::time::Timestamp;
use onceward::{Call, Guard, Ledger};
use tokio::time::timeout;

use super::gate::{Gate, One, log};
use super::link::Link;
use super::members::Members;
use super::probe::{self, Probed};
use super::reply::Reply;
use crate::config::Probe;

/// How long another tool may take to say whether an effect took place.
const PROBING: Duration = Duration::from_secs(30);

impl Gate {
    /// Under `in_doubt = "probe"`, another tool is asked first whether an earlier attempt took effect.
    pub(super) async fn probed(
        &self,
        ledger: &Ledger,
        one: &One<'_>,
        guard: Guard,
        key: &str,
        link: &impl Link,
    ) -> Result<Guard, Reply> {
        let configured = self.tools.configured(&one.asked.tool).and_then(|tool| tool.probe.as_ref());
        let claim = guard.claim();
        let Some(probe) = configured.filter(|_| claim.probe_first()) else { return Ok(guard) };
        let now = SystemClock.now();
        let sent = one.asked.filled(&self.tools, key);
        let (mut probed, answer) = self.ask_whether(probe, one, &sent, link).await;
        // What was under way when nobody looked after it any more may act until its time is over.
        let after = probe.after.map_or(one.call.policy.max_runtime, |after| after.0);
        let left = after.saturating_sub(doubted_for(ledger, one.call, now).await.unwrap_or_default());
        if probed == Probed::DidNot && !left.is_zero() {
            let (tool, seconds) = (&probe.tool, left.as_secs() + 1);
            probed = Probed::Unknown(format!("it is too early for {tool} to show it, so wait for {seconds} seconds"));
        }
        match probed {
            Probed::Happened => {
                let found = probe::found(probe, one.shown, &answer.unwrap_or_default());
                let outcome = Outcome::of(Verdict::Success, JSON, found.written());
                log(guard.finish(outcome.clone()).await.err());
                let replay = Decision::Replay { outcome, finished_at: now, expires_at: None };
                Err(self.replies.decided(one.about(), replay, now))
            }
            Probed::DidNot => match claim.not_found().await {
                Ok(()) => Ok(guard),
                Err(error) => Err(self.replies.failed(one.about(), &error)),
            },
            Probed::Unknown(why) => {
                log(guard.doubt(Some(&why)).await.err());
                Err(self.replies.lost(one.about(), &why, now))
            }
        }
    }

    async fn ask_whether(
        &self,
        probe: &Probe,
        one: &One<'_>,
        sent: &Members,
        link: &impl Link,
    ) -> (Probed, Option<Members>) {
        let parameters = match probe::parameters(probe, sent, one.asked.meta()) {
            Ok(parameters) => parameters,
            Err(why) => return (Probed::Unknown(why), None),
        };
        match timeout(PROBING, link.ask("tools/call", parameters)).await {
            Ok(Ok(answer)) => (probe::read(probe, &answer), Some(answer)),
            Ok(Err(_)) | Err(_) => (Probed::Unknown(format!("{} gave no answer", probe.tool)), None),
        }
    }
}

/// How long ago the attempt was made that nobody knows about.
async fn doubted_for(ledger: &Ledger, call: &Call, now: Timestamp) -> Option<Duration> {
    let intent = ledger.get(&call.identity).await.ok().flatten()?;
    Some(intent.seen.record.doubt_since?.until(now))
}
