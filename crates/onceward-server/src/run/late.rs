//! An outcome that could not be recorded in time. The library goes on trying, but only as long as this process lives,
//! so it is waited for before anybody is told of a doubt.

use std::time::Duration;

use onceward::core::name::Identity;
use onceward::core::outcome::Outcome;
use onceward::core::record::{Record, State};
use onceward::{Ledger, store};
use tokio::time::{sleep, timeout};

/// A process that ended its work should end as well: a store that does not answer for a minute will not do so soon.
const LONGEST: Duration = Duration::from_secs(60);

/// How often the record is looked at.
const PAUSE: Duration = Duration::from_millis(200);

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    /// It is recorded after all.
    Recorded,
    /// Somebody else has gone on with the work, or settled it.
    Superseded,
    /// Nothing, so far.
    Missing,
}

/// Looks at the record until it shows what became of the outcome, at most for the length of the lease: nobody tries
/// longer than that.
pub(super) async fn late(
    ledger: &Ledger,
    identity: &Identity,
    outcome: &Outcome,
    attempt: u32,
    lease: Duration,
) -> Late {
    let looking = async {
        loop {
            match ledger.get(identity).await {
                Ok(Some(intent)) => {
                    let found = fate(&intent.seen.record, outcome, attempt);
                    if found != Late::Missing {
                        return found;
                    }
                }
                Ok(None) => return Late::Superseded,
                Err(_) => {}
            }
            sleep(PAUSE).await;
        }
    };
    timeout(lease.min(LONGEST), looking).await.unwrap_or(Late::Missing)
}

/// Whether more tries may help.
pub(super) fn may_pass(error: &store::Error) -> bool {
    !matches!(
        error,
        store::Error::Closed
            | store::Error::Poisoned { .. }
            | store::Error::Corrupt { .. }
            | store::Error::Gone { .. }
            | store::Error::NewerSchema { .. }
            | store::Error::OlderSchema { .. }
    )
}

fn fate(record: &Record, outcome: &Outcome, attempt: u32) -> Late {
    match &record.state {
        State::Done { outcome: recorded, .. } if recorded == outcome => Late::Recorded,
        // A lapsed claim may still be finished by its last owner.
        State::Leased(_) | State::InDoubt { .. } if record.attempts == attempt => Late::Missing,
        _ => Late::Superseded,
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
        let Begun::Acquired(guard) = ledger.begin(&call).await.unwrap() else { panic!("nobody else is there") };
        (ledger, call.identity, guard)
    }

    fn outcome(body: &'static str) -> Outcome {
        Outcome::of(Verdict::Success, "text/plain", body.as_bytes().to_vec())
    }

    #[tokio::test]
    async fn an_outcome_that_is_recorded_a_moment_later_is_no_doubt() {
        let (ledger, identity, guard) = claimed().await;
        let later = tokio::spawn(async move {
            sleep(Duration::from_millis(100)).await;
            guard.finish(outcome("ours")).await
        });
        assert_eq!(late(&ledger, &identity, &outcome("ours"), 1, LONGEST).await, Late::Recorded);
        later.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn what_somebody_else_recorded_stands() {
        let (ledger, identity, guard) = claimed().await;
        guard.finish(outcome("theirs")).await.unwrap();
        assert_eq!(late(&ledger, &identity, &outcome("ours"), 1, LONGEST).await, Late::Superseded);
    }

    #[tokio::test]
    async fn it_is_not_waited_for_longer_than_the_lease() {
        let (ledger, identity, _guard) = claimed().await;
        assert_eq!(late(&ledger, &identity, &outcome("ours"), 1, SHORT).await, Late::Missing);
        assert_eq!(late(&ledger, &identity, &outcome("ours"), 2, SHORT).await, Late::Superseded);
    }
}
