//! Several gateways over stdio on one ledger, each with its own client and servers, killed one after the other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::agent::{Agent, Gateway, start};
use super::without_keys::{CLIENTS, Tried};
use super::{CALLERS, KillRun, LONGEST, TRIES, as_result, lifetime};
use crate::kills::judge::Response;
use crate::kills::{ANSWERED_WITHIN, HELD};
use crate::rng::Rng;

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
async fn open(run: &KillRun, slot: u64) -> (Arc<Agent>, Gateway) {
    let (agent, gateway) = start(run, slot);
    assert!(agent.begin().await, "a gateway that is not killed answers");
    (Arc::new(agent), gateway)
}

pub(super) async fn play(run: &Arc<KillRun>) {
    let slots: Slots = Arc::new((0..SLOTS).map(|_| Mutex::default()).collect());
    let mut gateways = Vec::new();
    for slot in 0..SLOTS {
        let (agent, gateway) = open(run, slot).await;
        put(&slots, slot, Some(agent));
        gateways.push(Some(gateway));
    }
    end_opening_scenario(run, &slots, &mut gateways).await;
    let stopped = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| tokio::spawn(live(caller, Arc::clone(run), Arc::clone(&slots), Arc::clone(&stopped))))
        .collect();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            tokio::spawn(live_without_keys(client, Arc::clone(run), Arc::clone(&slots), Arc::clone(&stopped)))
        })
        .collect();
    let mut rng = Rng::of(&[run.options.seed, 7]);
    for kill in 1..=run.options.kills {
        tokio::time::sleep(lifetime(&mut rng)).await;
        let slot = rng.below(SLOTS);
        let (gateway, servers) = rng.weighted(&[(7, (true, false)), (1, (false, true)), (2, (true, true))]);
        put(&slots, slot, None);
        let place = usize::try_from(slot).unwrap_or(0);
        if let Some(old) = gateways[place].take() {
            old.kill(gateway, servers).await;
        }
        // Some die before they can answer.
        if rng.one_in(8) {
            let (_, young) = start(run, slot);
            tokio::time::sleep(Duration::from_millis(rng.below(40))).await;
            young.kill(true, false).await;
        }
        let (agent, gateway) = open(run, slot).await;
        put(&slots, slot, Some(agent));
        gateways[place] = Some(gateway);
        if !run.should_continue(kill) {
            break;
        }
    }
    stopped.store(true, Ordering::SeqCst);
    for caller in callers.into_iter().chain(clients) {
        caller.await.expect("a caller");
    }
    for gateway in gateways.into_iter().flatten() {
        gateway.kill(true, true).await;
    }
    let last = Last { run, open: tokio::sync::Mutex::new(None) };
    run.finish(as_result, |key| last.ask(key)).await;
    last.close().await;
}

/// A gateway is killed after an effect and before its answer; another gateway is asked. Its servers end with it. If they were
/// killed first, the gateway might still record the doubt, and the scenario would depend on timing.
async fn end_opening_scenario(run: &Arc<KillRun>, slots: &Slots, gateways: &mut [Option<Gateway>]) {
    let tool = run.transport.tool(HELD);
    if let Some(first) = agent(slots, 0) {
        tokio::select! {
            response = first.call(tool, HELD) => run.judge.violation(format!("{HELD}: answered {response:?} before the end")),
            () = run.has_acted() => {}
        }
    }
    if let Some(gateway) = gateways[0].take() {
        gateway.kill(true, false).await;
    }
    if let Some(second) = agent(slots, 1) {
        let response = tokio::time::timeout(ANSWERED_WITHIN, second.call(tool, HELD)).await;
        run.end_opening_scenario(&response.unwrap_or(Response::Nothing));
    }
    let (agent, gateway) = open(run, 0).await;
    put(slots, 0, Some(agent));
    gateways[0] = Some(gateway);
}

/// Makes calls until the run is over: mostly new ones, and now and then one that another client made before.
async fn live(caller: u64, run: Arc<KillRun>, slots: Slots, stopped: Arc<AtomicBool>) {
    let mut rng = Rng::of(&[run.options.seed, 5, caller]);
    while !stopped.load(Ordering::SeqCst) {
        let key = run.judge.pick(&mut rng);
        for _ in 0..TRIES {
            let response = match agent(&slots, rng.below(SLOTS)) {
                Some(agent) => {
                    let timeout = if rng.one_in(6) { Duration::from_millis(20) } else { LONGEST };
                    let call = agent.call(run.transport.tool(&key), &key);
                    tokio::time::timeout(timeout, call).await.unwrap_or(Response::Nothing)
                }
                None => Response::Nothing,
            };
            run.judge.record(&key, &response);
            if !response.should_retry() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(rng.below(25))).await;
        }
    }
}

/// A client that sends no keys. It stays with one slot, and asks the gateway in it.
async fn live_without_keys(client: u64, run: Arc<KillRun>, slots: Slots, stopped: Arc<AtomicBool>) {
    let mut rng = Rng::of(&[run.options.seed, 9, client]);
    let ask = |order: String, place: u64| {
        let (agent, run) = (agent(&slots, place % SLOTS), Arc::clone(&run));
        async move {
            let nothing = |gateway| Tried { response: Response::Nothing, answered: false, gateway };
            let Some(agent) = agent else { return nothing(0) };
            let call = agent.call_unnamed(run.transport.tool(&order), &order);
            match tokio::time::timeout(LONGEST, call).await {
                Ok((response, answered)) => Tried { response, answered, gateway: agent.number },
                Err(_) => nothing(agent.number),
            }
        }
    };
    run.without_keys.live(&mut rng, &stopped, ask).await;
}

/// The last gateway, started again whenever a call killed its server.
struct Last<'a> {
    run: &'a Arc<KillRun>,
    open: tokio::sync::Mutex<Option<(Arc<Agent>, Gateway)>>,
}

impl Last<'_> {
    async fn ask(&self, key: String) -> Response {
        let mut response = Response::Nothing;
        for _ in 0..TRIES {
            let mut place = self.open.lock().await;
            if place.is_none() {
                *place = Some(open(self.run, SLOTS).await);
            }
            let Some((agent, _)) = place.as_ref() else { continue };
            let call = agent.call(self.run.transport.tool(&key), &key);
            response = tokio::time::timeout(LONGEST, call).await.unwrap_or(Response::Nothing);
            if !response.should_retry() {
                return response;
            }
            if let Some((_, gateway)) = place.take() {
                gateway.kill(true, true).await;
            }
        }
        response
    }

    async fn close(&self) {
        if let Some((_, gateway)) = self.open.lock().await.take() {
            gateway.kill(true, true).await;
        }
    }
}
