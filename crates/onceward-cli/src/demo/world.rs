//! The three worlds that the demo compares, and the ledger's policy in each.

use clap::ValueEnum;
use onceward::{CallBuilder, InDoubt, Ledger, Tier};
use std::time::Duration;

use super::plan::{Method, Payment};

/// A response takes milliseconds here. Where the system cannot see at once that an owner was killed, its lease of
/// three times this long must lapse before the restarted agent may continue.
const MAX_RUNTIME: Duration = Duration::from_secs(1);

/// One column of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub(super) enum World {
    /// The agent calls the provider directly.
    WithoutOnceward,
    /// The agent calls through the ledger, and the provider honours idempotency keys.
    KeysHonoured,
    /// The agent calls through the ledger, and the provider ignores keys.
    KeysIgnored,
}

impl World {
    /// All of them, from left to right.
    pub(super) const ALL: [Self; 3] = [Self::WithoutOnceward, Self::KeysHonoured, Self::KeysIgnored];

    /// Its name as an argument of a child process.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::WithoutOnceward => "without-onceward",
            Self::KeysHonoured => "keys-honoured",
            Self::KeysIgnored => "keys-ignored",
        }
    }

    /// The tenant of its intents in the ledger.
    pub(super) fn tenant(self) -> Option<&'static str> {
        match self {
            Self::WithoutOnceward => None,
            Self::KeysHonoured => Some("demo-keys"),
            Self::KeysIgnored => Some("demo-no-keys"),
        }
    }

    /// Whether its provider remembers the key of a charge and answers a repeat with the same receipt.
    pub(super) fn honours_keys(self) -> bool {
        self == Self::KeysHonoured
    }

    /// What happens to a payment without an answer. A provider that honours keys can be called again. Otherwise a
    /// card payment can be looked up, so a probe settles it; a bank transfer cannot, so it waits for a person.
    fn in_doubt(self, method: Method) -> InDoubt {
        match method {
            _ if self.honours_keys() => InDoubt::Retry,
            Method::Card => InDoubt::Probe,
            Method::Bank => InDoubt::Hold,
        }
    }

    /// The guarded call for a payment; `None` in the world without a ledger.
    pub(super) fn guarded(self, ledger: &Ledger, payment: &Payment) -> Option<CallBuilder> {
        let operation = ledger
            .operation(payment.method.operation())
            .tenant(self.tenant()?)
            .key(&payment.invoice)
            .intent(payment)
            .tier(Tier::Payment)
            .max_runtime(MAX_RUNTIME)
            .in_doubt(self.in_doubt(payment.method))
            .probes();
        Some(operation)
    }
}
