//! Which answers clients have got, and how a call stands to the last equal one. A call that a client makes after it got the
//! answer is meant; one that it makes because the answer did not come is a repeat.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use onceward::Delivery;
use onceward::core::hash::Digest;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep};

use super::message::Id;

/// How many identities are remembered. Without one, a call that overlapped the last equal one is judged by the ledger alone.
const REMEMBERED: usize = 4096;

/// How long the writing of an answer is waited for by an equal call that came meanwhile.
const WRITING: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// What comes first, a call or an answer: numbers for all of them, in the order in which they come.
static ORDER: AtomicU64 = AtomicU64::new(1);

pub(super) fn next_in_order() -> u64 {
    ORDER.fetch_add(1, Ordering::SeqCst)
}

/// An answer to a call, on its way to the client.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) line: Vec<u8>,
    /// What is recorded once the client has it; `None` where that makes no difference.
    pub(super) receipt: Option<Receipt>,
}

impl From<Vec<u8>> for Answered {
    fn from(line: Vec<u8>) -> Self {
        Self { line, receipt: None }
    }
}

/// What is recorded of an answer once its client has it.
#[derive(Debug)]
pub(super) struct Receipt {
    pub(super) delivery: Delivery,
    /// When the call came.
    pub(super) since: Instant,
    pub(super) open: Open,
}

/// Steps wait in line, in the order in which they came. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Lines(Arc<Mutex<HashMap<Digest, Weak<tokio::sync::Mutex<()>>>>>);

impl Lines {
    /// Waits behind the equal steps that came before, until the answer is dropped.
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

/// The calls of this process by identity: which are unanswered, and when the last one was answered. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Equals(Arc<Mutex<HashMap<Digest, Entry>>>);

#[derive(Debug, Default)]
struct Entry {
    /// The unanswered ones by number.
    open: HashMap<u64, Unanswered>,
    /// Since when the client may have the last answer.
    written: u64,
}

/// A call that has no answer yet.
#[derive(Debug)]
struct Unanswered {
    request: Request,
    came: u64,
    since: Instant,
    /// Since when its answer is being written.
    writing: Option<u64>,
    /// Its client has given up on it.
    is_cancelled: bool,
}

/// Which request it is: ids are unique among those of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) connection: String,
    pub(super) id: Id,
}

/// How a call stands to the last equal one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overlap {
    /// It came after the answer.
    None,
    /// It came before the answer, and the client waits for both of them.
    Beside,
    /// It came before the answer, and the client may have given up on the first one.
    Instead,
}

