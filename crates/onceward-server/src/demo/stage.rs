//! The driver: starts providers and agents, hands out the payments in step, kills agents, and reads the providers'
//! books. What is shown comes from those books, never from what an agent believes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::Trouble;
use super::child::{Child, Heard};
use super::client;
use super::plan::Plan;
use super::scene::{Cell, Doing, Row, Scene};
use super::show::{Pace, Show};
use super::wire::{AgentSays, ProviderSays};
use super::world::World;

/// How long anything may take that is not slowed down on purpose. Only a machine in trouble needs it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Each child says a few lines for each payment, and the driver reads them as they come.
const NOTES: usize = 64;

/// What the children are started with.
#[derive(Debug)]
pub(super) struct Cast {
    pub(super) seed: u64,
    pub(super) payments: u32,
    pub(super) store: String,
    pub(super) pace: Pace,
    /// The providers write down here what they say.
    pub(super) provider_logs: Option<PathBuf>,
}

/// What reaches the driver.
#[derive(Debug)]
enum Note {
    Provider(usize, Heard<ProviderSays>),
    Agent(usize, u32, Heard<AgentSays>),
    Resume(usize),
}

/// One world's processes.
#[derive(Debug)]
struct Lane {
    provider: Child,
    address: SocketAddr,
    agent: Child,
    /// Rises with each start, so that the last words of a killed agent are not taken for its successor's.
    generation: u32,
    /// What the agent says about the payment that it was given; `None` while it works.
    said: Option<AgentSays>,
}

/// All processes.
#[derive(Debug)]
pub(super) struct Stage {
    cast: Cast,
    plan: Plan,
    lanes: Vec<Lane>,
    notes: mpsc::Receiver<Note>,
    tell: mpsc::Sender<Note>,
}

impl Stage {
    /// Starts all providers, then all agents.
    pub(super) async fn set(cast: Cast, plan: Plan) -> Result<Self, Trouble> {
        let (tell, notes) = mpsc::channel(NOTES);
        let mut stage = Self { cast, plan, lanes: Vec::new(), notes, tell };
        let mut providers = Vec::new();
        for (index, world) in World::ALL.into_iter().enumerate() {
            let mut provider = stage.start_provider(index, world)?;
            match timeout(PATIENCE, stage.notes.recv()).await {
                Ok(Some(Note::Provider(_, Heard::Said(ProviderSays::Listening { address })))) => {
                    providers.push((world, provider, address));
                }
                _ => return Err(provider.ended().await),
            }
        }
        for (index, (world, provider, address)) in providers.into_iter().enumerate() {
            let agent = stage.start_agent(index, world, address, 0)?;
            stage.lanes.push(Lane { provider, address, agent, generation: 0, said: None });
        }
        Ok(stage)
    }

    fn start_provider(&self, index: usize, world: World) -> Result<Child, Trouble> {
        let mut arguments = vec!["demo-provider".to_owned()];
        arguments.extend(self.shared_arguments(world));
        if let Some(folder) = &self.cast.provider_logs {
            let log = folder.join(format!("provider-{}.log", world.name()));
            arguments.extend(["--log".to_owned(), log.display().to_string()]);
        }
        let note = move |heard| Note::Provider(index, heard);
        Child::start(format!("provider of the world `{}`", world.name()), &arguments, self.tell.clone(), note)
    }

    fn start_agent(&self, index: usize, world: World, at: SocketAddr, generation: u32) -> Result<Child, Trouble> {
        let mut arguments = vec!["demo-agent".to_owned()];
        arguments.extend(self.shared_arguments(world));
        arguments.extend(["--provider".to_owned(), at.to_string()]);
        arguments.extend(["--ledger".to_owned(), self.cast.store.clone()]);
        arguments.extend(["--pause".to_owned(), self.cast.pace.again.as_millis().to_string()]);
        let note = move |heard| Note::Agent(index, generation, heard);
        Child::start(format!("agent of the world `{}`", world.name()), &arguments, self.tell.clone(), note)
    }

    fn shared_arguments(&self, world: World) -> [String; 6] {
        let Cast { seed, payments, .. } = &self.cast;
        [
            "--world".into(),
            world.name().into(),
            "--seed".into(),
            seed.to_string(),
            "--payments".into(),
            payments.to_string(),
        ]
    }

    /// Where a world's provider listens.
    pub(super) fn provider(&self, world: World) -> Option<SocketAddr> {
        let index = World::ALL.iter().position(|other| *other == world)?;
        self.lanes.get(index).map(|lane| lane.address)
    }

    /// All payments, one after the other, each at the same time in the three worlds.
    pub(super) async fn play(&mut self, scene: &mut Scene, show: &mut Show) -> Result<(), Trouble> {
        for number in 0..self.plan.len() {
            self.pay(number, scene, show).await?;
            self.read_books(number, scene).await?;
            scene.now = None;
            scene.lanes.iter_mut().for_each(|lane| lane.doing = Doing::Idle);
            match self.plan.fault(number, 1) {
                None => show.update(scene)?,
                Some(fault) => {
                    let row = Row { number, invoice: self.plan.payment(number).invoice, fault };
                    scene.rows.push(row.clone());
                    show.row(scene, &row)?;
                }
            }
            sleep(self.cast.pace.payment).await;
        }
        // Once more, at the end: nothing may have been charged behind our back in the meantime.
        scene.lanes.iter_mut().for_each(|lane| lane.overcharged_cents = 0);
        for number in 0..self.plan.len() {
            self.read_books(number, scene).await?;
        }
        Ok(())
    }

