//! Makes a ledger checkpoint its log without writing much.

use onceward::Ledger;

/// Purges at once. Each counts as if it had written the pages that it reads, and together they exceed what a ledger
/// lets pass between two checkpoints.
const FREES: usize = 80;

/// The limit of each purge.
const LIMIT: usize = 1000;

/// Purges enough at once that the ledger checkpoints its log. False if it refuses.
pub async fn force(ledger: &Ledger) -> bool {
    let frees: Vec<_> = (0..FREES)
        .map(|_| {
            let ledger = ledger.clone();
            tokio::spawn(async move { ledger.purge(LIMIT).await })
        })
        .collect();
    let mut all = true;
    for free in frees {
        all &= matches!(free.await, Ok(Ok(_)));
    }
    all
}
