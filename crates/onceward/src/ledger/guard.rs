//! A claim that was granted. It renews itself while the work runs, and however it ends, the record says so.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use onceward_core::decide::{Acquired, Answer, Command, decide};
use onceward_core::hash::{Digest, digest};
use onceward_core::outcome::Outcome;
use onceward_core::plant::{Plant, planted};
use onceward_core::policy::{InDoubt, LARGEST_KEEP_LIMIT};
use onceward_core::record::{Phase, Seen, State};

use super::carried_on::CarriedOn;
use super::claim::Claim;
use super::claiming::Renewed;
use super::delivery::Delivery;
use super::drive::{Driven, Stuck};
use super::late::Reporter;
use super::{Call, Ledger};
use crate::error::Error;
use crate::step::{Step, reached};
use crate::store;

/// A lease is renewed when a third of it is over: two more tries are left before it lapses.
const RENEW_AFTER: u32 = 3;

/// A timer cannot be set for longer; work that takes a year is not waited for.
const LONGEST_DEADLINE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What a record says of an attempt that is past its deadline.
const OVERDUE: &str = "it is past its deadline and has not ended";

/// A claim that is renewed as often before it is granted is granted: its store is slower than its lease.
const MOST_LOOKS: u32 = 4;

/// A finished outcome is too good to lose: this is how long its owner insists before it tells the caller that it
/// could not be recorded. The tries go on behind the caller's back.
/// Longer than the embedded store waits for a lock.
const INSIST: Duration = Duration::from_secs(30);

/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Whether a write of the owner held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It is written.
    Written,
    /// The claim was superseded; nothing changed, and a late outcome is in the audit trail.
    Stale,
}

/// The right to do the work, as its owner holds it. Dropping it says that nobody knows what happened.
pub struct Guard {
    held: Arc<Held>,
    /// Has it renewed; `None` until the caller has it.
    renewed: Option<Renewed>,
    runtime: Handle,
    /// The caller has it in its hands: from now on nobody else knows what it does.
    started: bool,
    ended: bool,
}

/// What an owner holds.
pub(super) struct Held {
    ledger: Ledger,
    pub(super) call: Call,
    pub(super) acquired: Acquired,
    /// The record as this owner last wrote it.
    last: Arc<Mutex<Seen>>,
    pub(super) marked_sent: AtomicBool,
    lost: Lost,
    /// Its guard is gone, so there is nothing to renew.
    over: AtomicBool,
}

/// Whether somebody else may go on with the work, and who waits to hear it. Most work is over before anybody would.
#[derive(Default)]
struct Lost {
    is_lost: AtomicBool,
    told: Notify,
}

impl Lost {
    fn tell(&self) {
        self.is_lost.store(true, Ordering::SeqCst);
        self.told.notify_waiters();
    }

    async fn heard(&self) {
        // Before the look: what is told after it is heard too.
        let told = self.told.notified();
        if !self.is_lost.load(Ordering::SeqCst) {
            told.await;
        }
    }
}

/// What is left to do for a claim that was granted.
pub(super) struct Renewal {
    held: Arc<Held>,
    from: Instant,
}

impl Guard {
    /// A claim whose lease is counted from before it was asked for.
    pub(super) fn new(ledger: Ledger, call: &Call, acquired: Acquired, seen: Seen, from: Instant) -> (Self, Renewal) {
        ledger.inner.held.fetch_add(1, Ordering::SeqCst);
        let held = Arc::new(Held {
            ledger,
            call: call.clone(),
            acquired,
            last: Arc::new(Mutex::new(seen)),
            marked_sent: AtomicBool::new(false),
            lost: Lost::default(),
            over: AtomicBool::new(false),
        });
        let renewal = Renewal { held: Arc::clone(&held), from };
        (Self { held, renewed: None, runtime: Handle::current(), started: false, ended: false }, renewal)
    }

    /// The caller has it: what happens from here on is the caller's.
    pub(super) fn start(&mut self, renewed: Renewed) {
        self.started = true;
        self.renewed = Some(renewed);
    }

