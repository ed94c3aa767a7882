//! The times of a run. On a file a killed owner is known to be gone at once. A server only sees that its lease ends, so leases are
//! short there, and the rest is slower, because every write is a round trip and a sync.

use std::time::Duration;

/// How long things take in a run. All that the plan says about time is here, so that the same plan suits every store.
#[derive(Debug, PartialEq, Eq)]
pub struct Times {
    /// Whether the claim of a killed owner lasts until its lease ends.
    pub leases_outlive_owners: bool,
    /// The longest run of work that has to renew its lease, and that loses it when its process is stopped.
    pub short_runtime: Duration,
    /// The longest run of other work.
    pub long_runtime: Duration,
    /// The longest run under a brief key.
    pub brief_runtime: Duration,
    /// How long a brief outcome is kept.
    pub brief_retention: Duration,
    /// How long its tombstone holds the key after that.
    pub brief_tombstone: Duration,
    /// How long the downstream knows a brief key: longer than the key is held, so that it counts.
    pub brief_memory: Duration,
    /// How long a forgetful downstream knows a key: some attempts come within that time and some after it.
    pub forgetful_memory: Duration,
    /// How long an attempt may take where the downstream soon forgets: well below its memory, so that attempts are granted
    /// both early and so late that they only just arrive in time.
    pub forgetful_runtime: Duration,
    /// How long slow work takes before its effect, in milliseconds: at least, and how much more at most. It outlasts a third of
    /// its lease.
    pub slow_work: (u64, u64),
    /// How many times fewer visits of a step than usual are waited for before a worker dies there: short runs hit every step.
    pub fewer_visits: u64,
    /// A worker is killed or stopped within this time of its start.
    pub interrupted_within: Duration,
    /// For how long a worker is stopped, in milliseconds: at least, and how much more at most. Slow work loses its lease
    /// meanwhile.
    pub stopped: (u64, u64),
    /// How long some callers wait for a running attempt.
    pub wait: Duration,
    /// Some callers leave within this time, most of them before they have their claims.
    pub leaves_within: Duration,
    /// How long a worker stays at its end: dropped work writes its doubt in the background, and some of it gets the time.
    pub stays: Duration,
    /// A process has made its ledger after about this long.
    pub creation: Duration,
    /// How long a write of a killed process may be under way.
    pub in_flight: Duration,
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The times on a file.
static FILE: Times = Times {
    // Only Linux tells which processes hold a lock of the side file.
    leases_outlive_owners: !cfg!(target_os = "linux"),
    short_runtime: millis(5),
    // A lease that ends within a run only when its owner dies.
    long_runtime: Duration::from_secs(100),
    brief_runtime: Duration::from_secs(100),
    brief_retention: millis(25),
    brief_tombstone: millis(25),
    brief_memory: millis(60),
    forgetful_memory: millis(120),
    forgetful_runtime: millis(20),
    slow_work: (6, 14),
    fewer_visits: 1,
    interrupted_within: millis(60),
    stopped: (20, 40),
    wait: millis(30),
    leaves_within: millis(3),
    stays: millis(2),
    creation: millis(20),
    in_flight: Duration::ZERO,
};

/// The times on PostgreSQL, where a process connects several times before it can work.
static POSTGRES: Times = Times { interrupted_within: millis(240), ..SERVER };

/// The times on Redis.
static REDIS: Times = Times { interrupted_within: millis(90), ..SERVER };

/// The times on any server. A cycle takes a quarter to half of a second there, and an intent is called in three cycles.
const SERVER: Times = Times {
    leases_outlive_owners: true,
    short_runtime: millis(20),
    // Its lease of 300 ms outlasts a stop, and ends while the intent is still called.
    long_runtime: millis(100),
    // A lease of a second, because a takeover from a living owner could not be told apart from the next use of the key.
    brief_runtime: millis(334),
    brief_retention: millis(60),
    brief_tombstone: millis(60),
    brief_memory: millis(150),
    forgetful_memory: millis(600),
    forgetful_runtime: millis(60),
    slow_work: (24, 30),
    fewer_visits: 2,
    interrupted_within: millis(100),
    stopped: (80, 100),
    // Longer than a short lease, so that a caller that waits takes over while the owner is stopped.
    wait: millis(150),
    leaves_within: millis(15),
    stays: millis(20),
    creation: millis(100),
    // A server runs what it has received, also when its sender is gone. Far more than a sync takes.
    in_flight: millis(500),
};

impl Times {
    /// The times that suit a store: a server, if there is one, or else a file.
    pub fn of(server: Option<&str>) -> &'static Self {
        match server {
            None => &FILE,
            Some(url) if url.starts_with("redis") => &REDIS,
            Some(_) => &POSTGRES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lease is this many times the longest run, as `docs/guides/rust.md` says.
    const LEASE_FACTOR: u32 = 3;

    #[test]
    fn slow_work_renews_its_lease_and_loses_it_when_it_is_stopped() {
        for times in [&FILE, &SERVER] {
            let lease = times.short_runtime * LEASE_FACTOR;
            assert!(millis(times.slow_work.0) > lease / LEASE_FACTOR && millis(times.stopped.0) > lease, "{times:?}");
        }
    }

    #[test]
    fn on_a_server_other_work_keeps_its_lease_when_it_is_stopped() {
        let longest = millis(SERVER.stopped.0 + SERVER.stopped.1);
        for runtime in [SERVER.long_runtime, SERVER.brief_runtime] {
            assert!(runtime * LEASE_FACTOR > longest + runtime);
        }
    }

    #[test]
    fn a_forgetful_downstream_still_knows_the_key_when_the_first_lease_ends() {
        for times in [&FILE, &SERVER] {
            assert!(times.forgetful_runtime * (LEASE_FACTOR + 1) < times.forgetful_memory, "{times:?}");
        }
    }
}
