//! How a harness makes a ledger carry its log over into the file without writing much.

use onceward::Ledger;

/// Frees at once: each counts as if it had written as many pages as it looks at, and together they are more than a ledger
/// lets pass between two checkpoints.
const FREES: usize = 80;

/// How much each may free.
const LIMIT: usize = 1000;

/// Asks for enough at once that the ledger carries its log over. False if it refuses.
pub async fn over(ledger: &Ledger) -> bool {
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
