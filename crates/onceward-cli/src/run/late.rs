//! Waits for an outcome that could not be recorded at once. The library keeps trying, but only as long as this process
//! lives, so the process waits before it reports a doubt.

use std::time::Duration;

use onceward::Ledger;
use onceward::core::name::Identity;
use onceward::core::outcome::Outcome;
use onceward::core::record::{Record, State};
use tokio::time::{sleep, timeout};

/// A process whose work is done should end as well: a store that does not respond for a minute will not do so soon.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// How often the record is read.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// What became of a late outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LateOutcome {
    /// It was recorded after all.
    Recorded,
    /// Another owner took over, or the intent was settled.
    Superseded,
    /// It is not recorded so far.
    Missing,
}

/// Reads the record until it shows what became of the outcome, at most for the length of the lease: the library does not try
/// longer either.
pub(super) async fn wait_for_outcome(
    ledger: &Ledger,
    identity: &Identity,
    outcome: &Outcome,
    attempt: u32,
    lease: Duration,
) -> LateOutcome {
    let looking = async {
        loop {
            match ledger.get(identity).await {
                Ok(Some(intent)) => {
                    let found = fate(&intent.seen.record, outcome, attempt);
                    if found != LateOutcome::Missing {
                        return found;
                    }
                }
                Ok(None) => return LateOutcome::Superseded,
                Err(_) => {}
            }
            sleep(POLL_INTERVAL).await;
        }
    };
    timeout(lease.min(MAX_WAIT), looking).await.unwrap_or(LateOutcome::Missing)
}

fn fate(record: &Record, outcome: &Outcome, attempt: u32) -> LateOutcome {
    match &record.state {
        State::Done { outcome: recorded, .. } if recorded == outcome => LateOutcome::Recorded,
        // The last owner may still finish a lapsed claim.
        State::Leased(_) | State::InDoubt { .. } if record.attempts == attempt => LateOutcome::Missing,
        _ => LateOutcome::Superseded,
    }
}

#[cfg(test)]
mod tests {
    use onceward::core::outcome::Verdict;
    use onceward::{Begun, Guard};

    use super::*;

    const SHORT: Duration = Duration::from_millis(500);

    async fn claimed() -> (Ledger, Identity, Guard) {
        let ledger = Ledger::open("memory:").await.unwrap();
        let call = ledger.operation("op").key("k").call().unwrap();
        let Begun::Acquired(guard) = ledger.begin(&call).await.unwrap() else { panic!("there is no other owner") };
        (ledger, call.identity, guard)
    }

    fn outcome(body: &'static str) -> Outcome {
        Outcome::of(Verdict::Success, "text/plain", body.as_bytes().to_vec())
    }

    #[tokio::test]
    async fn an_outcome_that_is_recorded_a_moment_later_is_not_in_doubt() {
        let (ledger, identity, guard) = claimed().await;
        let later = tokio::spawn(async move {
            sleep(Duration::from_millis(100)).await;
            guard.finish(outcome("ours")).await
        });
        assert_eq!(wait_for_outcome(&ledger, &identity, &outcome("ours"), 1, MAX_WAIT).await, LateOutcome::Recorded);
        later.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn the_outcome_of_another_owner_stands() {
        let (ledger, identity, guard) = claimed().await;
        guard.finish(outcome("theirs")).await.unwrap();
        assert_eq!(wait_for_outcome(&ledger, &identity, &outcome("ours"), 1, MAX_WAIT).await, LateOutcome::Superseded);
    }

    #[tokio::test]
    async fn the_wait_ends_with_the_lease() {
        let (ledger, identity, _guard) = claimed().await;
        assert_eq!(wait_for_outcome(&ledger, &identity, &outcome("ours"), 1, SHORT).await, LateOutcome::Missing);
        assert_eq!(wait_for_outcome(&ledger, &identity, &outcome("ours"), 2, SHORT).await, LateOutcome::Superseded);
    }
}
