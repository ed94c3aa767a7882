//! The three worlds that the demo compares.

use clap::ValueEnum;
use onceward::{InDoubt, Ledger, Operation, Tier};
use std::time::Duration;

use super::plan::Payment;

/// The operation under which payments are in the ledger.
pub(super) const OPERATION: &str = "charge_payment";

/// An answer takes milliseconds here. Where the system cannot tell at once that an owner is gone, its lease of
/// three times this long must run out before the resumed agent may go on.
const MAX_RUNTIME: Duration = Duration::from_secs(1);

/// One column of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub(super) enum World {
    /// The agent calls the provider directly.
    Bare,
    /// The agent goes through the ledger, and the provider honours idempotency keys.
    Keys,
    /// The agent goes through the ledger, and the provider ignores keys.
    NoKeys,
}

impl World {
    /// All of them, from left to right.
    pub(super) const ALL: [Self; 3] = [Self::Bare, Self::Keys, Self::NoKeys];

    /// Its name as an argument of a child process.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Keys => "keys",
            Self::NoKeys => "no-keys",
        }
    }

    /// Whose intents they are in the ledger.
    pub(super) fn tenant(self) -> Option<&'static str> {
        match self {
            Self::Bare => None,
            Self::Keys => Some("demo-keys"),
            Self::NoKeys => Some("demo-no-keys"),
        }
    }

    /// Whether its provider remembers the key of a charge and answers a repeat with the same receipt.
    pub(super) fn honours_keys(self) -> bool {
        self == Self::Keys
    }

    /// The guarded call for a payment; `None` where nothing guards.
    pub(super) fn guarded(self, ledger: &Ledger, payment: &Payment) -> Option<Operation> {
        let in_doubt = if self.honours_keys() { InDoubt::Retry } else { InDoubt::Hold };
        let operation = ledger
            .operation(OPERATION)
            .tenant(self.tenant()?)
            .key(&payment.invoice)
            .intent(payment)
            .tier(Tier::Payment)
            .max_runtime(MAX_RUNTIME)
            .in_doubt(in_doubt);
        Some(operation)
    }
}
