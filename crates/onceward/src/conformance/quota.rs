//! How many records a tenant may have.

use super::*;

/// A claim for a tenant that sends nothing before it says so.
fn claim_of(tenant: &str, key: &str) -> Draft {
    drafted(decide(None, &begin_as(identity(tenant, "charge", key), 1, true)).write)
}

async fn is_full(store: &AnyStore, tenant: &str, most: u64) -> bool {
    let answer = store.insert(claim_of(tenant, "one more"), Some(most)).await.unwrap();
    let written = store.get(identity(tenant, "charge", "one more").digest()).await.unwrap();
    match answer {
        Inserted::Full => {
            assert_eq!(written, None, "a refused insert wrote a record");
            true
        }
        Inserted::Created { .. } => false,
        Inserted::Exists(seen) => panic!("there is one already: {seen:?}"),
    }
}

pub async fn a_tenant_gets_no_more_new_records_than_its_quota(store: &AnyStore, _: &ManualClock) {
    for key in ["a", "b", "c"] {
        let answer = store.insert(claim_of("acme", key), Some(3)).await.unwrap();
        assert!(matches!(answer, Inserted::Created { .. }), "{key}: {answer:?}");
    }
    assert!(is_full(store, "acme", 3).await);
    assert!(is_full(store, "acme", 2).await, "a quota that was lowered below the count refuses too");
    assert_eq!(every_page(store, &Filter::default(), 10).await.len(), 3, "nothing is evicted");
    assert!(!is_full(store, "acme", 4).await);
}

pub async fn a_quota_of_nothing_lets_no_record_in(store: &AnyStore, _: &ManualClock) {
    assert!(is_full(store, "acme", 0).await);
    assert!(!is_full(store, "acme", 1).await);
}

pub async fn a_full_tenant_is_given_the_records_that_it_has(store: &AnyStore, _: &ManualClock) {
    let done = finished(store, "a", Outcome::success("1")).await;
    assert!(is_full(store, "acme", 1).await);
    match store.insert(draft("a", 2), Some(1)).await.unwrap() {
        Inserted::Exists(seen) => assert_eq!(seen.record, done),
        other => panic!("the record of a full tenant was not handed back: {other:?}"),
    }
    let next = written(store, &done, done.next()).await;
    assert_eq!(seen(store, &done).await.record, next, "its records can be written");
}

pub async fn a_full_tenant_is_in_no_other_tenants_way(store: &AnyStore, _: &ManualClock) {
    created(store, claim_of("acme", "a")).await;
    assert!(is_full(store, "acme", 1).await);
    for tenant in ["other", "ACME", "acme2", "acm"] {
        assert!(!is_full(store, tenant, 1).await, "{tenant}");
        assert!(store.insert(claim_of(tenant, "a"), Some(1)).await.unwrap() == Inserted::Full, "{tenant}");
    }
}

pub async fn records_without_a_quota_count_towards_one_that_comes_later(store: &AnyStore, _: &ManualClock) {
    created(store, claim_of("acme", "a")).await;
    created(store, claim_of("acme", "b")).await;
    assert!(is_full(store, "acme", 2).await);
    created(store, claim_of("acme", "c")).await;
    assert!(is_full(store, "acme", 3).await);
}

pub async fn of_many_inserts_at_once_no_more_than_the_quota_create(store: &AnyStore, _: &ManualClock) {
    let tasks = (0..60).map(|number| {
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

pub async fn a_tombstone_takes_no_place_and_frees_it_once(store: &AnyStore, clock: &ManualClock) {
    finished(store, "a", Outcome::success("1")).await;
    assert!(is_full(store, "acme", 1).await);
    clock.advance(11 * SECOND);
    assert_eq!(store.purge(10).await.unwrap().tombstones, 1);
    finished(store, "b", Outcome::success("2")).await;
    assert!(is_full(store, "acme", 1).await, "the place was used again");
    clock.advance(25 * SECOND);
    let purged = store.purge(10).await.unwrap();
    assert_eq!((purged.tombstones, purged.removed), (1, 1));
    assert!(!is_full(store, "acme", 1).await);
    assert!(store.insert(claim_of("acme", "c"), Some(1)).await.unwrap() == Inserted::Full, "one place, one record");
}

pub async fn a_record_that_is_removed_frees_its_place(store: &AnyStore, clock: &ManualClock) {
    created(store, claim_of("acme", "a")).await;
    created(store, claim_of("other", "a")).await;
    assert!(is_full(store, "acme", 1).await);
    clock.advance(3 * 86400 * SECOND);
    assert_eq!(store.purge(10).await.unwrap().removed, 2);
    assert!(!is_full(store, "acme", 1).await);
    assert!(store.insert(claim_of("acme", "b"), Some(1)).await.unwrap() == Inserted::Full, "one place, one record");
}

pub async fn a_tombstone_that_becomes_a_record_again_takes_a_place(store: &AnyStore, clock: &ManualClock) {
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
