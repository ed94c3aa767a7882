//! Counts the decisions since the server started, per tenant.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use onceward::core::name::Tenant;

/// Decision counts. Tenants come from tokens, so their number is limited by the configuration.
#[derive(Debug, Default)]
pub(super) struct DecisionCounts(Mutex<HashMap<Tenant, BTreeMap<&'static str, u64>>>);

impl DecisionCounts {
    pub(super) fn count(&self, tenant: &Tenant, decision: &'static str) {
        let mut tenants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match tenants.get_mut(tenant) {
            Some(decisions) => *decisions.entry(decision).or_default() += 1,
            None => {
                tenants.insert(tenant.clone(), BTreeMap::from([(decision, 1)]));
            }
        }
    }

    /// The counts of one tenant.
    pub(super) fn of(&self, tenant: &Tenant) -> BTreeMap<&'static str, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(tenant).cloned().unwrap_or_default()
    }
}