    /// One payment in all three worlds.
    async fn pay(&mut self, number: usize, scene: &mut Scene, show: &mut Show) -> Result<(), Trouble> {
        let invoice = self.plan.payment(number).invoice;
        scene.now = Some((invoice.clone(), None));
        for (lane, shown) in self.lanes.iter_mut().zip(&mut scene.lanes) {
            lane.said = None;
            shown.doing = Doing::Charging;
            lane.agent.give(&invoice).await?;
        }
        show.update(scene)?;
        while self.lanes.iter().any(|lane| lane.said.is_none()) {
            let Ok(Some(note)) = timeout(PATIENCE, self.notes.recv()).await else {
                return Err(self.stuck(&invoice));
            };
            self.take(note, &invoice, scene).await?;
            let met = scene.lanes.iter().any(|lane| matches!(lane.doing, Doing::Again | Doing::Killed | Doing::Held));
            if met {
                scene.now = Some((invoice.clone(), self.plan.fault(number, 1)));
            }
            show.update(scene)?;
        }
        Ok(())
    }

    fn stuck(&self, invoice: &str) -> Trouble {
        let worlds = World::ALL.iter().zip(&self.lanes).filter(|(_, lane)| lane.said.is_none());
        let names: Vec<_> = worlds.map(|(world, _)| world.name()).collect();
        let (names, seconds) = (names.join(", "), PATIENCE.as_secs());
        Trouble::Failed(format!("nothing has been heard about {invoice} for {seconds} s (worlds: {names})"))
    }

    async fn take(&mut self, note: Note, invoice: &str, scene: &mut Scene) -> Result<(), Trouble> {
        match note {
            Note::Provider(index, Heard::Said(ProviderSays::KillAgent { .. })) => {
                self.lanes[index].agent.kill().await?;
                self.lanes[index].generation += 1;
                scene.lanes[index].doing = Doing::Killed;
                scene.lanes[index].kills += 1;
                let (tell, pause) = (self.tell.clone(), self.cast.pace.again);
                tokio::spawn(async move {
                    sleep(pause).await;
                    let _ = tell.send(Note::Resume(index)).await;
                });
            }
            Note::Resume(index) => {
                let Lane { address, generation, .. } = self.lanes[index];
                let mut agent = self.start_agent(index, World::ALL[index], address, generation)?;
                agent.give(invoice).await?;
                self.lanes[index].agent = agent;
                scene.lanes[index].doing = Doing::Resumed;
                scene.lanes[index].again += 1;
            }
            Note::Provider(_, Heard::Said(_)) => {}
            Note::Provider(index, Heard::Silence) => return Err(self.lanes[index].provider.ended().await),
            Note::Agent(index, generation, _) if generation != self.lanes[index].generation => {}
            Note::Agent(index, _, Heard::Silence) => return Err(self.lanes[index].agent.ended().await),
            Note::Agent(index, _, Heard::Said(said)) => self.listen(index, said, scene)?,
            Note::Provider(_, Heard::Nonsense(what)) | Note::Agent(_, _, Heard::Nonsense(what)) => {
                return Err(Trouble::Failed(what));
            }
        }
        Ok(())
    }

    fn listen(&mut self, index: usize, said: AgentSays, scene: &mut Scene) -> Result<(), Trouble> {
        let shown = &mut scene.lanes[index];
        match &said {
            AgentSays::Again { .. } => {
                shown.doing = Doing::Again;
                shown.again += 1;
                return Ok(());
            }
            AgentSays::Failed { invoice, reason } => return Err(Trouble::Failed(format!("{invoice}: {reason}"))),
            AgentSays::Paid { .. } => shown.doing = Doing::Paid,
            AgentSays::Held { .. } => shown.doing = Doing::Held,
        }
        self.lanes[index].said = Some(said);
        Ok(())
    }

    /// Asks every provider what it has charged for a payment.
    async fn read_books(&mut self, number: usize, scene: &mut Scene) -> Result<(), Trouble> {
        let payment = self.plan.payment(number);
        for (lane, shown) in self.lanes.iter_mut().zip(&mut scene.lanes) {
            let charges = client::charges(lane.address, &payment.invoice).await;
            let charges = charges.map_err(|error| Trouble::Failed(format!("reading the books: {error}")))?;
            let held = match shown.cells[number] {
                Cell::Waiting => matches!(lane.said, Some(AgentSays::Held { .. })),
                known => known == Cell::Held,
            };
            shown.cells[number] = match (charges.len(), held) {
                (0 | 1, true) => Cell::Held,
                (1, false) => Cell::Once,
                (2.., _) => Cell::Twice,
                (0, false) => {
                    let (invoice, world) = (payment.invoice, shown.world.name());
                    return Err(Trouble::Broken(format!("{invoice} has a receipt without a charge in `{world}`")));
                }
            };
            let charged: u64 = charges.iter().map(|charge| charge.cents).sum();
            shown.overcharged_cents += charged.saturating_sub(payment.cents);
        }
        Ok(())
    }

    /// Ends everything in good order.
    pub(super) async fn clear(self) -> Result<(), Trouble> {
        for lane in self.lanes {
            lane.agent.finish().await?;
            lane.provider.finish().await?;
        }
        Ok(())
    }
}
