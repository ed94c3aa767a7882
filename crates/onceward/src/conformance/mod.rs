//! The conformance suite that every store passes, with a clock that the tests control. A store's tests are one line:
//!
//! ```text
//! onceward::conformance!(open); // async fn open(clock: ManualClock) -> Fixture, or -> Option<Fixture>
//! ```
//!
//! - `writing`: conditional writes, and that every field is kept.
//! - `reading`: expiry, lists, counts and the audit trail.
//! - `quota`: the limit of records of a tenant.
//! - `outbox`: the entries of the outbox that are due.
//! - `moving`: the seal, exports and imports, for stores that can be moved.
//!
//! A change to [`Store`] extends this suite.

// This is test code for stores in other crates; it reports a failed expectation with a panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// The names of the cases are sentences that need no further documentation.
#![allow(missing_docs)]

mod moving;
mod outbox;
mod quota;
mod reading;
mod writing;

pub use moving::*;
pub use outbox::*;
pub use quota::*;
pub use reading::*;
pub use writing::*;

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::claim::{ClaimId, Mark};
use onceward_core::decide::{Acquired, Again, Begin, Command, CommandResult, Decision, Take, Write, decide};
use onceward_core::fingerprint::{self, Fingerprint};
use onceward_core::hash::digest;
use onceward_core::json::Value;
use onceward_core::name::{Identity, Key, Operation, Tenant};
use onceward_core::outbox::RerunLink;
use onceward_core::outcome::{Body, Outcome, Verdict};
use onceward_core::policy::{Effect, InDoubt, Policy, Retention, Terms};
use onceward_core::record::{Draft, Fence, Lease, Owner, Phase, Record, Seen, State, Status};
use onceward_core::stream::LARGEST_NUMBER;
use onceward_core::time::When;

use crate::clock::{Clock, ManualClock};
use crate::store::{AuditEvent, Cursor, EventKind, Filter, Inserted, ListedRecord, Page, Replace, Replaced, Store};

/// An empty store to test, and anything that must stay alive with it.
pub struct Fixture {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Kept alive with the store, for example a temporary folder or a server.
    pub keep: Box<dyn Any + Send>,
}

/// Turns an `async fn(ManualClock) -> Fixture` (or `-> Option<Fixture>`, for a server that may be missing) into one test for each case of the suite.
#[macro_export]
macro_rules! conformance {
    ($open:path) => {
        $crate::conformance! { @each [$crate::conformance_tests] $open }
    };
    // Passes the names of all cases to another macro.
    (@each [$($then:tt)+] $($given:tt)*) => {
        $($then)+! { $($given)*:
            an_insert_creates_once_and_then_returns_the_record,
            exactly_one_of_many_concurrent_inserts_creates,
            a_replace_succeeds_only_with_the_same_version,
            a_replace_succeeds_only_with_the_same_fence,
            a_replace_of_a_missing_record_conflicts,
            exactly_one_of_many_concurrent_replaces_succeeds,
            every_field_of_every_state_is_kept,
            a_delivery_and_its_revocation_are_kept,
            a_call_after_a_delivered_tombstone_is_a_new_one,
            a_write_that_may_wait_comes_before_later_writes,
            a_write_that_may_wait_is_written_with_a_later_one,
            a_tombstone_keeps_digests_and_no_names,
            the_sequence_number_of_an_item_is_kept_in_its_tombstone,
            times_come_from_the_clock_of_the_store,
            the_largest_outcome_is_kept_byte_for_byte,
            intents_of_other_tenants_and_operations_never_collide,
            purge_drops_outcomes_then_tombstones_and_nothing_else,
            open_records_expire_unless_they_must_be_kept,
            lapsed_unsent_claims_expire_unless_they_must_be_kept,
            purge_respects_its_limit,
            an_outcome_kept_for_ever_is_never_purged,
            a_key_is_free_again_after_its_record_is_removed,
            a_recreated_record_with_the_same_version_is_a_different_record,
            the_pages_of_a_list_show_every_record_once_newest_first,
            a_list_shows_the_size_of_an_outcome_without_its_content,
            a_cursor_of_another_tenant_reveals_nothing,
            a_list_continues_after_the_record_of_its_cursor_is_gone,
            a_list_can_be_filtered,
            a_lapsed_claim_is_listed_with_its_effective_status,
            counts_agree_with_the_list,
            the_audit_trail_is_written_with_the_record_or_not_at_all,
            a_tenant_gets_no_more_new_records_than_its_quota,
            a_quota_of_zero_refuses_every_new_record,
            a_tenant_at_its_quota_still_gets_its_existing_records,
            a_tenant_at_its_quota_does_not_affect_other_tenants,
            records_made_without_a_quota_count_towards_a_later_one,
            concurrent_inserts_never_exceed_the_quota,
            a_tombstone_does_not_count_towards_the_quota,
            a_removed_record_no_longer_counts_towards_the_quota,
            a_tombstone_that_becomes_a_record_again_counts_towards_the_quota,
            an_entry_is_due_when_its_time_has_come,
            only_entries_of_the_operation_are_due,
            a_look_for_one_tenant_finds_no_other,
            a_higher_priority_goes_first,
            no_tenant_waits_behind_the_backlog_of_another,
            a_look_goes_on_where_the_last_one_has_stopped,
            an_entry_whose_courier_has_gone_is_due_when_its_lease_ends,
            a_doubt_is_due_at_its_own_time,
            what_is_over_is_not_due,
            an_entry_that_is_taken_makes_room_for_the_next,
            every_look_brings_what_it_brings_in_memory,
            exactly_one_of_many_couriers_gets_an_entry,
            an_effect_is_found_by_the_id_that_the_downstream_gave_it,
            a_drained_store_grants_no_claim_and_lets_owners_finish,
            a_sealed_store_refuses_every_write,
            an_import_keeps_every_record_and_may_be_repeated,
            the_operations_of_a_store_are_remembered,
            a_store_with_records_receives_no_copy,
        }
    };
}

