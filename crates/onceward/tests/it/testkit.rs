//! The test kit: good tools pass, and each fault is found, in the right scenario and for the right reason.

mod buggy;
mod good;

use std::sync::Arc;
use std::time::Duration;

use onceward::clock::{ManualClock, SystemClock};
use onceward::store::memory::Memory;
use onceward::store::sqlite::Sqlite;
use onceward::testkit::{self, Bench, Place, Report};

async fn in_a_file(clock: ManualClock) -> Place {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&folder.path().join("ledger.db"), Arc::new(clock)).await.unwrap();
    Place::new(store).keeping(folder)
}

async fn on_its_own_time(_: ManualClock) -> Place {
    Place::new(Memory::new(Arc::new(SystemClock)))
}

/// The reports of a tool on each kind of store. No key of these tools changes with time, so nothing has to pause.
async fn reports<T, E: std::fmt::Display>(tool: impl AsyncFn(Bench) -> Result<T, E> + Copy) -> Vec<Report> {
    let check = || testkit::check("tool", tool).pause(Duration::ZERO).with_pauses();
    vec![
        check().await,
        check().on_store("a file", in_a_file).await,
        check().on_store("real time", on_its_own_time).await,
    ]
}

macro_rules! show { ($($name:ident)*) => { $(#[tokio::test] async fn $name() {
    let report = testkit::check(stringify!($name), buggy::$name).pause(Duration::ZERO).patience(Duration::from_millis(500)).with_pauses().await; println!("{report}"); } )* } }
macro_rules! showg { ($($name:ident)*) => { $(#[tokio::test] async fn $name() {
    for report in reports(good::$name).await { println!("{report}"); } } )* } }
showg! { guarded marking keyed probing with_its_own_double of_two_effects }
show! { without_a_ledger that_acts_before_it_claims that_looks_and_then_acts with_a_fresh_key_each_time that_takes_any_error_for_harmless
that_acts_after_its_run that_records_first_and_then_acts that_runs_although_it_is_in_doubt that_says_done_although_it_is_in_doubt
that_forgets_to_mark that_goes_on_when_it_cannot_mark that_retries_a_doubt_without_a_key that_makes_a_key_for_each_attempt that_does_not_probe
that_tries_again_by_itself that_does_nothing that_acts_twice that_never_comes_back }
