//! One gate per caller. A server may list other tools for another caller, so what is known of the tools is kept per caller.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onceward::core::name::Tenant;

use super::super::gate::Gate;
use super::super::lazy_ledger::LazyLedger;

/// The most callers to remember. Callers can invent credentials; a forgotten caller only loses its list of tools.
const MAX_CALLERS: usize = 1000;

/// The gates of all known callers.
#[derive(Debug)]
pub(super) struct CallerGates {
    /// For requests whose caller is unknown.
    unknown: Arc<Gate>,
    known: Mutex<HashMap<(String, String), Arc<Gate>>>,
}

impl CallerGates {
    pub(super) fn of(unknown: Arc<Gate>) -> Self {
        Self { unknown, known: Mutex::default() }
    }

    pub(super) fn lazy_ledger(&self) -> &LazyLedger {
        &self.unknown.lazy_ledger
    }

    /// The gate of one caller at one URL of the server.
    pub(super) fn gate(&self, tenant: Option<&Tenant>, scope: &str) -> Arc<Gate> {
        let Some(tenant) = tenant else { return Arc::clone(&self.unknown) };
        let caller = (tenant.to_string(), scope.to_owned());
        let mut known = self.known();
        if known.len() >= MAX_CALLERS && !known.contains_key(&caller) {
            known.clear();
        }
        Arc::clone(known.entry(caller).or_insert_with(|| Arc::new(without_tools(&self.unknown))))
    }

    /// The server's tools have changed; it does not say for which caller.
    pub(super) fn list_changed(&self) {
        self.unknown.tools.set_complete(false);
        for gate in self.known().values() {
            gate.tools.set_complete(false);
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<(String, String), Arc<Gate>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A gate with the same settings and an empty list of tools.
fn without_tools(gate: &Gate) -> Gate {
    Gate {
        settings: gate.settings.clone(),
        tools: gate.tools.for_another_caller(),
        replies: gate.replies.clone(),
        lazy_ledger: Arc::clone(&gate.lazy_ledger),
        owners: gate.owners.clone(),
        equals: gate.equals.clone(),
        lines: gate.lines.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::call::CallSettings;
    use super::super::super::delivery::{EqualCalls, StepQueues};
    use super::super::super::members::Members;
    use super::super::super::owners::Owners;
    use super::super::super::reply::Replies;
    use super::super::super::tools::Tools;
    use super::*;

    fn gates() -> CallerGates {
        let settings = CallSettings {
            server: "s".to_owned(),
            tool_prefix: String::new(),
            session: None,
            echo: std::time::Duration::ZERO,
            patience: std::time::Duration::ZERO,
            deadline: None,
        };
        let replies = Replies { notice: true, flags: String::new(), status: "status" };
        let (tools, lazy_ledger, owners) =
            (Tools::default(), Arc::new(LazyLedger::at("memory:", None)), Owners::default());
        let (equals, lines) = (EqualCalls::default(), StepQueues::default());
        CallerGates::of(Arc::new(Gate { settings, tools, replies, lazy_ledger, owners, equals, lines }))
    }

    #[test]
    fn each_caller_has_a_list_of_its_own() {
        let (gates, [alice, bob]) = (gates(), ["alice", "bob"].map(|name| Tenant::new(name).unwrap()));
        let knows = |tenant: Option<&Tenant>, scope: &str| !gates.gate(tenant, scope).tools.is_unknown("get_x");
        gates.gate(Some(&alice), "").tools.learn("get_x", &Members::read("{}").unwrap(), "ours");
        assert!(knows(Some(&alice), ""));
        assert!(!knows(Some(&bob), "") && !knows(Some(&alice), "?1") && !knows(None, ""));
        gates.list_changed();
        assert!(!knows(Some(&alice), ""));
    }

    #[test]
    fn the_number_of_remembered_callers_is_limited() {
        let gates = gates();
        for number in 0..3 * MAX_CALLERS {
            gates.gate(Some(&Tenant::new(format!("made up {number}")).unwrap()), "");
        }
        assert!(gates.known().len() <= MAX_CALLERS);
    }
}
