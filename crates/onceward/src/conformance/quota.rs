//! The limit of records of a tenant.

use super::*;

/// A claim of a caller that marks `sent`.
fn claim_of(tenant: &str, key: &str) -> Draft {
    drafted(decide(None, &begin_as(identity(tenant, "charge", key), 1, true)).write)
}

async fn is_full(store: &AnyStore, tenant: &str, quota: u64) -> bool {
    let result = store.insert(claim_of(tenant, "one more"), Some(quota)).await.unwrap();
    let written = store.get(identity(tenant, "charge", "one more").digest()).await.unwrap();
    match result {
        Inserted::Full => {
            assert_eq!(written, None, "a refused insert wrote a record");
            true
        }
        Inserted::Created { .. } => false,
        other => panic!("neither written nor refused: {other:?}"),
    }
}

pub async fn a_tenant_gets_no_more_new_records_than_its_quota(store: &AnyStore, _: &ManualClock) {
    for key in ["a", "b", "c"] {
        let result = store.insert(claim_of("acme", key), Some(3)).await.unwrap();
        assert!(matches!(result, Inserted::Created { .. }), "{key}: {result:?}");
    }
    assert!(is_full(store, "acme", 3).await);
    assert!(is_full(store, "acme", 2).await, "a quota that was lowered below the count refuses too");
    assert_eq!(every_page(store, &Filter::default(), 10).await.len(), 3, "nothing is evicted");
    assert!(!is_full(store, "acme", 4).await);
}

pub async fn a_quota_of_zero_refuses_every_new_record(store: &AnyStore, _: &ManualClock) {
    assert!(is_full(store, "acme", 0).await);
    assert!(!is_full(store, "acme", 1).await);
}

pub async fn a_tenant_at_its_quota_still_gets_its_existing_records(store: &AnyStore, _: &ManualClock) {
    let done = finished(store, "a", Outcome::success("1")).await;
    assert!(is_full(store, "acme", 1).await);
    match store.insert(draft("a", 2), Some(1)).await.unwrap() {
        Inserted::Exists(seen) => assert_eq!(seen.record, done),
        other => panic!("the existing record was not returned: {other:?}"),
    }
    let next = written(store, &done, done.next()).await;
    assert_eq!(seen(store, &done).await.record, next, "its records can be written");
}

pub async fn a_tenant_at_its_quota_does_not_affect_other_tenants(store: &AnyStore, _: &ManualClock) {
    created(store, claim_of("acme", "a")).await;
    assert!(is_full(store, "acme", 1).await);
    for tenant in ["other", "ACME", "acme2", "acm"] {
        assert!(!is_full(store, tenant, 1).await, "{tenant}");
        assert!(store.insert(claim_of(tenant, "a"), Some(1)).await.unwrap() == Inserted::Full, "{tenant}");
    }
}

pub async fn records_made_without_a_quota_count_towards_a_later_one(store: &AnyStore, _: &ManualClock) {
    created(store, claim_of("acme", "a")).await;
    created(store, claim_of("acme", "b")).await;
    assert!(is_full(store, "acme", 2).await);
    created(store, claim_of("acme", "c")).await;
    assert!(is_full(store, "acme", 3).await);
}

pub async fn concurrent_inserts_never_exceed_the_quota(store: &AnyStore, _: &ManualClock) {
    let tasks = (0..24).map(|number| {
        let store = Arc::clone(store);
        let draft = claim_of("acme", &format!("key {number}"));
        tokio::spawn(async move { store.insert(draft, Some(7)).await.unwrap() })
    });
    let mut winners = 0;
    for task in tasks.collect::<Vec<_>>() {
        winners += usize::from(matches!(task.await.unwrap(), Inserted::Created { .. }));
    }
    assert_eq!(winners, 7);
}

pub async fn a_tombstone_does_not_count_towards_the_quota(store: &AnyStore, clock: &ManualClock) {
    finished(store, "a", Outcome::success("1")).await;
    assert!(is_full(store, "acme", 1).await);
    clock.advance(11 * SECOND);
    assert_eq!(store.purge(10).await.unwrap().tombstones, 1);
    finished(store, "b", Outcome::success("2")).await;
    assert!(is_full(store, "acme", 1).await, "the freed quota was used again");
    clock.advance(25 * SECOND);
    let purged = store.purge(10).await.unwrap();
    assert_eq!((purged.tombstones, purged.removed), (1, 1));
    assert!(!is_full(store, "acme", 1).await);
    assert!(store.insert(claim_of("acme", "c"), Some(1)).await.unwrap() == Inserted::Full, "a quota of one record");
}

pub async fn a_removed_record_no_longer_counts_towards_the_quota(store: &AnyStore, clock: &ManualClock) {
    created(store, claim_of("acme", "a")).await;
    created(store, claim_of("other", "a")).await;
    assert!(is_full(store, "acme", 1).await);
    clock.advance(3 * 86400 * SECOND);
    assert_eq!(store.purge(10).await.unwrap().removed, 2);
    assert!(!is_full(store, "acme", 1).await);
    assert!(store.insert(claim_of("acme", "b"), Some(1)).await.unwrap() == Inserted::Full, "a quota of one record");
}

pub async fn a_tombstone_that_becomes_a_record_again_counts_towards_the_quota(store: &AnyStore, clock: &ManualClock) {
    let done = finished(store, "a", Outcome::success("1")).await;
    clock.advance(11 * SECOND);
    assert_eq!(store.purge(10).await.unwrap().tombstones, 1);
    clock.advance(25 * SECOND);
    let forgotten = seen(store, &done).await;
    let again = decide(Some(&forgotten), &begin_as(identity("acme", "charge", "a"), 2, true));
    written(store, &forgotten.record, drafted(again.write)).await;
    assert!(is_full(store, "acme", 1).await);
    assert!(!is_full(store, "acme", 2).await);
}
