//! What goes wrong, and when: a pure function of the seed, the invoice and the attempt, so that the same seed shows
//! the same faults on every machine.

use serde::{Deserialize, Serialize};

/// The first invoice is INV-1001: four digits line up in every column.
const FIRST_INVOICE: u32 = 1001;

/// What the provider does to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Charges; its answer comes only after the client has given up.
    LateAnswer,
    /// Charges; the agent is killed before any answer.
    AgentKilled,
    /// Drops the line without charging. For the client this looks like any other lost answer.
    LineDropped,
}

impl Fault {
    /// How a person reads it.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::LateAnswer => "late answer",
            Self::AgentKilled => "agent killed",
            Self::LineDropped => "line dropped",
        }
    }
}

/// One invoice to be paid: the intent, exactly as it is put into the ledger and sent to the provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Payment {
    /// Who pays.
    pub(super) customer: String,
    /// What for; also the key.
    pub(super) invoice: String,
    /// How much, in cents.
    pub(super) cents: u64,
}

/// All faults of one run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    seed: u64,
    first: Vec<Option<Fault>>,
    /// The payment whose second attempt is lost as well.
    unlucky: usize,
}

impl Plan {
    /// Deals the faults. Whatever the seed, every kind occurs: a demo without faults shows nothing.
    pub(super) fn new(seed: u64, payments: u32) -> Self {
        let mut dice = Dice(seed);
        let payments = payments as usize;
        let share = |of: u64| (payments as u64 * of / 24).max(1);
        let late = share(3 + dice.below(3));
        let killed = share(2 + dice.below(2));
        let dropped = share(1 + dice.below(2));
        let mut order: Vec<usize> = (0..payments).collect();
        for last in (1..payments).rev() {
            order.swap(last, dice.below(last as u64 + 1) as usize);
        }
        let kinds = std::iter::repeat_n(Fault::LateAnswer, late as usize)
            .chain(std::iter::repeat_n(Fault::AgentKilled, killed as usize))
            .chain(std::iter::repeat_n(Fault::LineDropped, dropped as usize));
        let mut first = vec![None; payments];
        for (&payment, fault) in order.iter().zip(kinds) {
            first[payment] = Some(fault);
        }
        Self { seed, first, unlucky: order.first().copied().unwrap_or_default() }
    }

    /// How many payments there are.
    pub(super) fn len(&self) -> usize {
        self.first.len()
    }

    /// What happens to the `attempt`th request (from 1) for a payment (from 0). Third attempts always get through,
    /// so that an agent with three retries never gives up for good.
    pub(super) fn fault(&self, payment: usize, attempt: u32) -> Option<Fault> {
        match attempt {
            1 => self.first.get(payment).copied().flatten(),
            2 if payment == self.unlucky => Some(Fault::LineDropped),
            _ => None,
        }
    }

    /// How many payments meet a fault.
    pub(super) fn faults(&self) -> usize {
        self.first.iter().flatten().count()
    }

    /// The payment with this number, from 0.
    pub(super) fn payment(&self, number: usize) -> Payment {
        let mut dice = Dice(self.seed ^ (number as u64 + 1).wrapping_mul(0x9e37));
        Payment {
            customer: format!("cus_{:04}", dice.below(10_000)),
            invoice: format!("INV-{}", FIRST_INVOICE as usize + number),
            cents: 500 + dice.below(190) * 50,
        }
    }

    /// The number of an invoice; `None` for one that is not in the plan.
    pub(super) fn number(&self, invoice: &str) -> Option<usize> {
        let number: usize = invoice.strip_prefix("INV-")?.parse().ok()?;
        number.checked_sub(FIRST_INVOICE as usize).filter(|number| *number < self.len())
    }

    /// The name of the `count`th charge of a payment.
    pub(super) fn receipt(&self, payment: usize, count: usize) -> String {
        let mut dice = Dice(self.seed.rotate_left(17) ^ ((payment as u64) << 8 | count as u64));
        format!("ch_{:08x}", dice.below(1 << 32))
    }
}

/// SplitMix64: tiny, well mixed, and the same everywhere. Nothing here needs to be hard to guess.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number under `limit`; the bias of the remainder does not matter here.
    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(seed: u64, payments: u32) -> Vec<Option<Fault>> {
        let plan = Plan::new(seed, payments);
        (0..plan.len()).map(|payment| plan.fault(payment, 1)).collect()
    }

    #[test]
    fn the_same_seed_deals_the_same_faults_and_another_seed_others() {
        assert_eq!(faults(7, 24), faults(7, 24));
        assert_ne!(faults(7, 24), faults(8, 24));
    }

    #[test]
    fn every_kind_of_fault_occurs_whatever_the_seed() {
        for seed in 0..500 {
            for payments in [6, 24, 60] {
                let dealt = faults(seed, payments);
                for kind in [Fault::LateAnswer, Fault::AgentKilled, Fault::LineDropped] {
                    assert!(dealt.contains(&Some(kind)), "seed {seed}, {payments} payments: no {kind:?}");
                }
                assert!(dealt.contains(&None), "seed {seed}, {payments} payments: nothing went well");
            }
        }
    }

    #[test]
    fn a_third_attempt_always_gets_through_and_no_retry_is_charged_without_an_answer() {
        for seed in 0..200 {
            let plan = Plan::new(seed, 24);
            for payment in 0..plan.len() {
                assert!(matches!(plan.fault(payment, 2), None | Some(Fault::LineDropped)));
                assert_eq!(plan.fault(payment, 3), None);
            }
        }
    }

    #[test]
    fn invoices_and_numbers_belong_together() {
        let plan = Plan::new(1, 24);
        assert_eq!(plan.number(&plan.payment(23).invoice), Some(23));
        assert_eq!(plan.number("INV-1025"), None);
        assert_eq!(plan.number("INV-1000"), None);
        assert_eq!(plan.number("nonsense"), None);
    }
}