/// One test for each case.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($open:path: $($name:ident,)*) => {
        $(
            #[::tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let clock = $crate::clock::ManualClock::default();
                let opened = $open(clock.clone()).await;
                // A store whose server is not there may be left out.
                let Some(fixture) = ::std::option::Option::<$crate::conformance::Fixture>::from(opened) else { return };
                $crate::conformance::$name(&fixture.store, &clock).await;
            }
        )*
    };
}

type AnyStore = Arc<dyn Store>;

const SECOND: Duration = Duration::from_secs(1);

/// The link of a rerun, with texts that need care.
fn rerun_link() -> Box<RerunLink> {
    let of = Key::new("größe").expect("a valid key");
    Box::new(RerunLink { of, run: 2, why: "\"größer\"\n".to_owned(), by: Some("ana".to_owned()), token: None })
}

fn identity(tenant: &str, operation: &str, key: &str) -> Identity {
    Identity {
        tenant: Tenant::new(tenant).unwrap(),
        operation: Operation::new(operation).unwrap(),
        key: Key::new(key).unwrap(),
    }
}

fn fence(number: u128) -> Fence {
    Fence::from_bits(number)
}

fn terms() -> Terms {
    Policy { retention: Some(Retention::For(10 * SECOND)), tombstone: Some(20 * SECOND), ..Policy::default() }.terms()
}

fn begin_as(identity: Identity, number: u128, marks_sent: bool) -> Command {
    Command::Begin(Begin {
        identity,
        key_digest: None,
        fingerprint: Fingerprint::none(),
        terms: terms(),
        take: Take { fence: fence(number), lease: 3 * SECOND, marks_sent, probes: false, owner: None, claim: None },
        again: Again::default(),
    })
}

fn draft(key: &str, number: u128) -> Draft {
    drafted(decide(None, &begin_as(identity("acme", "charge", key), number, false)).write)
}

fn drafted(write: Write) -> Draft {
    match write {
        Write::Insert(draft) | Write::Replace(draft) => draft,
        other => panic!("no record to write: {other:?}"),
    }
}

async fn created(store: &AnyStore, draft: Draft) -> Record {
    match store.insert(draft.clone(), None).await.unwrap() {
        Inserted::Created { now } => draft.stamp(now),
        other => panic!("the record was not written: {other:?}"),
    }
}

async fn written(store: &AnyStore, last: &Record, draft: Draft) -> Record {
    match store.replace(Replace::of(last, draft.clone())).await.unwrap() {
        Replaced::Written { now } => draft.stamp(now),
        other => panic!("the record has changed: {other:?}"),
    }
}

async fn seen(store: &AnyStore, record: &Record) -> Seen {
    store.get(record.id).await.unwrap().expect("the record is there")
}

/// A record that was begun and finished.
async fn finished(store: &AnyStore, key: &str, outcome: Outcome) -> Record {
    let record = created(store, draft(key, 1)).await;
    let last = seen(store, &record).await;
    let finish = Command::Finish { fence: fence(1), outcome };
    written(store, &record, drafted(decide(Some(&last), &finish).write)).await
}

async fn every_page(store: &AnyStore, filter: &Filter, size: usize) -> Vec<Seen> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let Page { listed, next } = store.list(filter, after, size).await.unwrap();
        assert!(listed.len() <= size, "a page is not larger than its limit");
        all.extend(listed.into_iter().map(|listed| listed.seen));
        after = next;
        if after.is_none() {
            return all;
        }
        assert!(all.len() < 10_000, "the pages never end");
    }
}

fn outcomes() -> Vec<Outcome> {
    let mut with_headers = Outcome::of(Verdict::Failure, "text/plain; charset=utf-8", "nö").with_status(-7);
    with_headers.headers = vec![("x-a".into(), "1".into()), ("x-a".into(), "ü\u{1f600}".into())];
    let too_large = Outcome { body: Body::TooLarge { size: 1 << 40, digest: digest(b"x") }, ..Outcome::success("") };
    vec![
        Outcome::success("1").with_reference(Some("ch_ü".to_owned())),
        Outcome::success("{\"id\":\"ch_1\"}"),
        Outcome::of(Verdict::Success, "application/octet-stream", vec![0, 255, 10, 13, 0]).with_status(200),
        Outcome::success(""),
        with_headers,
        too_large,
    ]
}

fn states() -> Vec<State<When>> {
    let lease = |phase, owner| Lease { phase, fence: fence(u128::MAX), until: When::In(SECOND), owner };
    let done = |outcome, forever: bool| State::Done {
        outcome,
        fence: fence(7),
        finished_at: When::NOW,
        expires_at: (!forever).then_some(When::In(SECOND)),
        forget_at: (!forever).then_some(When::In(2 * SECOND)),
    };
    let mut states = vec![
        State::Queued { due: When::In(SECOND) },
        State::Leased(lease(Phase::Claimed, None)),
        State::Leased(lease(Phase::Sent, Some(Owner(u64::MAX >> 2)))),
        State::Leased(lease(Phase::Overdue, Some(Owner(u64::MAX >> 2)))),
        State::Open { not_before: When::In(SECOND) },
        State::InDoubt { fence: fence(0), retry_at: None },
        State::InDoubt { fence: fence(0), retry_at: Some(When::In(SECOND)) },
        State::Dead,
        done(Outcome::success("1"), true),
    ];
    states.extend(outcomes().into_iter().map(|outcome| done(outcome, false)));
    states
}