    fn stop_renewing(&mut self) {
        self.held.over.store(true, Ordering::SeqCst);
        self.renewed = None;
    }

    /// The claim, for the work.
    pub fn claim(&self) -> Claim {
        Claim::of(&self.held)
    }

    /// The downstream key of this record, rather than of its intent: the same on every attempt until the record is forgotten,
    /// and another one for the next record of the intent. For keys that hold for a while only, where a later equal call is
    /// meant, and the provider may remember for longer.
    pub fn record_key(&self) -> String {
        let created_at = self.held.last().record.created_at.as_millis();
        let text = format!("{} {created_at}", self.claim().downstream_key());
        format!("once_v1_{}", &digest(text.as_bytes()).to_hex()[..32])
    }

    /// What records that the caller got the answer to this claim, once it has one: for policies with
    /// [`after_delivery`](crate::Policy::after_delivery) or [`InDoubt::Tell`].
    pub fn delivery(&self) -> Delivery {
        Delivery::of_claim(&self.held.ledger, self.held.acquired.fence, &self.held.last)
    }

    /// The work is finished: the outcome is kept and given to every repeat. An answer over the policy's limit
    /// is remembered as done, and not kept.
    pub async fn finish(self, outcome: Outcome) -> Result<Reach, Error> {
        let outcome = outcome.within(self.held.call.policy.keep_limit.min(LARGEST_KEEP_LIMIT));
        let held = Arc::clone(&self.held);
        let command = Command::Finish { fence: self.held.acquired.fence, outcome: outcome.clone() };
        reached(Step::FinishDecided);
        let ended = self.end(command).await;
        reached(Step::FinishWritten);
        ended.map_err(|source| Error::NotRecorded { intent: held.call.name(), outcome: Box::new(outcome), source })
    }

    /// It is proven that this attempt did nothing. The next begin may try, after `not_before`.
    pub async fn release(self, not_before: Duration, error: Option<&str>) -> Result<Reach, Error> {
        let command = Command::Release { fence: self.held.acquired.fence, not_before, error: error.map(shortened) };
        let ended = self.end(command).await;
        reached(Step::ReleaseWritten);
        Ok(ended?)
    }

    /// Nobody knows whether this attempt did anything. If nothing was sent yet, this is a release.
    pub async fn doubt(self, error: Option<&str>) -> Result<Reach, Error> {
        let command = Command::Doubt { fence: self.held.acquired.fence, error: error.map(shortened) };
        let ended = self.end(command).await;
        reached(Step::DoubtWritten);
        Ok(ended?)
    }

    /// Writes how the claim ended. A caller that goes away now must not turn a known end into a doubt.
    async fn end(mut self, command: Command) -> Result<Reach, store::Error> {
        self.ended = true;
        self.stop_renewing();
        if planted(Plant::FinishNotWritten) && matches!(command, Command::Finish { .. }) {
            return Ok(Reach::Written);
        }
        let (held, home) = (Arc::clone(&self.held), self.runtime.clone());
        let writing = CarriedOn::new(&self.runtime, async move {
            match held.try_write(&command).await {
                Ok(reach) => Ok(reach),
                // To try again takes timers, and those of whoever polls now may go away before it has held.
                Err(_) => {
                    let insisting = home.spawn(async move { held.insist(&command).await });
                    insisting.await.unwrap_or(Err(store::Error::Closed))
                }
            }
        });
        tokio::time::timeout(INSIST, writing).await.unwrap_or_else(|_| Err(no_answer()))
    }

    /// Resolves when somebody else may go on with the work, so that this owner should stop.
    pub async fn lost(&self) {
        self.held.lost.heard().await;
    }

