//! Claims that a sealed ledger refuses: they leave no trace, and what is there is still answered.

use std::time::Duration;

use onceward::copy::Side;
use onceward::store::transfer::{Arrival, Departure, Seal};

use crate::copy::{file, ledger, memory};

/// The name of an operation that is left behind would keep the operation out of every other store.
pub(crate) async fn leave_no_trace(side: &Side) {
    let transfer = side.store.transfer().unwrap();
    let arrival = Arrival { token: "t".to_owned(), from: "elsewhere".to_owned(), source: "id".to_owned(), after: None };
    let departure = Departure { token: "t".to_owned(), to: "elsewhere".to_owned(), target: "id".to_owned() };
    let mut present = Seal::Open;
    let seals = [
        Seal::Receiving(arrival),
        Seal::Draining(departure.clone()),
        Seal::Sealed(departure.clone()),
        Seal::Moved(departure.clone()),
        Seal::Open,
    ];
    for seal in seals {
        transfer.set_seal(&present, &seal).await.unwrap();
        present = seal;
        let begun = ledger(side).operation("charge").key("1").run(|_| async { Ok(7) }).await;
        let names = side.store.operations().await.unwrap();
        match present {
            Seal::Open => assert_eq!((begun.unwrap().value, names), (7, vec!["charge".to_owned()])),
            _ => assert!(begun.is_err() && names.is_empty(), "{present:?}: {names:?}"),
        }
    }
    // A record whose operation is not noted, as in a ledger that has too many of them.
    let noted = ledger(side).operation("charge").key("1").call().unwrap().identity.operation;
    side.store.release_operations(&[noted]).await.unwrap();
    transfer.set_seal(&Seal::Open, &Seal::Draining(departure)).await.unwrap();
    let repeat = ledger(side).operation("charge").key("1").wait(Duration::ZERO).run(|_| async { Ok(8) }).await;
    let repeat = repeat.unwrap();
    assert_eq!((repeat.value, repeat.replayed), (7, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_a_sealed_ledger_refuses_leaves_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    leave_no_trace(&memory("memory: 1")).await;
    leave_no_trace(&file(&folder.path().join("a.db")).await).await;
}
