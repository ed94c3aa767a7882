//! Tools with one realistic bug each.

use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

use onceward::core::record::Status;
use onceward::testkit::{Provider, Receipt, TestBench};
use onceward::{CallBuilder, Error, Failure, InDoubt, OnError};

use super::good::classified;

type Result<T = ()> = std::result::Result<T, Error>;

fn charge(bench: &TestBench) -> CallBuilder {
    bench.ledger().operation("charge_payment").intent(&42)
}

async fn act(provider: &Provider) -> std::result::Result<Receipt, Failure> {
    provider.act("charge").await.map_err(classified)
}

pub(crate) async fn without_a_ledger(bench: TestBench) -> std::result::Result<Receipt, String> {
    bench.provider().act("charge").await.map_err(|error| error.to_string())
}

pub(crate) async fn that_acts_before_it_claims(bench: TestBench) -> Result {
    let receipt = act(&bench.provider()).await;
    charge(&bench).run(|_| async { receipt }).await?;
    Ok(())
}

pub(crate) async fn that_looks_up_and_then_acts(bench: TestBench) -> Result {
    let call = charge(&bench);
    let status = call.get().await?.and_then(|intent| intent.status());
    if status != Some(Status::Done) {
        let receipt = act(&bench.provider()).await;
        call.run(|_| async { receipt }).await?;
    }
    Ok(())
}

pub(crate) async fn with_a_fresh_key_each_time(bench: TestBench) -> Result {
    let (provider, key) = (bench.provider(), format!("charge-{:x}", RandomState::new().hash_one(42)));
    bench.ledger().operation("charge_payment").key(&key).run(|_| async { act(&provider).await }).await?;
    Ok(())
}

pub(crate) async fn with_the_time_in_its_key(bench: TestBench) -> Result {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let (provider, key) = (bench.provider(), format!("charge-42-{now}"));
    bench.ledger().operation("charge_payment").key(&key).run(|_| async { act(&provider).await }).await?;
    Ok(())
}

pub(crate) async fn that_treats_every_error_as_harmless(bench: TestBench) -> Result {
    let provider = bench.provider();
    // `?` does not classify the error, and without a tier an unclassified error counts as harmless.
    charge(&bench).run(|_| async { Ok(provider.act("charge").await?) }).await?;
    Ok(())
}

pub(crate) async fn that_acts_after_its_run(bench: TestBench) -> Result {
    let call = charge(&bench);
    call.run(|_| async { Ok(()) }).await?;
    let _ = act(&bench.provider()).await;
    Ok(())
}

pub(crate) async fn that_records_first_and_then_acts(bench: TestBench) -> Result {
    let done = charge(&bench).run(|_| async { Ok(()) }).await?;
    if !done.replayed {
        let _ = act(&bench.provider()).await;
    }
    Ok(())
}

pub(crate) async fn that_runs_in_doubt(bench: TestBench) -> Result {
    let provider = bench.provider();
    match charge(&bench).run(|_| async { act(&provider).await }).await {
        Err(Error::InDoubt { .. }) => drop(act(&provider).await),
        ended => drop(ended?),
    }
    Ok(())
}

pub(crate) async fn that_reports_success_in_doubt(bench: TestBench) -> Result {
    let provider = bench.provider();
    match charge(&bench).run(|_| async { act(&provider).await }).await {
        Err(Error::InDoubt { .. }) => Ok(()),
        ended => ended.map(drop),
    }
}

pub(crate) async fn that_forgets_to_mark(bench: TestBench) -> Result {
    let provider = bench.provider();
    charge(&bench).marks_sent().run(|_| async { act(&provider).await }).await?;
    Ok(())
}

pub(crate) async fn that_continues_when_it_cannot_mark(bench: TestBench) -> Result {
    let provider = bench.provider();
    let call = charge(&bench).marks_sent();
    call.run(|claim| {
        let provider = provider.clone();
        async move {
            let _ = claim.sent().await;
            act(&provider).await
        }
    })
    .await?;
    Ok(())
}

pub(crate) async fn that_retries_a_doubt_without_a_key(bench: TestBench) -> Result {
    let provider = bench.provider();
    charge(&bench).in_doubt(InDoubt::Retry).run(|_| async { act(&provider).await }).await?;
    Ok(())
}

pub(crate) async fn that_makes_a_key_for_each_attempt(bench: TestBench) -> Result {
    let provider = bench.provider();
    let call = charge(&bench).in_doubt(InDoubt::Retry);
    call.run(|claim| async move {
        let key = format!("{}-{}", claim.key(), claim.attempt());
        provider.act_with_key("charge", &key).await.map_err(classified)
    })
    .await?;
    Ok(())
}

pub(crate) async fn that_does_not_probe(bench: TestBench) -> Result {
    let provider = bench.provider();
    charge(&bench).in_doubt(InDoubt::Probe).probes().run(|_| async { act(&provider).await }).await?;
    Ok(())
}

pub(crate) async fn that_retries_internally(bench: TestBench) -> Result {
    let provider = bench.provider();
    let call = charge(&bench).on_error(OnError::Doubt);
    call.run(|_| async move {
        match act(&provider).await {
            Ok(receipt) => Ok(receipt),
            Err(_) => act(&provider).await,
        }
    })
    .await?;
    Ok(())
}

pub(crate) async fn that_does_nothing(bench: TestBench) -> Result {
    charge(&bench).run(|_| async { Err::<(), _>(Failure::permanent("no route")) }).await?;
    Ok(())
}

pub(crate) async fn that_acts_twice(bench: TestBench) -> Result {
    let provider = bench.provider();
    let call = charge(&bench);
    call.run(|_| async move {
        act(&provider).await?;
        act(&provider).await
    })
    .await?;
    Ok(())
}

pub(crate) async fn that_never_returns(bench: TestBench) -> Result {
    let provider = bench.provider();
    let call = charge(&bench);
    call.run(|claim| async move {
        let receipt = act(&provider).await;
        if receipt.is_err() {
            std::future::pending::<()>().await;
        }
        drop(claim);
        receipt
    })
    .await?;
    Ok(())
}

pub(crate) async fn that_panics_without_a_response(bench: TestBench) -> Result {
    let provider = bench.provider();
    charge(&bench).run(|_| async move { Ok(provider.act("charge").await.map_err(|_| "no receipt").unwrap()) }).await?;
    Ok(())
}

pub(crate) async fn that_repeats_its_second_effect(bench: TestBench) -> Result {
    let provider = bench.provider();
    let call = charge(&bench).in_doubt(InDoubt::Retry);
    let run = call.run(|claim| async move {
        provider.act_with_key("charge", claim.downstream_key()).await?;
        // The key is passed on for the charge, but not for the mail.
        Ok(provider.act("mail").await?)
    });
    run.await?;
    Ok(())
}
