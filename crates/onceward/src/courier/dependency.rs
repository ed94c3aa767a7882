//! What this courier knows about one downstream: its breaker, and how many retries it may still get.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward_core::breaker::{self, Breaker, Health, Permit, Ticket};
use onceward_core::record::Fence;
use onceward_core::retry::budget::{self, Account, Withdrawal};

use crate::clock::{Clock, SystemClock};

/// One downstream, as this courier sees it.
#[derive(Clone, Debug)]
pub(super) struct Dependency {
    state: Arc<Mutex<State>>,
    breaker: breaker::Settings,
    budget: budget::Settings,
}

#[derive(Debug)]
struct State {
    breaker: Breaker,
    account: Account,
    /// How many retries in a row the budget has put off: each of them waits longer than the last, so that they do not come back
    /// together.
    put_off: u32,
}

/// Whether an attempt may begin.
#[derive(Clone, Copy, Debug)]
pub(super) enum Start {
    /// Any number may.
    Open(Ticket),
    /// Exactly one may, as the trial.
    Trial,
    /// None may.
    Closed { retry_after: Duration },
}

impl Dependency {
    pub(super) fn new(breaker: breaker::Settings, budget: budget::Settings) -> Self {
        let account = Account::full(&budget, SystemClock.now());
        let state = State { breaker: Breaker::default(), account, put_off: 0 };
        Self { state: Arc::new(Mutex::new(state)), breaker, budget }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is a plain assignment, so a panic elsewhere leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn may_start(&self) -> Start {
        match self.state().breaker.permits(SystemClock.now()) {
            Permit::Allowed(ticket) => Start::Open(ticket),
            Permit::Trial => Start::Trial,
            Permit::Refused { retry_after } => Start::Closed { retry_after },
        }
    }

    /// The ticket of the trial; `None` if another one has begun.
    pub(super) fn begin_trial(&self) -> Option<Ticket> {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).ok()?;
        let fence = Fence::from_bytes(bits);
        let mut state = self.state();
        state.breaker = state.breaker.begin_trial(fence, &self.breaker, SystemClock.now())?;
        Some(Ticket::Trial(fence))
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

    /// Notes what an attempt says about the downstream; `None` if it says nothing.
    pub(super) fn ended(&self, ticket: Ticket, health: Option<Health>) {
        let (mut state, now) = (self.state(), SystemClock.now());
        let next = match health {
            Some(health) => state.breaker.ended(ticket, health, &self.breaker, now),
            None => state.breaker.gave_up(ticket, now),
        };
        if let Some(next) = next {
            state.breaker = next;
        }
    }
}
