//! A ledger sweeps in the background on its first claim. A harness that has to know when a sweep happens runs this
//! first one before anything else.

use std::time::Duration;

use onceward::core::policy::{Policy, Retention};
use onceward::{Begun, Ledger, Outcome};

/// Makes the first claim of a ledger, which leaves nothing behind, and waits until the sweep is over.
pub async fn run_first_sweep(ledger: &Ledger) {
    let policy = Policy {
        retention: Some(Retention::For(Duration::ZERO)),
        tombstone: Some(Duration::ZERO),
        ..Policy::default()
    };
    let begun = ledger.operation("the first claim").key("first").policy(policy).begin().await;
    if let Ok(Begun::Acquired(guard)) = begun {
        guard.finish(Outcome::success("")).await.expect("the store works");
    }
    // The sweep has started by the first of these, and is over by the last.
    for _ in 0..3 {
        tokio::task::yield_now().await;
        ledger.purge(1).await.expect("the store works");
    }
}
