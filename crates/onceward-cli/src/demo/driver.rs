//! The driver: starts providers and agents, hands out the payments one by one, kills agents, and reads the providers'
//! statements. The totals come from those statements, never from what an agent reports.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::DemoError;
use super::child::{Child, ChildOutput};
use super::events::{AgentEvent, ProviderEvent};
use super::plan::{Payment, Plan};
use super::progress::{Activity, FaultRow, PaymentStatus, Progress};
use super::provider_client::{self, Statement};
use super::screen::{Pace, Screen};
use super::world::World;

/// How long the driver waits for the next event. Only a machine in trouble needs this long.
const EVENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Each child reports a few events for each payment, and the driver reads them as they come.
const EVENT_QUEUE: usize = 64;

/// What the child processes are started with.
#[derive(Debug)]
pub(super) struct ChildSettings {
    pub(super) seed: u64,
    pub(super) payments: u32,
    pub(super) store: String,
    pub(super) pace: Pace,
    /// The folder for the providers' logs.
    pub(super) provider_logs: Option<PathBuf>,
}

/// What the driver reacts to; the first number is the index of the world.
#[derive(Debug)]
enum DriverEvent {
    Provider(usize, ChildOutput<ProviderEvent>),
    /// With the generation of the agent's process.
    Agent(usize, u32, ChildOutput<AgentEvent>),
    RestartAgent(usize),
}

/// The processes of one world.
#[derive(Debug)]
struct WorldProcesses {
    provider: Child,
    address: SocketAddr,
    agent: Child,
    /// Rises with each start, so that events of a killed agent are not taken for those of the next one.
    generation: u32,
    /// How the agent's payment ended; `None` while it works.
    result: Option<AgentEvent>,
}

/// All processes.
#[derive(Debug)]
pub(super) struct Driver {
    settings: ChildSettings,
    plan: Plan,
    worlds: Vec<WorldProcesses>,
    events: mpsc::Receiver<DriverEvent>,
    sender: mpsc::Sender<DriverEvent>,
}

impl Driver {
    /// Starts all providers, then all agents.
    pub(super) async fn start(settings: ChildSettings, plan: Plan) -> Result<Self, DemoError> {
        let (sender, events) = mpsc::channel(EVENT_QUEUE);
        let mut driver = Self { settings, plan, worlds: Vec::new(), events, sender };
        let mut providers = Vec::new();
        for (index, world) in World::ALL.into_iter().enumerate() {
            let mut provider = driver.start_provider(index, world)?;
            match timeout(EVENT_TIMEOUT, driver.events.recv()).await {
                Ok(Some(DriverEvent::Provider(_, ChildOutput::Event(ProviderEvent::Listening { address })))) => {
                    providers.push((world, provider, address));
                }
                _ => return Err(provider.unexpected_exit().await),
            }
        }
        for (index, (world, provider, address)) in providers.into_iter().enumerate() {
            let agent = driver.start_agent(index, world, address, 0)?;
            driver.worlds.push(WorldProcesses { provider, address, agent, generation: 0, result: None });
        }
        Ok(driver)
    }

    fn start_provider(&self, index: usize, world: World) -> Result<Child, DemoError> {
        let mut arguments = vec!["demo-provider".to_owned()];
        arguments.extend(self.shared_arguments(world));
        if let Some(folder) = &self.settings.provider_logs {
            let log = folder.join(format!("provider-{}.log", world.name()));
            arguments.extend(["--log".to_owned(), log.display().to_string()]);
        }
        let wrap = move |output| DriverEvent::Provider(index, output);
        Child::start(format!("provider of the world `{}`", world.name()), &arguments, self.sender.clone(), wrap)
    }

    fn start_agent(
        &self,
        index: usize,
        world: World,
        provider: SocketAddr,
        generation: u32,
    ) -> Result<Child, DemoError> {
        let mut arguments = vec!["demo-agent".to_owned()];
        arguments.extend(self.shared_arguments(world));
        arguments.extend(["--provider".to_owned(), provider.to_string()]);
        arguments.extend(["--ledger".to_owned(), self.settings.store.clone()]);
        arguments.extend(["--pause".to_owned(), self.settings.pace.retry.as_millis().to_string()]);
        let wrap = move |output| DriverEvent::Agent(index, generation, output);
        Child::start(format!("agent of the world `{}`", world.name()), &arguments, self.sender.clone(), wrap)
    }

