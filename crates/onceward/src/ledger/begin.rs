//! One attempt to begin: answered from the cache if no write is needed, and otherwise by one atomic write. Does not wait,
//! and runs nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::plant::{Plant, planted};
use onceward_core::claim::ClaimId;
use onceward_core::decide::{Acquired, BeginItem, Command, CommandResult, Decision, Take, Transition, Write, decide};
use onceward_core::hash::Digest;
use onceward_core::record::{Fence, Seen};

use super::apply::{Applied, ApplyError};
use super::guard::Guard;
use super::lease::{Renewal, renew_after};
use super::{Call, CallBuilder, Inner, Ledger, cache, count};
use crate::error::{Error, Invalid};
use crate::step::{Step, reached};
use crate::store;

/// How often the ledger tries to give back a claim whose write may or may not have held.
const GIVE_BACK_TRIES: u32 = 6;

/// The first pause after a store failed, before it is asked again.
pub(super) const GIVE_BACK_PAUSE: Duration = Duration::from_millis(50);

/// How many claims may lapse before their caller has them. A runtime that stands still this often has other worries.
const MAX_LAPSES: u32 = 8;

/// How soon to ask again about a key that another program's transaction holds: such transactions are short.
const UNDECIDED_RETRY_AFTER: Duration = Duration::from_millis(100);

/// A lookup in the cache writes nothing, so it draws no random number either.
const NO_FENCE: Fence = Fence::from_bits(0);

/// The answer to [`Ledger::begin`].
#[derive(Debug)]
pub enum Begun {
    /// Do the work, then finish, release or doubt the guard.
    Acquired(Guard),
    /// There is no work to do. The decision says why.
    Answered(Decision),
}

/// What one attempt to begin leads to.
#[allow(clippy::large_enum_variant, reason = "it is taken apart at once, on the way of every claim")]
pub(super) enum Attempt<C> {
    Acquired(C),
    Answered(Decision),
    /// A transaction of another program holds the key. To a caller that is work in flight, without a record to watch.
    Undecided,
    /// The claim that was made with the same claim id is over.
    Stale,
}

impl<C> Attempt<C> {
    /// Whether another caller is doing the work now.
    pub(super) fn is_running(&self) -> bool {
        matches!(self, Self::Answered(Decision::InFlight { running: true, .. }) | Self::Undecided)
    }

    pub(super) fn map<T>(self, map: impl FnOnce(C) -> T) -> Attempt<T> {
        match self {
            Self::Acquired(claim) => Attempt::Acquired(map(claim)),
            Self::Answered(decision) => Attempt::Answered(decision),
            Self::Undecided => Attempt::Undecided,
            Self::Stale => Attempt::Stale,
        }
    }
}

/// The claimant: a caller in this process, or a server on behalf of a remote caller. Both begin in the same way, and
/// differ in how the claim is held.
pub(super) trait Claimant: Send + Sync + Sized + 'static {
    /// The claim, as this caller gets it.
    type Claim: Send;

    /// A claim that was written and is not the caller's yet.
    type Won: Send;

    /// How the claim is to be held. The fence is drawn later.
    fn take(&self, ledger: &Ledger, call: &Call) -> Take;

    /// Makes one attempt. It is finished even if the caller stops waiting: then the claim is withdrawn.
    fn begin(&self, ledger: &Ledger, call: &Call) -> impl Future<Output = Result<Attempt<Self::Claim>, Error>> + Send;

    /// Takes a claim that was just written; `None` if it was lost before its caller could have it.
    fn won(
        &self,
        ledger: &Ledger,
        request: &BeginRequest,
        acquired: Acquired,
        seen: Seen,
    ) -> impl Future<Output = Option<Self::Won>> + Send;
}

/// A caller in this process. Its claims are renewed while it works.
pub(super) struct LocalCaller;

impl Claimant for LocalCaller {
    type Claim = Guard;
    type Won = (Guard, Renewal);

    fn take(&self, ledger: &Ledger, call: &Call) -> Take {
        Take { owner: ledger.inner.store.owner(), ..take(call, call.policy.lease()) }
    }

