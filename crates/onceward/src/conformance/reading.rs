//! Expiry, lists, counts and the audit trail.

use super::*;

pub async fn purge_drops_outcomes_then_tombstones_and_nothing_else(store: &AnyStore, clock: &ManualClock) {
    let mut unfinished = Vec::new();
    for (number, state) in states().into_iter().enumerate() {
        let is_unsent = matches!(&state, State::Leased(lease) if lease.phase == Phase::Claimed);
        if !is_unsent && !matches!(state, State::Done { .. } | State::Open { .. }) {
            let mut draft = draft(&format!("unfinished {number}"), 1);
            draft.state = state;
            unfinished.push(created(store, draft).await);
        }
    }
    let done = finished(store, "done", Outcome::success("1")).await;
    clock.advance(10 * SECOND - Duration::from_millis(1));
    assert_eq!(store.purge(100).await.unwrap().total(), 0, "nothing has expired yet");
    clock.advance(Duration::from_millis(1));
    let purged = store.purge(100).await.unwrap();
    assert_eq!((purged.tombstones, purged.removed), (1, 0));
    assert_eq!(store.purge(100).await.unwrap().total(), 0, "the tombstone holds the key");
    clock.advance(20 * SECOND);
    let purged = store.purge(100).await.unwrap();
    assert_eq!((purged.tombstones, purged.removed), (0, 1));
    assert_eq!(store.get(done.id).await.unwrap(), None);
    clock.advance(Duration::from_secs(10 * 365 * 86400));
    assert_eq!(store.purge(100).await.unwrap().total(), 0, "unfinished work never expires by age");
    for record in unfinished {
        assert_eq!(seen(store, &record).await.record, record);
    }
}

pub async fn open_records_expire_unless_they_must_be_kept(store: &AnyStore, clock: &ManualClock) {
    let open = |name: &str| {
        let mut draft = draft(name, 1);
        draft.state = State::Open { not_before: When::In(5 * SECOND) };
        draft.terms.honours_key_for = SECOND;
        draft
    };
    let mut known_downstream = open("the downstream knows its key for longer");
    known_downstream.terms.honours_key_for = 31 * SECOND;
    let known_downstream = created(store, known_downstream).await;
    let refused = created(store, open("refused")).await;
    let mut holding = [open("in doubt before"), open("for the courier"), open("an item"), open("for ever")];
    holding[0].doubt_since = Some(When::NOW);
    holding[1].payload = Some("letter".into());
    holding[2].sequence = Some(7);
    holding[3].terms.retention = None;
    let mut held = Vec::new();
    for draft in holding {
        held.push(created(store, draft).await);
    }
    let left = async || store.counts(None).await.unwrap().of(Status::Open);
    // The retention, the tombstone horizon, and the wait that the downstream asked for.
    clock.advance(35 * SECOND - Duration::from_millis(1));
    assert_eq!(store.purge(100).await.unwrap().total(), 0, "nothing has expired yet");
    assert_eq!(left().await, 6);
    for (forgotten, wait) in [(refused, Duration::from_millis(1)), (known_downstream, SECOND)] {
        clock.advance(wait - Duration::from_millis(1));
        assert_eq!(store.purge(100).await.unwrap().total(), 0, "a moment too early");
        clock.advance(Duration::from_millis(1));
        let before = seen(store, &forgotten).await;
        assert_eq!((before.standing(), listed(store, Status::Open).await.len() as u64), (None, left().await));
        let purged = store.purge(100).await.unwrap();
        assert_eq!((purged.tombstones, purged.removed), (0, 1));
        assert_eq!(store.get(forgotten.id).await.unwrap(), None);
    }
    clock.advance(Duration::from_secs(10 * 365 * 86400));
    assert_eq!(store.purge(100).await.unwrap().total(), 0);
    assert_eq!(left().await, 4);
    for record in held {
        assert_eq!(seen(store, &record).await.record, record);
    }
}

