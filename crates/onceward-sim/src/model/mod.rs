//! Model checking of the real `decide`: three workers, an operator and a clock do everything that they can do, in every
//! order, within bounds. The rules are judged by a separate truth, which knows nothing of how records are kept.
//!
//! A store's conditional write makes decide-and-write one step, so it is one step here.
//!
//! - `world`: the state, and what can happen next.
//! - `truth`: what really happened, and which rules a step broke.
//! - `fault`: broken versions of `decide`, each of which the checker must find.

mod fault;
mod truth;
mod world;

use std::time::Instant;

use onceward::InDoubt;
use stateright::{Checker, HasDiscoveries, Model, Property};

pub use fault::Fault;
use world::{Action, World};

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
    pub fault: Option<Fault>,
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
    /// The policy.
    pub in_doubt: InDoubt,
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

/// Checks every policy within the bounds.
pub fn check(bounds: Bounds, fault: Option<Fault>) -> Vec<Checked> {
    let policies = [InDoubt::Hold, InDoubt::Retry, InDoubt::Probe, InDoubt::Tell];
    policies.into_iter().map(|in_doubt| check_one(Intent { in_doubt, bounds, fault })).collect()
}

fn check_one(intent: Intent) -> Checked {
    // One broken rule is enough.
    let checker = intent.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let broken = checker.discoveries().into_iter().filter(|(name, _)| is_rule(&intent, name)).map(|(name, path)| {
        let steps: Vec<String> = path.into_actions().iter().map(|action| format!("{action:?}")).collect();
        format!("{name}: {}", steps.join(", "))
    });
    let broken: Vec<String> = broken.collect();
    let names = intent.properties().into_iter().map(|property| property.name);
    let unreached = names.filter(|name| !is_rule(&intent, name) && checker.discovery(name).is_none()).collect();
    Checked { in_doubt: intent.in_doubt, states: checker.unique_state_count(), broken, unreached }
}

/// Rules must always hold; the other properties prove that the search reached something.
fn is_rule(intent: &Intent, name: &str) -> bool {
    let always = |property: &Property<Intent>| matches!(property.expectation, stateright::Expectation::Always);
    intent.properties().iter().any(|property| property.name == name && always(property))
}

/// Checks, prints the result, and returns whether it passed.
pub fn run(bounds: Bounds, fault: Option<Fault>) -> bool {
    println!("every order of up to {} begins within {} ticks, three workers", bounds.begins, bounds.ticks);
    let started = Instant::now();
    let checked = check(bounds, fault);
    for one in &checked {
        println!("  in_doubt = {:<6} {:>9} states", format!("{:?}", one.in_doubt).to_lowercase(), one.states);
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
        for (name, fault) in Fault::ALL {
            let checked = check(Bounds::SMALL, Some(fault));
            assert!(checked.iter().any(|checked| !checked.broken.is_empty()), "{name}: {checked:?}");
        }
    }
}
