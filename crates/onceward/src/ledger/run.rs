//! Runs a closure under a guard: the short way to a guarded call.

use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};

use futures_util::FutureExt;
use serde::Serialize;
use serde::de::DeserializeOwned;

use onceward_core::class::{Class, Disposition, disposition};
use onceward_core::decide::Decision;
use onceward_core::outcome::{Body, Outcome, Verdict};
use onceward_core::time::Timestamp;

use super::guard::{Guard, WriteResult};
use super::start::{StartOptions, Started};
use super::{Call, CallBuilder, Claim};
use crate::error::{Error, Failure};

/// The value of a guarded call, fresh or from the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Done<T> {
    /// What the work returned, now or the first time.
    pub value: T,
    /// Whether this is the stored outcome: the work did not run now.
    pub replayed: bool,
    /// Until when a repeat gets it; `None` for a fresh value, and for one that is kept forever.
    pub expires_at: Option<Timestamp>,
}

impl CallBuilder {
    /// Runs the work once. The first caller runs it; every repeat gets its value, or an error that says why there is none.
    ///
    /// The closure gets a [`Claim`]: the downstream key, and the means to mark `sent`. Its error says what became of the
    /// effect: [`Failure::not_sent`], [`Failure::refused`], [`Failure::permanent`] or [`Failure::unknown`]. Any other error
    /// that `?` turns into a [`Failure`] follows the policy's `on_error`; by default, an error that looks like a lost answer
    /// (a time-out, a reset connection, a failing server) leaves the intent in doubt.
    ///
    /// When the future is dropped, or the work panics, the outcome is unknown: the intent is in doubt from that moment,
    /// unless nothing was sent yet.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onceward::Error> {
    /// use onceward::{Failure, Ledger};
    ///
    /// let ledger = Ledger::open("memory:").await?;
    /// let declined = ledger
    ///     .operation("charge_payment")
    ///     .key("invoice-42")
    ///     .run(|_claim| async { Err::<(), _>(Failure::permanent("card declined")) })
    ///     .await;
    /// assert!(declined.is_err());
    ///
    /// // A final failure is kept: the card is not tried again.
    /// let again = ledger.operation("charge_payment").key("invoice-42").run(|_| async { Ok(()) }).await;
    /// assert_eq!(again.unwrap_err().to_string().split(": ").last(), Some("card declined"));
    /// # Ok(()) }
    /// ```
    pub async fn run<T, F, W>(&self, work: F) -> Result<Done<T>, Error>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce(Claim) -> W,
        W: Future<Output = Result<T, Failure>>,
    {
        let call = self.call()?;
        match self.ledger.start(&call, StartOptions::default()).await? {
            Started::Acquired(guard) => guard.run(work).await,
            Started::Answered(decision) => replay(call.name(), decision),
            Started::Unguarded { claim, .. } => unguarded(&call, work(claim).await),
        }
    }
}

/// The result of work that ran without a record.
pub(crate) fn unguarded<T>(call: &Call, result: Result<T, Failure>) -> Result<Done<T>, Error> {
    match result {
        Ok(value) => Ok(Done { value, replayed: false, expires_at: None }),
        Err(failure) => Err(Error::Failed { intent: call.name(), failure, replayed: false }),
    }
}

impl Guard {
    /// Runs the work under this claim and records how it ended.
    pub async fn run<T, F, W>(self, work: F) -> Result<Done<T>, Error>
    where
        T: Serialize,
        F: FnOnce(Claim) -> W,
        W: Future<Output = Result<T, Failure>>,
    {
        let claim = self.claim();
        let handed = claim.clone();
        // The closure itself may panic too, before it has returned its future.
        let running = AssertUnwindSafe(async move { work(handed).await }).catch_unwind();
        let ended = tokio::select! {
            biased;
            ended = running => ended,
            () = self.lost() => {
                let intent = self.call().name();
                let _ = self.doubt(Some("the claim was lost while the work ran")).await;
                return Err(Error::ClaimLost { intent, outcome: None });
            }
        };
        match ended {
            Ok(result) => self.settle(result, claim.marked_sent()).await,
            Err(panic) => {
                let _ = self.doubt(Some("the work panicked")).await;
                resume_unwind(panic)
            }
        }
    }