pub async fn lapsed_unsent_claims_expire_unless_they_must_be_kept(store: &AnyStore, clock: &ManualClock) {
    let claim = |name: &str, phase| {
        let mut draft = draft(name, 1);
        draft.state = State::Leased(Lease { phase, fence: fence(1), until: When::In(5 * SECOND), owner: None });
        draft.terms.honours_key_for = SECOND;
        draft
    };
    let lapsed = created(store, claim("lapsed", Phase::Claimed)).await;
    let renewed = created(store, claim("renewed", Phase::Claimed)).await;
    let late = created(store, claim("sent after it had lapsed", Phase::Claimed)).await;
    let mut holding = [
        claim("in doubt before", Phase::Claimed),
        claim("for the courier", Phase::Claimed),
        claim("an item", Phase::Claimed),
        claim("for ever", Phase::Claimed),
        claim("sent", Phase::Sent),
    ];
    holding[0].doubt_since = Some(When::NOW);
    holding[1].payload = Some("letter".into());
    holding[2].sequence = Some(7);
    holding[3].terms.retention = None;
    let mut held = Vec::new();
    for draft in holding {
        held.push(created(store, draft).await);
    }
    clock.advance(4 * SECOND);
    let renew = Command::Renew { fence: fence(1), lease: 5 * SECOND };
    written(store, &renewed, drafted(decide(Some(&seen(store, &renewed).await), &renew).write)).await;
    clock.advance(6 * SECOND);
    let sent = Command::Sent { fence: fence(1), lease: 5 * SECOND };
    held.push(written(store, &late, drafted(decide(Some(&seen(store, &late).await), &sent).write)).await);
    // The retention and the tombstone horizon, from the end of the lease.
    clock.advance(25 * SECOND - Duration::from_millis(1));
    assert_eq!(store.purge(100).await.unwrap().total(), 0, "a moment too early");
    for (forgotten, wait) in [(lapsed, Duration::from_millis(1)), (renewed, 4 * SECOND)] {
        clock.advance(wait);
        assert_eq!(seen(store, &forgotten).await.standing(), None);
        let left = store.counts(None).await.unwrap().of(Status::Open);
        assert_eq!(listed(store, Status::Open).await.len() as u64, left);
        let purged = store.purge(100).await.unwrap();
        assert_eq!((purged.tombstones, purged.removed), (0, 1));
        assert_eq!(store.get(forgotten.id).await.unwrap(), None);
    }
    clock.advance(Duration::from_secs(10 * 365 * 86400));
    assert_eq!(store.purge(100).await.unwrap().total(), 0);
    for record in held {
        assert_eq!(seen(store, &record).await.record, record);
    }
}

pub async fn purge_respects_its_limit(store: &AnyStore, clock: &ManualClock) {
    for number in 0..25 {
        finished(store, &format!("{number}"), Outcome::success("1")).await;
    }
    clock.advance(100 * SECOND);
    let mut freed = Vec::new();
    for _ in 0..4 {
        freed.push(store.purge(10).await.unwrap().total());
    }
    assert_eq!(freed, [10, 10, 5, 0]);
}

pub async fn an_outcome_kept_for_ever_is_never_purged(store: &AnyStore, clock: &ManualClock) {
    let mut draft = draft("for ever", 1);
    draft.terms.retention = None;
    let record = created(store, draft).await;
    let last = seen(store, &record).await;
    let finish = Command::Finish { fence: fence(1), outcome: Outcome::success("1") };
    let done = written(store, &record, drafted(decide(Some(&last), &finish).write)).await;
    clock.advance(Duration::from_secs(100 * 365 * 86400));
    assert_eq!(store.purge(100).await.unwrap().total(), 0);
    assert_eq!(seen(store, &done).await.record, done);
}

pub async fn a_key_is_free_again_after_its_record_is_removed(store: &AnyStore, clock: &ManualClock) {
    let old = finished(store, "again", Outcome::success("1")).await;
    clock.advance(100 * SECOND);
    // Before the sweeper runs, the expired record is replaced by its version.
    let expired = seen(store, &old).await;
    let again = decide(Some(&expired), &begin_as(identity("acme", "charge", "again"), 2, false));
    assert!(matches!(again.answer, CommandResult::Decision(Decision::Acquired(Acquired { attempt: 1, .. }))));
    let taken = written(store, &old, drafted(again.write)).await;
    assert_eq!(taken.created_at, clock.now());
    // After the sweeper has run, a new record is inserted; a late owner of the old record cannot change it.
    let other = finished(store, "swept", Outcome::success("1")).await;
    clock.advance(100 * SECOND);
    assert_eq!(store.purge(100).await.unwrap().total(), 1);
    let fresh = created(store, draft("swept", 3)).await;
    assert!(matches!(store.replace(Replace::of(&other, other.next())).await.unwrap(), Replaced::Conflict(Some(_))));
    assert_eq!(seen(store, &fresh).await.record, fresh);
}

