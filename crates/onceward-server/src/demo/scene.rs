//! What the audience sees, as a value: filled by the driver, painted by the views.

use super::plan::{Fault, Plan};
use super::world::World;

/// How one payment stands in one world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Cell {
    /// Not its turn yet.
    #[default]
    Waiting,
    /// The agent has a receipt, and the provider has one charge.
    Once,
    /// The provider has more than one charge.
    Twice,
    /// The ledger holds it, and the provider has one charge or none.
    Held,
}

/// What an agent is doing at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Doing {
    /// Nothing.
    #[default]
    Idle,
    /// It has sent a charge.
    Charging,
    /// It got no answer and tries again.
    Again,
    /// It was killed.
    Killed,
    /// It was started again, with the same payment.
    Resumed,
    /// It has its receipt.
    Paid,
    /// It was told that the payment is held.
    Held,
}

/// One world.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub(super) world: World,
    pub(super) cells: Vec<Cell>,
    pub(super) doing: Doing,
    pub(super) kills: usize,
    pub(super) again: usize,
    pub(super) overcharged_cents: u64,
}

impl Lane {
    /// How many payments stand like this.
    pub(super) fn count(&self, cell: Cell) -> usize {
        self.cells.iter().filter(|other| **other == cell).count()
    }
}

/// A payment that met a fault.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) number: usize,
    pub(super) invoice: String,
    pub(super) fault: Fault,
}

/// Everything.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) seed: u64,
    pub(super) lanes: [Lane; 3],
    pub(super) rows: Vec<Row>,
    /// The invoice that is being paid, and the fault that it has met by now.
    pub(super) now: Option<(String, Option<Fault>)>,
}

impl Scene {
    /// Before anything has happened.
    pub(super) fn new(seed: u64, plan: &Plan) -> Self {
        let lanes = World::ALL.map(|world| Lane {
            world,
            cells: vec![Cell::Waiting; plan.len()],
            doing: Doing::Idle,
            kills: 0,
            again: 0,
            overcharged_cents: 0,
        });
        Self { seed, lanes, rows: Vec::new(), now: None }
    }

    /// How many payments there are.
    pub(super) fn payments(&self) -> usize {
        self.lanes[0].cells.len()
    }
}
