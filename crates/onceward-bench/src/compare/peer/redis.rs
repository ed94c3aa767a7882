//! Redis: the claim is one `SET … NX PX`, and the finish a script that compares the fence and sets the outcome.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, cmd};

use super::{RunSize, SystemResult, measure_callers};
use crate::BoxError;
use crate::load::{BenchIntent, Caller, LEASE};
use crate::service::Redis;

/// The minimum for correctness: without the comparison, a late owner would overwrite the outcome of another one.
const FINISH: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                      redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) return 1 else return 0 end";

/// The retention of an outcome: a day, Onceward's default.
const RETENTION_MS: u64 = 24 * 60 * 60 * 1000;

/// How long a response may take before the run fails.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

struct Connection {
    redis: MultiplexedConnection,
    finish: String,
}

impl Connection {
    async fn ask<T: redis::FromRedisValue>(&mut self, command: &Cmd) -> Result<T, BoxError> {
        Ok(command.query_async(&mut self.redis).await?)
    }
}

impl Caller for Connection {
    async fn claim(&mut self, intent: &BenchIntent) -> Result<bool, BoxError> {
        let mut set = cmd("SET");
        set.arg(&intent.key).arg(&intent.fence).arg("NX").arg("PX").arg(LEASE.as_millis() as u64);
        let answer: Option<String> = self.ask(&set).await?;
        Ok(answer.is_some())
    }

    async fn finish(&mut self, intent: &BenchIntent, outcome: &[u8]) -> Result<bool, BoxError> {
        let mut run = cmd("EVALSHA");
        run.arg(&self.finish).arg(1).arg(&intent.key).arg(&intent.fence).arg(outcome).arg(RETENTION_MS);
        self.ask(&run).await
    }

    async fn replay(&mut self, intent: &BenchIntent) -> Result<Vec<u8>, BoxError> {
        self.ask(cmd("GET").arg(&intent.key)).await
    }
}

/// Measures callers that share a number of connections.
///
/// One shared connection is the fastest: the driver sends queued commands together, Redis processes them, and syncs once for
/// all of them. One connection per caller costs both sides about twice the processor time, but callers in separate
/// processes need it.
pub async fn measure(redis: &Redis, connections: usize, size: RunSize) -> Result<SystemResult, BoxError> {
    let address: ConnectionInfo = ConnectionAddr::Unix(redis.socket.clone()).into_connection_info()?;
    let client = Client::open(address)?;
    // On a busy machine a slow response is a result, not a failure. And no caller waits for space in the driver's queue.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(RESPONSE_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT))
        .set_pipeline_buffer_size(size.callers);
    let mut shared = Vec::with_capacity(connections);
    for _ in 0..connections.max(1) {
        shared.push(client.get_multiplexed_async_connection_with_config(&config).await?);
    }
    let finish: String = cmd("SCRIPT").arg("LOAD").arg(FINISH).query_async(&mut shared[0]).await?;
    let callers = shared.iter().cycle().take(size.callers);
    let callers = callers.map(|redis| Connection { redis: redis.clone(), finish: finish.clone() });
    measure_callers(callers.collect(), redis.server.pid(), size).await
}