    async fn begin(&self, ledger: &Ledger, call: &Call) -> Result<Attempt<Guard>, Error> {
        let request = match ledger.prepare(self, call)? {
            Prepared::Answered(decision) => return Ok(Attempt::Answered(decision)),
            Prepared::Request(request) => request,
        };
        let renewal = renew_after(call.policy.lease());
        let due = request.started + call.policy.deadline.unwrap_or(Duration::MAX).min(renewal);
        let this = ledger.clone();
        let attempt = Box::pin(async move { this.claim(&Self, request).await });
        ledger.inner.leases.begin(due, attempt).await
    }

    async fn won(
        &self,
        ledger: &Ledger,
        request: &BeginRequest,
        acquired: Acquired,
        seen: Seen,
    ) -> Option<(Guard, Renewal)> {
        let (guard, mut renewal) = Guard::new(ledger.clone(), &request.call, acquired, seen, request.started);
        // A guard that is dropped here has not started, and is withdrawn.
        renewal.is_held().await.then_some((guard, renewal))
    }
}

/// How a claim is held by default.
pub(super) fn take(call: &Call, lease: Duration) -> Take {
    let (marks_sent, probes) = (call.policy.marks_sent, call.policy.probes);
    Take { fence: NO_FENCE, lease, marks_sent, probes, owner: None, claim: None }
}

/// A begin that is ready for the store.
pub(super) struct BeginRequest {
    pub(super) call: Call,
    command: Command,
    /// Names the claim that this request asks for.
    pub(super) fence: Fence,
    /// From when the lease is counted: before the store is asked.
    pub(super) started: Instant,
}

/// A begin before the store is asked.
#[allow(clippy::large_enum_variant, reason = "it is taken apart at once, on the way of every claim")]
pub(super) enum Prepared {
    /// The cache has the answer.
    Answered(Decision),
    Request(BeginRequest),
}

impl BeginRequest {
    /// The same request for another claim.
    fn renewed(mut self) -> Result<Self, Error> {
        (self.fence, self.started) = (new_fence()?, Instant::now());
        set_fence(&mut self.command, self.fence);
        Ok(self)
    }

    /// The id that the caller chose for the claim.
    fn claim_id(&self) -> Option<ClaimId> {
        match &self.command {
            Command::Begin(begin) | Command::BeginItem(BeginItem { begin, .. }) => begin.take.claim,
            _ => None,
        }
    }
}

impl CallBuilder {
    /// Begins the call, without waiting. Decisions come back as values; see [`CallBuilder::run`] for the short way.
    pub async fn begin(&self) -> Result<Begun, Error> {
        let call = self.call()?;
        self.ledger.begin(&call).await
    }
}

impl Ledger {
    /// Begins a call, without waiting: the first step of [`Ledger::start`]. A store that is down is an error, whatever the
    /// policy says.
    pub async fn begin(&self, call: &Call) -> Result<Begun, Error> {
        match LocalCaller.begin(self.home(&call.identity.operation), call).await? {
            Attempt::Acquired(guard) => Ok(Begun::Acquired(guard)),
            Attempt::Answered(decision) => Ok(Begun::Answered(decision)),
            Attempt::Undecided => Ok(Begun::Answered(undecided())),
            // Only a claim id can be used up, and a local caller has none.
            Attempt::Stale => Err(Error::Contended { intent: call.name() }),
        }
    }

    /// Looks into the cache, and otherwise prepares the request with a fence of its own.
    pub(super) fn prepare(&self, claimant: &impl Claimant, call: &Call) -> Result<Prepared, Error> {
        let mut command = call.command(claimant.take(self, call));
        if let Some(decision) = self.cached(call, &command) {
            return Ok(Prepared::Answered(self.counted(decision)));
        }
        let fence = new_fence()?;
        set_fence(&mut command, fence);
        Ok(Prepared::Request(BeginRequest { call: call.clone(), command, fence, started: Instant::now() }))
    }

