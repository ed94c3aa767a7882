//! A consumer of a queue that delivers at least once: some messages twice, some after a failure. Each is handled once. Without
//! async: this is the blocking form.
//!
//! `cargo run -p onceward --example queue_consumer`

// An example talks to its reader.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;

use onceward::blocking::Ledger;
use onceward::{Error, Failure};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("consumer.db");
    let ledger = Ledger::open(path)?;

    let deliveries = ["m1", "m2", "m1", "m3", "m2", "m1", "m4", "m3", "m4"];
    let mut packed: BTreeMap<&str, u32> = BTreeMap::new();
    let mut fails_once = true;
    for message in deliveries {
        let handled = ledger.consume("orders", message).run(|claim| {
            if message == "m4" && std::mem::take(&mut fails_once) {
                // Proven harmless, so the redelivery may try again.
                return Err(Failure::not_sent("the warehouse does not answer"));
            }
            *packed.entry(message).or_default() += 1;
            Ok(format!("packed {message} on attempt {}", claim.attempt()))
        });
        match handled {
            Ok(done) if done.replayed => println!("{message}: again, already handled"),
            Ok(done) => println!("{message}: {}", done.value),
            Err(Error::Failed { failure, .. }) => println!("{message}: {failure}; it will be delivered again"),
            Err(error) => return Err(error.into()),
        }
    }
    assert!(packed.values().all(|times| *times == 1), "{packed:?}");
    println!("{} deliveries, {} messages, each packed once", deliveries.len(), packed.len());
    Ok(())
}