impl Entry {
    /// How a call that came then stands. `None` when that depends on answers that are being written.
    fn overlap(&self, came: u64, patience: Duration) -> Option<Overlap> {
        // A call that was cancelled no longer counts once its client has got the answer to an equal one.
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

/// A call that is unanswered until this is dropped.
#[derive(Debug)]
pub(super) struct Open {
    equals: Equals,
    id: Digest,
    number: u64,
}

impl Equals {
    /// A call is about to be carried out, or a repeat to be answered.
    pub(super) fn enter(&self, id: Digest, request: Request, came: u64) -> Open {
        let mut all = self.all();
        if all.len() >= REMEMBERED && !all.contains_key(&id) {
            all.retain(|_, entry| !entry.open.is_empty());
        }
        let number = next_in_order();
        let unanswered = Unanswered { request, came, since: Instant::now(), writing: None, is_cancelled: false };
        all.entry(id).or_default().open.insert(number, unanswered);
        Open { equals: self.clone(), id, number }
    }

    /// How a call that came then stands to the last equal one. An answer that is being written at this moment is waited for:
    /// the call may be what the client does about it. A client may have given up silently on what takes longer than `patience`.
    pub(super) async fn overlap(&self, id: &Digest, came: u64, patience: Duration) -> Overlap {
        let until = Instant::now() + WRITING;
        loop {
            let overlap = self.all().get(id).map_or(Some(Overlap::None), |entry| entry.overlap(came, patience));
            match overlap {
                None if Instant::now() < until => sleep(LOOK_AGAIN).await,
                overlap => return overlap.unwrap_or(Overlap::Instead),
            }
        }
    }

    /// Whether the client of a call has made another one since the last equal one that is unanswered.
    pub(super) fn has_others_between(&self, id: &Digest, connection: &str, came: u64) -> bool {
        let all = self.all();
        let is_here = |one: &&Unanswered| one.request.connection == connection && one.came < came;
        let equal = all.get(id).into_iter().flat_map(|entry| entry.open.values());
        let Some(last) = equal.filter(is_here).map(|one| one.came).max() else { return false };
        let others = all.iter().filter(|(other, _)| *other != id).flat_map(|(_, entry)| entry.open.values());
        others.filter(is_here).any(|one| one.came > last)
    }

    /// A client has given up on a request.
    pub(super) fn cancel(&self, request: &Request) {
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

impl Open {
    /// Its answer is being written.
    pub(super) fn writing(&self) {
        self.equals.change(&self.id, |entry| {
            if let Some(one) = entry.open.get_mut(&self.number) {
                one.writing = Some(next_in_order());
            }
        });
    }

    /// Its answer is written whole.
    pub(super) fn written(&self) {
        self.equals.change(&self.id, |entry| {
            // From when the client may have had it: a call that came since then may be what it did about it.
            let since = entry.open.remove(&self.number).and_then(|one| one.writing);
            entry.written = entry.written.max(since.unwrap_or_else(next_in_order));
        });
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.equals.change(&self.id, |entry| {
            entry.open.remove(&self.number);
        });
    }
}

#[cfg(test)]
mod tests {
    use onceward::core::hash::digest;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn request(id: &str) -> Request {
        Request { connection: String::new(), id: Id::Text(id.to_owned()) }
    }

    #[tokio::test]
    async fn a_call_overlaps_the_last_equal_one_until_that_is_answered() {
        let (equals, id) = (Equals::default(), digest(b"call"));
        assert_eq!(equals.overlap(&id, next_in_order(), LONG).await, Overlap::None, "there is none");
        let first = equals.enter(id, request("1"), next_in_order());
        let meanwhile = next_in_order();
        assert_eq!(equals.overlap(&id, meanwhile, LONG).await, Overlap::Beside);
        assert_eq!(equals.overlap(&digest(b"other"), meanwhile, LONG).await, Overlap::None);
        first.writing();
        first.written();
        drop(first);
        assert_eq!(equals.overlap(&id, meanwhile, LONG).await, Overlap::Beside, "it came before the answer");
        assert_eq!(equals.overlap(&id, next_in_order(), LONG).await, Overlap::None);
        drop(equals.enter(id, request("2"), next_in_order()));
        assert_eq!(equals.overlap(&id, next_in_order(), LONG).await, Overlap::None, "an answer that is not given");
    }

    #[tokio::test]
    async fn a_call_that_its_client_gave_up_on_is_made_again_instead() {
        let (equals, id) = (Equals::default(), digest(b"call"));
        let _first = equals.enter(id, request("1"), next_in_order());
        equals.cancel(&request("other"));
        assert_eq!(equals.overlap(&id, next_in_order(), LONG).await, Overlap::Beside);
        assert_eq!(equals.overlap(&id, next_in_order(), Duration::ZERO).await, Overlap::Instead, "silently");
        equals.cancel(&request("1"));
        assert_eq!(equals.overlap(&id, next_in_order(), LONG).await, Overlap::Instead, "and it said so");
        let second = equals.enter(id, request("2"), next_in_order());
        second.writing();
        second.written();
        assert_eq!(equals.overlap(&id, next_in_order(), LONG).await, Overlap::None, "the client has an answer");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_being_written_is_waited_for() {
        let (equals, id) = (Equals::default(), digest(b"call"));
        let first = equals.enter(id, request("1"), next_in_order());
        first.writing();
        let came = next_in_order();
        let waiting = tokio::spawn({
            let equals = equals.clone();
            async move { equals.overlap(&id, came, LONG).await }
        });
        sleep(10 * LOOK_AGAIN).await;
        assert!(!waiting.is_finished());
        first.written();
        drop(first);
        // The client had the answer before it was known here that it had.
        assert_eq!(waiting.await.unwrap(), Overlap::None);
        let stuck = equals.enter(id, request("2"), next_in_order());
        stuck.writing();
        assert_eq!(equals.overlap(&id, next_in_order(), LONG).await, Overlap::Instead, "a client that does not read");
    }

    #[test]
    fn there_is_a_limit_to_what_is_remembered() {
        let equals = Equals::default();
        for number in 0..2 * REMEMBERED {
            drop(equals.enter(digest(&number.to_be_bytes()), request("1"), next_in_order()));
        }
        assert!(equals.all().len() <= REMEMBERED);
    }
}
