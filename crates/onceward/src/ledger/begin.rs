//! The claim. It is written by a task of its own, so that a caller that goes away in the middle leaves a released
//! claim and not a doubt about work that never started.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use onceward_core::decide::{Answer, Begin, Command, Decision, Take, Transition, Write, decide};
use onceward_core::record::{Fence, Seen};

use super::drive::Stuck;
use super::guard::Guard;
use super::{Call, Ledger, Operation, count};
use crate::error::{Error, Invalid};
use crate::step::{Step, reached};
use crate::store;

/// How often a claim is given back whose writing may or may not have held.
const GIVE_BACK_TRIES: u32 = 6;

/// A look into the cache writes nothing, so it draws no random number either.
const NO_FENCE: Fence = Fence::from_bits(0);

/// What a begin leads to.
#[derive(Debug)]
pub enum Begun {
    /// Do the work, then finish, release or doubt.
    Acquired(Guard),
    /// Do nothing: this is why.
    Answered(Decision),
}

impl Operation {
    /// Asks for the claim. Decisions come back as values; see [`Operation::run`] for the short way.
    pub async fn begin(&self) -> Result<Begun, Error> {
        let call = self.call()?;
        self.ledger.begin(&call).await
    }
}

impl Ledger {
    /// Asks for the claim on a call that is ready.
    pub async fn begin(&self, call: &Call) -> Result<Begun, Error> {
        let begin = |fence| Begin {
            identity: call.identity.clone(),
            key_digest: call.key_digest,
            fingerprint: call.fingerprint,
            terms: call.policy.terms(),
            take: Take {
                fence,
                lease: call.policy.lease(),
                marks_sent: call.policy.marks_sent,
                probes: call.policy.probes,
                owner: self.inner.store.owner(),
            },
        };
        if let Some(decision) = self.at_hand(call, &Command::Begin(begin(NO_FENCE))) {
            return Ok(Begun::Answered(self.noted(decision)));
        }
        let fence = fence()?;
        let command = Command::Begin(begin(fence));
        let (ledger, call) = (self.clone(), call.clone());
        let (reply, begun) = oneshot::channel();
        // If nobody is there any more, or goes away before looking, the guard is dropped unstarted.
        tokio::spawn(async move { drop(reply.send(ledger.begin_detached(&call, &command, fence).await)) });
        let mut begun = begun.await.unwrap_or(Err(Error::Store(store::Error::Closed)));
        if let Ok(Begun::Acquired(guard)) = &mut begun {
            guard.start();
        }
        begun
    }

    /// Answers from the cache, if that needs no write.
    fn at_hand(&self, call: &Call, command: &Command) -> Option<Decision> {
        let now = self.inner.store.now()?;
        let id = call.identity.digest();
        let record = self.inner.cache.get(&id)?;
        let seen = Seen { record: (*record).clone(), now, owner_gone: false };
        match decide(Some(&seen), command) {
            Transition { write: Write::None, answer: Answer::Decision(decision) } => Some(decision),
            // Expired by now: whatever is to be done, the store has the say.
            _ => {
                self.inner.cache.forget(&id);
                None
            }
        }
    }

    async fn begin_detached(&self, call: &Call, command: &Command, fence: Fence) -> Result<Begun, Error> {
        reached(Step::BeginDecided);
        let from = Instant::now();
        let driven = match self.inner.drive(None, command, None).await {
            Ok(driven) => driven,
            Err(Stuck::Contended) => return Err(Error::Contended { intent: call.identity.to_string() }),
            Err(Stuck::Store(error)) => {
                // Where the work will run all the same, a claim that may have been written must not be given back
                // as if it had not: it lapses into doubt.
                if !call.runs_without(&error) {
                    self.give_back(call, fence);
                }
                return Err(error.into());
            }
        };
        match (driven.answer, driven.written) {
            (Answer::Decision(Decision::Acquired(acquired)), Some(seen)) => {
                reached(Step::BeginWritten);
                self.inner.sweep_now_and_then(count(&self.inner.stats.acquired));
                Ok(Begun::Acquired(Guard::new(self.clone(), call, acquired, seen, from)))
            }
            (Answer::Decision(decision), _) => Ok(Begun::Answered(self.noted(decision))),
            (Answer::Accepted | Answer::Stale { .. } | Answer::Refused(_), _) => {
                Err(Error::Contended { intent: call.identity.to_string() })
            }
        }
    }

    fn noted(&self, decision: Decision) -> Decision {
        if matches!(decision, Decision::Replay { .. }) {
            count(&self.inner.stats.replayed);
        }
        if decision == Decision::Collision {
            tracing::error!("two different intents have the same derived key");
            count(&self.inner.stats.collisions);
        }
        decision
    }

    /// A write whose answer was lost may have held. Nothing has started, so the claim, if there is one, is
    /// given back rather than left to lapse into doubt.
    fn give_back(&self, call: &Call, fence: Fence) {
        let inner = Arc::clone(&self.inner);
        let id = call.identity.digest();
        tokio::spawn(async move {
            let error = Some("the store failed before the work began".to_owned());
            let command = Command::Release { fence, not_before: Duration::ZERO, error };
            for attempt in 0..GIVE_BACK_TRIES {
                tokio::time::sleep(Duration::from_millis(50) * 4u32.pow(attempt)).await;
                if inner.drive_by_id(id, &command, None).await.is_ok() {
                    // Somebody may have seen the claim and be waiting for an owner that there never was.
                    inner.waiters.wake(&id);
                    return;
                }
            }
        });
    }
}

/// 128 random bits that name one claim.
pub(super) fn fence() -> Result<Fence, Error> {
    let mut bits = [0u8; 16];
    getrandom::fill(&mut bits).map_err(|error| Invalid::Randomness(error.to_string()))?;
    Ok(Fence::from_bytes(bits))
}
