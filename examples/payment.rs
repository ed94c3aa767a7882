//! A payment whose first answer is lost, and which is retried and repeated: the card is charged once.
//!
//! `cargo run -p onceward --example payment`

// An example talks to its reader.
#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::{Error, Failure, InDoubt, Ledger, Tier};
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize)]
struct Charge {
    customer: String,
    invoice: u32,
    cents: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    id: String,
}

/// Stands in for a payment provider. It charges once for each idempotency key, as most providers do, and the
/// answer to its first request is lost on the way.
#[derive(Default)]
struct Provider {
    receipts: Mutex<HashMap<String, Receipt>>,
    requests: AtomicU32,
}

impl Provider {
    async fn charge(&self, charge: &Charge, idempotency_key: &str) -> Result<Receipt, Failure> {
        let receipt = {
            let mut receipts = self.receipts.lock().map_err(|_| Failure::unknown("the provider is broken"))?;
            let id = format!("ch_{}_{}", charge.invoice, receipts.len() + 1);
            receipts.entry(idempotency_key.to_owned()).or_insert(Receipt { id }).clone()
        };
        match self.requests.fetch_add(1, Ordering::SeqCst) {
            0 => Err(Failure::unknown("time-out: the answer was lost")),
            _ => Ok(receipt),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("payments.db");
    let ledger = Ledger::open(path).await?;
    let provider = Arc::new(Provider::default());
    let charge = Charge { customer: "cus_7".into(), invoice: 42, cents: 19_99 };

    let pay = async || {
        let (provider, charge) = (Arc::clone(&provider), charge.clone());
        ledger
            .operation("charge_payment")
            .tenant("acme")
            .tier(Tier::Payment)
            .in_doubt(InDoubt::Retry) // the provider honours our key, so trying again is safe
            .wait(Duration::from_secs(5))
            .intent(&charge.clone())
            .run(|claim| async move { provider.charge(&charge, claim.downstream_key()).await })
            .await
    };

    // The first attempt ends without an answer. It is unknown whether the card was charged.
    match pay().await {
        Err(error @ Error::Failed { .. }) => println!("first attempt:  {error}"),
        other => return Err(format!("expected a lost answer, got {other:?}").into()),
    }
    // The agent tries again: the same intent, so the same downstream key, so no second charge.
    let receipt = pay().await?;
    println!("second attempt: {:?}", receipt.value);
    // The agent crashes, resumes and repeats the call. It gets the receipt.
    for _ in 0..3 {
        let again = pay().await?;
        assert!(again.replayed);
        assert_eq!(again.value, receipt.value);
    }
    println!("three repeats:  the same receipt, without asking the provider");
    assert_eq!(provider.requests.load(Ordering::SeqCst), 2);
    let charges = provider.receipts.lock().map(|receipts| receipts.len()).unwrap_or_default();
    assert_eq!(charges, 1);
    println!("charges:        {charges}");
    ledger.close().await;
    Ok(())
}
