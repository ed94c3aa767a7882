//! A person settles one held payment: reads the provider's statement, runs `onceward resolve`, and pays again.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use onceward::{Failure, Ledger};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use super::DemoError;
use super::plan::{Fault, Payment, Plan};
use super::progress::Progress;
use super::provider_client::{self, Receipt};
use super::render::{self, Style};
use super::screen::{Pace, Screen};
use super::summary;
use super::world::World;

/// The world in which payments are held.
pub(super) const WORLD: World = World::KeysIgnored;

/// How long `onceward resolve` may take. It needs milliseconds; this only ends the demo on a machine in trouble.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(30);

/// Settles the first held payment that the provider did charge. Returns its number.
pub(super) async fn settle_one(
    ledger: &Ledger,
    provider: SocketAddr,
    plan: &Plan,
    progress: &Progress,
    pace: Pace,
    store: &Path,
    screen: &mut Screen,
) -> Result<usize, DemoError> {
    let is_charged = |number: &usize| plan.fault(*number, 1) != Some(Fault::RequestLost);
    let Some(number) = progress.held(WORLD).find(is_charged) else {
        return Err(DemoError::PromiseBroken("the provider charged none of the held payments".to_owned()));
    };
    let payment = plan.payment(number);
    let invoice = &payment.invoice;
    screen.paragraph(&format!("A person settles one of them, {invoice}:"))?;
    sleep(pace.step).await;

    let statement = provider_client::statement(provider, invoice).await.map_err(failed)?;
    let [receipt] = statement.charges.as_slice() else {
        let count = statement.charges.len();
        return Err(DemoError::PromiseBroken(format!("{invoice} is held and has {count} charges")));
    };
    screen.step(1, &format!("The provider's statement shows the transfer: {}.", receipt.id))?;
    sleep(pace.step).await;

    resolve(&payment, receipt, store, screen).await?;
    sleep(pace.step).await;

    pay_again(ledger, provider, &payment, receipt).await?;
    screen.step(3, &format!("The agent pays {invoice} again: it gets {} and no new charge.", receipt.id))?;
    sleep(pace.step).await;
    Ok(number)
}

fn failed(error: impl std::fmt::Display) -> DemoError {
    DemoError::Failed(format!("cannot settle the payment: {error}"))
}

/// Runs the command that a person would type, and shows the command and its output.
async fn resolve(payment: &Payment, receipt: &Receipt, store: &Path, screen: &mut Screen) -> Result<(), DemoError> {
    let value = serde_json::to_string(receipt).map_err(failed)?;
    let mut arguments = vec!["resolve".to_owned()];
    arguments.extend(summary::intent_options(payment, WORLD, store));
    arguments.extend(["--happened".to_owned(), "--value".to_owned(), value]);
    screen.step(2, "The person tells the ledger that it happened:")?;
    screen.lines(&render::command(&summary::typed(&arguments)))?;
    let program = std::env::current_exe().map_err(failed)?;
    let command = Command::new(program)
        .args(&arguments)
        // The demo does not use the user's configuration, so a mistake in it does not end the demo.
        .env("ONCEWARD_CONFIG", "/dev/null")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(RESOLVE_TIMEOUT, command).await.map_err(failed)?.map_err(failed)?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim()));
    }
    screen.lines(&render::indented(Style::Good, &String::from_utf8_lossy(&output.stdout), render::COMMAND_INDENT))?;
    Ok(())
}

/// Pays the settled invoice again, with a real call: if the ledger let it through, the provider would charge twice.
async fn pay_again(
    ledger: &Ledger,
    provider: SocketAddr,
    payment: &Payment,
    receipt: &Receipt,
) -> Result<(), DemoError> {
    let operation = WORLD.guarded(ledger, payment).ok_or_else(|| failed("this world has no ledger"))?;
    let repeat = operation.run(|claim| async move {
        provider_client::charge(provider, payment, Some(claim.downstream_key())).await.map_err(Failure::unknown)
    });
    let done = repeat.await.map_err(failed)?;
    let charges = provider_client::statement(provider, &payment.invoice).await.map_err(failed)?.charges.len();
    if !done.replayed || done.value != *receipt || charges != 1 {
        let invoice = &payment.invoice;
        return Err(DemoError::PromiseBroken(format!("{invoice} was charged again after it was settled")));
    }
    Ok(())
}
