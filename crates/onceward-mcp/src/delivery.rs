//! Whether a call overlaps an equal one, and whether clients have got their responses. A call that a client makes after it got the
//! response is a new intent; one that it makes because the response did not come is a repeat.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use onceward::Delivery;
use onceward::core::hash::Digest;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep};

use super::message::RequestId;

/// How many identities are remembered. For a forgotten one, the ledger alone decides whether a call is a repeat.
const MAX_REMEMBERED: usize = 4096;

/// How long a call waits while the response to an equal one is being written, and how often it checks.
const WRITE_LIMIT: Duration = Duration::from_secs(2);
const CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// Numbers calls and responses in the order in which they come, so that it is known which came first.
static ORDER: AtomicU64 = AtomicU64::new(1);

pub(super) fn next_in_order() -> u64 {
    ORDER.fetch_add(1, Ordering::SeqCst)
}

/// The response to a call, on its way to the client.
#[derive(Debug)]
pub(super) struct OutgoingResponse {
    pub(super) line: Vec<u8>,
    /// Records that the client has it; `None` where that makes no difference.
    pub(super) receipt: Option<Receipt>,
}

impl From<Vec<u8>> for OutgoingResponse {
    fn from(line: Vec<u8>) -> Self {
        Self { line, receipt: None }
    }
}

/// Records that a client has the response to a call.
#[derive(Debug)]
pub(super) struct Receipt {
    pub(super) delivery: Delivery,
    /// When the call came.
    pub(super) since: Instant,
    pub(super) open: OpenCall,
}

/// Queues of equal steps, which run one after the other in the order in which they came. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct StepQueues(Arc<Mutex<HashMap<Digest, Weak<tokio::sync::Mutex<()>>>>>);

impl StepQueues {
    /// Waits for the equal steps that came before. The next one runs when the returned guard is dropped.
    pub(super) async fn wait(&self, id: Digest) -> OwnedMutexGuard<()> {
        let line = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|_, line| line.strong_count() > 0);
            let line = all.get(&id).and_then(Weak::upgrade).unwrap_or_default();
            all.insert(id, Arc::downgrade(&line));
            line
        };
        line.lock_owned().await
    }
}

/// The calls of this process by identity: those without a response, and when the last response was written. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct EqualCalls(Arc<Mutex<HashMap<Digest, Entry>>>);

#[derive(Debug, Default)]
struct Entry {
    /// The calls without a response, by number.
    open: HashMap<u64, Unanswered>,
    /// When the client may have got the last response.
    written: u64,
}

/// A call that has no response yet.
#[derive(Debug)]
struct Unanswered {
    request: RequestId,
    came: u64,
    since: Instant,
    /// When its response began to be written.
    writing: Option<u64>,
    /// Its client has cancelled it.
    is_cancelled: bool,
}

/// How a call relates to the last equal one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overlap {
    /// It came after the response.
    None,
    /// It came before the response, and the client waits for both of them.
    Beside,
    /// It came before the response, and the client may have given up on the first one.
    Instead,
}

impl Entry {
    /// The overlap of a call with this number. `None` when that depends on responses that are being written.
    fn overlap(&self, came: u64, patience: Duration) -> Option<Overlap> {
        // A cancelled call no longer counts once its client has got the response to an equal one.
        let counts = |one: &&Unanswered| !one.is_cancelled || self.written <= one.came;
        let is_written = |one: &&Unanswered| one.writing.is_some_and(|since| since <= came);
        let mut open = self.open.values().filter(counts).filter(|one| !is_written(one)).peekable();
        if open.peek().is_none() {
            let is_being_written = self.open.values().filter(counts).any(|one| is_written(&one));
            return match self.written > came {
                true => Some(Overlap::Beside),
                false => (!is_being_written).then_some(Overlap::None),
            };
        }
        let is_given_up = open.any(|one| one.is_cancelled || one.since.elapsed() >= patience);
        Some(if is_given_up { Overlap::Instead } else { Overlap::Beside })
    }
}

/// A call without a response until this is dropped.
#[derive(Debug)]
pub(super) struct OpenCall {
    equals: EqualCalls,
    id: Digest,
    number: u64,
}

impl EqualCalls {
    /// A call is about to be carried out, or a repeat to be replayed.
    pub(super) fn enter(&self, id: Digest, request: RequestId, came: u64) -> OpenCall {
        let mut all = self.all();
        if all.len() >= MAX_REMEMBERED && !all.contains_key(&id) {
            all.retain(|_, entry| !entry.open.is_empty());
        }
        let number = next_in_order();
        let unanswered = Unanswered { request, came, since: Instant::now(), writing: None, is_cancelled: false };
        all.entry(id).or_default().open.insert(number, unanswered);
        OpenCall { equals: self.clone(), id, number }
    }

