//! The entry of every surface: begin, wait for a running owner, replay, and decide what to do when the store is down. What
//! one attempt to begin is, is in `begin`.

use std::fmt;
use std::time::Duration;

use onceward_core::decide::{Again, Decision};

use super::begin::{Attempt, Claimant, LocalCaller, undecided};
use super::wait::WaitResult;
use super::{Call, Claim, Guard, Ledger, count};
use crate::error::Error;
use crate::store;

/// The answer to [`Ledger::start`].
#[derive(Debug)]
pub enum Started {
    /// This caller owns the work: do it, then finish, release or doubt the guard.
    Acquired(Guard),
    /// There is no work to do. The decision says why.
    Answered(Decision),
    /// The store is down, and the policy lets the work run without a record. There is nothing to finish.
    Unguarded {
        /// Has the downstream key, and guards nothing.
        claim: Claim,
        /// Why the store cannot be used.
        error: store::Error,
    },
}

/// Called once when another caller is doing the work, before this one waits. `false` means: do not wait.
pub type OnRunning<'a> = dyn Fn() -> bool + Send + Sync + 'a;

/// Options of [`Ledger::start`].
#[derive(Clone, Copy, Default)]
pub struct StartOptions<'a> {
    wait: Option<Duration>,
    on_running: Option<&'a OnRunning<'a>>,
}

impl<'a> StartOptions<'a> {
    /// How long to wait while another caller does the work. Unless given, the policy's `wait`.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Calls this once when another caller is doing the work, before this one waits.
    #[must_use]
    pub fn on_running(mut self, on_running: &'a OnRunning<'a>) -> Self {
        self.on_running = Some(on_running);
        self
    }
}

impl fmt::Debug for StartOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartOptions").field("wait", &self.wait).finish_non_exhaustive()
    }
}

/// What starting a call leads to, for a caller here or elsewhere.
#[allow(clippy::large_enum_variant, reason = "it is taken apart at once, on the way of every claim")]
pub(super) enum StartResult<C> {
    Begun(Attempt<C>),
    /// The store is down, and the policy lets the work run without a record.
    Unguarded(store::Error),
}

impl Ledger {
    /// Starts a call: begins it, waits while another caller does the work, and asks the policy what to do when the store is
    /// down. [`CallBuilder::run`](crate::CallBuilder::run) is the short form of this.
    pub async fn start(&self, call: &Call, options: StartOptions<'_>) -> Result<Started, Error> {
        let wait = options.wait.unwrap_or(call.policy.wait);
        Ok(match self.home(&call.identity.operation).start_as(&LocalCaller, call, wait, options.on_running).await? {
            StartResult::Begun(Attempt::Acquired(guard)) => Started::Acquired(guard),
            StartResult::Begun(Attempt::Answered(decision)) => Started::Answered(decision),
            StartResult::Begun(Attempt::Undecided) => Started::Answered(undecided()),
            // Only a claim id can be used up, and a local caller has none.
            StartResult::Begun(Attempt::Stale) => return Err(Error::Contended { intent: call.name() }),
            StartResult::Unguarded(error) => Started::Unguarded { claim: Claim::unguarded(call), error },
        })
    }

    /// Starts a call for a claimant of either kind.
    pub(super) async fn start_as<C: Claimant>(
        &self,
        claimant: &C,
        call: &Call,
        wait: Duration,
        on_running: Option<&OnRunning<'_>>,
    ) -> Result<StartResult<C::Claim>, Error> {
        let attempt = match claimant.begin(self, call).await {
            // Only for the first begin. Once a begin was answered, another caller may be doing the work, so a store that
            // fails later is not a licence to run without a record.
            Err(Error::Store(error)) if call.may_run_without_store(&error) => {
                let intent = call.name();
                tracing::warn!(%intent, %error, "the store is down and the policy says open: running unguarded");
                count(&self.inner.stats.unguarded);
                return Ok(StartResult::Unguarded(error));
            }
            attempt => attempt?,
        };
        if !attempt.is_running() || !on_running.is_none_or(|on_running| on_running()) || wait.is_zero() {
            return Ok(StartResult::Begun(attempt));
        }
        // Most calls do not wait, and need no room for it.
        Box::pin(self.wait_and_begin(claimant, call, wait, attempt)).await.map(StartResult::Begun)
    }

    /// Waits until the running attempt is over, and begins again: then there is an answer.
    async fn wait_and_begin<C: Claimant>(
        &self,
        claimant: &C,
        call: &Call,
        wait: Duration,
        mut attempt: Attempt<C::Claim>,
    ) -> Result<Attempt<C::Claim>, Error> {
        // This call overlaps the running one, so its outcome is this call's answer, delivered or not.
        let call = &Call { again: Again::Never, ..call.clone() };
        let mut waiter = self.waiter(call, wait);
        while attempt.is_running() {
            let waited = match attempt {
                Attempt::Undecided => waiter.pause().await,
                _ => waiter.wait(self, call).await?,
            };
            match waited {
                WaitResult::Begin => attempt = claimant.begin(self, call).await?,
                WaitResult::InDoubt(since) => return Ok(Attempt::Answered(Decision::InDoubt { since })),
                WaitResult::TimedOut => break,
            }
        }
        Ok(attempt)
    }
}
