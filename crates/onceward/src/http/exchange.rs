//! One guarded request, in a straight line: build the call, start it, send the request, judge the answer, keep it, hand it over.
//! A request that was sent runs to its end even if the client goes away: the client's retry gets the outcome.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::CONTENT_LENGTH;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, request, response};
use http_body_util::BodyExt;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tracing::Instrument;

use onceward_core::decide::Decision;
use onceward_core::name::Identity;
use onceward_core::outcome;
use onceward_core::policy::InDoubt;

use super::body::{self, Body, ReadError};
use super::delivery_watch::on_delivered;
use super::dialect::Dialect;
use super::problem::{Kind, Problem, QUOTA_RETRY_AFTER};
use super::rules::Rules;
use super::spelling::{self, SpelledKey};
use super::streaming::{self, ResultPlace, StreamOptions, announce_trailers, clone_head, end_unkept, settle, stream};
use super::truncation::CloseDelimited;
use super::verdict::{self, Ending};
use super::{grpc, stored_response};
use crate::clock::{Clock, SystemClock};
use crate::error::Error;
use crate::ledger::{Claim, Delivery, FinishOnDrop, Guard, Ledger, Started};

/// The longest Retry-After for running work: it may be over sooner than its lease.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(5);

/// The Retry-After for conditions that pass soon.
const SHORT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// A client that has waited longer may have given up silently, with its connection open.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(4);

/// A request that was read whole.
#[derive(Clone, Debug)]
pub struct Received {
    /// The tenant.
    pub tenant: String,
    /// The head of the request.
    pub parts: request::Parts,
    /// The body of the request.
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// The upstream was not reached: nothing happened.
    NotSent(String),
    /// The upstream refused the request without processing it.
    Refused(String),
    /// The request may have arrived.
    Lost(String),
    /// The upstream timed out. The request may have arrived.
    TimedOut,
}

/// An extension of a request that runs without a record, because the ledger is down and the policy allows that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unrecorded;

/// Guards one request. `send` takes it upstream, with the claim under which that happens.
pub async fn exchange<S, F, B>(
    ledger: &Ledger,
    rules: &Arc<Rules>,
    received: Received,
    key: Option<String>,
    send: S,
) -> Response<Body>
where
    S: FnOnce(Request<Bytes>, Option<Claim>) -> F + Send + 'static,
    F: Future<Output = Result<Response<B>, NoAnswer>> + Send + 'static,
    B: http_body::Body<Data = Bytes, Error: Into<body::Error> + Send> + Send + 'static,
{
    let dialect = Dialect::of(rules.profile, &received.parts.headers);
    let spelled = SpelledKey::of(rules, &received.parts.headers, key.as_deref());
    let call = match rules.call(&received, key, SystemClock.now()) {
        Ok(call) => call,
        Err(problem) => return problem.response(dialect),
    };
    let mut request = Request::from_parts(received.parts, received.body);
    let Some(call) = call else { return pass_through(dialect, send(request, None).await) };
    let (downstream, since) = (rules.downstream_header(&call), Instant::now());
    let needs_delivery = call.policy.after_delivery.is_some();
    let begun = match spelling::start(ledger, &call, spelled.as_ref()).await {
        Ok(begun) => begun,
        Err(error) => return failed(rules, dialect, &error),
    };
    if let Some((name, value)) = begun.respelled {
        request.headers_mut().insert(name, value);
    }
    match begun.started {
        Started::Acquired(guard) => {
            let claim = guard.claim();
            let record = rules.holds_for_a_window(&call).then(|| guard.record_key());
            set_downstream_key(&mut request, downstream, &claim, record);
            let delivery = needs_delivery.then(|| guard.delivery());
            let exchange = GuardedExchange { rules: Arc::clone(rules), dialect, guard };
            // A request that was sent runs to its end even if the client goes away: then in a task of its own.
            let carried = FinishOnDrop::new(&Handle::current(), exchange.send(request, claim, send).in_current_span());
            // Whatever panics, the client gets an answer. The guard was dropped, so the intent is in doubt.
            let answer = AssertUnwindSafe(carried).catch_unwind().await;
            let answer = answer.unwrap_or_else(|_| Problem::new(Kind::NoAnswer).response(dialect));
            with_delivery(answer, delivery, since)
        }
        Started::Answered(decision) => {
            let is_kept = matches!(decision, Decision::Replay { .. } | Decision::OutcomeNotKept { .. });
            let intent = if is_kept && needs_delivery { ledger.get(&call.identity).await.ok().flatten() } else { None };
            let delivery = intent.and_then(|intent| ledger.delivery(intent));
            with_delivery(answered(rules, dialect, &call.identity, decision), delivery, since)
        }
        Started::Unguarded { claim, .. } => {
            set_downstream_key(&mut request, downstream, &claim, None);
            request.extensions_mut().insert(Unrecorded);
            let mut answer = pass_through(dialect, send(request, Some(claim)).await);
            answer.headers_mut().remove(stored_response::EXPIRES);
            answer.headers_mut().insert(stored_response::RECORDED, HeaderValue::from_static("false"));
            answer
        }
    }
}

