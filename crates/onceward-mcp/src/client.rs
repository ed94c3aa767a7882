//! What is known of one client: its name, whether it announces time-outs, and which responses it was given.
//!
//! A response counts as delivered when it was written completely, no cancellation names its call, and the client would have
//! announced a time-out: because it is known to do so, because the call was shorter than the time-out of any client, or because
//! the client ended in order right after the response. Any other response counts as not delivered.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use onceward::core::hash::Fields;
use onceward::core::name::Tenant;
use onceward::core::policy::Policy;
use onceward::core::record::Status;
use onceward::plant::{Plant, planted};
use onceward::{CallBuilder, Delivery, Ledger};
use tokio::time::Instant;

use super::delivery::Receipt;
use super::in_progress::InProgress;
use super::lazy_ledger::LazyLedger;
use super::members::Members;
use super::message::Id;

/// Clients that give up silently wait at least this long, unless the configuration says otherwise: the shortest default of a
/// known client is 5 s.
pub(super) const PATIENCE: Duration = Duration::from_secs(4);

/// How soon after a response a client that got it ends in order.
const END_LIMIT: Duration = Duration::from_secs(1);

/// How many responses and cancellations of a client are remembered.
const MAX_REMEMBERED: usize = 256;

/// The longest request id that is remembered. Clients use numbers and short strings.
const MAX_ID: usize = 1024;

/// How long the ledger remembers that a client announces time-outs.
const ANNOUNCES_FOR: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// Clients that are known to announce time-outs.
const ANNOUNCING: [&str; 1] = ["claude-code"];

/// The member of `_meta` in which a request of the modern protocol names its client.
const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";

/// One client.
#[derive(Debug)]
pub(super) struct Client {
    /// The shortest time after which the client may have given up silently.
    patience: Duration,
    introduction: OnceLock<Introduction>,
    /// Whether it announces time-outs.
    announces: AtomicBool,
    responses: Mutex<Responses>,
    /// Cancellations that are being written to the ledger.
    cancellations: InProgress,
}

/// How a client has introduced itself.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Introduction {
    name: String,
    version: String,
    /// With `server/discover` instead of `initialize`. Versions of an SDK that use the same name differ in this.
    is_modern: bool,
}

#[derive(Debug, Default)]
struct Responses {
    written: VecDeque<WrittenResponse>,
    /// How many of them, from the first, were written before the client's last message.
    before_last_message: usize,
    /// Calls that were cancelled before their response.
    cancelled: VecDeque<Id>,
    /// The client sends nothing more. Whether it still reads is judged when the gateway ends.
    is_ending: bool,
    /// The end was judged.
    is_judged: bool,
}

#[derive(Debug)]
struct WrittenResponse {
    id: Id,
    delivery: Delivery,
    at: Instant,
    /// It counts as delivered.
    is_delivered: bool,
    /// The events of its stream before the response, from which a client could resume.
    events: Vec<String>,
    /// It was written after the client's end.
    is_after_the_end: bool,
}

impl Client {
    pub(super) fn new(patience: Duration) -> Self {
        Self {
            patience,
            introduction: OnceLock::new(),
            announces: AtomicBool::new(false),
            responses: Mutex::default(),
            cancellations: InProgress::default(),
        }
    }

    /// The client introduces itself: in `initialize`, or in a request of the modern protocol.
    pub(super) fn introduce(&self, parameters: &Members, is_modern: bool) {
        let info = match is_modern {
            true => parameters.object("_meta").and_then(|meta| meta.object(CLIENT_INFO)),
            false => parameters.object("clientInfo"),
        };
        let text = |name: &str| info.as_ref().and_then(|info| info.text(name)).unwrap_or_default();
        let introduction = Introduction { name: text("name"), version: text("version"), is_modern };
        if is_modern || ANNOUNCING.contains(&introduction.name.as_str()) {
            self.announces.store(true, Ordering::Relaxed);
        }
        let _ = self.introduction.set(introduction);
    }

    pub(super) fn is_introduced(&self) -> bool {
        self.introduction.get().is_some()
    }

    /// Whether the client sends a cancellation when it gives up on a call.
    pub(super) fn announces(&self) -> bool {
        self.announces.load(Ordering::Relaxed)
    }

    /// The name of the client, or nothing.
    pub(super) fn name(&self) -> &str {
        self.introduction.get().map_or("", |introduction| &introduction.name)
    }

    /// Reads from the ledger whether an earlier client of this name has announced a time-out.
    pub(super) async fn recall(&self, lazy_ledger: &LazyLedger, tenant: &Tenant) {
        let Ok(ledger) = lazy_ledger.ledger().await else { return };
        let call = self.announcement(&ledger, tenant).and_then(|announcement| announcement.call().ok());
        let Some(call) = call else { return };
        if let Ok(Some(intent)) = ledger.get(&call.identity).await
            && intent.status() == Some(Status::Done)
        {
            self.announces.store(true, Ordering::Relaxed);
        }
    }

    /// The intent that records that clients of this name announce time-outs.
    fn announcement(&self, ledger: &Ledger, tenant: &Tenant) -> Option<CallBuilder> {
        let Introduction { name, version, is_modern } = self.introduction.get()?;
        let digest = Fields::new().field(name).field(version).field([u8::from(*is_modern)]).digest();
        let operation = ledger.operation("onceward:client-announces-time-outs").tenant(tenant.as_str());
        Some(operation.key(&digest.to_hex()[..32]).policy(Policy::window(ANNOUNCES_FOR)))
    }

    /// A response was written to the client completely.
    pub(super) fn response_written(&self, id: &Id, receipt: Receipt) {
        self.event_written(id, receipt, Vec::new());
    }

