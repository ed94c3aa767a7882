//! The requests that wait for a response of a server: those of clients, and the gateway's own.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward::plant::{Plant, planted};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use super::members::Members;
use super::message::{Id, RequestId};
use super::transport::{CallResponse, NoResponse};

/// How long a server may take to respond after the client has cancelled: many do not respond at all then.
const CANCELLED_LIMIT: Duration = Duration::from_secs(2);

/// How long after that a late response is still accepted. Its id stays taken meanwhile: the response could be mistaken for that
/// of another call with the same id.
const LATE_LIMIT: Duration = Duration::from_secs(5 * 60);

/// The requests that wait. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingRequests(Arc<Mutex<HashMap<RequestId, Pending>>>);

/// What kind of request waits.
#[derive(Debug)]
enum Pending {
    /// A request that is only passed on. Its id is taken all the same: its response must not be mistaken for that of a call.
    Passed,
    /// A request for the list of tools.
    List,
    /// A call that is being decided on (without a sender), or that was sent.
    Call { answer: Option<oneshot::Sender<CallResponse>>, cancelled: watch::Sender<bool> },
    /// A request of the gateway.
    Own(oneshot::Sender<Members>),
}

/// Who gets a response.
#[derive(Debug)]
pub(super) enum Recipient {
    /// The client, unchanged.
    Client,
    /// No request of this id was sent to the server. Only where the client has no other server can it be for the client.
    Unexpected,
    /// The client, once the gateway has edited the list.
    List(Members),
    /// A task of the gateway, which has it now.
    Taken,
}

/// What to do with a cancellation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cancellation {
    /// Pass it on to the server.
    Pass,
    /// Keep it from the server, which knows nothing of the call or is to go on with it.
    Keep,
}

/// A call that was sent.
#[derive(Debug)]
pub(super) struct SentCall {
    response: ResponseReceiver,
    cancelled: watch::Receiver<bool>,
}

/// Receives the response. When it is dropped, the id of the request is free again.
#[derive(Debug)]
struct ResponseReceiver {
    answer: oneshot::Receiver<CallResponse>,
    pending: PendingRequests,
    id: RequestId,
}

/// A response that may come although its client has given up.
pub(super) struct LateResponse(Pin<Box<dyn Future<Output = Option<CallResponse>> + Send>>);

impl PendingRequests {
    /// A request is passed on. `false` when another request has this id.
    pub(super) fn expect_any(&self, id: RequestId) -> bool {
        self.expect(id, Pending::Passed)
    }

    /// The list of tools is requested. `false` when another request has this id.
    pub(super) fn expect_list(&self, id: RequestId) -> bool {
        self.expect(id, Pending::List)
    }

    /// The gateway makes a request.
    pub(super) fn expect_own(&self, id: RequestId) -> oneshot::Receiver<Members> {
        let (taker, answer) = oneshot::channel();
        self.all().insert(id, Pending::Own(taker));
        answer
    }

    /// A call is being decided on. `false` when another request has this id.
    pub(super) fn expect_call(&self, id: RequestId) -> bool {
        self.expect(id, Pending::Call { answer: None, cancelled: watch::Sender::new(false) })
    }

    fn expect(&self, id: RequestId, what: Pending) -> bool {
        match self.all().entry(id) {
            Entry::Occupied(_) => false,
            Entry::Vacant(vacant) => {
                vacant.insert(what);
                true
            }
        }
    }

    /// Whether a request of this id waits.
    pub(super) fn has(&self, id: &RequestId) -> bool {
        self.all().contains_key(id)
    }

    /// A call is about to be sent.
    pub(super) fn send(&self, id: &RequestId) -> Result<SentCall, NoResponse> {
        let (taker, answer) = oneshot::channel();
        match self.all().get_mut(id) {
            Some(Pending::Call { cancelled, .. }) if *cancelled.borrow() => Err(NoResponse::Cancelled),
            Some(Pending::Call { answer: taken, cancelled }) => {
                *taken = Some(taker);
                let cancelled = cancelled.subscribe();
                Ok(SentCall { response: ResponseReceiver { answer, pending: self.clone(), id: id.clone() }, cancelled })
            }
            _ => Err(NoResponse::NotSent("the server has ended".to_owned())),
        }
    }

    /// The call could not be sent.
    pub(super) fn not_sent(&self, id: &RequestId) {
        if let Some(Pending::Call { answer, .. }) = self.all().get_mut(id) {
            *answer = None;
        }
    }

    /// The gateway has the response to a call. `false` when the client does not want it any more.
    pub(super) fn answered(&self, id: &RequestId) -> bool {
        let mut all = self.all();
        match all.get(id) {
            Some(Pending::Call { answer: None, cancelled }) => {
                let is_wanted = !*cancelled.borrow();
                all.remove(id);
                is_wanted
            }
            _ => true,
        }
    }

    /// The request does not wait any more.
    pub(super) fn forget(&self, id: &RequestId) {
        self.all().remove(id);
    }

