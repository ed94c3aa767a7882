//! The courier: delivers the entries of the outbox to sinks. Any number of couriers work on one store; each entry is taken by
//! one of them at a time.
//!
//! - `sink`: where entries go, and what a sink says about an attempt.
//! - `route`: how the entries of one operation are delivered.
//! - `delivery`: one attempt, from taking the entry to recording how it ended.
//! - `dependency`: the breaker and the retry budget of one downstream.
//! - `lane`: the entries of one operation that this courier has seen and has on their way.
//! - `statement`: a sink that runs a SQL statement in one transaction with the end of the entry.
//!
//! ```
//! use std::sync::Arc;
//! use onceward::courier::{SinkResult, Courier, Parcel, Route, Sink, async_trait};
//! use onceward::{EnqueueOptions, Ledger, Outcome};
//! # use std::sync::Mutex;
//!
//! struct Mail(Mutex<Vec<String>>);
//!
//! #[async_trait]
//! impl Sink for Mail {
//!     async fn deliver(&self, parcel: &Parcel) -> SinkResult {
//!         self.0.lock().unwrap().push(parcel.downstream_key.clone()); // your client
//!         SinkResult::Ended(Outcome::success("\"sent\""))
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onceward::Error> {
//! let ledger = Ledger::open("memory:").await?;
//! let mail = Arc::new(Mail(Mutex::default()));
//! for _ in 0..10 {
//!     let letter = ledger.operation("send_mail").key("welcome cus_7");
//!     letter.enqueue(&"Welcome!", EnqueueOptions::default()).await?; // ten calls, one entry
//! }
//! let courier = Courier::new(ledger.clone()).route("send_mail", Route::to("mail", mail.clone()))?;
//! courier.run_until_idle().await;
//! assert_eq!(mail.0.lock().unwrap().len(), 1);
//! # Ok(()) }
//! ```

mod delivery;
mod dependency;
mod lane;
mod route;
mod sink;
#[cfg(feature = "postgres")]
mod statement;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use onceward_core::breaker::Ticket;
use onceward_core::hash::Digest;
use onceward_core::name::Operation;
use onceward_core::record::Seen;

/// For sinks of your own.
pub use async_trait::async_trait;
pub use onceward_core::breaker::Health;
pub use route::{DEFAULT_CONCURRENCY, DEFAULT_SETTLE, Route};
pub use sink::{LookUp, Parcel, Sink, SinkResult};
#[cfg(feature = "postgres")]
pub use statement::{SqlStatement, StatementSink, StatementValue};

use crate::error::Invalid;
use crate::ledger::Ledger;
use crate::ledger::breakers::Stops;
use delivery::{Deliverer, Delivery};
use dependency::{Dependency, StartPermit};
use lane::OperationQueue;

/// How often a courier looks for entries that other processes have queued. A look that finds nothing reads one index.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How often a courier looks for entries whose couriers have died. Their leases end later by themselves.
const LOOK_FOR_ABANDONED_EVERY: Duration = Duration::from_secs(2);

/// The pause after a look that failed: the store is asked gently while it is down.
const STORE_DOWN_PAUSE: Duration = Duration::from_secs(1);

/// How long a courier that is stopped waits for its attempts. What has not ended by then is in doubt.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// How long sinks may take to end what they keep running.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Delivers the entries of the outbox.
#[derive(Debug)]
pub struct Courier {
    ledger: Ledger,
    lanes: Vec<OperationQueue>,
    /// By the name of the sink: all operations that go to a sink share its breaker and its budget.
    dependencies: BTreeMap<String, Dependency>,
    attempts: JoinSet<AttemptEnd>,
    /// When to look for entries whose couriers have died.
    abandoned_at: Instant,
}

/// The end of one attempt of one lane.
#[derive(Debug)]
struct AttemptEnd {
    lane: usize,
    id: Digest,
    delivery: Delivery,
}

impl Courier {
    /// A courier without routes.
    pub fn new(ledger: Ledger) -> Self {
        let (lanes, dependencies, attempts) = (Vec::new(), BTreeMap::new(), JoinSet::new());
        Self { ledger, lanes, dependencies, attempts, abandoned_at: Instant::now() }
    }

    /// Delivers the entries of an operation in this way.
    pub fn route(mut self, operation: &str, route: Route) -> Result<Self, Invalid> {
        let operation = Operation::new(operation)?;
        let pause = Dependency::new(&self.ledger, Stops::Queue(operation.to_string()), route.breaker, route.budget);
        let route = Arc::new(route);
        let fallback = route.fallback.clone().map(|fallback| self.deliverer(&fallback, Some(route.clone())));
        let deliverer = self.deliverer(&route, route.fallback.clone());
        self.lanes.push(OperationQueue::new(operation, deliverer, fallback, pause));
        Ok(self)
    }

    fn deliverer(&mut self, route: &Arc<Route>, partner: Option<Arc<Route>>) -> Deliverer {
        let known = self.dependencies.entry(route.sink_name.clone());
        let dependency = known.or_insert_with(|| {
            Dependency::new(&self.ledger, Stops::Sink(route.sink_name.clone()), route.breaker, route.budget)
        });
        let (ledger, dependency) = (self.ledger.clone(), dependency.clone());
        Deliverer { ledger, route: route.clone(), policy: route.policy(), dependency, partner }
    }

    /// Delivers until `stop` resolves; then waits for the attempts that are under way.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        loop {
            let next_look = self.look().await;
            let ledger = self.ledger.clone();
            tokio::select! {
                biased;
                () = &mut stop => break,
                Some(end) = self.attempts.join_next() => self.note(end),
                () = ledger.entry_queued() => {}
                () = tokio::time::sleep_until(next_look) => {}
            }
            while let Some(end) = self.attempts.try_join_next() {
                self.note(end);
            }
        }
        self.finish().await;
    }

    /// Delivers what is due now, and what becomes due by it, and returns when nothing is left that is due.
    pub async fn run_until_idle(mut self) {
        loop {
            self.look().await;
            match self.attempts.join_next().await {
                Some(end) => self.note(end),
                None => return self.close_sinks().await,
            }
        }
    }

    async fn finish(mut self) {
        let ended = async { while self.attempts.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_TIMEOUT, ended).await.is_err() {
            tracing::warn!(attempts = self.attempts.len(), "stopped during attempts, which are in doubt");
            self.attempts.shutdown().await;
        }
        self.close_sinks().await;
    }

    async fn close_sinks(&self) {
        let closing = self.lanes.iter().flat_map(OperationQueue::sinks).map(|sink| sink.close());
        if tokio::time::timeout(CLOSE_TIMEOUT, futures_util::future::join_all(closing)).await.is_err() {
            tracing::warn!("a sink did not close in time");
        }
    }

    /// Starts attempts at what is due, in every lane with room. Returns when to look again.
    async fn look(&mut self) -> Instant {
        let with_abandoned = Instant::now() >= self.abandoned_at;
        if with_abandoned {
            self.abandoned_at = Instant::now() + LOOK_FOR_ABANDONED_EVERY;
        }
        let mut next_look = Instant::now() + LOOK_EVERY;
        for index in 0..self.lanes.len() {
            let lane = &mut self.lanes[index];
            let (deliverer, start) = lane.may_start().await;
            match start {
                StartPermit::Closed { retry_after } => next_look = next_look.min(Instant::now() + retry_after),
                start => {
                    match lane.fill(&self.ledger, &deliverer, matches!(start, StartPermit::Trial), with_abandoned).await
                    {
                        Ok(()) => self.start_attempts(index, &deliverer, start).await,
                        Err(error) => {
                            tracing::warn!(operation = %lane.operation, %error, "cannot look for entries that are due");
                            next_look = next_look.max(Instant::now() + STORE_DOWN_PAUSE);
                        }
                    }
                }
            }
            next_look = self.lanes[index].retry_at.map_or(next_look, |at| at.min(next_look));
        }
        next_look
    }

    async fn start_attempts(&mut self, index: usize, deliverer: &Deliverer, start: StartPermit) {
        if matches!(start, StartPermit::Trial) {
            self.lanes[index].choose_trial();
        }
        while let Some(seen) = self.lanes[index].next() {
            if let Some(bound) = self.lanes[index].bound_deliverer(&seen, deliverer) {
                let permit = bound.dependency.may_start().await;
                if let Some(ticket) = bound.dependency.ticket(permit).await {
                    self.start_attempt(index, bound, seen, ticket);
                    continue;
                }
            }
            let ticket = deliverer.dependency.ticket(start).await;
            let Some(ticket) = ticket else { return self.lanes[index].put_back(seen) };
            self.start_attempt(index, deliverer.clone(), seen, ticket);
            if matches!(start, StartPermit::Trial) {
                return;
            }
        }
    }

    fn start_attempt(&mut self, index: usize, deliverer: Deliverer, seen: Seen, ticket: Ticket) {
        let (id, is_trial) = (seen.record.id, matches!(ticket, Ticket::Trial(_)));
        self.attempts.spawn(async move {
            let delivery = deliverer.deliver(seen, is_trial).await.unwrap_or_else(|error| {
                tracing::warn!(sink = deliverer.route.sink_name, %error, "an attempt could not be recorded");
                Delivery::NotTaken
            });
            let health = match delivery {
                Delivery::NotTaken => None,
                Delivery::Made { health, .. } => health,
            };
            deliverer.dependency.ended(ticket, health).await;
            AttemptEnd { lane: index, id, delivery }
        });
    }

    fn note(&mut self, end: Result<AttemptEnd, tokio::task::JoinError>) {
        // An attempt never panics: its sink is caught.
        let Ok(AttemptEnd { lane, id, delivery }) = end else { return };
        let lane = &mut self.lanes[lane];
        match delivery {
            Delivery::NotTaken => lane.ended(&id, true, None),
            Delivery::Made { retry_in, .. } => lane.ended(&id, false, retry_in),
        }
    }
}