    /// A response was written completely, after these events of a stream.
    pub(super) fn event_written(&self, id: &Id, receipt: Receipt, events: Vec<String>) {
        let Receipt { delivery, since, open } = receipt;
        let mut responses = self.responses();
        if responses.take_cancelled(id) && !planted(Plant::CancelledCounts) {
            return;
        }
        let would_announce =
            self.announces.load(Ordering::Relaxed) || since.elapsed() < self.patience || planted(Plant::SilenceCounts);
        let is_after_the_end = responses.is_ending;
        let is_delivered = would_announce && !is_after_the_end;
        if is_delivered {
            delivery.arrived();
        }
        // After the delivery, so that an equal call that waits for this finds it in the ledger.
        open.written();
        // Many responses are remembered, and a response may be large.
        let (id, at, delivery) = (id.clone(), Instant::now(), delivery.without_record());
        responses.add(WrittenResponse { id, delivery, at, is_delivered, events, is_after_the_end });
    }

    /// The client cancels a call, before its response or after. Returns whether this is its first cancellation. What it says
    /// about a response is written in the background: a ledger that is busy must not hold back the client's other messages.
    pub(super) fn cancelled(&self, id: &Id) -> bool {
        let (is_first, revoked) = {
            let mut responses = self.responses();
            let written = responses.take_written(id);
            if written.is_none() {
                responses.cancel(id.clone());
            }
            (!self.announces.swap(true, Ordering::Relaxed), written)
        };
        let is_revoked = |written: &WrittenResponse| written.is_delivered && !planted(Plant::LateCancellationIgnored);
        if let Some(written) = revoked.filter(is_revoked) {
            let writing = self.cancellations.enter();
            tokio::spawn(async move {
                written.delivery.did_not_arrive().await;
                drop(writing);
            });
        }
        is_first
    }

    /// Waits until the ledger knows of the client's cancellations. Every guarded call does so first: an equal earlier call whose
    /// response did not arrive must not look like a delivered one.
    pub(super) async fn cancellations_recorded(&self) {
        self.cancellations.none().await;
    }

    /// The client resumes a stream from an event. A response after that event did not reach it.
    pub(super) async fn resumed_from(&self, from: &str) {
        let mut revoked = Vec::new();
        for response in &mut self.responses().written {
            if response.is_delivered && response.events.iter().any(|event| event == from) {
                response.is_delivered = false;
                revoked.push(response.delivery.clone());
            }
        }
        for delivery in revoked {
            delivery.did_not_arrive().await;
        }
    }

    /// Records for later clients of this name that it announces time-outs.
    pub(super) async fn remember(&self, lazy_ledger: &LazyLedger, tenant: &Tenant) {
        let Ok(ledger) = lazy_ledger.ledger().await else { return };
        if let Some(announcement) = self.announcement(&ledger, tenant) {
            let _ = announcement.run(|_| async { Ok(true) }).await;
        }
    }

    /// The client has sent something: it was there after the responses that were written until now.
    pub(super) fn message_received(&self) {
        let mut responses = self.responses();
        responses.before_last_message = responses.written.len();
    }

    /// The client sends nothing more, or the gateway is asked to end.
    pub(super) fn ends(&self) {
        self.responses().is_ending = true;
    }

    /// The gateway ends: responses since the client's own end count if it has read everything. A client that has not ended is not
    /// judged.
    pub(super) async fn judge_last(&self, has_read_all: impl Future<Output = bool>) {
        {
            let mut responses = self.responses();
            if !responses.is_ending || responses.is_judged {
                return;
            }
            responses.is_judged = true;
        }
        self.ended(has_read_all.await).await;
    }

    /// The client has ended: in order if it has read everything that was written to it, or else it was killed.
    pub(super) async fn ended(&self, in_order: bool) {
        let (mut arrived, mut revoked) = (Vec::new(), Vec::new());
        {
            let mut responses = self.responses();
            let before_last_message = responses.before_last_message;
            for (number, response) in responses.written.iter_mut().enumerate() {
                let is_last = response.is_after_the_end || response.at.elapsed() <= END_LIMIT;
                if in_order && !response.is_delivered && is_last {
                    response.is_delivered = true;
                    arrived.push(response.delivery.clone());
                }
                let is_unread = number >= before_last_message && !planted(Plant::KilledCounts);
                if !in_order && response.is_delivered && is_unread {
                    response.is_delivered = false;
                    revoked.push(response.delivery.clone());
                }
            }
        }
        // All at once: the ledger writes them together, and one after the other each would wait for a write of its own.
        join_all(arrived.iter().map(Delivery::arrived_after_all)).await;
        join_all(revoked.iter().map(Delivery::did_not_arrive)).await;
    }

    fn responses(&self) -> MutexGuard<'_, Responses> {
        self.responses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Responses {
    fn add(&mut self, response: WrittenResponse) {
        if self.written.len() >= MAX_REMEMBERED {
            self.written.pop_front();
            self.before_last_message = self.before_last_message.saturating_sub(1);
        }
        self.written.push_back(response);
    }

    fn take_written(&mut self, id: &Id) -> Option<WrittenResponse> {
        let at = self.written.iter().rposition(|response| response.id == *id)?;
        if at < self.before_last_message {
            self.before_last_message -= 1;
        }
        self.written.remove(at)
    }

    fn cancel(&mut self, id: Id) {
        if id.length() > MAX_ID {
            return;
        }
        if self.cancelled.len() >= MAX_REMEMBERED {
            self.cancelled.pop_front();
        }
        self.cancelled.push_back(id);
    }

    fn take_cancelled(&mut self, id: &Id) -> bool {
        let at = self.cancelled.iter().position(|cancelled| cancelled == id);
        at.and_then(|at| self.cancelled.remove(at)).is_some()
    }
}