    /// The client cancels a request.
    pub(super) fn cancel(&self, parameters: Option<&Members>, client: &str) -> Cancellation {
        let id = parameters.and_then(|parameters| parameters.get("requestId")).and_then(Id::read);
        let Some(id) = id else { return Cancellation::Pass };
        let reason = parameters.and_then(|parameters| parameters.text("reason"));
        let id = RequestId { connection: client.to_owned(), id };
        let mut all = self.all();
        match all.get(&id) {
            Some(Pending::Call { answer: None, cancelled }) => {
                cancelled.send_replace(true);
                Cancellation::Keep
            }
            // A client that only ran out of time comes back for the response.
            Some(Pending::Call { .. }) if reason.is_some_and(|reason| is_timeout(&reason)) => Cancellation::Keep,
            Some(Pending::Call { cancelled, .. }) => {
                cancelled.send_replace(true);
                Cancellation::Pass
            }
            // Many servers do not respond to a cancelled request.
            Some(Pending::Passed | Pending::List) => {
                all.remove(&id);
                Cancellation::Pass
            }
            Some(Pending::Own(_)) | None => Cancellation::Pass,
        }
    }

    /// A response has come.
    pub(super) fn take(&self, id: &RequestId, members: Members, line: &[u8]) -> Recipient {
        let mut all = self.all();
        let mixed_up = mixed_up(&all, id);
        let id = mixed_up.as_ref().unwrap_or(id);
        // A call that was not sent yet cannot have a response.
        if matches!(all.get(id), Some(Pending::Call { answer: None, .. })) {
            return Recipient::Unexpected;
        }
        match all.remove(id) {
            None => Recipient::Unexpected,
            Some(Pending::Passed) => Recipient::Client,
            Some(Pending::List) => Recipient::List(members),
            Some(Pending::Own(taker)) => {
                let _ = taker.send(members);
                Recipient::Taken
            }
            Some(Pending::Call { answer, cancelled }) => {
                let answered = CallResponse { line: line.to_vec(), members, cancelled: *cancelled.borrow() };
                if let Some(taker) = answer {
                    let _ = taker.send(answered);
                }
                Recipient::Taken
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// No request will get a response. Returns the ids of those that were only passed on: the caller tells their client.
    pub(super) fn clear(&self) -> Vec<Id> {
        let all = std::mem::take(&mut *self.all());
        let passed = all.into_iter().filter(|(_, what)| matches!(what, Pending::Passed | Pending::List));
        passed.map(|(id, _)| id.id).collect()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<RequestId, Pending>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Another call in progress, where that bug is planted.
fn mixed_up(all: &HashMap<RequestId, Pending>, id: &RequestId) -> Option<RequestId> {
    let is_other =
        |(other, what): &(&RequestId, &Pending)| *other != id && matches!(what, Pending::Call { answer: Some(_), .. });
    all.iter().find(|other| planted(Plant::AnswerToAnother) && is_other(other)).map(|(other, _)| other.clone())
}

impl SentCall {
    /// Turns true when the client cancels.
    pub(super) fn cancelled(&self) -> watch::Receiver<bool> {
        self.cancelled.clone()
    }

    /// Waits for the response; only for a limited time once the client has cancelled.
    pub(super) async fn answer(self) -> Result<CallResponse, NoResponse> {
        self.answer_within(CANCELLED_LIMIT).await
    }

    async fn answer_within(self, cancelled_limit: Duration) -> Result<CallResponse, NoResponse> {
        let Self { mut response, mut cancelled } = self;
        let given_up = async {
            if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
                std::future::pending::<()>().await;
            }
            sleep(cancelled_limit).await;
        };
        tokio::select! {
            biased;
            answered = &mut response.answer => {
                answered.map_err(|_| NoResponse::Lost("the server ended before it answered".to_owned()))
            }
            () = given_up => Err(NoResponse::GaveUp(LateResponse::new(async move { (&mut response.answer).await.ok() }))),
        }
    }
}

impl Drop for ResponseReceiver {
    fn drop(&mut self) {
        self.answer.close();
        let mut all = self.pending.all();
        // A later request may have the id now.
        if matches!(all.get(&self.id), Some(Pending::Call { answer: Some(taker), .. }) if taker.is_closed()) {
            all.remove(&self.id);
        }
    }
}

impl LateResponse {
    pub(super) fn new(answer: impl Future<Output = Option<CallResponse>> + Send + 'static) -> Self {
        Self(Box::pin(answer))
    }

    /// The response, if it comes in time.
    pub(super) async fn answer(self) -> Option<CallResponse> {
        self.answer_within(LATE_LIMIT).await
    }

    async fn answer_within(self, late_limit: Duration) -> Option<CallResponse> {
        timeout(late_limit, self.0).await.ok().flatten()
    }
}

impl fmt::Debug for LateResponse {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("LateResponse")
    }
}

/// Whether a client cancelled because it ran out of time, and not because its user wants the call to stop. A cancellation without
/// a reason counts as the latter: editors give none when their user presses stop, and they have no time limit.
fn is_timeout(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    ["timed out", "timeout", "time out", "time-out", "deadline"].iter().any(|text| reason.contains(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: &str) -> RequestId {
        RequestId { connection: String::new(), id: Id::Text(id.to_owned()) }
    }

    fn cancelled(id: &str, reason: &str) -> Members {
        Members::read(&format!(r#"{{"requestId":"{id}","reason":"{reason}"}}"#)).unwrap()
    }

    #[test]
    fn a_server_is_told_of_a_cancellation_only_when_it_knows_the_call_and_the_user_wants_it_to_stop() {
        let pending = PendingRequests::default();
        assert!(
            pending.expect_call(request("a"))
                && !pending.expect_call(request("a"))
                && !pending.expect_any(request("a"))
        );
        assert!(pending.expect_any(request("p")) && !pending.expect_call(request("p")));
        assert_eq!(pending.cancel(Some(&cancelled("p", "stop")), ""), Cancellation::Pass);
        assert!(pending.expect_call(request("p")));
        assert_eq!(pending.cancel(Some(&cancelled("other", "stop")), ""), Cancellation::Pass);
        let _sent = pending.send(&request("a")).unwrap();
        assert_eq!(
            pending.cancel(Some(&cancelled("a", "MCP error -32001: Request timed out")), ""),
            Cancellation::Keep
        );
        assert_eq!(pending.cancel(Some(&cancelled("a", "the user pressed stop")), ""), Cancellation::Pass);
        let silent = Members::read(r#"{"requestId":"a"}"#).unwrap();
        assert_eq!(pending.cancel(Some(&silent), ""), Cancellation::Pass);
        pending.expect_call(request("b"));
        assert_eq!(pending.cancel(Some(&cancelled("b", "the user pressed stop")), ""), Cancellation::Keep);
        assert!(matches!(pending.send(&request("b")), Err(NoResponse::Cancelled)));
        assert!(!pending.answered(&request("b")));
        assert!(matches!(pending.send(&request("b")), Err(NoResponse::NotSent(_))));
    }

    #[tokio::test]
    async fn a_response_goes_to_the_request_that_waits_for_it() {
        let pending = PendingRequests::default();
        pending.expect_call(request("a"));
        let members = || Members::read(r#"{"id":"a"}"#).unwrap();
        assert!(matches!(pending.take(&request("a"), members(), b"early"), Recipient::Unexpected));
        let sent = pending.send(&request("a")).unwrap();
        assert!(matches!(pending.take(&request("b"), members(), b"other"), Recipient::Unexpected));
        pending.expect_any(request("b"));
        assert!(matches!(pending.take(&request("b"), members(), b"other"), Recipient::Client));
        assert!(matches!(pending.take(&request("a"), members(), b"line"), Recipient::Taken));
        assert_eq!(sent.answer().await.unwrap().line, b"line");
        pending.expect_list(request("l"));
        assert!(matches!(pending.take(&request("l"), members(), b""), Recipient::List(_)));
        pending.expect_call(request("c"));
        let sent = pending.send(&request("c")).unwrap();
        pending.clear();
        assert!(matches!(sent.answer().await, Err(NoResponse::Lost(_))));
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
            assert!(is_timeout(reason), "{reason}");
        }
        for reason in ["caller cancelled", "context canceled", "AbortError: This operation was aborted", ""] {
            assert!(!is_timeout(reason), "{reason}");
        }
    }

    /// A call that was cancelled, and whose server has said nothing for a while.
    async fn given_up(pending: &PendingRequests, id: &str) -> LateResponse {
        assert!(pending.expect_call(request(id)));
        let sent = pending.send(&request(id)).unwrap();
        pending.cancel(Some(&cancelled(id, "the user pressed stop")), "");
        match sent.answer_within(Duration::ZERO).await {
            Err(NoResponse::GaveUp(late)) => late,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_late_response_is_taken_and_listening_ends() {
        let pending = PendingRequests::default();
        let late = given_up(&pending, "a").await;
        // Until then its id is its own.
        assert!(!pending.expect_call(request("a")));
        let members = Members::read(r#"{"id":"a"}"#).unwrap();
        assert!(matches!(pending.take(&request("a"), members, b"late"), Recipient::Taken));
        assert_eq!(late.answer().await.unwrap().line, b"late");
        assert!(pending.is_empty());
        let late = given_up(&pending, "b").await;
        assert!(late.answer_within(Duration::from_millis(1)).await.is_none() && pending.is_empty());
        // A late response is forgotten, and a later request with its id is not.
        let late = given_up(&pending, "c").await;
        pending.forget(&request("c"));
        assert!(pending.expect_call(request("c")));
        let _sent = pending.send(&request("c")).unwrap();
        drop(late);
        assert!(pending.has(&request("c")));
    }
}