    /// The overlap of a call with this number. Waits for a response that is being written: the call may be the client's reaction
    /// to it. A client may have given up silently on a call that takes longer than `patience`.
    pub(super) async fn overlap(&self, id: &Digest, came: u64, patience: Duration) -> Overlap {
        let until = Instant::now() + WRITE_LIMIT;
        loop {
            let overlap = self.all().get(id).map_or(Some(Overlap::None), |entry| entry.overlap(came, patience));
            match overlap {
                None if Instant::now() < until => sleep(CHECK_INTERVAL).await,
                overlap => return overlap.unwrap_or(Overlap::Instead),
            }
        }
    }

    /// A client has cancelled a request.
    pub(super) fn cancel(&self, request: &RequestId) {
        for entry in self.all().values_mut() {
            for one in entry.open.values_mut().filter(|one| one.request == *request) {
                one.is_cancelled = true;
            }
        }
    }

    fn change(&self, id: &Digest, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.all().get_mut(id) {
            change(entry);
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Digest, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenCall {
    /// Its response is being written.
    pub(super) fn writing(&self) {
        self.equals.change(&self.id, |entry| {
            if let Some(one) = entry.open.get_mut(&self.number) {
                one.writing = Some(next_in_order());
            }
        });
    }

    /// Its response was written completely.
    pub(super) fn written(&self) {
        self.equals.change(&self.id, |entry| {
            // The client may have had it since then: a later call may be its reaction.
            let since = entry.open.remove(&self.number).and_then(|one| one.writing);
            entry.written = entry.written.max(since.unwrap_or_else(next_in_order));
        });
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.equals.change(&self.id, |entry| {
            entry.open.remove(&self.number);
        });
    }
}

#[cfg(test)]
mod tests {
    use onceward::core::hash::digest;

    use super::super::message::Id;
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn request(id: &str) -> RequestId {
        RequestId { connection: String::new(), id: Id::Text(id.to_owned()) }
    }

    #[tokio::test]
    async fn a_call_overlaps_the_last_equal_one_until_that_has_its_response() {
        let (equals, id) = (EqualCalls::default(), digest(b"call"));
        assert_eq!(equals.overlap(&id, next_in_order(), LONG).await, Overlap::None, "there is none");
        let first = equals.enter(id, request("1"), next_in_order());
        let meanwhile = next_in_order();
        assert_eq!(equals.overlap(&id, meanwhile, LONG).await, Overlap::Beside);
        assert_eq!(equals.overlap(&digest(b"other"), meanwhile, LONG).await, Overlap::None);
        first.writing();
        first.written();
        drop(first);
        assert_eq!(equals.overlap(&id, meanwhile, LONG).await, Overlap::Beside, "it came before the response");
        assert_eq!(equals.overlap(&id, next_in_order(), LONG).await, Overlap::None);
        drop(equals.enter(id, request("2"), next_in_order()));
        assert_eq!(equals.overlap(&id, next_in_order(), LONG).await, Overlap::None, "a response that was not written");
    }

    #[tokio::test]
    async fn a_call_after_the_client_gave_up_on_an_equal_one_replaces_it() {
        let (equals, id) = (EqualCalls::default(), digest(b"call"));
        let _first = equals.enter(id, request("1"), next_in_order());
        equals.cancel(&request("other"));
        assert_eq!(equals.overlap(&id, next_in_order(), LONG).await, Overlap::Beside);
        assert_eq!(equals.overlap(&id, next_in_order(), Duration::ZERO).await, Overlap::Instead, "silently");
        equals.cancel(&request("1"));
        assert_eq!(equals.overlap(&id, next_in_order(), LONG).await, Overlap::Instead, "and it said so");
        let second = equals.enter(id, request("2"), next_in_order());
        second.writing();
        second.written();
        assert_eq!(equals.overlap(&id, next_in_order(), LONG).await, Overlap::None, "the client has a response");
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_is_being_written_is_waited_for() {
        let (equals, id) = (EqualCalls::default(), digest(b"call"));
        let first = equals.enter(id, request("1"), next_in_order());
        first.writing();
        let came = next_in_order();
        let waiting = tokio::spawn({
            let equals = equals.clone();
            async move { equals.overlap(&id, came, LONG).await }
        });
        sleep(10 * CHECK_INTERVAL).await;
        assert!(!waiting.is_finished());
        first.written();
        drop(first);
        // The client had the response before the gateway recorded so.
        assert_eq!(waiting.await.unwrap(), Overlap::None);
        let stuck = equals.enter(id, request("2"), next_in_order());
        stuck.writing();
        assert_eq!(equals.overlap(&id, next_in_order(), LONG).await, Overlap::Instead, "a client that does not read");
    }

    #[test]
    fn the_number_of_remembered_identities_is_limited() {
        let equals = EqualCalls::default();
        for number in 0..2 * MAX_REMEMBERED {
            drop(equals.enter(digest(&number.to_be_bytes()), request("1"), next_in_order()));
        }
        assert!(equals.all().len() <= MAX_REMEMBERED);
    }
}