    fn shared_arguments(&self, world: World) -> [String; 6] {
        let ChildSettings { seed, payments, .. } = &self.settings;
        [
            "--world".into(),
            world.name().into(),
            "--seed".into(),
            seed.to_string(),
            "--payments".into(),
            payments.to_string(),
        ]
    }

    /// The address of a world's provider.
    pub(super) fn provider(&self, world: World) -> Option<SocketAddr> {
        let index = World::ALL.iter().position(|other| *other == world)?;
        self.worlds.get(index).map(|world| world.address)
    }

    /// Makes all payments, one after the other, each at the same time in the three worlds.
    pub(super) async fn pay_all(&mut self, progress: &mut Progress, screen: &mut Screen) -> Result<(), DemoError> {
        for number in 0..self.plan.len() {
            let payment = self.plan.payment(number);
            self.pay(number, &payment, progress, screen).await?;
            self.read_statements(number, progress).await?;
            progress.now = None;
            progress.columns.iter_mut().for_each(|column| column.activity = Activity::Idle);
            match self.plan.fault(number, 1) {
                None => screen.update(progress)?,
                Some(fault) => {
                    let row = FaultRow { number, payment, fault };
                    progress.rows.push(row.clone());
                    screen.row(progress, &row)?;
                }
            }
            sleep(self.settings.pace.payment).await;
        }
        // A second reading at the end: a charge that came later than its answer would show here.
        progress.columns.iter_mut().for_each(|column| column.overcharged_cents = 0);
        for number in 0..self.plan.len() {
            self.read_statements(number, progress).await?;
        }
        Ok(())
    }

    /// Makes one payment in all three worlds.
    async fn pay(
        &mut self,
        number: usize,
        payment: &Payment,
        progress: &mut Progress,
        screen: &mut Screen,
    ) -> Result<(), DemoError> {
        progress.now = Some((payment.clone(), None));
        for (world, column) in self.worlds.iter_mut().zip(&mut progress.columns) {
            world.result = None;
            column.activity = Activity::Paying;
            world.agent.send_line(&payment.invoice).await?;
        }
        screen.update(progress)?;
        while self.worlds.iter().any(|world| world.result.is_none()) {
            let Ok(Some(event)) = timeout(EVENT_TIMEOUT, self.events.recv()).await else {
                return Err(self.timed_out(&payment.invoice));
            };
            self.handle(event, &payment.invoice, progress).await?;
            if progress.columns.iter().any(|column| column.activity.shows_fault()) {
                progress.now = Some((payment.clone(), self.plan.fault(number, 1)));
            }
            screen.update(progress)?;
        }
        Ok(())
    }

    fn timed_out(&self, invoice: &str) -> DemoError {
        let waiting = World::ALL.iter().zip(&self.worlds).filter(|(_, processes)| processes.result.is_none());
        let names: Vec<_> = waiting.map(|(world, _)| world.name()).collect();
        let (names, seconds) = (names.join(", "), EVENT_TIMEOUT.as_secs());
        DemoError::Failed(format!("no event about {invoice} for {seconds} s (worlds: {names})"))
    }

