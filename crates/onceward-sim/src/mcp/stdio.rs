//! Several gateways over stdio on one ledger, each with a client and servers of its own, killed one after the other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::agent::{Agent, Gateway, start};
use super::meant::{CLIENTS, Heard};
use super::{CALLERS, LONGEST, Stage, TRIES, as_result, life};
use crate::dice::Dice;
use crate::kills::book::Told;
use crate::kills::{HELD, TOLD_WITHIN};

/// Gateways at once.
const SLOTS: u64 = 3;

type Slots = Arc<Vec<Mutex<Option<Arc<Agent>>>>>;

fn agent(slots: &Slots, slot: u64) -> Option<Arc<Agent>> {
    slots[usize::try_from(slot).unwrap_or(0)].lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn put(slots: &Slots, slot: u64, agent: Option<Arc<Agent>>) {
    *slots[usize::try_from(slot).unwrap_or(0)].lock().unwrap_or_else(PoisonError::into_inner) = agent;
}

/// A gateway whose client may call.
async fn open(stage: &Stage, slot: u64) -> (Arc<Agent>, Gateway) {
    let (agent, gateway) = start(stage, slot);
    assert!(agent.begin().await, "a gateway that nobody kills answers");
    (Arc::new(agent), gateway)
}

pub(super) async fn play(stage: &Arc<Stage>) {
    let slots: Slots = Arc::new((0..SLOTS).map(|_| Mutex::default()).collect());
    let mut gateways = Vec::new();
    for slot in 0..SLOTS {
        let (agent, gateway) = open(stage, slot).await;
        put(&slots, slot, Some(agent));
        gateways.push(Some(gateway));
    }
    first_scene(stage, &slots, &mut gateways).await;
    let over = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| tokio::spawn(live(caller, Arc::clone(stage), Arc::clone(&slots), Arc::clone(&over))))
        .collect();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| tokio::spawn(mean(client, Arc::clone(stage), Arc::clone(&slots), Arc::clone(&over))))
        .collect();
    let mut dice = Dice::of(&[stage.options.seed, 7]);
    for kill in 1..=stage.options.kills {
        tokio::time::sleep(life(&mut dice)).await;
        let slot = dice.below(SLOTS);
        let (gateway, servers) = dice.weighted(&[(7, (true, false)), (1, (false, true)), (2, (true, true))]);
        put(&slots, slot, None);
        let place = usize::try_from(slot).unwrap_or(0);
        if let Some(old) = gateways[place].take() {
            old.kill(gateway, servers).await;
        }
        // Some die before they can answer anything.
        if dice.one_in(8) {
            let (_, young) = start(stage, slot);
            tokio::time::sleep(Duration::from_millis(dice.below(40))).await;
            young.kill(true, false).await;
        }
        let (agent, gateway) = open(stage, slot).await;
        put(&slots, slot, Some(agent));
        gateways[place] = Some(gateway);
        if !stage.goes_on(kill) {
            break;
        }
    }
    over.store(true, Ordering::SeqCst);
    for caller in callers.into_iter().chain(clients) {
        caller.await.expect("a caller");
    }
    for gateway in gateways.into_iter().flatten() {
        gateway.kill(true, true).await;
    }
    let last = Last { stage, open: tokio::sync::Mutex::new(None) };
    stage.finish(as_result, |key| last.ask(key)).await;
    last.close().await;
}

/// A gateway and its servers are killed after an effect and before its answer; another gateway is asked.
async fn first_scene(stage: &Arc<Stage>, slots: &Slots, gateways: &mut [Option<Gateway>]) {
    let tool = stage.over.tool(HELD);
    if let Some(first) = agent(slots, 0) {
        tokio::select! {
            told = first.call(tool, HELD) => stage.book.violation(format!("{HELD}: told {told:?} before the end")),
            () = stage.has_acted() => {}
        }
    }
    if let Some(gateway) = gateways[0].take() {
        gateway.kill(true, true).await;
    }
    if let Some(second) = agent(slots, 1) {
        let told = tokio::time::timeout(TOLD_WITHIN, second.call(tool, HELD)).await;
        stage.first_scene(&told.unwrap_or(Told::Nothing));
    }
    let (agent, gateway) = open(stage, 0).await;
    put(slots, 0, Some(agent));
    gateways[0] = Some(gateway);
}

/// Makes calls until it is over: mostly new ones, and now and then one that another client made before.
async fn live(caller: u64, stage: Arc<Stage>, slots: Slots, over: Arc<AtomicBool>) {
    let mut dice = Dice::of(&[stage.options.seed, 5, caller]);
    while !over.load(Ordering::SeqCst) {
        let key = stage.book.pick(&mut dice);
        for _ in 0..TRIES {
            let told = match agent(&slots, dice.below(SLOTS)) {
                Some(agent) => {
                    let patience = if dice.one_in(6) { Duration::from_millis(20) } else { LONGEST };
                    let call = agent.call(stage.over.tool(&key), &key);
                    tokio::time::timeout(patience, call).await.unwrap_or(Told::Nothing)
                }
                None => Told::Nothing,
            };
            stage.book.told(&key, &told);
            if !told.is_to_be_asked_again() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(dice.below(25))).await;
        }
    }
}

/// A client that gives its calls no keys. It stays with one place, and asks the gateway that is there.
async fn mean(client: u64, stage: Arc<Stage>, slots: Slots, over: Arc<AtomicBool>) {
    let mut dice = Dice::of(&[stage.options.seed, 9, client]);
    let ask = |order: String, place: u64| {
        let (agent, stage) = (agent(&slots, place % SLOTS), Arc::clone(&stage));
        async move {
            let nothing = |gateway| Heard { told: Told::Nothing, answered: false, gateway };
            let Some(agent) = agent else { return nothing(0) };
            let call = agent.call_unnamed(stage.over.tool(&order), &order);
            match tokio::time::timeout(LONGEST, call).await {
                Ok((told, answered)) => Heard { told, answered, gateway: agent.number },
                Err(_) => nothing(agent.number),
            }
        }
    };
    stage.meant.live(&mut dice, &over, ask).await;
}

/// The last gateway, started again whenever a call made its server die.
struct Last<'a> {
    stage: &'a Arc<Stage>,
    open: tokio::sync::Mutex<Option<(Arc<Agent>, Gateway)>>,
}

impl Last<'_> {
    async fn ask(&self, key: String) -> Told {
        let mut told = Told::Nothing;
        for _ in 0..TRIES {
            let mut place = self.open.lock().await;
            if place.is_none() {
                *place = Some(open(self.stage, SLOTS).await);
            }
            let Some((agent, _)) = place.as_ref() else { continue };
            let call = agent.call(self.stage.over.tool(&key), &key);
            told = tokio::time::timeout(LONGEST, call).await.unwrap_or(Told::Nothing);
            if !told.is_to_be_asked_again() {
                return told;
            }
            if let Some((_, gateway)) = place.take() {
                gateway.kill(true, true).await;
            }
        }
        told
    }

    async fn close(&self) {
        if let Some((_, gateway)) = self.open.lock().await.take() {
            gateway.kill(true, true).await;
        }
    }
}
