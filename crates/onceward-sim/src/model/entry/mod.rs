//! Model checking of the outbox: one entry, two couriers with different sinks, a person and a clock, in every order of
//! events within bounds. As for calls, the rules are judged by a separate truth.
//!
//! - `world`: the state, and what can happen next.
//! - `truth`: what really happened, and which rules a step broke.
//! - `fault`: broken versions of `decide`, each of which the checker must find.

mod fault;
mod truth;
mod world;

use onceward::InDoubt;
use stateright::{Model, Property};

pub use fault::Fault;
use world::{EntryAction, EntryWorld};

use super::Bounds;

/// One entry under one policy.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its in-doubt policy.
    pub in_doubt: InDoubt,
    /// How many ticks there are to deliver it in, if that is limited.
    pub deliver_within: Option<u8>,
    /// How far the check goes. Begins are attempts here.
    pub bounds: Bounds,
    /// A rule that is taken out of `decide`.
    pub fault: Option<Fault>,
}

impl Entry {
    /// Every entry that is checked.
    pub fn all(bounds: Bounds, fault: Option<Fault>) -> Vec<Self> {
        let policies = [InDoubt::Hold, InDoubt::Retry, InDoubt::Probe];
        let limits = [None, Some(truth::DELIVER_WITHIN)];
        // More than a lease, the time limit and the downstream's memory brings no new situations.
        let bounds = Bounds { ticks: bounds.ticks.saturating_sub(2), ..bounds };
        let all = policies.into_iter().flat_map(|in_doubt| limits.map(|deliver_within| (in_doubt, deliver_within)));
        all.map(|(in_doubt, deliver_within)| Self { in_doubt, deliver_within, bounds, fault }).collect()
    }
}

impl Entry {
    /// What a report calls it.
    pub fn name(&self) -> String {
        let limit = if self.deliver_within.is_some() { ", limited" } else { "" };
        format!("an entry, {:?}{limit}", self.in_doubt)
    }
}

impl Model for Entry {
    type State = EntryWorld;
    type Action = EntryAction;

    fn init_states(&self) -> Vec<EntryWorld> {
        vec![EntryWorld::queued(self)]
    }

    fn actions(&self, world: &EntryWorld, actions: &mut Vec<EntryAction>) {
        world.actions(self, actions);
    }

    fn next_state(&self, world: &EntryWorld, action: EntryAction) -> Option<EntryWorld> {
        let next = world.after(self, action);
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("no step breaks a rule", |_, world: &EntryWorld| world.truth.broken.is_none()),
            Property::always("no entry is lost", |model, world: &EntryWorld| world.will_be_settled(model)),
            Property::always("a doubt is never forgotten", |_, world: &EntryWorld| world.shows_its_doubt()),
            Property::sometimes("an entry is delivered", |_, world: &EntryWorld| world.truth.committed.is_some()),
            Property::sometimes("an entry is dead", |_, world: &EntryWorld| world.is_dead()),
            Property::sometimes("an entry waits for a person", |_, world: &EntryWorld| world.is_held()),
            Property::sometimes("a fresh key is used", |_, world: &EntryWorld| world.has_fresh_key()),
            Property::sometimes("a late courier finds itself superseded", |_, world: &EntryWorld| {
                world.has_superseded()
            }),
        ];
        if self.in_doubt != InDoubt::Hold {
            properties
                .push(Property::sometimes("a doubt is taken over", |_, world: &EntryWorld| world.has_taken_over()));
        }
        properties
    }
}
