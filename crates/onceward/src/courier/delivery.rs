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

/// How long an entry waits that is bound to a sink which this courier does not have: another courier may have it.
const OTHER_SINK_WAIT: Duration = Duration::from_secs(60);

/// A sink that cannot be asked for a day is asked about an entry about 300 times.
const LONGEST_PAUSE_BETWEEN_LOOK_UPS: Duration = Duration::from_secs(5 * 60);

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
    /// The other sink of the same entries: the fallback of this one, or the one that this is the fallback of.
    pub(super) partner: Option<Arc<Route>>,
}

impl Deliverer {
    /// Takes an entry that was due and makes one attempt. A trial that finds the downstream still down uses up no attempt of its
    /// entry: it was made for all of them.
    pub(super) async fn deliver(&self, seen: Seen, is_trial: bool) -> Result<Delivery, Error> {
        let Some(destination) = self.route.destination(&seen.record) else { return Ok(Delivery::NotTaken) };
        let bound = bound_to(&seen.record).cloned().filter(|_| !planted(Plant::SinkChangedInDoubt));
        let elsewhere = bound.as_ref().filter(|bound| bound.sink != self.route.sink_name);
        let put_off_elsewhere = elsewhere.map(|bound| self.wait_for_sink(&bound.sink));
        let taken = match self.ledger.take_entry(seen, bound.unwrap_or(destination), &self.policy).await? {
            Taking::Taken(taken) => *taken,
            Taking::NotTaken => return Ok(Delivery::NotTaken),
        };
        reached(Step::EntryTaken);
        if let Some((wait, error)) = put_off_elsewhere {
            return put_off(taken.guard, true, wait, error.to_owned()).await;
        }
        let Some(parcel) = parcel(&taken) else { return Ok(Delivery::NotTaken) };
        if taken.probe_first {
            return self.look_up(taken, &parcel, is_trial).await;
        }
        self.send(taken.guard, &parcel, is_trial).await
    }

    /// How long an entry waits that is bound to a sink to which it cannot go now, and why.
    fn wait_for_sink(&self, sink: &str) -> (Duration, &'static str) {
        match self.partner.as_ref().filter(|partner| partner.sink_name == sink) {
            Some(partner) => {
                (partner.breaker.recovery, "an earlier attempt went to another sink, whose breaker is open")
            }
            None => (OTHER_SINK_WAIT, "an earlier attempt went to another sink, which this courier does not have"),
        }
    }

    /// Asks the sink about an earlier attempt, and makes another one only if that did not happen.
    async fn look_up(&self, taken: TakenEntry, parcel: &Parcel, is_trial: bool) -> Result<Delivery, Error> {
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
                    self.send(taken.guard, parcel, is_trial).await
                }
            },
            LookUp::Unknown(error) => {
                let wait = backoff::wait(parcel.attempt, &self.route.retry, None, random());
                let wait = wait.max(pause_between_look_ups(&taken.seen));
                put_off(taken.guard, true, wait, error).await
            }
        }
    }

    async fn send(&self, guard: Guard, parcel: &Parcel, is_trial: bool) -> Result<Delivery, Error> {
        if parcel.attempt == 1 {
            self.dependency.first_attempt();
        }
        let attempt = AssertUnwindSafe(self.route.sink.deliver(parcel)).catch_unwind();
        let ended = tokio::select! {
            biased;
            // Another courier may go on with the entry, so this attempt is given up before it does anything more.
            () = guard.lost() => {
                guard.doubt(Some("the claim was lost during the attempt")).await?;
                return Ok(Delivery::Made { health: None, retry_in: None });
            }
            ended = attempt => ended,
        };
        let attempt = ended.unwrap_or_else(|_| SinkResult::Unknown {
            error: "the sink panicked".to_owned(),
            retry_after: None,
            health: Health::Working,
        });
        reached(Step::AttemptEnded);
        self.settle(guard, attempt, parcel, is_trial).await
    }

    /// Records how the attempt ended.
    async fn settle(
        &self,
        mut guard: Guard,
        attempt: SinkResult,
        parcel: &Parcel,
        is_trial: bool,
    ) -> Result<Delivery, Error> {
        let delivered = Delivery::Made { health: Some(Health::Working), retry_in: None };
        let (may_have_happened, again, error, retry_after, health) = match attempt {
            SinkResult::Ended(_) if self.route.sink.finishes_entries() => {
                // Its effect may be there, so that it must not be tried again.
                let error = "the sink did not finish the entry together with its effect".to_owned();
                (true, false, error, None, Health::Working)
            }
            SinkResult::Ended(outcome) => {
                guard.finish(outcome).await?;
                return Ok(delivered);
            }
            SinkResult::Finished => {
                guard = match guard.finished_by_sink().await? {
                    None => return Ok(delivered),
                    Some(guard) => guard,
                };
                let error = "the sink has finished the entry, and the record does not say so".to_owned();
                (true, true, error, None, Health::Failing)
            }
            SinkResult::Refused { error, retry_after, again, health } => (false, again, error, retry_after, health),
            SinkResult::Unknown { error, retry_after, health } => (true, true, error, retry_after, health),
            SinkResult::AwaitsPerson { error, health } => (true, false, error, None, health),
        };
        let wait = backoff::wait(parcel.attempt, &self.route.retry, retry_after, random());
        let retry_in = if again { wait.max(self.dependency.retry_wait()) } else { wait };
        let is_still_down = is_trial && !may_have_happened && health == Health::Failing;
        let after = match again {
            true if is_still_down => AfterAttempt::RetryUncounted,
            true => AfterAttempt::Retry,
            false => AfterAttempt::GiveUp,
        };
        self.report(parcel, may_have_happened, &error);
        guard.undelivered(AttemptFailure { may_have_happened, retry_in, after, error }).await?;
        Ok(Delivery::Made { health: Some(health), retry_in: again.then_some(retry_in) })
    }

    /// Says in the log what became of an attempt. Keys can be personal data: the name of an intent masks its key.
    fn report(&self, parcel: &Parcel, may_have_happened: bool, error: &str) {
        let (entry, sink, attempt) = (&parcel.identity, &self.route.sink_name, parcel.attempt);
        match may_have_happened {
            true => tracing::warn!(%entry, sink, attempt, error, "an attempt without a clear answer may have happened"),
            false => tracing::warn!(%entry, sink, attempt, error, "an attempt failed, and nothing happened"),
        }
    }
}

/// Where an earlier attempt went that may have happened.
pub(super) fn bound_to(record: &Record) -> Option<&Destination> {
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
        fence: record.fence()?,
    })
}

/// The entry is tried again later, and this attempt does not count: nothing was sent.
async fn put_off(guard: Guard, in_doubt: bool, wait: Duration, error: String) -> Result<Delivery, Error> {
    let after = if planted(Plant::PutOffCounted) { AfterAttempt::Retry } else { AfterAttempt::RetryUncounted };
    guard.undelivered(AttemptFailure { may_have_happened: in_doubt, retry_in: wait, after, error }).await?;
    Ok(Delivery::Made { health: None, retry_in: Some(wait) })
}

/// Look-ups that fail do not count as attempts, so the pause grows with the age of the doubt instead.
fn pause_between_look_ups(seen: &Seen) -> Duration {
    let age = seen.record.doubt_since.map_or(Duration::ZERO, |since| since.until(seen.now));
    (age / 4).min(LONGEST_PAUSE_BETWEEN_LOOK_UPS)
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
