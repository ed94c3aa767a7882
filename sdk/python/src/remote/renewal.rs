//! Renews the lease of a claim while its owner works, and tells the owner when another caller may go on with the work.
//! The lease is counted on the monotonic clock, from before each request.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

use super::claim::Owner;
use super::client::{ANSWER_TIMEOUT, ApiRequest};
use super::messages::ClaimUpdate;

/// A lease is renewed when a third of it is over: two more tries are left before it lapses.
const RENEW_FRACTION: u32 = 3;

/// The longest pause between two tries.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// A renewal must not be given up much before the lease is, and a very short lease still needs time for an answer.
const MIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Renews until the claim is lost. The owner ends it when the claim ends.
pub(super) async fn run(owner: Arc<Owner>, mut from: Instant) {
    let request = ApiRequest::post("/v1/renew", &owner.about(json!({ "lease_ms": owner.asked_lease_ms() })));
    loop {
        sleep_until(from + owner.lease() / RENEW_FRACTION).await;
        let started = Instant::now();
        if !renewed(&owner, &request, from).await {
            owner.lose();
            return;
        }
        from = started;
    }
}

/// Tries to renew until the server answers. `false` when the claim is lost: another caller took over, a person has
/// settled it, or the lease has lapsed where another caller may take over.
async fn renewed(owner: &Owner, request: &ApiRequest, from: Instant) -> bool {
    let lease = owner.lease();
    loop {
        let limit = (lease / RENEW_FRACTION).clamp(MIN_TIMEOUT, ANSWER_TIMEOUT);
        match owner.client().ask(request, limit).await {
            Ok(ClaimUpdate::Written { .. }) => return true,
            Ok(ClaimUpdate::Stale) => return false,
            Err(_) => {
                if Instant::now() >= from + lease && owner.may_run_elsewhere() {
                    return false;
                }
                sleep((lease / 20).clamp(Duration::from_millis(10), MAX_PAUSE)).await;
            }
        }
    }
}
