//! Which payments there are, what goes wrong with them, and when: a pure function of the seed, the payment and the
//! attempt, so that the same seed shows the same faults on every machine.

use serde::{Deserialize, Serialize};

/// The first invoice is INV-1001: four digits line up in every column.
const FIRST_INVOICE: u32 = 1001;

/// What the provider does to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The provider charges, and answers only after the client has timed out.
    LateAnswer,
    /// The provider charges, and the agent is killed before the answer.
    AgentKilled,
    /// The provider drops the connection without charging. For the client this looks like any other lost answer.
    RequestLost,
}

impl Fault {
    /// Its name in the output.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::LateAnswer => "late answer",
            Self::AgentKilled => "agent killed",
            Self::RequestLost => "request lost",
        }
    }
}

/// How an invoice is paid. The two differ in what the provider can be asked afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Method {
    /// The provider's API can look up a card charge by its invoice.
    Card,
    /// The provider's API has no lookup for transfers; they are only in the statement that a person reads.
    Bank,
}

impl Method {
    /// Its name in the output.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Card => "card",
            Self::Bank => "bank",
        }
    }

    /// The operation in the ledger. Policies are set for each operation.
    pub(super) fn operation(self) -> &'static str {
        match self {
            Self::Card => "charge_card",
            Self::Bank => "bank_transfer",
        }
    }
}

/// One invoice to pay: the intent, exactly as it goes into the ledger and to the provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Payment {
    /// Who pays.
    pub(super) customer: String,
    /// Which invoice; also the key.
    pub(super) invoice: String,
    /// How it is paid.
    pub(super) method: Method,
    /// How much, in cents.
    pub(super) cents: u64,
}

/// All payments and faults of one run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    seed: u64,
    /// The fault of each payment's first attempt.
    faults: Vec<Option<Fault>>,
    methods: Vec<Method>,
    /// The payment whose second attempt is lost as well.
    lost_twice: usize,
}

impl Plan {
    /// Chooses the faults. Every kind occurs with every seed, for card payments and for transfers where there are
    /// enough payments: a demo without faults shows nothing.
    pub(super) fn new(seed: u64, payments: u32) -> Self {
        let mut random = Random(seed);
        let payments = payments as usize;
        let scaled = |of_24: u64| (payments as u64 * of_24 / 24).max(1) as usize;
        let late = scaled(3 + random.below(3));
        let killed = scaled(2 + random.below(2));
        let lost = scaled(1 + random.below(2));
        let mut order: Vec<usize> = (0..payments).collect();
        for last in (1..payments).rev() {
            order.swap(last, random.below(last as u64 + 1) as usize);
        }
        // Methods alternate within each kind of fault. A killed agent pays by bank first, so that the smallest demo
        // has a probe that finds the charge, a probe that finds none, and a charged transfer for a person to settle.
        let (card_first, bank_first) = ([Method::Card, Method::Bank], [Method::Bank, Method::Card]);
        let kinds = [
            (Fault::LateAnswer, late, card_first),
            (Fault::AgentKilled, killed, bank_first),
            (Fault::RequestLost, lost, card_first),
        ];
        let mut methods: Vec<Method> = (0..payments).map(|_| card_first[random.below(2) as usize]).collect();
        let mut faults = vec![None; payments];
        let mut unassigned = order.iter().copied();
        for (fault, count, alternating) in kinds {
            for (payment, method) in unassigned.by_ref().take(count).zip(alternating.into_iter().cycle()) {
                faults[payment] = Some(fault);
                methods[payment] = method;
            }
        }
        Self { seed, faults, methods, lost_twice: order.first().copied().unwrap_or_default() }
    }

    /// How many payments there are.
    pub(super) fn len(&self) -> usize {
        self.faults.len()
    }

    /// The fault of the `attempt`th request (from 1) for a payment (from 0). Third attempts always succeed, so an
    /// agent with three retries never gives up.
    pub(super) fn fault(&self, payment: usize, attempt: u32) -> Option<Fault> {
        match attempt {
            1 => self.faults.get(payment).copied().flatten(),
            2 if payment == self.lost_twice => Some(Fault::RequestLost),
            _ => None,
        }
    }

