//! Model checking of the real `decide`: three workers, a person and a clock do everything that they can do, in every
//! order, within bounds. What must hold is judged by a truth of its own, which knows nothing of how records are kept.
//!
//! A store's conditional write makes decide-and-write one step, so it is one step here.
//!
//! - `world`: what there is, and what can happen next.
//! - `truth`: what really happened, and which rules a step broke.
//!
//! That rules which are taken out are found is shown by planting bugs (`plants`).

mod truth;
mod world;

use std::time::Instant;

use onceward::InDoubt;
use stateright::{Checker, HasDiscoveries, Model, Property};

use world::{Action, World};

/// How far the check goes. The state space is searched exhaustively within these.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How often a claim may be asked for.
    pub begins: u8,
    /// How far the clock goes. A lease is 3, retention 2, a tombstone 1, the other side's memory 4, an attempt at most 1.
    pub ticks: u8,
}

impl Bounds {
    /// For the test command.
    #[cfg(test)]
    pub const SMALL: Self = Self { begins: 3, ticks: 7 };
    /// For a command of its own.
    pub const LARGE: Self = Self { begins: 4, ticks: 8 };
}

/// The model: one intent under one policy.
#[derive(Clone, Copy, Debug)]
pub struct Intent {
    /// What its record says about doubt.
    pub in_doubt: InDoubt,
    /// How far the check goes.
    pub bounds: Bounds,
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
            Property::sometimes("a key is used anew", |_, world: &World| world.truth.eras > 0),
            Property::sometimes("what did not happen is forgotten", |_, world: &World| world.has_forgotten()),
            Property::sometimes("a late owner finds itself superseded", |_, world: &World| world.truth.superseded),
        ]
    }
}

/// What a check came to.
#[derive(Debug)]
pub struct Checked {
    /// The policy.
    pub in_doubt: InDoubt,
    /// How many different states there are within the bounds.
    pub states: usize,
    /// The rules that were broken, with the shortest way to break them.
    pub broken: Vec<String>,
    /// What the search should have come by and did not.
    pub unreached: Vec<&'static str>,
}

impl Checked {
    fn is_well(&self) -> bool {
        self.broken.is_empty() && self.unreached.is_empty()
    }
}

/// Checks every policy within the bounds.
pub fn check(bounds: Bounds) -> Vec<Checked> {
    let policies = [InDoubt::Hold, InDoubt::Retry, InDoubt::Probe, InDoubt::Tell];
    policies.into_iter().map(|in_doubt| check_one(Intent { in_doubt, bounds })).collect()
}

fn check_one(intent: Intent) -> Checked {
    // The first rule that is broken is told; more say nothing new.
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

/// Rules must always hold; the other properties only say that the search got somewhere.
fn is_rule(intent: &Intent, name: &str) -> bool {
    let always = |property: &Property<Intent>| matches!(property.expectation, stateright::Expectation::Always);
    intent.properties().iter().any(|property| property.name == name && always(property))
}

/// Checks, tells, and says whether all is well.
pub fn run(bounds: Bounds) -> bool {
    println!("every order of up to {} begins within {} ticks, three workers", bounds.begins, bounds.ticks);
    let started = Instant::now();
    let checked = check(bounds);
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
        for checked in check(Bounds::SMALL) {
            assert!(checked.is_well(), "{checked:?}");
            assert!(checked.states > 10_000, "the search has got nowhere: {checked:?}");
        }
    }
}