/// Records that the client got the answer, once the connection has taken all of it.
fn with_delivery(answer: Response<Body>, delivery: Option<Delivery>, since: Instant) -> Response<Body> {
    let Some(delivery) = delivery else { return answer };
    let length = answer.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    answer.map(|body| {
        on_delivered(body, length, move || {
            if since.elapsed() < DELIVERY_TIMEOUT {
                delivery.arrived();
            }
        })
    })
}

/// Puts our own key into a request, if the upstream is to get it: the same on every attempt, guarded or not. Where a derived key
/// holds for a window only, an equal request afterwards is a new one, and the upstream may remember keys for longer: then the key
/// belongs to the record, and is the same on each of its attempts.
fn set_downstream_key(
    request: &mut Request<Bytes>,
    downstream: Option<HeaderName>,
    claim: &Claim,
    record: Option<String>,
) {
    let Some(name) = downstream else { return };
    let key = record.unwrap_or_else(|| claim.downstream_key().to_owned());
    if let Ok(value) = HeaderValue::try_from(key) {
        request.headers_mut().insert(name, value);
    }
}

/// The answer to an unguarded request.
fn pass_through<B>(dialect: Dialect, answer: Result<Response<B>, NoAnswer>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes, Error: Into<body::Error> + Send> + Send + 'static,
{
    match answer {
        Ok(response) => response.map(|body| body.map_err(Into::into).boxed_unsync()),
        Err(missing) => without_answer(&missing, dialect),
    }
}

/// The response to an unguarded request without an answer.
pub fn without_answer(missing: &NoAnswer, dialect: impl Into<Dialect>) -> Response<Body> {
    problem_of(missing).response(dialect)
}

fn problem_of(missing: &NoAnswer) -> Problem {
    match missing {
        NoAnswer::NotSent(_) => Problem::new(Kind::Unreachable).later(SHORT_RETRY_AFTER),
        NoAnswer::Refused(_) => Problem::because(
            Kind::Unreachable,
            "It refused the request before it looked at it. Try again with the same key.",
        )
        .later(SHORT_RETRY_AFTER),
        NoAnswer::Lost(_) => Problem::new(Kind::NoAnswer),
        NoAnswer::TimedOut => Problem::new(Kind::TimedOut),
    }
}

/// The response to a repeat.
fn answered(rules: &Rules, dialect: Dialect, identity: &Identity, decision: Decision) -> Response<Body> {
    let problem = match decision {
        Decision::Replay { outcome, expires_at, .. } => match stored_response::response(&outcome, expires_at) {
            Some(response) => return response,
            None => not_kept(Some(outcome.status), Some(outcome.digest())),
        },
        Decision::InFlight { retry_after, running: true, .. } => {
            Problem::new(Kind::InFlight).later(retry_after.min(MAX_RETRY_AFTER))
        }
        Decision::InFlight { retry_after, .. } => Problem::because(
            Kind::InFlight,
            "The last attempt is recorded as having had no effect, and the next one may not start yet. Ask again with the same key after Retry-After.",
        )
        .later(retry_after),
        Decision::InDoubt { since } => Problem::new(Kind::InDoubt).since(since).about(identity),
        Decision::Mismatch => Problem::new(Kind::Mismatch),
        Decision::Collision | Decision::MixedUse | Decision::OutOfOrder { .. } => Problem::new(Kind::Collision),
        Decision::OutcomeNotKept { outcome, status } => not_kept(status, outcome),
        Decision::Queued { .. } => Problem::new(Kind::Queued),
        Decision::Dead => Problem::new(Kind::Dead),
        // A claim comes as a guard, and not as a decision.
        _ => Problem::new(Kind::InFlight).later(SHORT_RETRY_AFTER),
    };
    with_status(problem, rules).response(dialect)
}

/// A request in flight gets the status that the route configures.
fn with_status(problem: Problem, rules: &Rules) -> Problem {
    match problem.kind {
        Kind::InFlight => problem.status(rules.in_flight_status),
        _ => problem,
    }
}

fn not_kept(status: Option<i32>, digest: Option<onceward_core::hash::Digest>) -> Problem {
    let mut problem = Problem::new(Kind::NotKept);
    if let Some(status) = status {
        problem = problem.with("original_status", status);
    }
    match digest {
        Some(digest) => problem.with("outcome_digest", digest.to_hex()),
        None => problem,
    }
}

/// The response when nothing ran. The store's error may name files and hosts, so it goes to the log only.
fn failed(rules: &Rules, dialect: Dialect, error: &Error) -> Response<Body> {
    let problem = match error {
        Error::Invalid(error) => Problem::because(Kind::BadRequest, error),
        Error::OwnerFailed { .. } => Problem::new(Kind::AttemptFailed).later(SHORT_RETRY_AFTER),
        Error::OwnerUnknown { .. } => Problem::because(
            Kind::AttemptFailed,
            "The attempt that you waited for may or may not have happened. The upstream knows its key: try again with the same key.",
        )
        .later(SHORT_RETRY_AFTER),
        Error::Contended { .. } | Error::ClaimLost { .. } => Problem::new(Kind::InFlight).later(SHORT_RETRY_AFTER),
        Error::Quota { .. } => Problem::new(Kind::Quota).later(QUOTA_RETRY_AFTER),
        error => {
            tracing::error!(%error, "a guarded request was refused: the ledger cannot be reached");
            Problem::new(Kind::StoreDown).later(SHORT_RETRY_AFTER)
        }
    };
    with_status(problem, rules).response(dialect)
}

/// One request under its claim.
struct GuardedExchange {
    rules: Arc<Rules>,
    dialect: Dialect,
    guard: Guard,
}

impl GuardedExchange {
    async fn send<S, F, B>(self, request: Request<Bytes>, claim: Claim, send: S) -> Response<Body>
    where
        S: FnOnce(Request<Bytes>, Option<Claim>) -> F + Send + 'static,
        F: Future<Output = Result<Response<B>, NoAnswer>> + Send + 'static,
        B: http_body::Body<Data = Bytes, Error: Into<body::Error> + Send> + Send + 'static,
    {
        let answer = tokio::select! {
            biased;
            answer = send(request, Some(claim)) => answer,
            // Another caller may go on with it.
            () = self.guard.lost() => Err(NoAnswer::Lost("the claim was lost".to_owned())),
        };
        match answer {
            Ok(response) => self.judge(response).await,
            Err(missing) => self.missing(missing).await,
        }
    }

    async fn missing(self, missing: NoAnswer) -> Response<Body> {
        let mut problem = problem_of(&missing);
        let (identity, in_doubt) = (self.guard.call().identity.clone(), self.rules.policy.in_doubt);
        let ended = match &missing {
            NoAnswer::NotSent(why) | NoAnswer::Refused(why) => self.guard.release(Duration::ZERO, Some(why)).await,
            NoAnswer::Lost(why) => self.guard.doubt(Some(why)).await,
            NoAnswer::TimedOut => self.guard.doubt(Some("the upstream did not answer in time")).await,
        };
        streaming::recorded(ended);
        if matches!(missing, NoAnswer::Lost(_) | NoAnswer::TimedOut) {
            problem = problem.retry(in_doubt == InDoubt::Retry).about(&identity);
        }
        problem.response(self.dialect)
    }

    async fn judge<B>(self, response: Response<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes, Error: Into<body::Error> + Send> + Send + 'static,
    {
        let (mut parts, body) = response.into_parts();
        // An upstream's own headers about kept outcomes would say something untrue about ours.
        parts.headers.remove(stored_response::EXPIRES);
        parts.headers.remove(stored_response::RECORDED);
        let (status, profile) = (parts.status, self.rules.profile);
        let ending = if status == StatusCode::OK && grpc::is_grpc(&parts.headers) {
            grpc::ending(profile, &parts.headers)
        } else {
            Some(verdict::of_response(profile, status, &parts.headers, &self.rules.refusals))
        };
        match ending {
            None => return self.keep(parts, body, ResultPlace::Trailers(profile)).await,
            Some(Ending::Keep(verdict)) => return self.keep(parts, body, ResultPlace::Status(verdict)).await,
            Some(ending) => {
                let recorded = end_unkept(self.guard, ending, &format!("answered {status}")).await;
                recorded.add_headers(&mut parts.headers, None);
            }
        }
        Response::from_parts(parts, body.map_err(Into::into).boxed_unsync())
    }

    /// A short answer is on the disk before any of it is handed over. A long or streamed answer is handed over as it comes, except
    /// for its end: a client that has all of it can rely on every repeat.
    async fn keep<B>(self, mut parts: response::Parts, body: B, result: ResultPlace) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes, Error: Into<body::Error> + Send> + Send + 'static,
    {
        let limit = self.rules.policy.keep_limit;
        let length = body.size_hint().exact();
        let kept_for = self.guard.call().policy.kept_for().filter(|_| matches!(result, ResultPlace::Status(_)));
        let expires = kept_for.map(|kept| SystemClock.now().after(kept)).and_then(stored_response::date);
        if length.is_none_or(|length| length > limit as u64) {
            let (sender, streamed_body) = body::channel(self.rules.reader_patience);
            let close_delimited = parts.extensions.get::<CloseDelimited>().is_some();
            let options =
                StreamOptions { limit, length, close_delimited, expires, unread_for: self.rules.unread_for, result };
            announce_trailers(&mut parts.headers);
            let streamed = stream(self.guard, options, clone_head(&parts), body, sender);
            tokio::spawn(Box::pin(streamed).in_current_span());
            return Response::from_parts(parts, streamed_body);
        }
        match body::read_all(body, limit).await {
            Ok((bytes, trailers)) => {
                let kept = outcome::Body::Kept(bytes.clone());
                let recorded = settle(self.guard, &parts, trailers.as_ref(), result, kept).await;
                recorded.add_headers(&mut parts.headers, expires.as_ref());
                Response::from_parts(parts, body::with_trailers(bytes, trailers))
            }
            Err(ReadError::Broken(error)) => {
                self.missing(NoAnswer::Lost(format!("the answer broke off: {error}"))).await
            }
            // Its declared length was shorter.
            Err(ReadError::TooLarge | ReadError::NoMemory) => {
                self.missing(NoAnswer::Lost("the answer was longer than its declared length".to_owned())).await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::oneshot;

    use super::super::rules::Rules;
    use super::*;

    /// One request to an upstream that refuses the first call with a Retry-After of one second.
    async fn request_with_wait(ledger: &Ledger, wait: Duration, calls: &Arc<AtomicUsize>) -> Response<Body> {
        let mut rules = Rules::default();
        Arc::make_mut(&mut rules.policy).wait = wait;
        let (parts, ()) = Request::post("/v1/charges").body(()).unwrap().into_parts();
        let received = Received { tenant: "acme".to_owned(), parts, body: Bytes::new() };
        let calls = Arc::clone(calls);
        exchange(ledger, &Arc::new(rules), received, Some("order-7".to_owned()), move |_, _| async move {
            let first = calls.fetch_add(1, Ordering::Relaxed) == 0;
            let answer =
                if first { Response::builder().status(503).header("retry-after", "1") } else { Response::builder() };
            answer.body(body::full(Bytes::new())).map_err(|error| NoAnswer::Lost(error.to_string()))
        })
        .await
    }

    /// The key that the upstream gets for a request without one.
    async fn derived_key(ledger: &Ledger, window: Duration, status: u16) -> String {
        let rules = Rules::default().derived(window).honours_key(true);
        let (parts, ()) = Request::post("/v1/completions").body(()).unwrap().into_parts();
        let received = Received { tenant: "acme".to_owned(), parts, body: Bytes::new() };
        let (tell, told) = oneshot::channel();
        exchange(ledger, &Arc::new(rules), received, None, move |request, _| async move {
            tell.send(request.headers()["idempotency-key"].to_str().unwrap().to_owned()).unwrap();
            let answer = Response::builder().status(status).body(body::full(Bytes::new()));
            answer.map_err(|error| NoAnswer::Lost(error.to_string()))
        })
        .await;
        told.await.unwrap()
    }

    #[tokio::test]
    async fn a_derived_request_has_one_key_on_every_attempt_and_another_after_its_window() {
        let ledger = Ledger::open("memory:").await.unwrap();
        let window = Duration::from_millis(30);
        let first = derived_key(&ledger, window, 502).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(first, derived_key(&ledger, window, 502).await, "an intent in doubt is still the same request");
        assert_eq!(first, derived_key(&ledger, window, 200).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_ne!(first, derived_key(&ledger, window, 200).await);
    }

    #[tokio::test]
    async fn a_client_that_comes_too_early_waits_for_the_retry_after_of_the_upstream() {
        for (wait, status, sent) in [(Duration::from_secs(20), 200, 2), (Duration::from_millis(100), 409, 1)] {
            let (ledger, calls) = (Ledger::open("memory:").await.unwrap(), Arc::default());
            assert_eq!(request_with_wait(&ledger, wait, &calls).await.status(), 503);
            let again = request_with_wait(&ledger, wait, &calls).await;
            assert_eq!((again.status().as_u16(), calls.load(Ordering::Relaxed)), (status, sent));
            assert_eq!(again.headers().contains_key("retry-after"), status == 409);
        }
    }
}
