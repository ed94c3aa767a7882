//! What is known of one client: its name, whether it announces that it ran out of time, and which answers it was given.
//!
//! An answer counts as delivered when it was written whole, no cancellation names its call, and the client would have said
//! that it ran out of time: because it is known to announce that, because the call was shorter than the patience of any
//! client, or because the client ended in order right after the answer. Any other answer counts as not delivered.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use onceward::core::hash::Fields;
use onceward::core::name::Tenant;
use onceward::core::plant::{Plant, planted};
use onceward::core::policy::{Policy, Retention};
use onceward::core::record::Status;
use onceward::{Delivery, Ledger, Operation};
use tokio::time::Instant;

use super::books::Books;
use super::delivery::Receipt;
use super::members::Members;
use super::message::Id;

/// No client that gives up silently has less patience, unless the configuration says so: the shortest default of a known
/// one is 5 s.
pub(super) const PATIENCE: Duration = Duration::from_secs(4);

/// How soon after an answer a client that got it ends in order.
const PARTING: Duration = Duration::from_secs(1);

/// How many answers and cancellations of a client are remembered.
const REMEMBERED: usize = 256;

/// The longest id of a request that is remembered. Those of clients are numbers and short texts.
const LONGEST_ID: usize = 1024;

/// How long it is remembered that a client announces time-outs.
const ANNOUNCES_FOR: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// Clients that announce time-outs and are known to.
const ANNOUNCING: [&str; 1] = ["claude-code"];

/// Where a request of the newest generation says who sends it.
const CLIENT: &str = "io.modelcontextprotocol/clientInfo";

/// One client.
#[derive(Debug)]
pub(super) struct Client {
    /// The shortest time after which it may have given up silently.
    patience: Duration,
    introduced: OnceLock<Introduced>,
    announces: AtomicBool,
    answers: Mutex<Answers>,
}

/// What a client says of itself, and how it opened.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Introduced {
    name: String,
    version: String,
    /// With `server/discover` instead of `initialize`. Generations of an SDK that call themselves the same differ in this.
    discovers: bool,
}

#[derive(Debug, Default)]
struct Answers {
    given: VecDeque<Given>,
    /// How many of them, from the first, came before the client's last message.
    heard: usize,
    /// Calls that were cancelled before they were answered.
    cancelled: VecDeque<Id>,
    /// The client sends nothing more. Whether it reads on is judged when we end.
    is_ending: bool,
    /// That was judged.
    is_judged: bool,
}

#[derive(Debug)]
struct Given {
    id: Id,
    delivery: Delivery,
    at: Instant,
    /// It counts as delivered.
    counts: bool,
    /// The events of its stream before the answer, from which a reader could go on.
    events: Vec<String>,
    /// It was given after the client's end.
    is_after_the_end: bool,
}