    /// Answers from the cache, if that needs no write.
    fn cached(&self, call: &Call, command: &Command) -> Option<Decision> {
        // Another process may have recorded meanwhile that the outcome was delivered.
        if call.policy.after_delivery.is_some() {
            return None;
        }
        let now = self.inner.store.now()?;
        let id = cache::key(call.identity.digest(), Some(&call.identity));
        let record = self.inner.cache.get(&id)?;
        let now = if planted(Plant::CacheServesExpired) { record.updated_at } else { now };
        let seen = Seen { record: (*record).clone(), now, owner_gone: false };
        match decide(Some(&seen), command) {
            Transition { write: Write::None, answer: CommandResult::Decision(decision), .. } => Some(decision),
            // Expired by now: the store decides.
            _ => {
                self.inner.cache.forget(&id);
                None
            }
        }
    }

    /// Asks until the answer holds. A claim that lapsed before its caller had it may be another caller's by now. Nothing was
    /// done under it, so a new one is asked for.
    pub(super) async fn claim<C: Claimant>(
        &self,
        claimant: &C,
        mut request: BeginRequest,
    ) -> Result<Attempt<C::Won>, Error> {
        self.check_durability(&request.call).await?;
        self.inner.place(&request.call.identity).await?;
        for _ in 0..MAX_LAPSES {
            match self.begin_once(&request).await? {
                Attempt::Answered(decision) => return Ok(Attempt::Answered(decision)),
                Attempt::Undecided => return Ok(Attempt::Undecided),
                Attempt::Stale => return Ok(Attempt::Stale),
                Attempt::Acquired((acquired, seen)) => {
                    if let Some(won) = claimant.won(self, &request, acquired, seen).await {
                        return Ok(Attempt::Acquired(won));
                    }
                }
            }
            request = request.renewed()?;
        }
        Err(Error::Contended { intent: request.call.name() })
    }

    /// The one atomic step: this caller has the claim now, or the answer says why not.
    async fn begin_once(&self, request: &BeginRequest) -> Result<Attempt<(Acquired, Seen)>, Error> {
        let call = &request.call;
        reached(Step::BeginDecided);
        let applied = match self.apply_begin(call, &request.command).await {
            Ok(applied) => applied,
            Err(ApplyError::Undecided) => return Ok(Attempt::Undecided),
            Err(error @ (ApplyError::Contended | ApplyError::QuotaReached(_))) => return Err(error.about(call.name())),
            Err(ApplyError::Store(error)) => {
                // Where the work will run without a record, a claim that may have been written must not be given back as if
                // nothing ran: it lapses into doubt. A claim with an id is not given back either: a repeat of the request
                // may have been granted it meanwhile.
                if !call.may_run_without_store(&error) && request.claim_id().is_none() {
                    let why = "the store failed before the work began";
                    let late = matches!(error, store::Error::Unanswered(_)).then(|| request.command.clone());
                    self.give_back(call.identity.digest(), withdrawal(request.fence, why), late, GIVE_BACK_PAUSE);
                }
                return Err(error.into());
            }
        };
        match (applied.answer, applied.written) {
            (CommandResult::Decision(Decision::Acquired(acquired)), Some(seen)) => {
                reached(Step::BeginWritten);
                self.inner.sweep_now_and_then(count(&self.inner.stats.acquired));
                Ok(Attempt::Acquired((acquired, seen)))
            }
            (CommandResult::Decision(decision), _) => {
                if let Some(found) = applied.found {
                    self.inner.cache.keep(&found.record);
                }
                Ok(Attempt::Answered(self.counted(decision)))
            }
            (CommandResult::Stale { .. }, _) => Ok(Attempt::Stale),
            (CommandResult::Accepted | CommandResult::Refused(_) | CommandResult::Archived, _) => {
                Err(Error::Contended { intent: call.name() })
            }
        }
    }

    /// Nothing is read before an insert. Only an item that cannot be the first of its stream reads the head first, and the
    /// write holds only if the head has not changed.
    async fn apply_begin(&self, call: &Call, command: &Command) -> Result<Applied, ApplyError> {
        match command {
            // An item of a stream takes more steps, for which a plain call need not have room.
            Command::BeginItem(begin) => Box::pin(self.apply_begin_item(call, command, begin)).await,
            _ => self.inner.apply(None, command, None).await,
        }
    }

