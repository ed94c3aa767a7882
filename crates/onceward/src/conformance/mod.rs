//! The suite that every store passes, with time injected. A store's tests are one line:
//!
//! ```text
//! onceward::conformance!(open); // async fn open(clock: ManualClock) -> Fixture
//! ```
//!
//! - `writing`: the conditional writes, and what survives them.
//! - `looking`: expiry, lists, counts and the audit trail.
//! - `quota`: how many records a tenant may have.
//!
//! A change to [`Store`] extends this suite.

// This is test code that stores elsewhere can call; a failed expectation is its way to say so.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// The names of the cases are sentences, and say all there is to say.
#![allow(missing_docs)]

mod looking;
mod quota;
mod writing;

pub use looking::*;
pub use quota::*;
pub use writing::*;

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::claim::{ClaimId, Mark};
use onceward_core::decide::{Acquired, Again, Answer, Begin, Command, Decision, Take, Write, decide};
use onceward_core::fingerprint::{self, Fingerprint};
use onceward_core::hash::digest;
use onceward_core::json::Value;
use onceward_core::name::{Identity, Key, Operation, Tenant};
use onceward_core::outcome::{Body, Outcome, Verdict};
use onceward_core::policy::{Effect, InDoubt, Policy, Retention, Terms};
use onceward_core::record::{Draft, Fence, Lease, Owner, Phase, Record, Seen, State, Status};
use onceward_core::stream::LARGEST_NUMBER;
use onceward_core::time::When;

use crate::clock::{Clock, ManualClock};
use crate::store::{Cursor, Event, Filter, Inserted, Listed, Page, Replace, Replaced, Store, What};

/// An empty store to try, and whatever must stay alive with it.
pub struct Fixture {
    /// The store.
    pub store: Arc<dyn Store>,
    /// A temporary folder, a server.
    pub keep: Box<dyn Any + Send>,
}

/// Turns an `async fn(ManualClock) -> Fixture` into one test for each case of the suite.
#[macro_export]
macro_rules! conformance {
    ($open:path) => {
        $crate::conformance! { @each [$crate::conformance_tests] $open }
    };
    // Hands the names of all cases to another macro.
    (@each [$($then:tt)+] $($given:tt)*) => {
        $($then)+! { $($given)*:
            an_insert_creates_once_and_then_hands_back_the_record,
            of_many_inserts_at_once_exactly_one_creates,
            a_replace_holds_only_with_the_same_version,
            a_replace_holds_only_with_the_same_fence,
            a_replace_of_nothing_conflicts_with_nothing,
            of_many_replaces_at_once_exactly_one_holds,
            every_field_of_every_state_survives,
            a_delivery_and_its_end_survive,
            a_tombstone_tells_the_next_call_that_it_is_another,
            a_write_that_may_wait_comes_before_whatever_follows_it,
            a_write_that_may_wait_gives_way_to_one_that_does_not,
            a_tombstone_keeps_digests_and_no_names,
            the_number_of_an_item_survives_to_its_tombstone,
            times_are_counted_from_the_stores_own_clock,
            the_largest_outcome_survives_byte_for_byte,
            intents_of_other_tenants_and_operations_never_meet,
            purge_drops_outcomes_then_tombstones_and_nothing_else,
            what_did_not_happen_is_forgotten_unless_it_holds_something,
            a_lapsed_claim_that_sent_nothing_is_forgotten_unless_it_holds_something,
            purge_frees_no_more_than_it_is_told_to,
            what_is_kept_for_ever_is_never_purged,
            a_key_is_free_again_after_its_record_is_removed,
            a_record_that_was_made_anew_is_another_although_its_version_is_the_same,
            a_list_pages_through_everything_once_the_newest_first,
            a_list_shows_the_size_of_an_outcome_and_none_of_its_contents,
            a_cursor_of_another_tenant_leads_nowhere,
            a_list_goes_on_after_the_record_of_its_cursor_is_gone,
            a_list_can_be_narrowed,
            a_lapsed_claim_is_listed_as_what_it_is,
            counts_agree_with_the_list,
            the_audit_trail_is_written_with_the_record_or_not_at_all,
            a_tenant_gets_no_more_new_records_than_its_quota,
            a_quota_of_nothing_lets_no_record_in,
            a_full_tenant_is_given_the_records_that_it_has,
            a_full_tenant_is_in_no_other_tenants_way,
            records_without_a_quota_count_towards_one_that_comes_later,
            of_many_inserts_at_once_no_more_than_the_quota_create,
            a_tombstone_takes_no_place_and_frees_it_once,
            a_record_that_is_removed_frees_its_place,
            a_tombstone_that_becomes_a_record_again_takes_a_place,
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
                let fixture = $open(clock.clone()).await;
                $crate::conformance::$name(&fixture.store, &clock).await;
            }
        )*
    };
}

type AnyStore = Arc<dyn Store>;

const SECOND: Duration = Duration::from_secs(1);

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
        Replaced::Conflict(seen) => panic!("another record is there: {seen:?}"),
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
        assert!(listed.len() <= size, "a page holds no more than was asked for");
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
        State::InDoubt { fence: fence(0) },
        State::Dead,
        done(Outcome::success("1"), true),
    ];
    states.extend(outcomes().into_iter().map(|outcome| done(outcome, false)));
    states
}
