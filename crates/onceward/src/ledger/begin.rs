//! The claim: answered from the cache if that is all there is to it, and otherwise asked of the store.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use onceward_core::claim::ClaimId;
use onceward_core::decide::{Acquired, Answer, BeginItem, Command, Decision, Take, Transition, Write, decide};
use onceward_core::hash::Digest;
use onceward_core::plant::{Plant, planted};
use onceward_core::record::{Fence, Owner, Seen};

use super::claiming::{Asked, Claiming};
use super::drive::{Driven, Stuck};
use super::guard::{Guard, renewed_after};
use super::{Call, Ledger, Operation, cache, count};
use crate::error::{Error, Invalid};
use crate::step::{Step, reached};

/// How often a claim is given back whose writing may or may not have held.
const GIVE_BACK_TRIES: u32 = 6;

/// A store that has just failed is left alone for so long.
const GIVE_BACK_AFTER: Duration = Duration::from_millis(50);

/// How often a claim is asked for that lapses before anybody looks at it. A runtime that stands still this often has
/// other worries.
pub(super) const MOST_LAPSES: u32 = 8;

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

/// What the one atomic step leads to.
#[allow(clippy::large_enum_variant, reason = "it is taken apart at once, on the way of every claim")]
pub(super) enum Won {
    Acquired(Acquired, Seen),
    Answered(Decision),
    /// The claim that was made with the same claim id is over.
    Stale,
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
        let (command, fence) = match self.asked(call, call.policy.lease(), self.inner.store.owner(), None)? {
            Ok(asked) => asked,
            Err(decision) => return Ok(Begun::Answered(decision)),
        };
        let from = Instant::now();
        let due = from + call.policy.deadline.unwrap_or(Duration::MAX).min(renewed_after(call.policy.lease()));
        let (ledger, call) = (self.clone(), call.clone());
        let asking = Box::pin(async move { ledger.claim(&call, command, fence, from).await });
        Claiming::new(&self.inner.upkeep, due, asking).await
    }

    /// What is asked of the store, with a fence of its own; or the answer, if the cache has it.
    pub(super) fn asked(
        &self,
        call: &Call,
        lease: Duration,
        owner: Option<Owner>,
        claim: Option<ClaimId>,
    ) -> Result<Result<(Command, Fence), Decision>, Error> {
        let mut command = call.begin(Take {
            fence: NO_FENCE,
            lease,
            marks_sent: call.policy.marks_sent,
            probes: call.policy.probes,
            owner,
            claim,
        });
        if let Some(decision) = self.at_hand(call, &command) {
            return Ok(Err(self.noted(decision)));
        }
        let fence = fence()?;
        set_fence(&mut command, fence);
        Ok(Ok((command, fence)))
    }

    /// Answers from the cache, if that needs no write.
    fn at_hand(&self, call: &Call, command: &Command) -> Option<Decision> {
        // Another process may have written meanwhile that the outcome was delivered.
        if call.policy.after_delivery.is_some() {
            return None;
        }
        let now = self.inner.store.now()?;
        let id = cache::place(call.identity.digest(), Some(&call.identity));
        let record = self.inner.cache.get(&id)?;
        let now = if planted(Plant::CacheServesExpired) { record.updated_at } else { now };
        let seen = Seen { record: (*record).clone(), now, owner_gone: false };
        match decide(Some(&seen), command) {
            Transition { write: Write::None, answer: Answer::Decision(decision), .. } => Some(decision),
            // Expired by now: whatever is to be done, the store has the say.
            _ => {
                self.inner.cache.forget(&id);
                None
            }
        }
    }

    /// Asks until the answer is one that holds: a claim that nobody looked at in time may be somebody else's by now, and
    /// as nothing was done under it, it is asked for anew.
    async fn claim(
        &self,
        call: &Call,
        mut command: Command,
        mut take: Fence,
        mut from: Instant,
    ) -> Result<Asked, Error> {
        for _ in 0..MOST_LAPSES {
            match self.contest(call, &command, take).await? {
                Won::Answered(decision) => return Ok(Asked::Answered(decision)),
                // Only a claim id can be used up, and none was given.
                Won::Stale => break,
                Won::Acquired(acquired, seen) => {
                    let (guard, mut renewal) = Guard::new(self.clone(), call, acquired, seen, from);
                    if renewal.is_fresh().await {
                        return Ok(Asked::Acquired(guard, renewal));
                    }
                }
            }
            (take, from) = (fence()?, Instant::now());
            set_fence(&mut command, take);
        }
        Err(Error::Contended { intent: call.name() })
    }

    /// The one atomic step: this caller has the claim now, or is told why not.
    pub(super) async fn contest(&self, call: &Call, command: &Command, fence: Fence) -> Result<Won, Error> {
        reached(Step::BeginDecided);
        let driven = match self.ask(call, command).await {
            Ok(driven) => driven,
            Err(stuck @ (Stuck::Contended | Stuck::Full(_))) => return Err(stuck.about(call.name())),
            Err(Stuck::Store(error)) => {
                // Where the work will run all the same, a claim that may have been written must not be given back
                // as if it had not: it lapses into doubt.
                // A claim with an id is not given back either: a repeat of the request may have been granted it meanwhile.
                if !call.runs_without(&error) && claim_id(command).is_none() {
                    let why = "the store failed before the work began";
                    self.give_back(call.identity.digest(), given_back(fence, why), GIVE_BACK_AFTER);
                }
                return Err(error.into());
            }
        };
        match (driven.answer, driven.written) {
            (Answer::Decision(Decision::Acquired(acquired)), Some(seen)) => {
                reached(Step::BeginWritten);
                self.inner.sweep_now_and_then(count(&self.inner.stats.acquired));
                Ok(Won::Acquired(acquired, seen))
            }
            (Answer::Decision(decision), _) => {
                if let Some(found) = driven.found {
                    self.inner.cache.keep(&found.record);
                }
                Ok(Won::Answered(self.noted(decision)))
            }
            (Answer::Stale { .. }, _) => Ok(Won::Stale),
            (Answer::Accepted | Answer::Refused(_) | Answer::Archived, _) => {
                Err(Error::Contended { intent: call.name() })
            }
        }
    }

    /// Nothing is read before an insert. Only an item that cannot be the first of its stream looks at the head, and a
    /// write holds only if the head is still that one.
    async fn ask(&self, call: &Call, command: &Command) -> Result<Driven, Stuck> {
        match command {
            // An item of a stream takes more steps, for which a plain call need not have room.
            Command::BeginItem(begin) => Box::pin(self.ask_item(call, command, begin)).await,
            _ => self.inner.drive(None, command, None).await,
        }
    }

    async fn ask_item(&self, call: &Call, command: &Command, begin: &BeginItem) -> Result<Driven, Stuck> {
        let head = match begin.item.number == begin.item.start {
            true => None,
            false => self.inner.store.get(call.identity.digest()).await?,
        };
        let driven = self.inner.drive(head, command, None).await?;
        if driven.answer == Answer::Archived { self.recall(begin).await } else { Ok(driven) }
    }

    /// What is kept of an item that its stream is past. It was archived before the head went on.
    async fn recall(&self, begin: &BeginItem) -> Result<Driven, Stuck> {
        let seen = self.inner.store.get(begin.item.identity().digest()).await?;
        let answer = decide(seen.as_ref(), &Command::Recall(begin.clone())).answer;
        Ok(Driven { answer, written: None, found: None })
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

    /// A write whose answer was lost may have held, or nobody was there any more to take it. Nothing has started, so the
    /// claim, if there is one, is given back rather than left to lapse into doubt.
    pub(super) fn give_back(&self, id: Digest, command: Command, after: Duration) {
        let inner = Arc::clone(&self.inner);
        tokio::spawn(async move {
            let mut pause = after;
            for _ in 0..GIVE_BACK_TRIES {
                tokio::time::sleep(pause).await;
                if inner.drive_by_id(id, &command, None).await.is_ok() {
                    // Somebody may have seen the claim and be waiting for an owner that there never was.
                    inner.waiters.wake(&id);
                    return;
                }
                pause = (pause * 4).max(GIVE_BACK_AFTER);
            }
        });
    }
}

/// Gives a claim back whose fence no caller knows.
pub(super) fn given_back(fence: Fence, why: &str) -> Command {
    Command::Release { fence, not_before: Duration::ZERO, error: Some(why.to_owned()) }
}

/// The id that the caller chose for the claim that it asks for.
pub(super) fn claim_id(command: &Command) -> Option<ClaimId> {
    match command {
        Command::Begin(begin) | Command::BeginItem(BeginItem { begin, .. }) => begin.take.claim,
        _ => None,
    }
}

pub(super) fn set_fence(command: &mut Command, fence: Fence) {
    if let Command::Begin(begin) | Command::BeginItem(BeginItem { begin, .. }) = command {
        begin.take.fence = fence;
    }
}

/// 128 random bits that name one claim.
pub(super) fn fence() -> Result<Fence, Error> {
    let mut bits = [0u8; 16];
    getrandom::fill(&mut bits).map_err(|error| Invalid::Randomness(error.to_string()))?;
    Ok(Fence::from_bytes(bits))
}