    async fn apply_begin_item(&self, call: &Call, command: &Command, begin: &BeginItem) -> Result<Applied, ApplyError> {
        let head = match begin.item.number == begin.item.start {
            true => None,
            false => self.inner.store.get(call.identity.digest()).await?,
        };
        let applied = self.inner.apply(head, command, None).await?;
        if applied.answer == CommandResult::Archived { self.recall(begin).await } else { Ok(applied) }
    }

    /// Reads what is kept of an item that its stream is past. It was archived before the head went on.
    async fn recall(&self, begin: &BeginItem) -> Result<Applied, ApplyError> {
        let seen = self.inner.store.get(begin.item.identity().digest()).await?;
        let answer = decide(seen.as_ref(), &Command::Recall(begin.clone())).answer;
        Ok(Applied { answer, written: None, found: None })
    }

    fn counted(&self, decision: Decision) -> Decision {
        if matches!(decision, Decision::Replay { .. }) {
            count(&self.inner.stats.replayed);
        }
        if decision == Decision::Collision {
            tracing::error!("two different intents have the same derived key");
            count(&self.inner.stats.collisions);
        }
        decision
    }

    /// Gives a claim back in the background. The answer to its write was lost, or its caller has gone away. Nothing has
    /// started, so the claim, if it was written, is withdrawn rather than left to lapse into doubt. `late` is the command of a
    /// claim that may still be written: that no claim is there proves nothing then.
    pub(super) fn give_back(&self, id: Digest, command: Command, late: Option<Command>, after: Duration) {
        let inner = Arc::clone(&self.inner);
        tokio::spawn(async move {
            let mut pause = after;
            for _ in 0..GIVE_BACK_TRIES {
                tokio::time::sleep(pause).await;
                let is_settled = match &late {
                    None => inner.apply_by_id(id, &command, None).await.is_ok(),
                    Some(late) => inner.withdraw_late(id, &command, late).await.unwrap_or(false),
                };
                if is_settled {
                    // A caller may have seen the claim, and wait for an owner that never started.
                    inner.waiters.wake(&id);
                    return;
                }
                pause = (pause * 4).max(GIVE_BACK_PAUSE);
            }
        });
    }
}

impl Inner {
    /// Withdraws a claim that may still be written. Where there is no record, the claim is made and withdrawn: the late write then
    /// finds its place taken. Returns whether it can do no harm any more; under another claim, it may still replace the record.
    async fn withdraw_late(&self, id: Digest, command: &Command, late: &Command) -> Result<bool, ApplyError> {
        let mut seen = self.store.get(id).await?;
        if let (None, Write::Insert(draft)) = (&seen, decide(None, late).write) {
            // Whatever the quota: it takes the place of a claim that was within it.
            self.store.insert(draft, None).await?;
            seen = self.store.get(id).await?;
        }
        Ok(self.apply(seen, command, None).await?.written.is_some())
    }
}

/// What a caller is told about a key that another program's transaction holds.
pub(super) fn undecided() -> Decision {
    Decision::InFlight { retry_after: UNDECIDED_RETRY_AFTER, running: true, attempt: 1 }
}

/// Withdraws a claim whose fence no caller knows: nothing was done under it, so a caller that waits takes its turn.
pub(super) fn withdrawal(fence: Fence, why: &str) -> Command {
    Command::Withdraw { fence, error: Some(why.to_owned()) }
}

fn set_fence(command: &mut Command, fence: Fence) {
    if let Command::Begin(begin) | Command::BeginItem(BeginItem { begin, .. }) = command {
        begin.take.fence = fence;
    }
}

/// 128 random bits that name one claim.
pub(super) fn new_fence() -> Result<Fence, Error> {
    let mut bits = [0u8; 16];
    getrandom::fill(&mut bits).map_err(|error| Invalid::Randomness(error.to_string()))?;
    Ok(Fence::from_bytes(bits))
}
