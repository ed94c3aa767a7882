//! The simple use of Redis: a claim is one `SET … NX PX`, and a finish one script. All callers share a connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onceward_runtime::exit::Fault;
use redis::{Value, cmd};

use super::super::alternate::ComparedServer;
use super::super::failed;
use super::super::figures::Counters;
use super::bench_keys::BenchKeys;
use super::connection::BenchConnection;
use crate::pairs::{self, BODY, FinishedKeys, PairSamples};

/// Without the comparison, a late owner would overwrite the outcome of another one.
const FINISH: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
    return redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) else return 0 end";

/// The lease of a claim.
const LEASE_MS: u64 = 180_000;

/// The retention of an outcome: a day, Onceward's default.
const RETENTION_MS: u64 = 24 * 60 * 60 * 1000;

/// The connection and the script.
pub(super) struct SimpleUse {
    connection: BenchConnection,
    script: Arc<SimpleScript>,
}

struct SimpleScript {
    hash: String,
    prefix: String,
}

impl SimpleUse {
    pub(super) async fn prepare(keys: &BenchKeys) -> Result<Self, Fault> {
        let mut connection = keys.connection.clone();
        let hash = connection.ask(cmd("SCRIPT").arg("LOAD").arg(FINISH)).await?;
        let script = Arc::new(SimpleScript { hash, prefix: keys.prefix.clone() });
        Ok(Self { connection, script })
    }
}

impl ComparedServer for SimpleUse {
    async fn claim_and_finish(
        &self,
        keys: &FinishedKeys,
        callers: usize,
        time: Duration,
    ) -> Result<PairSamples, Fault> {
        let (connection, script, keys) = (self.connection.clone(), Arc::clone(&self.script), keys.clone());
        let piece = move || {
            let (connection, script, key) = (connection.clone(), Arc::clone(&script), pairs::name(keys.take()));
            async move { script.pair(connection, &key).await }
        };
        pairs::at_once(callers, time, piece).await
    }

    async fn counters(&self) -> Result<Counters, Fault> {
        let mut connection = self.connection.clone();
        let mut processor = Some(Duration::ZERO);
        for primary in connection.primaries().await? {
            let report: String = connection.ask_at(&primary, cmd("INFO").arg("cpu")).await?;
            processor = processor.zip(used_processor(&report)).map(|(sum, used)| sum + used);
        }
        Ok(Counters { wal_bytes: None, processor })
    }

    /// Those of other ledgers on the server look the same.
    async fn connections(&self) -> Result<Option<i64>, Fault> {
        Ok(None)
    }
}

impl SimpleScript {
    async fn pair(&self, mut connection: BenchConnection, name: &str) -> Result<(Duration, Duration), Fault> {
        let started = Instant::now();
        // As random as that of a ledger, and as long.
        let fence = onceward::core::hash::digest(name.as_bytes());
        let (key, fence) = (BenchKeys::simple(&self.prefix, name), &fence.as_bytes()[..16]);
        let mut claim = cmd("SET");
        claim.arg(&key).arg(fence).arg("NX").arg("PX").arg(LEASE_MS);
        let claimed_reply: Value = connection.ask(&claim).await?;
        let claimed = started.elapsed();
        let mut finish = cmd("EVALSHA");
        finish.arg(&self.hash).arg(1).arg(&key).arg(fence).arg(BODY).arg(RETENTION_MS);
        let finished_reply: Value = connection.ask(&finish).await?;
        match (claimed_reply, finished_reply) {
            (Value::Okay, Value::Okay) => Ok((claimed, started.elapsed())),
            _ => Err(failed("a new key was not granted")),
        }
    }
}

/// The processor time of a server, from its report.
fn used_processor(report: &str) -> Option<Duration> {
    let seconds = |name: &str| -> Option<f64> {
        let value = report.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        value.trim().parse().ok()
    };
    Duration::try_from_secs_f64(seconds("used_cpu_sys")? + seconds("used_cpu_user")?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_time_of_a_server_is_read() {
        let report = "# CPU\r\nused_cpu_sys:1.5\r\nused_cpu_user:2.25\r\nused_cpu_sys_children:9.0\r\n";
        assert_eq!(used_processor(report), Some(Duration::from_millis(3750)));
        assert_eq!(used_processor("# CPU\r\n"), None);
    }
}