    async fn handle(&mut self, event: DriverEvent, invoice: &str, progress: &mut Progress) -> Result<(), DemoError> {
        match event {
            DriverEvent::Provider(index, ChildOutput::Event(ProviderEvent::KillAgent { .. })) => {
                self.worlds[index].agent.kill().await?;
                self.worlds[index].generation += 1;
                progress.columns[index].activity = Activity::Killed;
                progress.columns[index].kills += 1;
                let (sender, pause) = (self.sender.clone(), self.settings.pace.retry);
                tokio::spawn(async move {
                    sleep(pause).await;
                    let _ = sender.send(DriverEvent::RestartAgent(index)).await;
                });
            }
            DriverEvent::RestartAgent(index) => {
                let WorldProcesses { address, generation, .. } = self.worlds[index];
                let mut agent = self.start_agent(index, World::ALL[index], address, generation)?;
                agent.send_line(invoice).await?;
                self.worlds[index].agent = agent;
                progress.columns[index].activity = Activity::Restarted;
                progress.columns[index].retries += 1;
            }
            DriverEvent::Provider(_, ChildOutput::Event(_)) => {}
            DriverEvent::Provider(index, ChildOutput::Closed) => {
                return Err(self.worlds[index].provider.unexpected_exit().await);
            }
            DriverEvent::Agent(index, generation, _) if generation != self.worlds[index].generation => {}
            DriverEvent::Agent(index, _, ChildOutput::Closed) => {
                return Err(self.worlds[index].agent.unexpected_exit().await);
            }
            DriverEvent::Agent(index, _, ChildOutput::Event(event)) => self.handle_agent(index, event, progress)?,
            DriverEvent::Provider(_, ChildOutput::Invalid(reason))
            | DriverEvent::Agent(_, _, ChildOutput::Invalid(reason)) => return Err(DemoError::Failed(reason)),
        }
        Ok(())
    }

    fn handle_agent(&mut self, index: usize, event: AgentEvent, progress: &mut Progress) -> Result<(), DemoError> {
        let column = &mut progress.columns[index];
        match &event {
            AgentEvent::Retrying { .. } => {
                column.activity = Activity::Retrying;
                column.retries += 1;
                return Ok(());
            }
            AgentEvent::Probing { .. } => {
                column.activity = Activity::Probing;
                return Ok(());
            }
            AgentEvent::Failed { invoice, reason } => return Err(DemoError::Failed(format!("{invoice}: {reason}"))),
            AgentEvent::Paid { .. } => column.activity = Activity::Paid,
            AgentEvent::Held { .. } => column.activity = Activity::Held,
        }
        self.worlds[index].result = Some(event);
        Ok(())
    }

    /// Reads every provider's statement for a payment.
    async fn read_statements(&mut self, number: usize, progress: &mut Progress) -> Result<(), DemoError> {
        let payment = self.plan.payment(number);
        for (world, column) in self.worlds.iter_mut().zip(&mut progress.columns) {
            let statement = provider_client::statement(world.address, &payment.invoice).await;
            let statement =
                statement.map_err(|error| DemoError::Failed(format!("cannot read the statement: {error}")))?;
            let is_held = match column.statuses[number] {
                PaymentStatus::Pending => matches!(world.result, Some(AgentEvent::Held { .. })),
                known => known == PaymentStatus::Held,
            };
            column.statuses[number] = status(&statement, is_held).ok_or_else(|| {
                let (invoice, world) = (&payment.invoice, column.world.name());
                DemoError::PromiseBroken(format!("{invoice} has a receipt without a charge in the world `{world}`"))
            })?;
            let charged: u64 = statement.charges.iter().map(|charge| charge.cents).sum();
            column.overcharged_cents += charged.saturating_sub(payment.cents);
        }
        Ok(())
    }

    /// Stops all processes.
    pub(super) async fn stop(self) -> Result<(), DemoError> {
        for world in self.worlds {
            world.agent.finish().await?;
            world.provider.finish().await?;
        }
        Ok(())
    }
}

/// How a payment stands according to the provider; `None` when the agent has a receipt without a charge.
fn status(statement: &Statement, is_held: bool) -> Option<PaymentStatus> {
    match (statement.charges.len(), is_held) {
        (0 | 1, true) => Some(PaymentStatus::Held),
        (2.., _) => Some(PaymentStatus::ChargedTwice),
        (1, false) if statement.lookups_found > 0 => Some(PaymentStatus::FoundByProbe),
        (1, false) if statement.lookups_not_found > 0 => Some(PaymentStatus::PaidAfterProbe),
        (1, false) => Some(PaymentStatus::ChargedOnce),
        (0, false) => None,
    }
}
