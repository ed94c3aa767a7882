//! The state of the run as a value: the driver fills it, and `render` turns it into text.

use super::plan::{Fault, Payment, Plan};
use super::world::World;

/// How one payment stands in one world, according to the provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PaymentStatus {
    /// The agent has not paid it yet.
    #[default]
    Pending,
    /// The agent has a receipt, and the provider has one charge.
    ChargedOnce,
    /// A probe found the charge of a lost answer; the provider has one charge.
    FoundByProbe,
    /// A probe found no charge, and the agent paid then; the provider has one charge.
    PaidAfterProbe,
    /// The provider has more than one charge.
    ChargedTwice,
    /// The ledger holds it, and the provider has one charge or none.
    Held,
}

impl PaymentStatus {
    /// Statuses in which a probe has settled a doubt.
    pub(super) const PROBED: [Self; 2] = [Self::FoundByProbe, Self::PaidAfterProbe];
    /// Statuses in which the agent has a receipt for the only charge.
    pub(super) const PAID: [Self; 3] = [Self::ChargedOnce, Self::FoundByProbe, Self::PaidAfterProbe];
}

/// What an agent is doing now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Activity {
    /// Nothing.
    #[default]
    Idle,
    /// It has sent a charge.
    Paying,
    /// It got no answer and retries.
    Retrying,
    /// It was killed.
    Killed,
    /// It was started again, with the same payment.
    Restarted,
    /// It asks the provider whether the payment was made.
    Probing,
    /// It has its receipt.
    Paid,
    /// The ledger holds the payment.
    Held,
}

impl Activity {
    /// Whether the agent is busy with a fault.
    pub(super) fn shows_fault(self) -> bool {
        matches!(self, Self::Retrying | Self::Killed | Self::Restarted | Self::Probing | Self::Held)
    }
}

/// The state of one world.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) world: World,
    pub(super) statuses: Vec<PaymentStatus>,
    pub(super) activity: Activity,
    pub(super) kills: usize,
    pub(super) retries: usize,
    pub(super) overcharged_cents: u64,
}

impl Column {
    /// How many payments have one of these statuses.
    pub(super) fn count(&self, statuses: &[PaymentStatus]) -> usize {
        self.statuses.iter().filter(|status| statuses.contains(status)).count()
    }
}

/// A payment that met a fault.
#[derive(Clone, Debug)]
pub(super) struct FaultRow {
    pub(super) number: usize,
    pub(super) payment: Payment,
    pub(super) fault: Fault,
}

/// The state of the run.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    pub(super) seed: u64,
    pub(super) columns: [Column; 3],
    pub(super) rows: Vec<FaultRow>,
    /// The payment that is being made, and the fault that it has met so far.
    pub(super) now: Option<(Payment, Option<Fault>)>,
}

impl Progress {
    /// The state before the first payment.
    pub(super) fn new(seed: u64, plan: &Plan) -> Self {
        let columns = World::ALL.map(|world| Column {
            world,
            statuses: vec![PaymentStatus::Pending; plan.len()],
            activity: Activity::Idle,
            kills: 0,
            retries: 0,
            overcharged_cents: 0,
        });
        Self { seed, columns, rows: Vec::new(), now: None }
    }

    /// How many payments there are.
    pub(super) fn payments(&self) -> usize {
        self.columns[0].statuses.len()
    }

    /// The numbers of the payments that are held in a world, in order.
    pub(super) fn held(&self, world: World) -> impl Iterator<Item = usize> + '_ {
        let column = self.columns.iter().find(|column| column.world == world);
        let statuses = column.map(|column| column.statuses.as_slice()).unwrap_or_default();
        statuses.iter().enumerate().filter(|(_, status)| **status == PaymentStatus::Held).map(|(number, _)| number)
    }
}
