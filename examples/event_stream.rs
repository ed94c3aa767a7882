//! A projection fed by an event source that delivers at least once and not always in order. Each event of an account is applied
//! once, in the order of its sequence numbers, and a redelivery gets the stored result.
//!
//! `cargo run -p onceward --example event_stream`

// An example talks to its reader.
#![allow(clippy::print_stdout)]

use std::sync::Mutex;

use onceward::{Done, Error, Failure, Ledger, Outcome, Resolution, Resolved};

/// The events that the projection has applied, in order: sequence number and cents.
static APPLIED: Mutex<Vec<(u64, i64)>> = Mutex::new(Vec::new());

/// Adds an event to the balance. The answer to event 4 is lost on the way.
async fn apply(sequence: u64, cents: i64) -> Result<i64, Failure> {
    let mut applied = APPLIED.lock().map_err(|_| Failure::unknown("the projection is broken"))?;
    applied.push((sequence, cents));
    match sequence {
        4 => Err(Failure::unknown("connection lost after COMMIT")),
        _ => Ok(applied.iter().map(|(_, cents)| cents).sum()),
    }
}

async fn deliver(ledger: &Ledger, sequence: u64, cents: i64) -> Result<Done<i64>, Error> {
    // The event itself is the intent: the same number with another amount is a mismatch.
    let call = ledger.consume_event("billing", "account-7", sequence).intent(&cents);
    let done = call.run(|_| apply(sequence, cents)).await;
    match &done {
        Ok(done) if done.replayed => println!("event {sequence}: again; the balance was {}", done.value),
        Ok(done) => println!("event {sequence}: applied; the balance is {}", done.value),
        Err(error) => println!("event {sequence}: {error}"),
    }
    done
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let ledger = Ledger::open(folder.path().join("projection.db")).await?;

    // The error for a gap names the expected number, so that the consumer knows where to read again.
    let early = deliver(&ledger, 2, -500).await;
    assert!(matches!(early, Err(Error::OutOfOrder { expected: 1, given: 2, .. })));
    deliver(&ledger, 1, 2000).await?;
    deliver(&ledger, 2, -500).await?;
    deliver(&ledger, 3, 1000).await?;

    // Redeliveries get the balance after their own event, and change nothing.
    for (sequence, cents, balance) in [(1, 2000, 2000), (3, 1000, 2500), (2, -500, 1500)] {
        let again = deliver(&ledger, sequence, cents).await?;
        assert!(again.replayed && again.value == balance);
    }
    assert!(matches!(deliver(&ledger, 2, -999).await, Err(Error::Mismatch { .. })));

    // The answer to event 4 is lost, so it is unknown whether it was applied. The stream waits until a person settles it.
    assert!(matches!(deliver(&ledger, 4, 100).await, Err(Error::Failed { .. })));
    let held = deliver(&ledger, 5, 100).await;
    assert!(matches!(held, Err(Error::OutOfOrder { expected: 4, given: 5, status: Some(_), .. })));
    let call = ledger.consume_event("billing", "account-7", 4);
    let version = call.get().await?.ok_or("the event is in the ledger")?.seen.record.version;
    let found = Resolution::Happened(Outcome::success("2600"));
    let settled =
        ledger.resolve(&call.call()?.identity, version, found, Some("ops"), Some("seen in the table")).await?;
    assert_eq!(settled, Resolved::Settled);
    deliver(&ledger, 5, 100).await?;
    assert_eq!(deliver(&ledger, 4, 100).await?.value, 2600);

    let applied = APPLIED.lock().map_err(|_| "the projection is broken")?;
    let order: Vec<u64> = applied.iter().map(|(sequence, _)| *sequence).collect();
    assert_eq!(order, [1, 2, 3, 4, 5], "each once, in order");
    println!("applied once each, in order: {order:?}");
    Ok(())
}
