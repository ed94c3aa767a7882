//! The agent, a process of its own: it takes one payment after the other from its queue (standard input), pays,
//! and tries again when no answer comes. Killed, it is started again and given the same payment once more.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use onceward::{Error, Failure, Ledger};
use tokio::time::sleep;

use super::child;
use super::client::{self, NoReceipt, Receipt};
use super::plan::{Payment, Plan};
use super::wire::{AgentSays, say};
use super::world::World;

/// How often the agent tries a payment: more than the plan can spoil.
const TRIES: u32 = 4;

/// How often it asks again while another attempt is still running. Only where the system cannot tell that the
/// killed agent is gone: there its lease must run out first.
const PATIENCE: u32 = 20;

/// The arguments of the process that plays the agent.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[arg(long)]
    world: World,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    payments: u32,
    #[arg(long)]
    provider: SocketAddr,
    /// The store of the ledger.
    #[arg(long)]
    ledger: String,
    /// How long it waits before it tries again, in milliseconds.
    #[arg(long, default_value_t = 0)]
    pause: u64,
}

/// Plays the agent until standard input is closed, so that it never outlives the demo.
pub(crate) async fn run(args: Args) -> u8 {
    match work(args).await {
        Ok(()) => 0,
        Err(reason) => {
            let _ = writeln!(io::stderr().lock(), "{reason}");
            super::SOFTWARE
        }
    }
}

async fn work(args: Args) -> Result<(), String> {
    let plan = Plan::new(args.seed, args.payments);
    let ledger = match args.world.tenant() {
        Some(_) => Some(Ledger::open(&args.ledger).await.map_err(|error| error.to_string())?),
        None => None,
    };
    let agent = Agent { provider: args.provider, world: args.world, pause: Duration::from_millis(args.pause) };
    let mut queue = child::queue();
    while let Some(invoice) = queue.recv().await {
        let number = plan.number(&invoice).ok_or_else(|| format!("`{invoice}` is no invoice"))?;
        let payment = plan.payment(number);
        let paying = async {
            match &ledger {
                Some(ledger) => agent.pay_once(ledger, &payment).await,
                None => agent.pay(&payment).await,
            }
        };
        let said = tokio::select! {
            said = paying => said,
            // The queue gives one payment at a time, so this can only be its end: nobody waits for the answer.
            _ = queue.recv() => return Ok(()),
        };
        say(&mut io::stdout().lock(), &said).map_err(|error| error.to_string())?;
    }
    if let Some(ledger) = ledger {
        ledger.close().await;
    }
    Ok(())
}

struct Agent {
    provider: SocketAddr,
    world: World,
    pause: Duration,
}

impl Agent {
    /// What most code does: no answer, so try again.
    async fn pay(&self, payment: &Payment) -> AgentSays {
        let mut reason = String::new();
        for _ in 0..TRIES {
            match client::charge(self.provider, payment, None).await {
                Ok(receipt) => return paid(receipt),
                Err(error) => reason = error.to_string(),
            }
            self.again(payment).await;
        }
        failed(payment, reason)
    }

    /// The same agent, just as stubborn; but every try goes through the ledger.
    async fn pay_once(&self, ledger: &Ledger, payment: &Payment) -> AgentSays {
        let Some(guarded) = self.world.guarded(ledger, payment) else {
            return failed(payment, "there is no ledger in this world".to_owned());
        };
        let mut patience = PATIENCE;
        let mut tries = TRIES;
        loop {
            let charged = guarded.run(|claim| async move {
                let key = claim.downstream_key();
                client::charge(self.provider, payment, Some(key)).await.map_err(classified)
            });
            match charged.await {
                Ok(done) => return paid(done.value),
                Err(Error::InDoubt { .. }) => return AgentSays::Held { invoice: payment.invoice.clone() },
                Err(Error::InFlight { retry_after, .. }) if patience > 0 => {
                    patience -= 1;
                    sleep(retry_after).await;
                }
                Err(Error::Failed { .. }) if tries > 0 => {
                    tries -= 1;
                    self.again(payment).await;
                }
                Err(error) => return failed(payment, error.to_string()),
            }
        }
    }

    async fn again(&self, payment: &Payment) {
        let again = AgentSays::Again { invoice: payment.invoice.clone() };
        let _ = say(&mut io::stdout().lock(), &again);
        sleep(self.pause).await;
    }
}

/// What each error says about the effect. This is all that a caller has to tell the ledger.
fn classified(error: NoReceipt) -> Failure {
    match error {
        NoReceipt::NotSent(_) => Failure::not_sent(error),
        NoReceipt::NoAnswer(_) => Failure::unknown(error),
        NoReceipt::Refused(_) => Failure::last(error),
    }
}

fn paid(receipt: Receipt) -> AgentSays {
    AgentSays::Paid { invoice: receipt.invoice, receipt: receipt.id }
}

fn failed(payment: &Payment, reason: String) -> AgentSays {
    AgentSays::Failed { invoice: payment.invoice.clone(), reason }
}
