//! One connection that all callers of a ledger share. It is made when it is needed: one caller makes it, and the others get what
//! that leads to. Attempts have a distance that grows, however many callers there are.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use redis::RedisResult;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::{Cmd, Value};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::server_connection::{FIRST_WAIT, Failure, LONGEST_WAIT};

/// A connection; clones share it.
#[derive(Clone)]
pub(super) enum ConnectionKind {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// What to send.
pub(super) struct Job<'a> {
    pub(super) command: Cmd,
    /// The same with the whole text of its script, for a server that does not know it.
    pub(super) whole: Option<&'a (dyn Fn() -> Cmd + Send + Sync)>,
    pub(super) sends: Sends<'a>,
}

pub(super) enum Sends<'a> {
    Once,
    /// To every primary.
    ToEach,
    /// Together with this command, over one connection to the node of this key.
    With(Cmd, &'a str),
}

/// One connection, which is made when it is needed.
#[derive(Default)]
pub(super) struct PipelinedConnection {
    current: RwLock<Option<(u64, ConnectionKind)>>,
    /// The number of the last connection.
    connecting: tokio::sync::Mutex<u64>,
    attempts: Mutex<Attempts>,
}

/// The attempts to connect since a server has last answered.
#[derive(Default)]
struct Attempts {
    failed: u32,
    next: Option<Instant>,
    last_failure: Option<(Instant, Failure)>,
}

impl PipelinedConnection {
    /// The connection and its number; if there is none, `connect` makes it.
    pub(super) async fn get(
        &self,
        until: Instant,
        connect: impl Future<Output = Result<ConnectionKind, Failure>>,
    ) -> Result<(u64, ConnectionKind), Failure> {
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let came = Instant::now();
        let attempt = async {
            let mut number = self.connecting.lock().await;
            if let Some(current) = self.current() {
                return Ok(current);
            }
            if let Some(failure) = self.attempts().failure_since(came) {
                return Err(failure);
            }
            let next = self.attempts().next;
            if let Some(next) = next {
                sleep_until(next).await;
            }
            // An attempt that is given up in the middle counts as well.
            self.attempts().delay();
            match connect.await {
                Ok(connection) => Ok(self.set(&mut number, connection)),
                Err(failure) => {
                    let mut attempts = self.attempts();
                    attempts.last_failure = Some((Instant::now(), failure.clone()));
                    Err(failure)
                }
            }
        };
        timeout_at(until, attempt)
            .await
            .unwrap_or_else(|_| Err(Failure::Reconnect("cannot connect in time".to_owned())))
    }

    /// Replaces a connection that stays in use until then, unless another caller does that, or the last attempt was just now.
    pub(super) async fn replace(
        &self,
        last: u64,
        until: Instant,
        connect: impl Future<Output = RedisResult<ConnectionKind>>,
    ) {
        let Ok(mut number) = self.connecting.try_lock() else { return };
        let is_too_early = self.attempts().next.is_some_and(|next| Instant::now() < next);
        if *number != last || is_too_early {
            return;
        }
        self.attempts().delay();
        if let Ok(Ok(connection)) = timeout_at(until, connect).await {
            self.set(&mut number, connection);
        }
    }

    fn set(&self, number: &mut u64, connection: ConnectionKind) -> (u64, ConnectionKind) {
        *number += 1;
        let numbered = (*number, connection);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(numbered.clone());
        numbered
    }

    /// Drops a connection, unless it has been replaced already.
    pub(super) fn forget(&self, number: u64) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|(current, _)| *current == number) {
            *current = None;
        }
    }

    /// A server has answered.
    pub(super) fn works(&self) {
        let mut attempts = self.attempts();
        if attempts.failed > 0 {
            *attempts = Attempts::default();
        }
    }

    fn current(&self) -> Option<(u64, ConnectionKind)> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn attempts(&self) -> MutexGuard<'_, Attempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempts {
    fn failure_since(&self, came: Instant) -> Option<Failure> {
        self.last_failure.as_ref().filter(|(at, _)| *at >= came).map(|(_, failure)| failure.clone())
    }

    /// Sets when the next attempt may begin. Processes that have lost the same server come back at different times.
    fn delay(&mut self) {
        let wait = FIRST_WAIT.saturating_mul(1 << self.failed.min(10)).min(LONGEST_WAIT);
        self.failed = self.failed.saturating_add(1);
        self.next = Some(Instant::now() + wait.mul_f64(0.5 + random_half()));
    }
}

/// A random number from 0 to a half.
fn random_half() -> f64 {
    let mut byte = [0];
    // Without random numbers, the times are the same for all processes.
    let _ = getrandom::fill(&mut byte);
    f64::from(byte[0]) / 512.0
}

impl ConnectionKind {
    pub(super) async fn attempt(&mut self, job: &Job<'_>) -> RedisResult<Value> {
        let command = &job.command;
        match (self, &job.sends) {
            (Self::Server(server), Sends::Once) => server.send_packed_command(command).await,
            (Self::Cluster(cluster), Sends::Once) => cluster.req_packed_command(command).await,
            (Self::Server(server), Sends::ToEach) => Ok(Value::Array(vec![server.send_packed_command(command).await?])),
            (Self::Cluster(cluster), Sends::ToEach) => {
                let everywhere = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
                cluster.route_command(command.clone(), everywhere).await
            }
            (Self::Server(server), Sends::With(second, _)) => {
                server.send_packed_commands(&both(command, second), 0, 2).await.map(Value::Array)
            }
            (Self::Cluster(cluster), Sends::With(second, key)) => {
                let node = SingleNodeRoutingInfo::SpecificNode(Route::with_key(key, SlotAddr::Master));
                cluster.route_pipeline(both(command, second), 0, 2, node).await.map(Value::Array)
            }
        }
    }
}

fn both(first: &Cmd, second: &Cmd) -> redis::Pipeline {
    let mut both = redis::pipe();
    both.add_command(first.clone()).add_command(second.clone());
    both
}
