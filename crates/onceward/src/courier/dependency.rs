//! What a courier knows about one downstream: its breaker, which all couriers of the store share, and how many retries it may
//! still get.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use onceward_core::breaker::{self, Breaker, Health, Permit, Ticket};
use onceward_core::record::Fence;
use onceward_core::retry::budget::{self, Account, Withdrawal};
use onceward_core::time::Timestamp;

use crate::clock::{Clock, SystemClock};
use crate::ledger::Ledger;
use crate::ledger::breakers::Stops;

/// How long a courier relies on the state of a breaker that it has read: this late it learns what another one has found out.
const BREAKER_KEPT_FOR: Duration = Duration::from_secs(1);

/// One downstream, as this courier sees it.
#[derive(Clone, Debug)]
pub(super) struct Dependency {
    ledger: Ledger,
    stops: Stops,
    state: Arc<Mutex<State>>,
    breaker: breaker::Settings,
    budget: budget::Settings,
}

#[derive(Debug)]
struct State {
    breaker: Breaker,
    /// When the breaker was read.
    read_at: Option<Instant>,
    account: Account,
    /// How many retries in a row the budget has put off: each of them waits longer than the last, so that they do not come back
    /// together.
    put_off: u32,
}

/// Whether an attempt may begin.
#[derive(Clone, Copy, Debug)]
pub(super) enum StartPermit {
    /// Any number may.
    Open(Ticket),
    /// Exactly one may, as the trial.
    Trial,
    /// None may.
    Closed { retry_after: Duration },
}

impl Dependency {
    pub(super) fn new(ledger: &Ledger, stops: Stops, breaker: breaker::Settings, budget: budget::Settings) -> Self {
        let account = Account::full(&budget, SystemClock.now());
        let state = State { breaker: Breaker::default(), read_at: None, account, put_off: 0 };
        Self { ledger: ledger.clone(), stops, state: Arc::new(Mutex::new(state)), breaker, budget }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is a plain assignment, so a panic elsewhere leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn may_start(&self) -> StartPermit {
        let is_old = self.state().read_at.is_none_or(|at| at.elapsed() >= BREAKER_KEPT_FOR);
        if is_old {
            match self.ledger.breaker(&self.stops).await {
                Ok(breaker) => self.learn(breaker),
                // The store is down, so that nothing is taken from it either.
                Err(error) => tracing::debug!(%error, "cannot read a breaker"),
            }
        }
        match self.state().breaker.permits(SystemClock.now()) {
            Permit::Allowed(ticket) => StartPermit::Open(ticket),
            Permit::Trial => StartPermit::Trial,
            Permit::Refused { retry_after } => StartPermit::Closed { retry_after: retry_after.min(BREAKER_KEPT_FOR) },
        }
    }

    fn learn(&self, breaker: Breaker) {
        let mut state = self.state();
        (state.breaker, state.read_at) = (breaker, Some(Instant::now()));
    }

    /// What an attempt needs to begin. `None` if it may not, or no longer.
    pub(super) async fn ticket(&self, permit: StartPermit) -> Option<Ticket> {
        match permit {
            StartPermit::Open(ticket) => Some(ticket),
            StartPermit::Trial => self.begin_trial().await,
            StartPermit::Closed { .. } => None,
        }
    }

    /// Says in the log when the breaker opens or closes.
    fn report(&self, now: &breaker::State) {
        let is_open = |state: &breaker::State| !matches!(state, breaker::State::Closed { .. });
        let Stops::Sink(sink) = &self.stops else { return };
        match (is_open(&self.state().breaker.state), is_open(now)) {
            (false, true) => tracing::warn!(sink, "the breaker opens: nothing is sent until a trial succeeds"),
            (true, false) => tracing::info!(sink, "the breaker closes: the downstream works again"),
            _ => {}
        }
    }

    /// Makes one attempt the trial of all couriers. `None` if another one is, or if the store does not answer.
    async fn begin_trial(&self) -> Option<Ticket> {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).ok()?;
        let fence = Fence::from_bytes(bits);
        let begin = |breaker: &Breaker| breaker.begin_trial(fence, &self.breaker, SystemClock.now());
        let breaker = self.ledger.change_breaker(&self.stops, begin).await.ok()?;
        let is_ours = matches!(breaker.state, breaker::State::HalfOpen { trial, .. } if trial == fence);
        self.learn(breaker);
        is_ours.then_some(Ticket::Trial(fence))
    }

    /// A first attempt pays for later retries.
    pub(super) fn first_attempt(&self) {
        self.state().account.first_attempt(&self.budget, SystemClock.now());
    }

    /// How long a retry has to wait for the budget.
    pub(super) fn retry_wait(&self) -> Duration {
        let mut state = self.state();
        match state.account.withdraw(&self.budget, SystemClock.now()) {
            Withdrawal::Granted => {
                state.put_off = 0;
                Duration::ZERO
            }
            Withdrawal::Refused { retry_after } => {
                state.put_off = state.put_off.saturating_add(1);
                retry_after.saturating_mul(state.put_off)
            }
        }
    }

    /// Notes what an attempt says about the downstream; `None` if it says nothing. A downstream that works costs no write.
    pub(super) async fn ended(&self, ticket: Ticket, health: Option<Health>) {
        let change = |breaker: &Breaker, now: Timestamp| match health {
            Some(health) => breaker.ended(ticket, health, &self.breaker, now),
            None => breaker.gave_up(ticket, now),
        };
        let changes_nothing = change(&self.state().breaker, SystemClock.now()).is_none();
        if changes_nothing {
            return;
        }
        match self.ledger.change_breaker(&self.stops, |breaker| change(breaker, SystemClock.now())).await {
            Ok(breaker) => {
                self.report(&breaker.state);
                self.learn(breaker);
            }
            Err(error) => tracing::warn!(%error, "the state of a breaker could not be noted"),
        }
    }
}