pub async fn a_recreated_record_with_the_same_version_is_a_different_record(store: &AnyStore, clock: &ManualClock) {
    // The same history twice, up to its tombstone. A caller that has read the first record may write very late.
    let tombstone = async || {
        let done = finished(store, "buried", Outcome::success("1")).await;
        clock.advance(10 * SECOND);
        store.purge(100).await.unwrap();
        seen(store, &done).await.record
    };
    let open = async || {
        let mut draft = draft("refused", 1);
        (draft.state, draft.terms.honours_key_for) = (State::Open { not_before: When::NOW }, SECOND);
        created(store, draft).await
    };
    let assert_different = async |first: Record, second: Record| {
        assert_eq!((first.id, first.version, first.fence()), (second.id, second.version, second.fence()));
        let result = store.replace(Replace::of(&first, first.next())).await.unwrap();
        assert!(matches!(result, Replaced::Conflict(Some(_))), "{result:?}");
        assert_eq!(seen(store, &second).await.record, second);
        written(store, &second, second.next()).await;
    };
    let first = tombstone().await;
    clock.advance(100 * SECOND);
    assert_eq!(store.purge(100).await.unwrap().removed, 1);
    assert_different(first, tombstone().await).await;
    let first = open().await;
    clock.advance(100 * SECOND);
    store.purge(100).await.unwrap();
    assert_eq!(store.get(first.id).await.unwrap(), None);
    assert_different(first, open().await).await;
}

pub async fn the_pages_of_a_list_show_every_record_once_newest_first(store: &AnyStore, clock: &ManualClock) {
    let mut ids = Vec::new();
    for number in 0..25 {
        ids.push(created(store, draft(&format!("{number}"), 1)).await.id);
        clock.advance(Duration::from_millis(1));
    }
    ids.reverse();
    for size in [1, 7, 25, 100] {
        let listed: Vec<_> =
            every_page(store, &Filter::default(), size).await.iter().map(|seen| seen.record.id).collect();
        assert_eq!(listed, ids, "in pages of {size}");
    }
}

pub async fn a_list_shows_the_size_of_an_outcome_without_its_content(store: &AnyStore, _: &ManualClock) {
    for (number, outcome) in outcomes().into_iter().enumerate() {
        let done = finished(store, &number.to_string(), outcome.clone()).await;
        let page = store.list(&Filter::default(), None, 1).await.unwrap();
        let listed = &page.listed[0];
        assert_eq!(listed.seen.record.id, done.id);
        let State::Done { outcome: shown, .. } = &listed.seen.record.state else { panic!("{listed:?}") };
        assert_eq!(shown.headers, []);
        assert_eq!((shown.verdict, shown.status), (outcome.verdict, outcome.status));
        match outcome.body {
            Body::Kept(bytes) => {
                assert_eq!(shown.body, Body::Kept(vec![].into()));
                assert_eq!(listed.body_size, Some(bytes.len() as u64));
            }
            too_large => assert_eq!((&shown.body, listed.body_size), (&too_large, None)),
        }
    }
    let mut queued = draft("queued", 1);
    (queued.state, queued.payload) = (State::Queued { due: When::NOW }, Some("letter".into()));
    created(store, queued).await;
    let page = store.list(&Filter::default(), None, 1).await.unwrap();
    assert_eq!(page.listed[0].seen.record.payload, Some(vec![].into()));
}