    pub(crate) fn call(&self) -> &Call {
        &self.held.call
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        self.stop_renewing();
        let held = Arc::clone(&self.held);
        let fence = held.acquired.fence;
        let command = if self.started && !planted(Plant::DroppedWorkReleased) {
            Command::Doubt { fence, error: Some("the work was dropped before it ended".to_owned()) }
        } else {
            let error = Some("the caller went away before the work began".to_owned());
            Command::Release { fence, not_before: Duration::ZERO, error }
        };
        self.runtime.spawn(async move {
            if let Err(error) = held.insist(&command).await {
                tracing::warn!(intent = held.call.name(), %error, "a dropped claim is left to lapse");
            }
        });
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&format_args!("{}", self.held.call.name())).finish()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.ledger.inner.held.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.ledger.inner.none_held.notify_waiters();
        }
    }
}

impl Held {
    /// One write of the owner, from the record as it was last written: nothing is read before.
    pub(super) async fn write(&self, command: &Command) -> Result<Reach, Error> {
        self.try_write(command).await.map_err(|stuck| stuck.about(self.call.name()))
    }

    async fn try_write(&self, command: &Command) -> Result<Reach, Stuck> {
        let last = self.last().clone();
        let id = last.record.id;
        let Driven { answer, written, .. } = self.ledger.inner.drive(Some(last), command, None).await?;
        if let Some(seen) = written {
            self.ledger.inner.wrote(&seen.record);
            let mut last = self.last();
            // A renewal that was overtaken must not bring an older record back.
            if seen.record.version > last.record.version {
                *last = seen;
            }
        }
        match answer {
            Answer::Stale { contradicts } => {
                let reach = Box::pin(self.late(id, command, contradicts)).await?;
                Ok(if planted(Plant::LateOwnerToldWritten) { Reach::Written } else { reach })
            }
            Answer::Accepted | Answer::Decision(_) => Ok(Reach::Written),
            Answer::Refused(_) | Answer::Archived => Ok(Reach::Stale),
        }
    }

