//! Model checking of the real `decide`: three workers, an operator and a clock do everything that they can do, in every
//! order, within bounds. The rules are judged by a separate truth, which knows nothing of how records are kept.
//!
//! A store's conditional write makes decide-and-write one step, so it is one step here.
//!
//! - `world`: the state, and what can happen next.
//! - `truth`: what really happened, and which rules a step broke.
//! - `fault`: broken versions of `decide`, each of which the checker must find.
//! - `entry`: the same for an entry of the outbox and its couriers.

mod entry;
mod fault;
mod truth;
mod world;

use std::time::Instant;

use onceward::InDoubt;
use stateright::{Checker, HasDiscoveries, Model, Property};

use entry::Entry;
use world::{Action, World};

/// A rule that is taken out of `decide`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A rule about calls.
    Call(fault::Fault),
    /// A rule about entries of the outbox.
    Entry(entry::Fault),
}

impl Fault {
    /// Every fault, with its name on the command line.
    pub fn all() -> Vec<(&'static str, Self)> {
        let calls = fault::Fault::ALL.map(|(name, fault)| (name, Self::Call(fault)));
        let entries = entry::Fault::ALL.map(|(name, fault)| (name, Self::Entry(fault)));
        calls.into_iter().chain(entries).collect()
    }
}

/// How far the check goes. The state space is searched exhaustively within these.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How often a caller may ask for the claim.
    pub begins: u8,
    /// How far the clock goes. A lease is 3 ticks, retention 2, a tombstone 1, the downstream's memory 4, an attempt at
    /// most 1.
    pub ticks: u8,
}

impl Bounds {
    /// The bounds of the test command.
    #[cfg(test)]
    pub const SMALL: Self = Self { begins: 3, ticks: 7 };
    /// The default bounds of the command.
    pub const LARGE: Self = Self { begins: 4, ticks: 8 };
}

/// The model: one intent under one policy.
#[derive(Clone, Copy, Debug)]
pub struct Intent {
    /// Its in-doubt policy.
    pub in_doubt: InDoubt,
    /// How far the check goes.
    pub bounds: Bounds,
    /// A rule that is taken out of `decide`.
    pub fault: Option<fault::Fault>,
}

impl Model for Intent {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::default()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        world.actions(self, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let next = world.after(self, action);
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no step breaks a rule", |_, world: &World| world.truth.broken.is_none()),
            Property::always("no finished outcome is lost before its retention", |_, world: &World| {
                world.keeps_its_outcome()
            }),
            Property::always("doubt is never forgotten", |_, world: &World| world.shows_its_doubt()),
            Property::always("what is in doubt can be settled", |_, world: &World| world.can_be_settled()),
            Property::sometimes("an outcome is committed", |_, world: &World| world.truth.committed.is_some()),
            Property::sometimes("a key is used again", |_, world: &World| world.truth.eras > 0),
            Property::sometimes("what did not happen is forgotten", |_, world: &World| world.has_forgotten()),
            Property::sometimes("a late owner finds itself superseded", |_, world: &World| world.truth.superseded),
        ]
    }
}

/// The result of a check.
#[derive(Debug)]
pub struct Checked {
    /// What was checked.
    pub name: String,
    /// The number of different states within the bounds.
    pub states: usize,
    /// The rules that were broken, with the shortest path to each.
    pub broken: Vec<String>,
    /// States that the search must reach and did not.
    pub unreached: Vec<&'static str>,
}

impl Checked {
    fn is_well(&self) -> bool {
        self.broken.is_empty() && self.unreached.is_empty()
    }
}

/// Checks every policy within the bounds: calls, and entries of the outbox. A fault is looked for where it is, until it is
/// found.
pub fn check(bounds: Bounds, fault: Option<Fault>) -> Vec<Checked> {
    let (of_call, of_entry) = match fault {
        None => (Some(None), Some(None)),
        Some(Fault::Call(fault)) => (Some(Some(fault)), None),
        Some(Fault::Entry(fault)) => (None, Some(Some(fault))),
    };
    let policies = [InDoubt::Hold, InDoubt::Retry, InDoubt::Probe, InDoubt::Tell];
    let calls = of_call.into_iter().flat_map(|fault| policies.map(|in_doubt| Intent { in_doubt, bounds, fault }));
    let calls = calls.map(|intent| check_one(&format!("a call, {:?}", intent.in_doubt), intent));
    let entries = of_entry.into_iter().flat_map(|fault| Entry::all(bounds, fault));
    let entries = entries.map(|entry| check_one(&entry.name(), entry));
    let mut checked = Vec::new();
    for one in calls.chain(entries) {
        let is_found = fault.is_some() && !one.broken.is_empty();
        checked.push(one);
        if is_found {
            break;
        }
    }
    checked
}

fn check_one<M>(name: &str, model: M) -> Checked
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + std::fmt::Debug + PartialEq + std::hash::Hash + Send + Sync + 'static,
    M::Action: Clone + std::fmt::Debug + PartialEq,
{
    // One broken rule is enough.
    let checker = model.clone().checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let broken = checker.discoveries().into_iter().filter(|(name, _)| is_rule(&model, name)).map(|(name, path)| {
        let steps: Vec<String> = path.into_actions().iter().map(|action| format!("{action:?}")).collect();
        format!("{name}: {}", steps.join(", "))
    });
    let broken: Vec<String> = broken.collect();
    let names = model.properties().into_iter().map(|property| property.name);
    let unreached = names.filter(|name| !is_rule(&model, name) && checker.discovery(name).is_none()).collect();
    Checked { name: name.to_lowercase(), states: checker.unique_state_count(), broken, unreached }
}

/// Rules must always hold; the other properties prove that the search reached something.
fn is_rule<M: Model>(model: &M, name: &str) -> bool {
    let always = |property: &Property<M>| matches!(property.expectation, stateright::Expectation::Always);
    model.properties().iter().any(|property| property.name == name && always(property))
}

/// Checks, prints the result, and returns whether it passed.
pub fn run(bounds: Bounds, fault: Option<Fault>) -> bool {
    println!(
        "every order of up to {} begins within {} ticks, three workers or two couriers",
        bounds.begins, bounds.ticks
    );
    let started = Instant::now();
    let checked = check(bounds, fault);
    for one in &checked {
        println!("  {:<24} {:>9} states", one.name, one.states);
        one.broken.iter().for_each(|broken| println!("VIOLATION {broken}"));
        one.unreached.iter().for_each(|name| println!("never reached: {name}"));
    }
    println!("{:.1} s", started.elapsed().as_secs_f64());
    checked.iter().all(Checked::is_well)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_holds_in_every_order_of_events() {
        for checked in check(Bounds::SMALL, None) {
            assert!(checked.is_well(), "{checked:?}");
            assert!(checked.states > 10_000, "too few states: {checked:?}");
        }
    }

    #[test]
    fn a_rule_that_is_taken_out_of_decide_is_missed() {
        for (name, fault) in Fault::all() {
            let checked = check(Bounds::SMALL, Some(fault));
            assert!(checked.iter().any(|checked| !checked.broken.is_empty()), "{name}: {checked:?}");
        }
    }
}
