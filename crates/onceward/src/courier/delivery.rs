//! One attempt at one entry, from taking it to recording how it ended.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use onceward_core::breaker::Health;
use onceward_core::outbox::{AfterAttempt, Destination};
use onceward_core::policy::Policy;
use onceward_core::record::{Phase, Record, Seen, State};
use onceward_core::retry::backoff;

use super::dependency::Dependency;
use super::route::Route;
use super::sink::{LookUp, Parcel, SinkResult};
use crate::error::Error;
use crate::ledger::{AttemptFailure, Guard, Ledger, TakenEntry, Taking};
use crate::plant::{Plant, planted};
use crate::step::{Step, reached};

/// How long an entry waits whose doubt is bound to a sink that this courier does not have: another courier may have it.
const OTHER_SINK_WAIT: Duration = Duration::from_secs(60);

/// What an attempt led to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Delivery {
    /// Another courier has the entry, or it is no longer due.
    NotTaken,
    /// The attempt has ended.
    Made {
        /// What it says about the downstream.
        health: Option<Health>,
        /// When the entry is due again, if it is.
        retry_in: Option<Duration>,
    },
}

/// What a courier has for the attempts of one route.
#[derive(Clone, Debug)]
pub(super) struct Deliverer {
    pub(super) ledger: Ledger,
    pub(super) route: Arc<Route>,
    pub(super) policy: Arc<Policy>,
    pub(super) dependency: Dependency,
}

impl Deliverer {
    /// Takes an entry that was due and makes one attempt.
    pub(super) async fn deliver(&self, seen: Seen) -> Result<Delivery, Error> {
        let Some(destination) = self.route.destination(&seen.record) else { return Ok(Delivery::NotTaken) };
        let bound = bound_to(&seen.record).cloned().filter(|_| !planted(Plant::SinkChangedInDoubt));
        let goes_elsewhere = bound.as_ref().is_some_and(|bound| bound.sink != self.route.sink_name);
        let taken = match self.ledger.take_entry(seen, bound.unwrap_or(destination), &self.policy).await? {
            Taking::Taken(taken) => *taken,
            Taking::NotTaken => return Ok(Delivery::NotTaken),
        };
        reached(Step::EntryTaken);
        if goes_elsewhere {
            let error = "an earlier attempt went to another sink, which this courier does not have".to_owned();
            return put_off(taken.guard, true, OTHER_SINK_WAIT, error).await;
        }
        let Some(parcel) = parcel(&taken) else { return Ok(Delivery::NotTaken) };
        if taken.probe_first {
            return self.look_up(taken, &parcel).await;
        }
        self.send(taken.guard, &parcel).await
    }

    /// Asks the sink about an earlier attempt, and makes another one only if that did not happen.
    async fn look_up(&self, taken: TakenEntry, parcel: &Parcel) -> Result<Delivery, Error> {
        let asked = AssertUnwindSafe(self.route.sink.look_up(parcel)).catch_unwind();
        let answer = match tokio::time::timeout(self.route.timeout, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => LookUp::Unknown("the sink panicked when it was asked".to_owned()),
            Err(_) => LookUp::Unknown("the sink did not answer in time when it was asked".to_owned()),
        };
        match answer {
            LookUp::Happened(outcome) => {
                taken.guard.finish(outcome).await?;
                Ok(Delivery::Made { health: Some(Health::Working), retry_in: None })
            }
            LookUp::NotFound => match unsettled_for(&taken.seen, self.route.settle) {
                Some(wait) => {
                    let error = "the sink knows nothing of the attempt yet, and is asked again".to_owned();
                    put_off(taken.guard, true, wait, error).await
                }
                None => {
                    taken.guard.claim().not_found().await?;
                    reached(Step::LookUpWritten);
                    self.send(taken.guard, parcel).await
                }
            },
            LookUp::Unknown(error) => {
                let wait = backoff::wait(parcel.attempt, &self.route.retry, None, random());
                put_off(taken.guard, true, wait, error).await
            }
        }
    }

    async fn send(&self, guard: Guard, parcel: &Parcel) -> Result<Delivery, Error> {
        if parcel.attempt == 1 {
            self.dependency.first_attempt();
        }
        let attempt = AssertUnwindSafe(self.route.sink.deliver(parcel)).catch_unwind();
        let ended = tokio::select! {
            biased;
            ended = attempt => ended,
            // Another courier may go on with the entry, so this attempt is given up.
            () = guard.lost() => {
                guard.doubt(Some("the claim was lost during the attempt")).await?;
                return Ok(Delivery::Made { health: None, retry_in: None });
            }
        };
        let attempt = ended.unwrap_or_else(|_| SinkResult::Unknown {
            error: "the sink panicked".to_owned(),
            retry_after: None,
            health: Health::Working,
        });
        reached(Step::AttemptEnded);
        self.settle(guard, attempt, parcel.attempt).await
    }

    /// Records how the attempt ended.
    async fn settle(&self, guard: Guard, attempt: SinkResult, number: u32) -> Result<Delivery, Error> {
        let (may_have_happened, again, error, retry_after, health) = match attempt {
            SinkResult::Ended(outcome) => {
                guard.finish(outcome).await?;
                return Ok(Delivery::Made { health: Some(Health::Working), retry_in: None });
            }
            SinkResult::Refused { error, retry_after, again, health } => (false, again, error, retry_after, health),
            SinkResult::Unknown { error, retry_after, health } => (true, true, error, retry_after, health),
            SinkResult::AwaitsPerson { error, health } => (true, false, error, None, health),
        };
        let wait = backoff::wait(number, &self.route.retry, retry_after, random());
        let retry_in = wait.max(self.dependency.retry_wait());
        let after = if again { AfterAttempt::Retry } else { AfterAttempt::GiveUp };
        guard.undelivered(AttemptFailure { may_have_happened, retry_in, after, error }).await?;
        Ok(Delivery::Made { health: Some(health), retry_in: again.then_some(retry_in) })
    }
}

/// Where an earlier attempt went that may have happened.
fn bound_to(record: &Record) -> Option<&Destination> {
    let was_sent = matches!(&record.state, State::Leased(lease) if lease.phase != Phase::Claimed);
    let may_have_happened = record.doubt_since.is_some() || was_sent;
    record.entry.as_ref()?.destination.as_ref().filter(|_| may_have_happened)
}

fn parcel(taken: &TakenEntry) -> Option<Parcel> {
    let record = &taken.seen.record;
    Some(Parcel {
        identity: record.identity.clone()?,
        payload: record.payload.clone()?,
        downstream_key: record.entry.as_ref()?.destination.as_ref()?.key.clone(),
        attempt: record.attempts,
    })
}

/// The entry is tried again later, and this attempt does not count: nothing was sent.
async fn put_off(guard: Guard, in_doubt: bool, wait: Duration, error: String) -> Result<Delivery, Error> {
    let after = if planted(Plant::PutOffCounted) { AfterAttempt::Retry } else { AfterAttempt::RetryUncounted };
    guard.undelivered(AttemptFailure { may_have_happened: in_doubt, retry_in: wait, after, error }).await?;
    Ok(Delivery::Made { health: None, retry_in: Some(wait) })
}

/// How long a look-up that finds nothing is not yet believed.
fn unsettled_for(seen: &Seen, settle: Duration) -> Option<Duration> {
    let settled_at = seen.record.doubt_since?.after(settle);
    let wait = seen.now.until(settled_at);
    (!wait.is_zero()).then_some(wait)
}

/// Random bits for the jitter. Without random numbers there is no jitter, and no claim either.
fn random() -> u64 {
    getrandom::u64().unwrap_or(u64::MAX)
}
