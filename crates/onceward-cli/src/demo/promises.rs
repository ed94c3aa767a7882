//! Checks the demo's promises against the providers' statements and the ledger.

use onceward::Ledger;
use onceward::core::name::Tenant;
use onceward::core::record::Status;
use onceward::store::Filter;

use super::DemoError;
use super::progress::{Column, PaymentStatus, Progress};
use super::world::World;

/// Checks every promise of the table, and returns the first that does not hold as an error.
pub(super) async fn check(progress: &Progress, ledger: &Ledger) -> Result<(), DemoError> {
    for column in &progress.columns {
        check_column(column).map_err(DemoError::PromiseBroken)?;
        if let Some(tenant) = column.world.tenant() {
            check_ledger(column, tenant, ledger).await?;
        }
    }
    Ok(())
}

fn check_column(column: &Column) -> Result<(), String> {
    let [once, probed] = [column.count(&PaymentStatus::PAID), column.count(&PaymentStatus::PROBED)];
    let [twice, held] = [PaymentStatus::ChargedTwice, PaymentStatus::Held].map(|status| column.count(&[status]));
    let world = column.world.name();
    let wrong = |what: &str| {
        Err(format!(
            "in the world `{world}` {what}: {once} charged once ({probed} by a probe), {twice} charged twice, {held} held"
        ))
    };
    match column.world {
        _ if once + twice + held != column.statuses.len() => wrong("payments are missing"),
        World::KeysHonoured | World::KeysIgnored if twice > 0 => wrong("a customer was charged twice"),
        World::KeysHonoured if held + probed > 0 => wrong("a payment is in doubt although the provider honours keys"),
        World::KeysIgnored if held == 0 => wrong("no payment is held although answers were lost"),
        World::KeysIgnored if probed == 0 => wrong("no probe ran although answers were lost"),
        World::WithoutOnceward if twice == 0 => wrong("no customer was charged twice although answers were lost"),
        World::WithoutOnceward | World::KeysHonoured | World::KeysIgnored => Ok(()),
    }
}

/// The ledger must agree with the provider's statements.
async fn check_ledger(column: &Column, tenant: &str, ledger: &Ledger) -> Result<(), DemoError> {
    let tenant = Tenant::new(tenant).map_err(|error| DemoError::Failed(error.to_string()))?;
    let expected =
        [(Status::Done, PaymentStatus::PAID.as_slice()), (Status::InDoubt, [PaymentStatus::Held].as_slice())];
    for (status, statuses) in expected {
        let filter = Filter { status: vec![status], tenant: Some(tenant.clone()), ..Filter::default() };
        let page = ledger.list(&filter, None, column.statuses.len() + 1).await;
        let found = page.map_err(|error| DemoError::Failed(error.to_string()))?.listed.len();
        let expected = column.count(statuses);
        if found != expected {
            let (status, world) = (status.as_str(), column.world.name());
            return Err(DemoError::PromiseBroken(format!(
                "the ledger has {found} payments as `{status}` in the world `{world}`, and the provider has {expected}"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::plan::Plan;

    /// Checks a world in which all payments but the first ones were charged once.
    fn check(world: World, first: &[PaymentStatus]) -> Result<(), String> {
        let progress = Progress::new(1, &Plan::new(1, 6));
        let mut column = progress.columns.into_iter().find(|column| column.world == world).unwrap();
        column.statuses.fill(PaymentStatus::ChargedOnce);
        column.statuses[..first.len()].copy_from_slice(first);
        check_column(&column)
    }

    const HELD_AND_FOUND: [PaymentStatus; 2] = [PaymentStatus::Held, PaymentStatus::FoundByProbe];

    #[test]
    fn with_a_ledger_no_customer_may_be_charged_twice() {
        assert!(check(World::WithoutOnceward, &[PaymentStatus::ChargedTwice]).is_ok());
        assert!(check(World::KeysHonoured, &[PaymentStatus::ChargedTwice]).is_err());
        assert!(check(World::KeysIgnored, &[PaymentStatus::ChargedTwice]).is_err());
        let twice = [PaymentStatus::Held, PaymentStatus::FoundByProbe, PaymentStatus::ChargedTwice];
        assert!(check(World::KeysIgnored, &twice).is_err());
    }

    #[test]
    fn payments_are_held_and_probed_only_where_the_provider_ignores_keys() {
        assert!(check(World::KeysHonoured, &[PaymentStatus::Held]).is_err());
        assert!(check(World::KeysHonoured, &[PaymentStatus::PaidAfterProbe]).is_err());
        assert!(check(World::KeysHonoured, &[]).is_ok());
        assert!(check(World::KeysIgnored, &HELD_AND_FOUND).is_ok());
    }

    #[test]
    fn a_demo_without_faults_proves_nothing() {
        assert!(check(World::WithoutOnceward, &[]).is_err());
        assert!(check(World::KeysIgnored, &[PaymentStatus::Held]).is_err());
        assert!(check(World::KeysIgnored, &[PaymentStatus::FoundByProbe]).is_err());
        assert!(check(World::KeysHonoured, &[PaymentStatus::Pending]).is_err());
    }
}
