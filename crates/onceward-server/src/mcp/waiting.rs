//! Who waits for which answer: clients for lists and calls, and we ourselves.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward::core::plant::{Plant, planted};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use super::link::{Answer, NoAnswer};
use super::members::Members;
use super::message::Id;

/// How long a server may take to answer once its client has cancelled: many do not answer at all then.
const AFTER_CANCELLING: Duration = Duration::from_secs(2);

/// For how long after that an answer is still listened for. Its id is taken meanwhile: another call of that id could be
/// answered with it.
const LISTENED_FOR: Duration = Duration::from_secs(5 * 60);

/// Whose request it is: ids are unique among those of one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) client: String,
    pub(super) id: Id,
}

/// Everybody who waits. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting(Arc<Mutex<HashMap<Place, For>>>);

/// What somebody waits for.
#[derive(Debug)]
enum For {
    /// Something that is none of ours. Its id is taken all the same: what answers it must not be taken for the answer to a
    /// call.
    Passed,
    /// A list of tools.
    List,
    /// A call that is being decided on, or that was passed on.
    Call { answer: Option<oneshot::Sender<Answer>>, cancelled: watch::Sender<bool> },
    /// A request of our own.
    Own(oneshot::Sender<Members>),
}

/// Who gets an answer.
#[derive(Debug)]
pub(super) enum Taker {
    /// The client, as it is.
    Client,
    /// The client, after it was looked at.
    List(Members),
    /// Somebody here.
    Taken,
}

/// What is to be done with a cancellation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cancelled {
    /// The server is to know.
    Pass,
    /// The server knows nothing of the call, or is to go on with it.
    Keep,
}

/// A call that was passed on.
#[derive(Debug)]
pub(super) struct Sent {
    heard: Heard,
    cancelled: watch::Receiver<bool>,
}

/// Somebody listens for the answer, until this is dropped: then its place is free again.
#[derive(Debug)]
struct Heard {
    answer: oneshot::Receiver<Answer>,
    waiting: Waiting,
    place: Place,
}

/// An answer that may come although its client has given up.
pub(super) struct Late(Pin<Box<dyn Future<Output = Option<Answer>> + Send>>);

impl Waiting {
    /// Something is asked for that is none of ours. `false` when another request has this id.
    pub(super) fn expect_any(&self, place: Place) -> bool {
        self.expect(place, For::Passed)
    }

    /// A list is asked for. `false` when another request has this id.
    pub(super) fn expect_list(&self, place: Place) -> bool {
        self.expect(place, For::List)
    }

    /// A request of our own.
    pub(super) fn expect_own(&self, place: Place) -> oneshot::Receiver<Members> {
        let (taker, answer) = oneshot::channel();
        self.all().insert(place, For::Own(taker));
        answer
    }

    /// A call is being decided on. `false` when another request has this id.
    pub(super) fn expect_call(&self, place: Place) -> bool {
        self.expect(place, For::Call { answer: None, cancelled: watch::Sender::new(false) })
    }

    fn expect(&self, place: Place, what: For) -> bool {
        match self.all().entry(place) {
            Entry::Occupied(_) => false,
            Entry::Vacant(vacant) => {
                vacant.insert(what);
                true
            }
        }
    }

    /// Whether somebody waits here.
    pub(super) fn has(&self, place: &Place) -> bool {
        self.all().contains_key(place)
    }

    /// A call is about to be passed on.
    pub(super) fn send(&self, place: &Place) -> Result<Sent, NoAnswer> {
        let (taker, answer) = oneshot::channel();
        match self.all().get_mut(place) {
            Some(For::Call { cancelled, .. }) if *cancelled.borrow() => Err(NoAnswer::Cancelled),
            Some(For::Call { answer: taken, cancelled }) => {
                *taken = Some(taker);
                let cancelled = cancelled.subscribe();
                Ok(Sent { heard: Heard { answer, waiting: self.clone(), place: place.clone() }, cancelled })
            }
            _ => Err(NoAnswer::NotSent("the server has ended".to_owned())),
        }
    }

    /// It could not be passed on.
    pub(super) fn not_sent(&self, place: &Place) {
        if let Some(For::Call { answer, .. }) = self.all().get_mut(place) {
            *answer = None;
        }
    }

    /// A call was answered by us. `false` when its client does not want to know any more.
    pub(super) fn answered(&self, place: &Place) -> bool {
        let mut all = self.all();
        match all.get(place) {
            Some(For::Call { answer: None, cancelled }) => {
                let is_wanted = !*cancelled.borrow();
                all.remove(place);
                is_wanted
            }
            _ => true,
        }
    }

    /// Nobody waits here any more.
    pub(super) fn forget(&self, place: &Place) {
        self.all().remove(place);
    }

