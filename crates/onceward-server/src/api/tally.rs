//! What callers were told since the server started, tenant by tenant.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use onceward::core::name::Tenant;

/// Tenants come from tokens, so there are as many as are configured.
#[derive(Debug, Default)]
pub(super) struct Tally(Mutex<HashMap<Tenant, BTreeMap<&'static str, u64>>>);

impl Tally {
    pub(super) fn count(&self, tenant: &Tenant, decision: &'static str) {
        let mut tenants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match tenants.get_mut(tenant) {
            Some(decisions) => *decisions.entry(decision).or_default() += 1,
            None => {
                tenants.insert(tenant.clone(), BTreeMap::from([(decision, 1)]));
            }
        }
    }

    /// How often this tenant was told what.
    pub(super) fn of(&self, tenant: &Tenant) -> BTreeMap<&'static str, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(tenant).cloned().unwrap_or_default()
    }
}
