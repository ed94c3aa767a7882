//! A tool with a bug that ordinary tests do not find, the report that finds it, and the fixed tool.
//!
//! `cargo run -p onceward --example testkit`

// An example talks to its reader.
#![allow(clippy::print_stdout)]

use onceward::testkit::{self, Cause, Provider, Receipt};
use onceward::{Error, InDoubt, Ledger};
use serde::Serialize;

#[derive(Serialize)]
struct Order {
    customer: &'static str,
    invoice: u32,
    cents: u64,
}

const ORDER: Order = Order { customer: "cus_7", invoice: 42, cents: 19_99 };

/// The first version of the tool. It is guarded, and it passes every test in which nothing goes wrong. But `?` does not say what
/// became of the effect, so the ledger assumes that a failed charge did not happen.
pub(crate) async fn charge(ledger: Ledger, provider: Provider) -> Result<Receipt, Error> {
    let call = ledger.operation("charge_payment").intent(&ORDER);
    let done = call.run(|_claim| async { Ok(provider.act("charge invoice 42").await?) }).await?;
    Ok(done.value)
}

/// Fixed: the provider gets the key of the intent and recognises a repeat, so a doubt may be retried.
pub(crate) async fn charge_mended(ledger: Ledger, provider: Provider) -> Result<Receipt, Error> {
    let call = ledger.operation("charge_payment").in_doubt(InDoubt::Retry).intent(&ORDER);
    let done = call.run(|claim| async move {
        let key = claim.downstream_key();
        Ok(provider.act_with_key("charge invoice 42", key).await?)
    });
    Ok(done.await?.value)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let report = testkit::check("charge", |bench| charge(bench.ledger(), bench.provider())).await;
    println!("{report}");
    let found = report.violations().any(|line| line.cause() == Some(&Cause::ReleasedAfterEffect));
    if !found {
        return Err("the kit should have found the bug".into());
    }

    let report = testkit::check("charge_mended", |bench| charge_mended(bench.ledger(), bench.provider())).await;
    print!("{report}");
    report.assert_once().assert_held(0);
    Ok(())
}
