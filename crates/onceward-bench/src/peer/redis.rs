//! Redis: the claim is one `SET … NX PX`, and the finish a script that compares the fence and sets the outcome.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, cmd};

use super::{Amount, Result, crowd};
use crate::Fault;
use crate::load::{Caller, Intent, LEASE};
use crate::service::Redis;

/// The least that is right: without the comparison a late owner would overwrite what another one has kept.
const FINISH: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                      redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) return 1 else return 0 end";

/// How long an outcome is kept: a day, as Onceward's default is.
const RETENTION_MS: u64 = 24 * 60 * 60 * 1000;

/// How long an answer may take before the run has failed.
const PATIENCE: Duration = Duration::from_secs(30);

struct Connection {
    redis: MultiplexedConnection,
    finish: String,
}

impl Connection {
    async fn ask<T: redis::FromRedisValue>(&mut self, command: &Cmd) -> std::result::Result<T, Fault> {
        Ok(command.query_async(&mut self.redis).await?)
    }
}

impl Caller for Connection {
    async fn claim(&mut self, intent: &Intent) -> std::result::Result<bool, Fault> {
        let mut set = cmd("SET");
        set.arg(&intent.key).arg(&intent.fence).arg("NX").arg("PX").arg(LEASE.as_millis() as u64);
        let answer: Option<String> = self.ask(&set).await?;
        Ok(answer.is_some())
    }

    async fn finish(&mut self, intent: &Intent, outcome: &[u8]) -> std::result::Result<bool, Fault> {
        let mut run = cmd("EVALSHA");
        run.arg(&self.finish).arg(1).arg(&intent.key).arg(&intent.fence).arg(outcome).arg(RETENTION_MS);
        self.ask(&run).await
    }

    async fn replay(&mut self, intent: &Intent) -> std::result::Result<Vec<u8>, Fault> {
        self.ask(cmd("GET").arg(&intent.key)).await
    }
}

/// Measures callers that share a number of connections.
///
/// One connection for all is the fastest: the driver sends what has gathered in one piece, Redis works it off, and syncs
/// once for all of it. A connection for each caller costs both sides about twice the processor time; callers in processes
/// of their own have no other way.
pub async fn measure(redis: &Redis, connections: usize, amount: Amount) -> std::result::Result<Result, Fault> {
    let address: ConnectionInfo = ConnectionAddr::Unix(redis.socket.clone()).into_connection_info()?;
    let client = Client::open(address)?;
    // On a busy machine a slow answer is a figure, and no failure. And nobody waits for room in the driver's queue.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE))
        .set_pipeline_buffer_size(amount.callers);
    let mut shared = Vec::with_capacity(connections);
    for _ in 0..connections.max(1) {
        shared.push(client.get_multiplexed_async_connection_with_config(&config).await?);
    }
    let finish: String = cmd("SCRIPT").arg("LOAD").arg(FINISH).query_async(&mut shared[0]).await?;
    let callers = shared.iter().cycle().take(amount.callers);
    let callers = callers.map(|redis| Connection { redis: redis.clone(), finish: finish.clone() });
    crowd(callers.collect(), redis.server.pid(), amount).await
}
