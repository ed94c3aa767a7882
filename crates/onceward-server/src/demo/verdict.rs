//! What the demo promises, checked against the providers' books and the ledger.

use onceward::Ledger;
use onceward::core::name::Tenant;
use onceward::core::record::Status;
use onceward::store::Filter;

use super::Trouble;
use super::scene::{Cell, Lane, Scene};
use super::world::World;

/// Checks every promise of the table. The first that does not hold is the answer.
pub(super) async fn check(scene: &Scene, ledger: &Ledger) -> Result<(), Trouble> {
    for lane in &scene.lanes {
        check_lane(lane).map_err(Trouble::Broken)?;
        if let Some(tenant) = lane.world.tenant() {
            check_ledger(lane, tenant, ledger).await?;
        }
    }
    Ok(())
}

fn check_lane(lane: &Lane) -> Result<(), String> {
    let (once, twice, held) = (lane.count(Cell::Once), lane.count(Cell::Twice), lane.count(Cell::Held));
    let world = lane.world.name();
    let wrong = |what: &str| Err(format!("in the world `{world}` {what}: {once} once, {twice} twice, {held} held"));
    match lane.world {
        _ if once + twice + held != lane.cells.len() => wrong("payments are missing"),
        World::Keys | World::NoKeys if twice > 0 => wrong("a customer was charged twice in spite of the ledger"),
        World::Keys if held > 0 => wrong("a payment is held although the provider honours keys"),
        World::NoKeys if held == 0 => wrong("nothing is held although answers were lost"),
        World::Bare if twice == 0 => wrong("nothing was charged twice although answers were lost"),
        World::Bare | World::Keys | World::NoKeys => Ok(()),
    }
}

/// The ledger must say the same as the provider's books.
async fn check_ledger(lane: &Lane, tenant: &str, ledger: &Ledger) -> Result<(), Trouble> {
    let tenant = Tenant::new(tenant).map_err(|error| Trouble::Failed(error.to_string()))?;
    for (status, cell) in [(Status::Done, Cell::Once), (Status::InDoubt, Cell::Held)] {
        let filter = Filter { status: vec![status], tenant: Some(tenant.clone()), ..Filter::default() };
        let page = ledger.list(&filter, None, lane.cells.len() + 1).await;
        let found = page.map_err(|error| Trouble::Failed(error.to_string()))?.listed.len();
        let expected = lane.count(cell);
        if found != expected {
            let (status, world) = (status.as_str(), lane.world.name());
            return Err(Trouble::Broken(format!(
                "the ledger has {found} payments as `{status}` in the world `{world}`; the provider's books say {expected}"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::plan::Plan;

    /// The verdict on a world in which all payments but the first went well.
    fn verdict(world: World, first: Cell) -> Result<(), String> {
        let scene = Scene::new(1, &Plan::new(1, 6));
        let mut lane = scene.lanes.into_iter().find(|lane| lane.world == world).unwrap();
        lane.cells.fill(Cell::Once);
        lane.cells[0] = first;
        check_lane(&lane)
    }

    #[test]
    fn nothing_may_be_charged_twice_with_a_ledger() {
        assert!(verdict(World::Bare, Cell::Twice).is_ok());
        assert!(verdict(World::Keys, Cell::Twice).is_err());
        assert!(verdict(World::NoKeys, Cell::Twice).is_err());
    }

    #[test]
    fn payments_are_held_only_where_the_provider_ignores_keys() {
        assert!(verdict(World::Keys, Cell::Held).is_err());
        assert!(verdict(World::Keys, Cell::Once).is_ok());
        assert!(verdict(World::NoKeys, Cell::Held).is_ok());
    }

    #[test]
    fn a_demo_in_which_nothing_went_wrong_proves_nothing() {
        assert!(verdict(World::Bare, Cell::Once).is_err());
        assert!(verdict(World::NoKeys, Cell::Once).is_err());
        assert!(verdict(World::Keys, Cell::Waiting).is_err());
    }
}