    /// How many payments meet a fault.
    pub(super) fn fault_count(&self) -> usize {
        self.faults.iter().flatten().count()
    }

    /// The payment with this number, from 0.
    pub(super) fn payment(&self, number: usize) -> Payment {
        let mut random = Random(self.seed ^ (number as u64 + 1).wrapping_mul(0x9e37));
        Payment {
            customer: format!("cus_{:04}", random.below(10_000)),
            invoice: format!("INV-{}", FIRST_INVOICE as usize + number),
            method: self.methods.get(number).copied().unwrap_or(Method::Bank),
            cents: 500 + random.below(190) * 50,
        }
    }

    /// The number of an invoice; `None` for an invoice that is not in the plan.
    pub(super) fn number(&self, invoice: &str) -> Option<usize> {
        let number: usize = invoice.strip_prefix("INV-")?.parse().ok()?;
        number.checked_sub(FIRST_INVOICE as usize).filter(|number| *number < self.len())
    }

    /// The id of the `count`th charge of a payment.
    pub(super) fn receipt(&self, payment: usize, count: usize) -> String {
        let mut random = Random(self.seed.rotate_left(17) ^ ((payment as u64) << 8 | count as u64));
        format!("ch_{:08x}", random.below(1 << 32))
    }
}

/// SplitMix64: tiny, well mixed, and the same on every machine. Nothing here needs to be hard to guess.
struct Random(u64);

impl Random {
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
    fn the_same_seed_gives_the_same_faults_and_another_seed_gives_others() {
        assert_eq!(faults(7, 24), faults(7, 24));
        assert_ne!(faults(7, 24), faults(8, 24));
    }

    #[test]
    fn every_kind_of_fault_occurs_with_every_seed() {
        for seed in 0..500 {
            for payments in [6, 24, 60] {
                let faults = faults(seed, payments);
                for kind in [Fault::LateAnswer, Fault::AgentKilled, Fault::RequestLost] {
                    assert!(faults.contains(&Some(kind)), "seed {seed}, {payments} payments: no {kind:?}");
                }
                assert!(faults.contains(&None), "seed {seed}, {payments} payments: every payment met a fault");
            }
        }
    }

    #[test]
    fn every_plan_has_work_for_a_probe_and_for_a_person() {
        for seed in 0..500 {
            for payments in [6, 24, 60] {
                let plan = Plan::new(seed, payments);
                let occurs = |method: Method, is_charged: bool| {
                    (0..plan.len()).any(|number| {
                        let fault = plan.fault(number, 1);
                        let is_lost = fault == Some(Fault::RequestLost);
                        fault.is_some() && is_lost != is_charged && plan.payment(number).method == method
                    })
                };
                assert!(occurs(Method::Card, true), "seed {seed}, {payments} payments: no probe finds a charge");
                assert!(occurs(Method::Card, false), "seed {seed}, {payments} payments: every probe finds a charge");
                assert!(occurs(Method::Bank, true), "seed {seed}, {payments} payments: nothing to settle by hand");
            }
        }
    }

    #[test]
    fn a_third_attempt_always_succeeds_and_no_second_attempt_is_charged_without_an_answer() {
        for seed in 0..200 {
            let plan = Plan::new(seed, 24);
            for payment in 0..plan.len() {
                assert!(matches!(plan.fault(payment, 2), None | Some(Fault::RequestLost)));
                assert_eq!(plan.fault(payment, 3), None);
            }
        }
    }

    #[test]
    fn invoices_and_numbers_match() {
        let plan = Plan::new(1, 24);
        assert_eq!(plan.number(&plan.payment(23).invoice), Some(23));
        assert_eq!(plan.number("INV-1025"), None);
        assert_eq!(plan.number("INV-1000"), None);
        assert_eq!(plan.number("nonsense"), None);
    }
}
