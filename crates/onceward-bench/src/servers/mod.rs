//! `onceward bench store` with a store on a server: rounds of the ledger alternate with the simplest use of the same server.
//!
//! - `postgres/`, `redis/`: what is made on a server for a measurement, its simplest use, and what it reports.
//! - `alternate`: the rounds. `replays`: replays of another process's records.
//! - `counting_proxy`: counts round trips.
//! - `figures`: one case in one round. `report`: the results and the aims.

mod alternate;
mod counting_proxy;
mod figures;
mod postgres;
#[cfg(feature = "redis")]
mod redis;
mod replays;
mod report;

use onceward_runtime::exit::{Fault, STORE};
use onceward_runtime::output;

use super::StoreArgs;

/// A number of callers that one machine with a few hundred workers has.
const MANY_CALLERS: usize = 512;

/// Whether the URL names a store on a server.
pub(super) fn is_server(url: &str) -> bool {
    is_postgres(url) || is_redis(url)
}

fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

fn is_redis(url: &str) -> bool {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    cfg!(feature = "redis") && matches!(scheme.split('+').next(), Some("redis" | "rediss"))
}

/// Measures and prints the results.
pub(super) async fn run(args: &StoreArgs, url: &str) -> Result<u8, Fault> {
    if args.expire > 0 {
        return Err(Fault::usage("--expire is only for stores in a file"));
    }
    let report = match is_redis(url) {
        #[cfg(feature = "redis")]
        true => redis::run(args, url).await?,
        _ => postgres::run(args, url).await?,
    };
    match args.json {
        true => output::json(&report),
        false => output::out(&report.table()),
    }
    Ok(0)
}

fn failed(error: impl std::fmt::Display) -> Fault {
    Fault::new(STORE, format!("the measurement failed: {error}"))
}

#[cfg(test)]
mod tests {
    use super::is_server;

    #[test]
    fn servers_are_known_by_their_scheme() {
        assert!(is_server("postgresql://h/d"));
        for url in ["redis://h", "rediss://h", "redis+cluster://h,i", "rediss+sentinel://h/name"] {
            assert_eq!(is_server(url), cfg!(feature = "redis"), "{url}");
        }
        assert!(!is_server("memory:") && !is_server("redis.db") && !is_server("file:redis"));
    }
}
