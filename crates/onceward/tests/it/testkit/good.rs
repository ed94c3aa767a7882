//! Correct tools, each with another policy.

use onceward::core::policy::Policy;
use onceward::testkit::provider;
use onceward::testkit::{Receipt, TestBench};
use onceward::{Error, Failure, InDoubt, Ledger, Tier};

/// Classifies the errors of the stand-in: only a refusal proves that nothing happened.
pub(crate) fn classified(error: provider::Error) -> Failure {
    match error {
        provider::Error::Refused => Failure::not_sent(error),
        _ => Failure::unknown(error),
    }
}

/// Holds a doubt until an operator settles it.
pub(crate) async fn guarded(bench: TestBench) -> Result<Receipt, Error> {
    let provider = bench.provider();
    let call = bench.ledger().operation("charge_payment").intent(&42);
    Ok(call.run(|_| async move { provider.act("charge").await.map_err(classified) }).await?.value)
}

/// Marks `sent` right before the first byte leaves.
pub(crate) async fn marking(bench: TestBench) -> Result<Receipt, Error> {
    let provider = bench.provider();
    let call = bench.ledger().operation("charge_payment").intent(&42).marks_sent();
    let done = call.run(|claim| async move {
        claim.sent().await?;
        provider.act("charge").await.map_err(classified)
    });
    Ok(done.await?.value)
}

/// Retries a doubt with the key by which the provider recognises the repeat.
pub(crate) async fn keyed(bench: TestBench) -> Result<Receipt, Error> {
    let provider = bench.provider();
    let call = bench.ledger().operation("charge_payment").tier(Tier::Payment).in_doubt(InDoubt::Retry).intent(&42);
    let done = call.run(|claim| async move { Ok(provider.act_with_key("charge", claim.downstream_key()).await?) });
    Ok(done.await?.value)
}

/// Probes the provider in doubt.
pub(crate) async fn probing(bench: TestBench) -> Result<Receipt, Error> {
    let provider = bench.provider();
    let call = bench.ledger().operation("charge_payment").in_doubt(InDoubt::Probe).probes().intent(&42);
    let done = call.run(|claim| async move {
        if claim.probe_first() {
            if let Some(receipt) = provider.find("charge").await.map_err(Failure::unknown)? {
                return Ok(receipt);
            }
            claim.not_found().await?;
        }
        provider.act("charge").await.map_err(classified)
    });
    Ok(done.await?.value)
}

/// Has a ledger with its own policies, and its own test double that only counts.
pub(crate) async fn with_its_own_test_double(bench: TestBench) -> Result<u32, Error> {
    let policy = Policy { in_doubt: InDoubt::Hold, ..Policy::of(Tier::Payment) };
    let ledger = Ledger::builder().policy("charge_payment", policy).on(bench.store());
    let charge = || bench.provider().happened("charge");
    let call = ledger.operation("charge_payment").key("invoice-42");
    let done = call.run(|_| async {
        charge();
        Ok(7)
    });
    Ok(done.await?.value)
}

/// Two effects, each in its own operation.
pub(crate) async fn of_two_effects(bench: TestBench) -> Result<(), Error> {
    for (operation, effect) in [("charge_payment", "charge"), ("send_receipt", "mail")] {
        let provider = bench.provider();
        let call = bench.ledger().operation(operation).in_doubt(InDoubt::Retry).key("invoice-42");
        let run = call.run(|claim| async move {
            provider.act_with_key(effect, claim.downstream_key()).await.map_err(Failure::unknown)
        });
        run.await?;
    }
    Ok(())
}

/// Puts every error in doubt.
pub(crate) async fn careful(bench: TestBench) -> Result<Receipt, Error> {
    let provider = bench.provider();
    let call = bench.ledger().operation("charge_payment").tier(Tier::Payment).intent(&42);
    Ok(call.run(|_| async move { Ok(provider.act("charge").await?) }).await?.value)
}

/// Keeps a refusal as a final failure.
pub(crate) async fn keeping_a_refusal(bench: TestBench) -> Result<Receipt, Error> {
    let provider = bench.provider();
    let call = bench.ledger().operation("charge_payment").intent(&42);
    Ok(call.run(|_| async move { provider.act("charge").await.map_err(Failure::permanent) }).await?.value)
}