pub async fn a_cursor_of_another_tenant_reveals_nothing(store: &AnyStore, clock: &ManualClock) {
    let tenants = ["acme", "other"].map(|name| Tenant::new(name).unwrap());
    for number in 0..6 {
        let begin = begin_as(identity(tenants[number % 2].as_str(), "charge", &number.to_string()), 1, false);
        created(store, drafted(decide(None, &begin).write)).await;
        clock.advance(SECOND);
    }
    let list = async |tenant: &Tenant, after| {
        let filter = Filter { tenant: Some(tenant.clone()), ..Filter::default() };
        let page = store.list(&filter, after, 2).await.unwrap();
        let key = |listed: &ListedRecord| listed.seen.record.identity.as_ref().unwrap().key.as_str().to_owned();
        (page.listed.iter().map(key).collect::<Vec<_>>(), page.next)
    };
    let (first, next) = list(&tenants[0], None).await;
    assert_eq!(first, ["4", "2"]);
    assert_eq!(list(&tenants[0], next).await, (vec!["0".to_owned()], None));
    // As if the record did not exist: only the time counts, and nothing of the first tenant is shown.
    let unknown = next.map(|cursor| Cursor { id: digest(b"unknown"), ..cursor });
    assert_eq!(list(&tenants[1], next).await, list(&tenants[1], unknown).await);
    assert_eq!(list(&tenants[1], next).await.0, ["1"]);
}

pub async fn a_list_continues_after_the_record_of_its_cursor_is_gone(store: &AnyStore, clock: &ManualClock) {
    for key in ["first", "second", "third"] {
        match key {
            "second" => drop(finished(store, key, Outcome::success("1")).await),
            key => drop(created(store, draft(key, 1)).await),
        }
        clock.advance(SECOND);
    }
    let page = store.list(&Filter::default(), None, 2).await.unwrap();
    clock.advance(1000 * SECOND);
    while store.purge(100).await.unwrap().total() > 0 {}
    let rest = store.list(&Filter::default(), page.next, 2).await.unwrap();
    let key = |listed: &ListedRecord| listed.seen.record.identity.as_ref().unwrap().key.as_str().to_owned();
    assert_eq!(rest.listed.iter().map(key).collect::<Vec<_>>(), ["first"]);
}

pub async fn a_list_can_be_filtered(store: &AnyStore, clock: &ManualClock) {
    let start = clock.now();
    for (tenant, operation) in [("acme", "charge"), ("acme", "refund"), ("other", "charge")] {
        for key in ["1", "2"] {
            let begin = begin_as(identity(tenant, operation, key), 1, false);
            created(store, drafted(decide(None, &begin).write)).await;
            clock.advance(SECOND);
        }
    }
    finished(store, "done", Outcome::success("1")).await;
    let count = async |filter: Filter| every_page(store, &filter, 100).await.len();
    let tenant = |name| Some(Tenant::new(name).unwrap());
    let operation = |name| Some(Operation::new(name).unwrap());
    assert_eq!(count(Filter::default()).await, 7);
    assert_eq!(count(Filter { tenant: tenant("acme"), ..Filter::default() }).await, 5);
    assert_eq!(count(Filter { tenant: tenant("unknown"), ..Filter::default() }).await, 0);
    assert_eq!(count(Filter { operation: operation("refund"), ..Filter::default() }).await, 2);
    let both = Filter { tenant: tenant("other"), operation: operation("charge"), ..Filter::default() };
    assert_eq!(count(both).await, 2);
    assert_eq!(count(Filter { status: vec![Status::Done], ..Filter::default() }).await, 1);
    assert_eq!(count(Filter { created_before: Some(start.after(2 * SECOND)), ..Filter::default() }).await, 2);
    assert_eq!(count(Filter { created_since: Some(start.after(2 * SECOND)), ..Filter::default() }).await, 5);
}

async fn listed(store: &AnyStore, status: Status) -> BTreeSet<String> {
    let filter = Filter { status: vec![status], ..Filter::default() };
    let seen = every_page(store, &filter, 3).await;
    seen.iter().map(|seen| seen.record.identity.as_ref().map_or("-", |name| name.key.as_str()).to_owned()).collect()
}

