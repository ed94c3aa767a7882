//! The gate that each caller goes through. What a server lists may depend on who asks, so what one caller is shown says
//! nothing of the tools of another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onceward::core::name::Tenant;

use super::super::books::Books;
use super::super::gate::Gate;

/// How many callers are remembered. Anybody can make up a credential, and all that is lost is a list.
const MOST: usize = 1000;

/// Everybody who has called.
#[derive(Debug)]
pub(super) struct Callers {
    /// For who cannot be told.
    nobody: Arc<Gate>,
    known: Mutex<HashMap<(String, String), Arc<Gate>>>,
}

impl Callers {
    pub(super) fn of(nobody: Arc<Gate>) -> Self {
        Self { nobody, known: Mutex::default() }
    }

    pub(super) fn books(&self) -> &Books {
        &self.nobody.books
    }

    /// The gate of one caller, at one address of the server.
    pub(super) fn gate(&self, tenant: Option<&Tenant>, scope: &str) -> Arc<Gate> {
        let Some(tenant) = tenant else { return Arc::clone(&self.nobody) };
        let caller = (tenant.to_string(), scope.to_owned());
        let mut known = self.known();
        if known.len() >= MOST && !known.contains_key(&caller) {
            known.clear();
        }
        Arc::clone(known.entry(caller).or_insert_with(|| Arc::new(another(&self.nobody))))
    }

    /// The server has other tools than before. For whom, it does not say.
    pub(super) fn list_changed(&self) {
        self.nobody.tools.is_whole(false);
        for gate in self.known().values() {
            gate.tools.is_whole(false);
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<(String, String), Arc<Gate>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The same, and nothing is listed yet.
fn another(gate: &Gate) -> Gate {
    Gate {
        naming: gate.naming.clone(),
        tools: gate.tools.for_another(),
        replies: gate.replies.clone(),
        books: Arc::clone(&gate.books),
        owners: gate.owners.clone(),
        equals: gate.equals.clone(),
        lines: gate.lines.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::call::Naming;
    use super::super::super::delivery::{Equals, Lines};
    use super::super::super::members::Members;
    use super::super::super::owners::Owners;
    use super::super::super::reply::Replies;
    use super::super::super::tools::Tools;
    use super::*;

    fn callers() -> Callers {
        let naming = Naming {
            server: "s".to_owned(),
            shown: String::new(),
            session: None,
            echo: std::time::Duration::ZERO,
            patience: std::time::Duration::ZERO,
            deadline: None,
        };
        let replies = Replies { notice: true, flags: String::new(), status: "status" };
        let (tools, books, owners) = (Tools::default(), Arc::new(Books::at("memory:", None)), Owners::default());
        let (equals, lines) = (Equals::default(), Lines::default());
        Callers::of(Arc::new(Gate { naming, tools, replies, books, owners, equals, lines }))
    }

    #[test]
    fn each_caller_has_a_list_of_its_own() {
        let (callers, [alice, bob]) = (callers(), ["alice", "bob"].map(|name| Tenant::new(name).unwrap()));
        let knows = |tenant: Option<&Tenant>, scope: &str| !callers.gate(tenant, scope).tools.is_unknown("get_x");
        callers.gate(Some(&alice), "").tools.learn("get_x", &Members::read("{}").unwrap(), "ours");
        assert!(knows(Some(&alice), ""));
        assert!(!knows(Some(&bob), "") && !knows(Some(&alice), "?1") && !knows(None, ""));
        callers.list_changed();
        assert!(!knows(Some(&alice), ""));
    }

    #[test]
    fn there_is_a_limit_to_those_who_are_remembered() {
        let callers = callers();
        for number in 0..3 * MOST {
            callers.gate(Some(&Tenant::new(format!("made up {number}")).unwrap()), "");
        }
        assert!(callers.known().len() <= MOST);
    }
}