    /// Tries until the store answers. An owner that is late is still the best news there is.
    async fn insist(&self, command: &Command) -> Result<Reach, store::Error> {
        let mut pause = Duration::from_millis(20);
        let give_up = Instant::now() + self.call.policy.lease();
        loop {
            match self.try_write(command).await {
                Ok(reach) => return Ok(reach),
                Err(Stuck::Store(error)) if Instant::now() >= give_up || is_final(&error) => return Err(error),
                Err(Stuck::Store(error)) => {
                    tracing::warn!(intent = self.call.name(), %error, "an outcome could not be recorded yet");
                }
                // An owner makes no new record, so it meets no quota.
                Err(Stuck::Contended | Stuck::Full(_)) => {}
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// A superseded owner's outcome changes nothing, but it is not forgotten.
    async fn late(&self, id: Digest, command: &Command, contradicts: bool) -> Result<Reach, Stuck> {
        let Command::Finish { outcome, .. } = command else { return Ok(Reach::Stale) };
        let (id, contradicts) = match self.judged(id, command).await? {
            Some((_, Answer::Accepted)) => return Ok(Reach::Written),
            Some((id, Answer::Stale { contradicts })) => (id, contradicts),
            _ => (id, contradicts),
        };
        let item = self.call.sequence().map(|number| format!("item {number}, ")).unwrap_or_default();
        let who = format!("{item}attempt {}", self.acquired.attempt);
        let reporter = Reporter { intent: &self.call.name(), who, repeats: false };
        self.ledger.inner.keep_late(id, reporter, outcome, contradicts).await;
        Ok(Reach::Stale)
    }

    /// What an item's own record says to its late owner: the head may hold another item by now, which says nothing
    /// about this one.
    async fn judged(&self, head: Digest, command: &Command) -> Result<Option<(Digest, Answer)>, Stuck> {
        let Some(item) = &self.call.item else { return Ok(None) };
        let store = &self.ledger.inner.store;
        for id in [item.identity().digest(), head] {
            let seen = store.get(id).await?.filter(|seen| seen.record.sequence == Some(item.number));
            if let Some(seen) = seen {
                return Ok(Some((id, decide(Some(&seen), command).answer)));
            }
        }
        Ok(Some((head, decide(None, command).answer)))
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody else may do the work once the lease has lapsed.
    fn may_be_taken_over(&self) -> bool {
        let sent = matches!(&self.last().record.state, State::Leased(lease) if lease.phase != Phase::Claimed);
        !(sent && self.acquired.in_doubt == InDoubt::Hold)
    }
}

impl Renewal {
    /// Whether the claim is held for long enough to be granted. One that nobody looked at in time is renewed before:
    /// the record may have changed hands.
    pub(super) async fn is_fresh(&mut self) -> bool {
        // Nearly always, and then nothing is waited for.
        self.is_young() || Box::pin(self.made_fresh()).await
    }

    fn is_young(&self) -> bool {
        self.from.elapsed() < renewed_after(self.held.call.policy.lease())
    }

    async fn made_fresh(&mut self) -> bool {
        for _ in 0..MOST_LOOKS {
            if self.is_young() {
                return true;
            }
            let command = Command::Renew { fence: self.held.acquired.fence, lease: self.held.call.policy.lease() };
            let started = Instant::now();
            match self.held.try_write(&command).await {
                Ok(Reach::Written) => self.from = started,
                Ok(Reach::Stale) => return false,
                // It is held for as long as it was written for. The renewals to come insist, and say when it is lost.
                Err(_) => return self.from.elapsed() < self.held.call.policy.lease(),
            }
        }
        true
    }

    /// Renews until the guard is over.
    pub(super) async fn until_over(self) {
        renew(self.held, self.from).await;
    }
}

/// When a lease is to be renewed.
pub(super) fn renewed_after(lease: Duration) -> Duration {
    lease / RENEW_AFTER
}

/// Renews until it is aborted, and says once that the work is past its deadline. The lease is counted on the monotonic clock,
/// from before each write.
async fn renew(held: Arc<Held>, mut from: Instant) {
    let (lease, fence) = (held.call.policy.lease(), held.acquired.fence);
    let mut deadline = held.call.policy.deadline.map(|deadline| from + deadline.min(LONGEST_DEADLINE));
    loop {
        let renewal = from + renewed_after(lease);
        sleep_until(deadline.map_or(renewal, |deadline| deadline.min(renewal))).await;
        if held.over.load(Ordering::SeqCst) {
            return;
        }
        let is_overdue = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let command = match is_overdue {
            true => Command::Overdue { fence, lease, error: Some(OVERDUE.to_owned()) },
            false => Command::Renew { fence, lease },
        };
        let started = Instant::now();
        loop {
            let limit = (from + lease).max(started + LONGEST_PAUSE);
            let written = timeout_at(limit, held.try_write(&command)).await;
            match written.unwrap_or_else(|_| Err(Stuck::Store(no_answer()))) {
                Ok(Reach::Written) => {
                    reached(Step::Renewed);
                    from = started;
                    if is_overdue {
                        tracing::warn!(intent = held.call.name(), "past its deadline: in doubt until it ends");
                        deadline = None;
                    }
                    break;
                }
                // Somebody took over, or a person has settled it: whatever this owner still does is too much.
                Ok(Reach::Stale) => {
                    held.lost.tell();
                    return;
                }
                Err(_) => {
                    if Instant::now() >= from + lease && held.may_be_taken_over() {
                        held.lost.tell();
                        return;
                    }
                    sleep((lease / 20).clamp(Duration::from_millis(10), LONGEST_PAUSE)).await;
                }
            }
        }
    }
}

fn no_answer() -> store::Error {
    store::Error::Unreachable("it does not answer".to_owned())
}

/// Waiting does not mend these.
fn is_final(error: &store::Error) -> bool {
    matches!(
        error,
        store::Error::Closed
            | store::Error::Poisoned { .. }
            | store::Error::Corrupt { .. }
            | store::Error::Gone { .. }
            | store::Error::NewerSchema { .. }
            | store::Error::OlderSchema { .. }
    )
}

/// Errors are kept for people; a page of them is enough.
pub(super) fn shortened(error: &str) -> String {
    const LONGEST: usize = 1000;
    match error.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &error[..end]),
        None => error.to_owned(),
    }
}