impl Client {
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, introduced: OnceLock::new(), announces: AtomicBool::new(false), answers: Mutex::default() }
    }

    /// It says who it is: in `initialize`, or in a request of the newest generation.
    pub(super) fn introduce(&self, parameters: &Members, discovers: bool) {
        let info = match discovers {
            true => parameters.object("_meta").and_then(|meta| meta.object(CLIENT)),
            false => parameters.object("clientInfo"),
        };
        let text = |name: &str| info.as_ref().and_then(|info| info.text(name)).unwrap_or_default();
        let introduced = Introduced { name: text("name"), version: text("version"), discovers };
        if discovers || ANNOUNCING.contains(&introduced.name.as_str()) {
            self.announces.store(true, Ordering::Relaxed);
        }
        let _ = self.introduced.set(introduced);
    }

    pub(super) fn is_introduced(&self) -> bool {
        self.introduced.get().is_some()
    }

    /// Whether it says so when it gives up on a call.
    pub(super) fn announces(&self) -> bool {
        self.announces.load(Ordering::Relaxed)
    }

    /// What it calls itself.
    pub(super) fn name(&self) -> &str {
        self.introduced.get().map_or("", |introduced| &introduced.name)
    }

    /// Whether an earlier client of this name has announced a time-out.
    pub(super) async fn recall(&self, books: &Books, tenant: &Tenant) {
        let Ok(ledger) = books.ledger().await else { return };
        let call = self.memory(&ledger, tenant).and_then(|memory| memory.call().ok());
        let Some(call) = call else { return };
        if let Ok(Some(intent)) = ledger.get(&call.identity).await
            && intent.status() == Some(Status::Done)
        {
            self.announces.store(true, Ordering::Relaxed);
        }
    }

    /// Where it is remembered that clients of this name announce time-outs: an intent like any other.
    fn memory(&self, ledger: &Ledger, tenant: &Tenant) -> Option<Operation> {
        let Introduced { name, version, discovers } = self.introduced.get()?;
        let said = Fields::new().field(name).field(version).field([u8::from(*discovers)]).digest();
        let policy = Policy {
            retention: Some(Retention::For(ANNOUNCES_FOR)),
            tombstone: Some(Duration::ZERO),
            ..Policy::window(ANNOUNCES_FOR)
        };
        let operation = ledger.operation("onceward:client-announces-time-outs").tenant(tenant.as_str());
        Some(operation.key(&said.to_hex()[..32]).policy(policy))
    }

    /// It was given an answer, whole.
    pub(super) fn got(&self, id: &Id, receipt: Receipt) {
        self.got_as_event(id, receipt, Vec::new());
    }

    /// It was given an answer, whole, after these events of a stream.
    pub(super) fn got_as_event(&self, id: &Id, receipt: Receipt, events: Vec<String>) {
        let Receipt { delivery, since, open } = receipt;
        let mut answers = self.answers();
        if answers.take_cancelled(id) && !planted(Plant::CancelledCounts) {
            return;
        }
        let would_say =
            self.announces.load(Ordering::Relaxed) || since.elapsed() < self.patience || planted(Plant::SilenceCounts);
        let is_after_the_end = answers.is_ending;
        let counts = would_say && !is_after_the_end;
        if counts {
            delivery.arrived();
        }
        // After that: an equal call that was waiting for this finds it in the ledger.
        open.written();
        let (id, at) = (id.clone(), Instant::now());
        answers.give(Given { id, delivery, at, counts, events, is_after_the_end });
    }

    /// It says that it does not want an answer, or no longer did when it came. `true` when this is the first time.
    pub(super) async fn cancelled(&self, id: &Id) -> bool {
        let (is_first, revoked) = {
            let mut answers = self.answers();
            let given = answers.take_given(id);
            if given.is_none() {
                answers.cancel(id.clone());
            }
            (!self.announces.swap(true, Ordering::Relaxed), given)
        };
        if let Some(given) = revoked.filter(|given| given.counts && !planted(Plant::LateCancellationIgnored)) {
            given.delivery.did_not_arrive().await;
        }
        is_first
    }

    /// It reads a stream on from an event. An answer after that event did not reach it.
    pub(super) async fn reads_on(&self, from: &str) {
        let mut revoked = Vec::new();
        for given in &mut self.answers().given {
            if given.counts && given.events.iter().any(|event| event == from) {
                given.counts = false;
                revoked.push(given.delivery.clone());
            }
        }
        for delivery in revoked {
            delivery.did_not_arrive().await;
        }
    }

    /// Remembers for later clients of this name that it announces time-outs.
    pub(super) async fn remember(&self, books: &Books, tenant: &Tenant) {
        let Ok(ledger) = books.ledger().await else { return };
        if let Some(memory) = self.memory(&ledger, tenant) {
            let _ = memory.run(|_| async { Ok(true) }).await;
        }
    }

    /// It has sent something: it was there after the answers that it was given.
    pub(super) fn spoke(&self) {
        let mut answers = self.answers();
        answers.heard = answers.given.len();
    }

    /// It sends nothing more, or we are asked to end.
    pub(super) fn ends(&self) {
        self.answers().is_ending = true;
    }

    /// We end: what it was given since its own end counts if it has read everything. Nothing is judged of a client that is
    /// there.
    pub(super) async fn judge_last(&self, has_read_all: impl Future<Output = bool>) {
        {
            let mut answers = self.answers();
            if !answers.is_ending || answers.is_judged {
                return;
            }
            answers.is_judged = true;
        }
        self.ended(has_read_all.await).await;
    }

    /// It has ended, and it had taken everything that was written for it; or it is gone.
    pub(super) async fn ended(&self, in_order: bool) {
        let mut revoked = Vec::new();
        {
            let mut answers = self.answers();
            let heard = answers.heard;
            for (number, given) in answers.given.iter_mut().enumerate() {
                let is_parting = given.is_after_the_end || given.at.elapsed() <= PARTING;
                if in_order && !given.counts && is_parting {
                    given.counts = true;
                    given.delivery.arrived();
                }
                if !in_order && given.counts && number >= heard && !planted(Plant::KilledCounts) {
                    given.counts = false;
                    revoked.push(given.delivery.clone());
                }
            }
        }
        for delivery in revoked {
            delivery.did_not_arrive().await;
        }
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answers {
    fn give(&mut self, given: Given) {
        if self.given.len() >= REMEMBERED {
            self.given.pop_front();
            self.heard = self.heard.saturating_sub(1);
        }
        self.given.push_back(given);
    }

    fn take_given(&mut self, id: &Id) -> Option<Given> {
        let at = self.given.iter().rposition(|given| given.id == *id)?;
        if at < self.heard {
            self.heard -= 1;
        }
        self.given.remove(at)
    }

    fn cancel(&mut self, id: Id) {
        if id.length() > LONGEST_ID {
            return;
        }
        if self.cancelled.len() >= REMEMBERED {
            self.cancelled.pop_front();
        }
        self.cancelled.push_back(id);
    }

    fn take_cancelled(&mut self, id: &Id) -> bool {
        let at = self.cancelled.iter().position(|cancelled| cancelled == id);
        at.and_then(|at| self.cancelled.remove(at)).is_some()
    }
}
