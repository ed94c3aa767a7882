//! The agent, a child process: it reads invoices from standard input, pays them one after the other, and retries
//! when no answer comes. After a kill -9 the driver starts it again with the same invoice.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use onceward::{Claim, Error, Failure, Ledger};
use tokio::time::{Instant, sleep};

use super::child;
use super::events::{AgentEvent, write_event};
use super::plan::{Payment, Plan};
use super::provider_client::{self, ChargeError, Receipt};
use super::world::World;

/// How often the agent retries a payment: more often than the plan makes it fail.
const MAX_RETRIES: u32 = 4;

/// How often it asks again while another attempt is still running. Needed only where the system cannot see that the
/// killed agent is gone: there its lease must lapse first.
const MAX_IN_FLIGHT_POLLS: u32 = 20;

/// How long a charge may take to appear in the provider's lookup, with a margin: before this has passed, "not found"
/// proves nothing. It is counted from the start of the probe, when no earlier attempt is running any more.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// How long the agent waits between two lookups of one probe.
const LOOKUP_INTERVAL: Duration = Duration::from_millis(200);

/// The arguments of the agent's process.
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
    /// How long it waits before it retries, in milliseconds.
    #[arg(long, default_value_t = 0)]
    pause: u64,
}

/// Runs the agent until standard input is closed, so that it never outlives the demo.
pub(crate) async fn run(args: Args) -> u8 {
    match work(args).await {
        Ok(()) => 0,
        Err(reason) => {
            let _ = writeln!(io::stderr().lock(), "{reason}");
            super::EX_SOFTWARE
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
    let mut queue = child::stdin_lines();
    while let Some(invoice) = queue.recv().await {
        let number = plan.number(&invoice).ok_or_else(|| format!("unknown invoice `{invoice}`"))?;
        let payment = plan.payment(number);
        let paying = async {
            match &ledger {
                Some(ledger) => agent.pay_through_ledger(ledger, &payment).await,
                None => agent.pay_directly(&payment).await,
            }
        };
        let event = tokio::select! {
            event = paying => event,
            // The driver sends one invoice at a time, so this is the end of its input: the driver is gone.
            _ = queue.recv() => return Ok(()),
        };
        write_event(&mut io::stdout().lock(), &event).map_err(|error| error.to_string())?;
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
    async fn pay_directly(&self, payment: &Payment) -> AgentEvent {
        let mut reason = String::new();
        for _ in 0..MAX_RETRIES {
            match provider_client::charge(self.provider, payment, None).await {
                Ok(receipt) => return paid(receipt),
                Err(error) => reason = error.to_string(),
            }
            self.retry(payment).await;
        }
        failed(payment, reason)
    }

    /// The same agent with the same retries, but every attempt goes through the ledger.
    async fn pay_through_ledger(&self, ledger: &Ledger, payment: &Payment) -> AgentEvent {
        let Some(guarded) = self.world.guarded(ledger, payment) else {
            return failed(payment, "this world has no ledger".to_owned());
        };
        let mut polls = MAX_IN_FLIGHT_POLLS;
        let mut retries = MAX_RETRIES;
        loop {
            match guarded.run(|claim| self.attempt(claim, payment)).await {
                Ok(done) => return paid(done.value),
                Err(Error::InDoubt { .. }) => return AgentEvent::Held { invoice: payment.invoice.clone() },
                Err(Error::InFlight { retry_after, .. }) if polls > 0 => {
                    polls -= 1;
                    sleep(retry_after).await;
                }
                Err(Error::Failed { .. }) if retries > 0 => {
                    retries -= 1;
                    self.retry(payment).await;
                }
                Err(error) => return failed(payment, error.to_string()),
            }
        }
    }

    /// One attempt under a claim. When an earlier attempt may have charged, the provider is asked first, and the
    /// payment is sent only after the ledger has recorded that the provider knows of no charge.
    async fn attempt(&self, claim: Claim, payment: &Payment) -> Result<Receipt, Failure> {
        if claim.probe_first() {
            report(&AgentEvent::Probing { invoice: payment.invoice.clone() });
            if let Some(receipt) = self.probe(payment).await? {
                return Ok(receipt);
            }
            claim.not_found().await.map_err(Failure::unknown)?;
        }
        provider_client::charge(self.provider, payment, Some(claim.downstream_key())).await.map_err(classify)
    }

    /// Asks the provider until it finds the charge or the settle time has passed. A lookup that fails leaves the
    /// payment in doubt.
    async fn probe(&self, payment: &Payment) -> Result<Option<Receipt>, Failure> {
        let settled_at = Instant::now() + SETTLE_TIME;
        loop {
            // The clock is read before the lookup, so that the last lookup starts after the settle time.
            let is_settled = Instant::now() >= settled_at;
            let charges = provider_client::look_up(self.provider, &payment.invoice).await.map_err(Failure::unknown)?;
            match charges.into_iter().next() {
                Some(receipt) => return Ok(Some(receipt)),
                None if is_settled => return Ok(None),
                None => sleep(LOOKUP_INTERVAL).await,
            }
        }
    }

    async fn retry(&self, payment: &Payment) {
        report(&AgentEvent::Retrying { invoice: payment.invoice.clone() });
        sleep(self.pause).await;
    }
}

/// Tells the driver what the agent is doing. A driver that is gone ends this process by closing its input.
fn report(event: &AgentEvent) {
    let _ = write_event(&mut io::stdout().lock(), event);
}

/// What each error says about the effect. The ledger needs nothing else from a caller.
fn classify(error: ChargeError) -> Failure {
    match error {
        ChargeError::NotSent(_) => Failure::not_sent(error),
        ChargeError::NoAnswer(_) => Failure::unknown(error),
        ChargeError::Refused(_) => Failure::permanent(error),
    }
}

fn paid(receipt: Receipt) -> AgentEvent {
    AgentEvent::Paid { invoice: receipt.invoice, receipt: receipt.id }
}

fn failed(payment: &Payment, reason: String) -> AgentEvent {
    AgentEvent::Failed { invoice: payment.invoice.clone(), reason }
}