    /// Records how the work ended and hands its result on.
    pub(crate) async fn settle<T: Serialize>(
        self,
        result: Result<T, Failure>,
        marked_sent: bool,
    ) -> Result<Done<T>, Error> {
        let intent = self.call().name();
        match result {
            Ok(value) => match serde_json::to_vec(&value) {
                Ok(body) => {
                    self.finish_unless_stale(Outcome::success(body)).await?;
                    Ok(Done { value, replayed: false, expires_at: None })
                }
                Err(error) => {
                    let reason = error.to_string();
                    let _ = self.doubt(Some(&reason)).await;
                    Err(Error::NotJson { intent, reason })
                }
            },
            Err(failure) => {
                self.settle_failure(&failure, marked_sent).await?;
                Err(Error::Failed { intent, failure, replayed: false })
            }
        }
    }

    /// Finishes, unless the claim was superseded: then the record may say something else than this caller would be told.
    async fn finish_unless_stale(self, outcome: Outcome) -> Result<(), Error> {
        let intent = self.call().name();
        match self.finish(outcome.clone()).await? {
            WriteResult::Written => Ok(()),
            WriteResult::Stale => Err(Error::ClaimLost { intent, outcome: Some(Box::new(outcome)) }),
        }
    }

    /// Records that the work failed: releases, keeps or doubts, by the class of the failure and the policy. Returns which.
    pub async fn fail(self, failure: &Failure) -> Result<Disposition, Error> {
        let marked_sent = self.claim().marked_sent();
        self.settle_failure(failure, marked_sent).await
    }

    async fn settle_failure(self, failure: &Failure, marked_sent: bool) -> Result<Disposition, Error> {
        let intent = self.call().name();
        let message = failure.message();
        let disposition = disposition(failure.class(), self.call().policy.errors(), marked_sent);
        let ended = match disposition {
            Disposition::Release(not_before) => self.release(not_before, Some(message)).await,
            Disposition::Doubt => self.doubt(Some(message)).await,
            Disposition::Keep => {
                let body = serde_json::Value::String(message.to_owned()).to_string();
                self.finish_unless_stale(Outcome::failure(body)).await?;
                return Ok(disposition);
            }
        };
        if let Err(error) = ended {
            tracing::warn!(%intent, %error, "a failed claim could not be given back and is left to lapse");
        }
        Ok(disposition)
    }
}

/// Turns a decision into the stored value, or into the error that says why there is none.
pub(crate) fn replay<T: DeserializeOwned>(intent: String, decision: Decision) -> Result<Done<T>, Error> {
    match decision {
        Decision::Replay { outcome, expires_at, .. } => {
            let value = stored_value(intent, &outcome)?;
            Ok(Done { value, replayed: true, expires_at })
        }
        decision => Err(Error::of_decision(intent, decision)),
    }
}

fn stored_value<T: DeserializeOwned>(intent: String, outcome: &Outcome) -> Result<T, Error> {
    let body: &[u8] = match &outcome.body {
        Body::Kept(bytes) => bytes,
        Body::TooLarge { .. } => &[],
    };
    match outcome.verdict {
        Verdict::Success => {
            serde_json::from_slice(body).map_err(|error| Error::Unreadable { intent, reason: error.to_string() })
        }
        Verdict::Failure => {
            let message = serde_json::from_slice::<String>(body);
            let message = message.unwrap_or_else(|_| String::from_utf8_lossy(body).into_owned());
            Err(Error::Failed { intent, failure: Failure::of(Class::Final, message), replayed: true })
        }
    }
}