    /// A client gives up on a request.
    pub(super) fn cancel(&self, parameters: Option<&Members>, client: &str) -> Cancelled {
        let id = parameters.and_then(|parameters| parameters.get("requestId")).and_then(Id::read);
        let Some(id) = id else { return Cancelled::Pass };
        let reason = parameters.and_then(|parameters| parameters.text("reason"));
        let place = Place { client: client.to_owned(), id };
        let mut all = self.all();
        match all.get(&place) {
            Some(For::Call { answer: None, cancelled }) => {
                cancelled.send_replace(true);
                Cancelled::Keep
            }
            // Who only ran out of time comes back for the answer.
            Some(For::Call { .. }) if reason.is_some_and(|reason| is_about_time(&reason)) => Cancelled::Keep,
            Some(For::Call { cancelled, .. }) => {
                cancelled.send_replace(true);
                Cancelled::Pass
            }
            // Many servers do not answer what was cancelled.
            Some(For::Passed | For::List) => {
                all.remove(&place);
                Cancelled::Pass
            }
            Some(For::Own(_)) | None => Cancelled::Pass,
        }
    }

    /// An answer has come.
    pub(super) fn take(&self, place: &Place, members: Members, line: &[u8]) -> Taker {
        let mut all = self.all();
        let mixed_up = mixed_up(&all, place);
        let place = mixed_up.as_ref().unwrap_or(place);
        // One that was not passed on yet cannot have an answer.
        if matches!(all.get(place), Some(For::Call { answer: None, .. })) {
            return Taker::Client;
        }
        match all.remove(place) {
            None | Some(For::Passed) => Taker::Client,
            Some(For::List) => Taker::List(members),
            Some(For::Own(taker)) => {
                let _ = taker.send(members);
                Taker::Taken
            }
            Some(For::Call { answer, cancelled }) => {
                let answered = Answer { line: line.to_vec(), members, cancelled: *cancelled.borrow() };
                if let Some(taker) = answer {
                    let _ = taker.send(answered);
                }
                Taker::Taken
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// Nobody who waits will get an answer. Those whose request was none of ours are told by whoever called this.
    pub(super) fn clear(&self) -> Vec<Id> {
        let all = std::mem::take(&mut *self.all());
        let passed = all.into_iter().filter(|(_, what)| matches!(what, For::Passed | For::List));
        passed.map(|(place, _)| place.id).collect()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Place, For>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Another call that is under way, where that bug is planted.
fn mixed_up(all: &HashMap<Place, For>, place: &Place) -> Option<Place> {
    let is_other =
        |(other, what): &(&Place, &For)| *other != place && matches!(what, For::Call { answer: Some(_), .. });
    all.iter().find(|other| planted(Plant::AnswerToAnother) && is_other(other)).map(|(other, _)| other.clone())
}

impl Sent {
    /// Whether its client has given up.
    pub(super) fn cancelled(&self) -> watch::Receiver<bool> {
        self.cancelled.clone()
    }

    /// Waits for the answer; for a while only, once the client has cancelled.
    pub(super) async fn answer(self) -> Result<Answer, NoAnswer> {
        self.answer_within(AFTER_CANCELLING).await
    }

    async fn answer_within(self, after_cancelling: Duration) -> Result<Answer, NoAnswer> {
        let Self { mut heard, mut cancelled } = self;
        let given_up = async {
            if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
                std::future::pending::<()>().await;
            }
            sleep(after_cancelling).await;
        };
        tokio::select! {
            biased;
            answered = &mut heard.answer => {
                answered.map_err(|_| NoAnswer::Lost("the server ended before it answered".to_owned()))
            }
            () = given_up => Err(NoAnswer::GaveUp(Late::new(async move { (&mut heard.answer).await.ok() }))),
        }
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        self.answer.close();
        let mut all = self.waiting.all();
        // Somebody else may have come after us.
        if matches!(all.get(&self.place), Some(For::Call { answer: Some(taker), .. }) if taker.is_closed()) {
            all.remove(&self.place);
        }
    }
}

impl Late {
    pub(super) fn new(answer: impl Future<Output = Option<Answer>> + Send + 'static) -> Self {
        Self(Box::pin(answer))
    }

    /// The answer, if it comes before nobody listens any more.
    pub(super) async fn answer(self) -> Option<Answer> {
        self.answer_within(LISTENED_FOR).await
    }

    async fn answer_within(self, listened_for: Duration) -> Option<Answer> {
        timeout(listened_for, self.0).await.ok().flatten()
    }
}

impl fmt::Debug for Late {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Late")
    }
}

/// Whether a client gave up because it ran out of time, and not because somebody wants it to stop. One that says nothing
/// counts as the latter: editors say nothing when a person presses stop, and they know no limit of time.
fn is_about_time(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    ["timed out", "timeout", "time out", "time-out", "deadline"].iter().any(|words| reason.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(id: &str) -> Place {
        Place { client: String::new(), id: Id::Text(id.to_owned()) }
    }

    fn cancelled(id: &str, reason: &str) -> Members {
        Members::read(&format!(r#"{{"requestId":"{id}","reason":"{reason}"}}"#)).unwrap()
    }

    #[test]
    fn a_server_is_told_of_a_cancellation_only_when_it_knows_the_call_and_somebody_wants_it_to_stop() {
        let waiting = Waiting::default();
        assert!(waiting.expect_call(place("a")) && !waiting.expect_call(place("a")) && !waiting.expect_any(place("a")));
        assert!(waiting.expect_any(place("p")) && !waiting.expect_call(place("p")));
        assert_eq!(waiting.cancel(Some(&cancelled("p", "stop")), ""), Cancelled::Pass);
        assert!(waiting.expect_call(place("p")));
        assert_eq!(waiting.cancel(Some(&cancelled("other", "stop")), ""), Cancelled::Pass);
        let _sent = waiting.send(&place("a")).unwrap();
        assert_eq!(waiting.cancel(Some(&cancelled("a", "MCP error -32001: Request timed out")), ""), Cancelled::Keep);
        assert_eq!(waiting.cancel(Some(&cancelled("a", "the user pressed stop")), ""), Cancelled::Pass);
        let silent = Members::read(r#"{"requestId":"a"}"#).unwrap();
        assert_eq!(waiting.cancel(Some(&silent), ""), Cancelled::Pass);
        waiting.expect_call(place("b"));
        assert_eq!(waiting.cancel(Some(&cancelled("b", "the user pressed stop")), ""), Cancelled::Keep);
        assert!(matches!(waiting.send(&place("b")), Err(NoAnswer::Cancelled)));
        assert!(!waiting.answered(&place("b")));
        assert!(matches!(waiting.send(&place("b")), Err(NoAnswer::NotSent(_))));
    }

    #[tokio::test]
    async fn an_answer_goes_to_who_waits_for_it() {
        let waiting = Waiting::default();
        waiting.expect_call(place("a"));
        let members = || Members::read(r#"{"id":"a"}"#).unwrap();
        assert!(matches!(waiting.take(&place("a"), members(), b"early"), Taker::Client));
        let sent = waiting.send(&place("a")).unwrap();
        assert!(matches!(waiting.take(&place("b"), members(), b"other"), Taker::Client));
        assert!(matches!(waiting.take(&place("a"), members(), b"line"), Taker::Taken));
        assert_eq!(sent.answer().await.unwrap().line, b"line");
        waiting.expect_list(place("l"));
        assert!(matches!(waiting.take(&place("l"), members(), b""), Taker::List(_)));
        waiting.expect_call(place("c"));
        let sent = waiting.send(&place("c")).unwrap();
        waiting.clear();
        assert!(matches!(sent.answer().await, Err(NoAnswer::Lost(_))));
    }

    #[test]
    fn every_client_that_ran_out_of_time_is_understood() {
        for reason in [
            "timed out after 0.5s",
            "McpError: MCP error -32001: Request timed out",
            "SdkError: Request timed out",
            "context deadline exceeded",
            "request timeout",
            "Timeout",
            "time-out",
        ] {
            assert!(is_about_time(reason), "{reason}");
        }
        for reason in ["caller cancelled", "context canceled", "AbortError: This operation was aborted", ""] {
            assert!(!is_about_time(reason), "{reason}");
        }
    }

    /// A call that was cancelled, and whose server has said nothing for a while.
    async fn given_up(waiting: &Waiting, id: &str) -> Late {
        assert!(waiting.expect_call(place(id)));
        let sent = waiting.send(&place(id)).unwrap();
        waiting.cancel(Some(&cancelled(id, "the user pressed stop")), "");
        match sent.answer_within(Duration::ZERO).await {
            Err(NoAnswer::GaveUp(late)) => late,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn an_answer_that_comes_late_is_heard_and_nobody_listens_for_ever() {
        let waiting = Waiting::default();
        let late = given_up(&waiting, "a").await;
        // Until then its id is its own.
        assert!(!waiting.expect_call(place("a")));
        let members = Members::read(r#"{"id":"a"}"#).unwrap();
        assert!(matches!(waiting.take(&place("a"), members, b"late"), Taker::Taken));
        assert_eq!(late.answer().await.unwrap().line, b"late");
        assert!(waiting.is_empty());
        let late = given_up(&waiting, "b").await;
        assert!(late.answer_within(Duration::from_millis(1)).await.is_none() && waiting.is_empty());
        // What nobody listens for is forgotten, and whoever came after it is not.
        let late = given_up(&waiting, "c").await;
        waiting.forget(&place("c"));
        assert!(waiting.expect_call(place("c")));
        let _sent = waiting.send(&place("c")).unwrap();
        drop(late);
        assert!(waiting.has(&place("c")));
    }
}
