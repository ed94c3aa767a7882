//! A ledger sweeps behind the caller's back on its first claim. A harness that has to know when somebody sweeps gets over
//! that before anything happens.

use std::time::Duration;

use onceward::core::policy::{Policy, Retention};
use onceward::{Begun, Ledger, Outcome};

/// Makes the first claim of a ledger, which leaves nothing behind, and waits until the sweep is over.
pub async fn get_over_the_first(ledger: &Ledger) {
    let policy = Policy {
        retention: Some(Retention::For(Duration::ZERO)),
        tombstone: Some(Duration::ZERO),
        ..Policy::default()
    };
    let begun = ledger.operation("the first claim").key("first").policy(policy).begin().await;
    if let Ok(Begun::Acquired(guard)) = begun {
        guard.finish(Outcome::success("")).await.expect("nothing stands in its way");
    }
    // The sweep is on its way by the first of these, and over by the last.
    for _ in 0..3 {
        tokio::task::yield_now().await;
        ledger.purge(1).await.expect("nothing stands in its way");
    }
}