/// One intent in each status; some have it only because time has passed.
async fn one_of_each(store: &AnyStore, clock: &ManualClock) {
    for marks_sent in [true, false] {
        let key = if marks_sent { "lapsed before sent" } else { "lapsed after sent" };
        let begin = begin_as(identity("acme", "charge", key), 1, marks_sent);
        created(store, drafted(decide(None, &begin).write)).await;
    }
    let mut claimed_in_doubt = draft("lapsed before sent, in older doubt", 1);
    claimed_in_doubt.doubt_since = Some(When::NOW);
    created(store, claimed_in_doubt).await;
    finished(store, "expired", Outcome::success("1")).await;
    clock.advance(11 * SECOND);
    finished(store, "swept", Outcome::success("1")).await;
    clock.advance(11 * SECOND);
    store.purge(1).await.unwrap();
    created(store, draft("running", 1)).await;
    finished(store, "done", Outcome::success("1")).await;
    for (key, state) in [
        ("queued", State::Queued { due: When::NOW }),
        ("open", State::Open { not_before: When::NOW }),
        ("in doubt", State::InDoubt { fence: fence(1), retry_at: None }),
        ("dead", State::Dead),
    ] {
        let mut draft = draft(key, 1);
        draft.state = state;
        created(store, draft).await;
    }
}

pub async fn a_lapsed_claim_is_listed_with_its_effective_status(store: &AnyStore, clock: &ManualClock) {
    one_of_each(store, clock).await;
    let set = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(listed(store, Status::Running).await, set(&["running"]));
    assert_eq!(listed(store, Status::Open).await, set(&["open", "lapsed before sent"]));
    let in_doubt = set(&["in doubt", "lapsed after sent", "lapsed before sent, in older doubt"]);
    assert_eq!(listed(store, Status::InDoubt).await, in_doubt);
    assert_eq!(listed(store, Status::Done).await, set(&["done"]));
    assert_eq!(listed(store, Status::Queued).await, set(&["queued"]));
    assert_eq!(listed(store, Status::Dead).await, set(&["dead"]));
    assert_eq!(listed(store, Status::Tombstone).await, set(&["-", "swept"]), "one swept, one not yet");
}

pub async fn counts_agree_with_the_list(store: &AnyStore, clock: &ManualClock) {
    one_of_each(store, clock).await;
    let mut elsewhere = draft("another tenant's", 99);
    let mut identity = elsewhere.identity.clone().unwrap();
    identity.tenant = Tenant::new("another").unwrap();
    (elsewhere.id, elsewhere.identity) = (identity.digest(), Some(identity.clone()));
    created(store, elsewhere).await;
    let ours = draft("ours", 98).identity.unwrap().tenant;
    for tenant in [None, Some(ours), Some(identity.tenant), Some(Tenant::new("unknown").unwrap())] {
        let counts = store.counts(tenant.as_ref()).await.unwrap();
        for status in Status::ALL {
            let filter = Filter { status: vec![status], tenant: tenant.clone(), ..Filter::default() };
            let listed = every_page(store, &filter, 100).await.len() as u64;
            assert_eq!(counts.of(status), listed, "{} of {tenant:?}", status.as_str());
        }
    }
}

pub async fn the_audit_trail_is_written_with_the_record_or_not_at_all(store: &AnyStore, clock: &ManualClock) {
    let event = |what, note: &str| AuditEvent {
        what,
        by: Some("ana".into()),
        token: Some("ci".into()),
        note: Some(note.into()),
    };
    let record = created(store, draft("a", 1)).await;
    let replace = |event| Replace { event: Some(event), ..Replace::of(&record, record.next()) };
    store.replace(replace(event(EventKind::ResolvedHappened, "first"))).await.unwrap();
    let result = store.replace(replace(event(EventKind::ResolvedDidNotHappen, "conflict"))).await.unwrap();
    assert!(matches!(result, Replaced::Conflict(_)));
    clock.advance(SECOND);
    let bare = AuditEvent { what: EventKind::Contradiction, by: None, token: None, note: None };
    store.append(record.id, bare.clone()).await.unwrap();
    store.append(digest(b"another"), event(EventKind::StaleFinish, "another")).await.unwrap();
    let trail = store.trail(record.id).await.unwrap();
    let events: Vec<_> = trail.iter().map(|entry| entry.event.clone()).collect();
    assert_eq!(events, [event(EventKind::ResolvedHappened, "first"), bare]);
    assert_eq!(trail[1].at, clock.now());
    assert_eq!(trail[0].at.after(SECOND), clock.now());
}
