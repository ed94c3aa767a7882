//! Settling one held payment before the audience's eyes: ask the provider, tell the ledger, call once more.

use std::net::SocketAddr;

use onceward::core::decide::Resolution;
use onceward::{Failure, Ledger, Outcome, Resolved};
use tokio::time::sleep;

use super::Trouble;
use super::client;
use super::paint::{Line, Tone};
use super::plan::{Fault, Plan};
use super::scene::{Cell, Scene};
use super::show::{Pace, Show};
use super::world::World;

/// The world in which payments are held.
const WORLD: World = World::NoKeys;

/// Settles the first held payment that the provider did charge. Its number is the answer.
pub(super) async fn settle_one(
    ledger: &Ledger,
    provider: SocketAddr,
    plan: &Plan,
    scene: &Scene,
    pace: Pace,
    show: &mut Show,
) -> Result<usize, Trouble> {
    let failed = |error: &dyn std::fmt::Display| Trouble::Failed(format!("settling: {error}"));
    let charged = |number: &usize| plan.fault(*number, 1) != Some(Fault::LineDropped);
    let Some(number) = held(scene).find(charged) else {
        return Err(Trouble::Broken("no held payment was charged".to_owned()));
    };
    let payment = plan.payment(number);
    let operation = WORLD.guarded(ledger, &payment).ok_or_else(|| failed(&"this world has no ledger"))?;
    let call = operation.call().map_err(|error| failed(&error))?;

    show.paragraph(&format!("Settling one of them, {}: it was sent, and no answer came.", payment.invoice))?;
    sleep(pace.step).await;

    let found = client::charges(provider, &payment.invoice).await.map_err(|error| failed(&error))?;
    let [receipt] = found.as_slice() else {
        return Err(Trouble::Broken(format!("{} has {} charges", payment.invoice, found.len())));
    };
    step(
        show,
        "ask the provider",
        &format!("GET /v1/charges?invoice={}", payment.invoice),
        &format!("found {}", receipt.id),
    )?;
    sleep(pace.step).await;

    let seen = ledger.get(&call.identity).await.map_err(|error| failed(&error))?;
    let version = seen.ok_or_else(|| failed(&"the ledger does not know it"))?.seen.record.version;
    let body = serde_json::to_vec(receipt).map_err(|error| failed(&error))?;
    let happened = Resolution::Happened(Outcome::success(body));
    let note = Some("found at the provider");
    match ledger.resolve(&call.identity, version, happened, Some("demo"), note).await {
        Ok(Resolved::Settled) => {}
        Ok(Resolved::Refused(refusal)) => return Err(failed(&format!("{refusal:?}"))),
        Err(error) => return Err(failed(&error)),
    }
    step(show, "tell the ledger", "it happened, with this receipt", "settled")?;
    sleep(pace.step).await;

    // A real call: if the ledger let it through, the provider would charge a second time.
    let repeat = operation.run(|claim| {
        let payment = &payment;
        async move { client::charge(provider, payment, Some(claim.downstream_key())).await.map_err(Failure::unknown) }
    });
    let done = repeat.await.map_err(|error| failed(&error))?;
    let charges = client::charges(provider, &payment.invoice).await.map_err(|error| failed(&error))?.len();
    if !done.replayed || done.value != *receipt || charges != 1 {
        return Err(Trouble::Broken(format!("{} was charged again after it was settled", payment.invoice)));
    }
    step(show, "pay it once more", "the receipt, and no second charge", &format!("still {}", done.value.id))?;
    sleep(pace.step).await;
    Ok(number)
}

/// Payments that are held, from the first.
pub(super) fn held(scene: &Scene) -> impl Iterator<Item = usize> + '_ {
    let lane = scene.lanes.iter().find(|lane| lane.world == WORLD);
    let cells = lane.map(|lane| lane.cells.as_slice()).unwrap_or_default();
    cells.iter().enumerate().filter(|(_, cell)| **cell == Cell::Held).map(|(number, _)| number)
}

fn step(show: &mut Show, what: &str, how: &str, result: &str) -> std::io::Result<()> {
    let line = Line::new(Tone::Plain, "  ")
        .padded(Tone::Strong, what, 19)
        .padded(Tone::Plain, how, 37)
        .then(Tone::Good, result);
    show.lines(&[line])
}
