//! The Redis store against real servers, which environment variables name (`tests/stores/servers.py` starts them).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onceward::clock::ManualClock;
use onceward::conformance::Fixture;
use onceward::store::redis::Redis;
use tokio::sync::RwLock;

const SENTINEL: &str = "ONCEWARD_TEST_REDIS_SENTINEL";

/// A failover loses the last writes of other tests on the same servers. The test that makes one waits until they have ended, and they
/// wait for it.
pub(crate) static FAILOVER: RwLock<()> = RwLock::const_new(());

/// The URL of a server for tests, with a namespace of its own. Without the variable the test is skipped, except in CI.
pub(crate) fn server(variable: &str) -> Option<String> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let Ok(url) = std::env::var(variable) else {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{variable} is not set");
        println!("skipped: {variable} is not set");
        return None;
    };
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let number = NUMBER.fetch_add(1, Ordering::SeqCst);
    let mark = if url.contains('?') { '&' } else { '?' };
    Some(format!("{url}{mark}prefix=t{}-{}-{number}", since.as_nanos(), std::process::id()))
}

/// An empty ledger with a clock that the test sets. The suite is not about time limits, so a busy machine may take long.
async fn fixture(variable: &str, clock: ManualClock) -> Option<Fixture> {
    let url = format!("{}&timeout=60s", server(variable)?);
    let keep = if variable == SENTINEL { Some(FAILOVER.read().await) } else { None };
    Redis::migrate(&url, false).await.unwrap();
    let store = Redis::open_with_clock(&url, Arc::new(clock)).await.unwrap();
    Some(Fixture { store: Arc::new(store), keep: Box::new(keep) })
}

/// One test for each case of the suite, on the server that a variable names.
macro_rules! conformance_on {
    ($variable:literal: $($name:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let clock = ManualClock::default();
                let Some(fixture) = fixture($variable, clock.clone()).await else { return };
                onceward::conformance::$name(&fixture.store, &clock).await;
            }
        )*
    };
}

mod single {
    use super::*;
    onceward::conformance! { @each [conformance_on] "ONCEWARD_TEST_REDIS" }
}

mod cluster {
    use super::*;
    onceward::conformance! { @each [conformance_on] "ONCEWARD_TEST_REDIS_CLUSTER" }
}

mod sentinel {
    use super::*;
    onceward::conformance! { @each [conformance_on] "ONCEWARD_TEST_REDIS_SENTINEL" }
}
