//! Which answers clients have got, and how a call stands to the last equal one. A call that a client makes after it got the
//! answer is meant; one that it makes because the answer did not come is a repeat.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward::Delivery;
use onceward::core::hash::Digest;
use tokio::time::{Instant, sleep};

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

/// The calls of this process by identity: which are unanswered, and when the last one was answered. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Equals(Arc<Mutex<HashMap<Digest, Entry>>>);

#[derive(Debug, Default)]
struct Entry {
    /// The unanswered ones by number, and since when their answers are being written.
    open: HashMap<u64, Option<u64>>,
    /// Since when the client may have the last answer.
    written: u64,
}

impl Entry {
    /// Whether a call that came then came before an answer. `None` when that depends on answers that are being written.
    fn overlaps(&self, came: u64) -> Option<bool> {
        if self.written > came || self.open.values().any(|writing| writing.is_none_or(|since| since > came)) {
            return Some(true);
        }
        self.open.is_empty().then_some(false)
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
    pub(super) fn enter(&self, id: Digest) -> Open {
        let mut all = self.all();
        if all.len() >= REMEMBERED && !all.contains_key(&id) {
            all.retain(|_, entry| !entry.open.is_empty());
        }
        let number = next_in_order();
        all.entry(id).or_default().open.insert(number, None);
        Open { equals: self.clone(), id, number }
    }

    /// Whether a call that came then came before the last equal one was answered. An answer that is being written at this
    /// moment is waited for: the call may be what the client does about it.
    pub(super) async fn overlap(&self, id: &Digest, came: u64) -> bool {
        let until = Instant::now() + WRITING;
        loop {
            let overlaps = self.all().get(id).map_or(Some(false), |entry| entry.overlaps(came));
            match overlaps {
                None if Instant::now() < until => sleep(LOOK_AGAIN).await,
                overlaps => return overlaps.unwrap_or(true),
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
            entry.open.insert(self.number, Some(next_in_order()));
        });
    }

    /// Its answer is written whole.
    pub(super) fn written(&self) {
        self.equals.change(&self.id, |entry| {
            // From when the client may have had it: a call that came since then may be what it did about it.
            let since = entry.open.remove(&self.number).flatten();
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

    #[tokio::test]
    async fn a_call_overlaps_the_last_equal_one_until_that_is_answered() {
        let (equals, id) = (Equals::default(), digest(b"call"));
        assert!(!equals.overlap(&id, next_in_order()).await, "there is none");
        let first = equals.enter(id);
        let meanwhile = next_in_order();
        assert!(equals.overlap(&id, meanwhile).await);
        assert!(!equals.overlap(&digest(b"other"), meanwhile).await);
        first.writing();
        first.written();
        drop(first);
        assert!(equals.overlap(&id, meanwhile).await, "it came before the answer, and is looked at after it");
        assert!(!equals.overlap(&id, next_in_order()).await);
        drop(equals.enter(id));
        assert!(!equals.overlap(&id, next_in_order()).await, "an answer that nobody gets is none to wait for");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_being_written_is_waited_for() {
        let (equals, id) = (Equals::default(), digest(b"call"));
        let first = equals.enter(id);
        first.writing();
        let came = next_in_order();
        let waiting = tokio::spawn({
            let equals = equals.clone();
            async move { equals.overlap(&id, came).await }
        });
        sleep(10 * LOOK_AGAIN).await;
        assert!(!waiting.is_finished());
        first.written();
        drop(first);
        // The client had the answer before it was known here that it had.
        assert!(!waiting.await.unwrap());
        let stuck = equals.enter(id);
        stuck.writing();
        assert!(equals.overlap(&id, next_in_order()).await, "a client that does not read is not waited for any longer");
    }

    #[test]
    fn there_is_a_limit_to_what_is_remembered() {
        let equals = Equals::default();
        for number in 0..2 * REMEMBERED {
            drop(equals.enter(digest(&number.to_be_bytes())));
        }
        assert!(equals.all().len() <= REMEMBERED);
    }
}
