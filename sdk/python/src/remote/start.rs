//! Starts a call on a server: begins it, asks again when an answer is lost, and waits while another caller does the
//! work.

use std::sync::Arc;
use std::time::Duration;

use onceward::{Error, Outcome, Policy};
use onceward_core::class::Errors;
use onceward_core::recipe::Recipe;
use onceward_core::time::Timestamp;
use pyo3::prelude::*;
use tokio::time::{Instant, sleep};

use super::RemoteLedger;
use super::call::{RemoteCall, identified};
use super::claim::{ClaimTerms, RemoteClaim, WITHDRAWN, give_back};
use super::client::{ANSWER_TIMEOUT, ApiRequest, Client, MAX_TRIES, Pauses};
use super::failure::{RemoteError, Trouble};
use super::messages::{BeginDecision, BeginRequest, BeginResponse, ClaimUpdate, is_not_kept};
use crate::claim::{NativeClaim, answer};
use crate::error::{self, About};
use crate::runtime::Completion;
use crate::stored::Stored;
use crate::value;

/// The longest wait that the API accepts; a longer one is asked for in parts.
const MAX_REQUEST_WAIT: Duration = Duration::from_secs(60);

/// The longest wait, whatever the caller asks for.
const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// The time for all tries of one begin, besides its wait.
const TRIES_LIMIT: Duration = Duration::from_secs(30);

/// A begin whose claims are given back again and again, before this client has their answers, is given up.
const MAX_NEW_IDS: u32 = 8;

/// The pause before the next request, where the server answered earlier than it was asked to.
const EARLY_ANSWER_PAUSE: Duration = Duration::from_millis(200);

/// How long the background tries to give back a claim whose answer was lost. After its lease it would be in doubt.
const GIVE_BACK_LIMIT: Duration = Duration::from_secs(120);

/// The reason with which the server gives back a claim whose caller disconnected.
const DISCONNECTED: &str = "the caller went away before it had the claim";

/// The reason that the server gives when the attempt of another caller ended in doubt and may be repeated.
const OWNER_UNKNOWN: &str = "it is unknown whether it happened";

/// An operation on a server: only what the client decides. All other settings are the server's.
pub(crate) struct RemoteOperation<'a> {
    pub(crate) name: &'a str,
    pub(crate) recipe: Option<&'a Recipe>,
    pub(crate) policy: &'a Policy,
    /// Three times `max_runtime`, if the caller gave it.
    pub(crate) lease: Option<Duration>,
    pub(crate) wait: Option<Duration>,
}

/// The parts of one call, as Python gives them.
pub(crate) struct CallParts<'a, 'py> {
    pub(crate) tenant: Option<&'a str>,
    pub(crate) session: Option<&'a str>,
    pub(crate) key: Option<&'a str>,
    pub(crate) intent: Option<&'a Bound<'py, PyAny>>,
    pub(crate) is_item: bool,
}

impl RemoteOperation<'_> {
    fn call(&self, py: Python<'_>, ledger: &RemoteLedger, parts: &CallParts<'_, '_>) -> PyResult<RemoteCall> {
        let about = About { operation: self.name.to_owned(), ..ledger.about() };
        if parts.tenant.is_some() {
            return Err(error::invalid(py, "the tenant of a ledger behind HTTP is that of its token", &about));
        }
        if parts.is_item {
            let why = "the API has no streams: for numbered items, as of consume_event, open the store itself: a file, \
                       postgres://… or redis://…";
            return Err(error::invalid(py, why, &about));
        }
        let intent = parts.intent.map(|intent| value::of_intent(intent, self.name, self.recipe)).transpose()?;
        identified(self.name, parts.session, parts.key, intent.as_ref(), self.recipe)
            .map_err(|error| error::raised(py, &Error::Invalid(error), &about))
    }

    /// The key of a call.
    pub(crate) fn key(&self, py: Python<'_>, ledger: &RemoteLedger, parts: &CallParts<'_, '_>) -> PyResult<String> {
        Ok(self.call(py, ledger, parts)?.identity.key.as_str().to_owned())
    }
}

/// Starts a call.
pub(crate) fn start(
    py: Python<'_>,
    event_loop: Option<&Bound<'_, PyAny>>,
    ledger: &RemoteLedger,
    operation: &RemoteOperation<'_>,
    parts: &CallParts<'_, '_>,
    wait: Option<Duration>,
) -> PyResult<Py<PyAny>> {
    let client = ledger.client(py)?;
    let RemoteCall { identity, key_digest, intent, minimum_retention } = operation.call(py, ledger, parts)?;
    let about = About {
        store: ledger.url().to_owned(),
        tenant: String::new(),
        operation: identity.operation.as_str().to_owned(),
        key: identity.key.as_str().to_owned(),
        intent: identity.to_string(),
    };
    let begin = BeginRequest {
        operation: about.operation.clone(),
        key: about.key.clone(),
        key_digest,
        intent,
        claim_id: String::new(),
        wait_ms: None,
        lease_ms: operation.lease.map(in_millis),
        marks_sent: operation.policy.marks_sent,
        probes: operation.policy.probes,
    };
    // Whether the server's operation declares a tier cannot be seen from here, so the stricter reading holds.
    let errors = Errors { tier_declared: true, ..operation.policy.errors() };
    let starting = Starting { client, begin, errors, minimum_retention, intent: about.intent.clone() };
    let wait = wait.or(operation.wait);
    answer(py, event_loop, async move { RemoteStart { started: starting.run(wait).await, about } })
}

/// A call that is being started.
struct Starting {
    client: Arc<Client>,
    begin: BeginRequest,
    errors: Errors,
    minimum_retention: Duration,
    /// The intent in messages.
    intent: String,
}

/// What a server answers to a start.
enum Started {
    Claim(RemoteClaim, IsGuarded),
    Replay(Outcome, Option<Timestamp>),
}

struct IsGuarded(bool);

/// How long a request waits while another caller does the work.
#[derive(Clone, Copy)]
enum Waiting {
    Not,
    For(Duration),
    /// The caller has no wait of its own: the one of the server's operation counts.
    AsServerSays,
}

impl Waiting {
    /// How the next request waits; `None` when the time is over.
    fn next(self, deadline: Option<Instant>) -> Option<Self> {
        match (self, deadline) {
            (Self::Not, None) => Some(Self::AsServerSays),
            (_, None) => None,
            (_, Some(deadline)) => {
                let left = deadline.saturating_duration_since(Instant::now());
                (!left.is_zero()).then(|| Self::For(left.min(MAX_REQUEST_WAIT)))
            }
        }
    }
}

impl Starting {
    async fn run(self, wait: Option<Duration>) -> Result<Started, RemoteError> {
        let deadline = wait.map(|wait| Instant::now() + wait.min(MAX_WAIT));
        // Most calls need not wait, and a server that does not answer those is noticed soon.
        let mut waiting = Waiting::Not;
        let mut new_ids = 0;
        loop {
            let asked = Instant::now();
            let (decision, from) = self.begin(waiting).await?;
            match (decision, waiting.next(deadline)) {
                (BeginDecision::InFlight { running: true, .. }, Some(next)) => {
                    let is_early = !matches!(waiting, Waiting::Not) && asked.elapsed() < EARLY_ANSWER_PAUSE;
                    if is_early {
                        sleep(EARLY_ANSWER_PAUSE).await;
                    }
                    waiting = next;
                }
                // The claim that was made with this id was given back, because its answer did not arrive.
                (BeginDecision::Stale, _) if new_ids < MAX_NEW_IDS => new_ids += 1,
                // No work was begun, so there is no failure to report.
                (BeginDecision::TryAgain { reason }, _) if is_given_back(&reason) && new_ids < MAX_NEW_IDS => {
                    new_ids += 1
                }
                (decision, _) => return self.decided(decision, from),
            }
        }
    }

    /// One begin with an id of its own. Returns when the answered request was sent.
    async fn begin(&self, waiting: Waiting) -> Result<(BeginDecision, Instant), RemoteError> {
        let (wait_ms, limit) = match waiting {
            Waiting::Not => (Some(0), Duration::ZERO),
            Waiting::For(wait) => (Some(in_millis(wait)), wait),
            Waiting::AsServerSays => (None, MAX_REQUEST_WAIT),
        };
        let begin = BeginRequest { claim_id: claim_id()?, wait_ms, ..self.begin.clone() };
        let mut pending = PendingBegin { client: Arc::clone(&self.client), begin, may_be_granted: false };
        pending.ask(limit).await.map_err(RemoteError::from)
    }

    fn decided(self, decision: BeginDecision, from: Instant) -> Result<Started, RemoteError> {
        let intent = self.intent;
        Err(RemoteError::Library(match decision {
            BeginDecision::Acquired(acquired) => {
                let terms = ClaimTerms {
                    client: self.client,
                    operation: self.begin.operation,
                    key: self.begin.key,
                    intent,
                    asked_lease_ms: self.begin.lease_ms,
                    errors: self.errors,
                    minimum_retention: self.minimum_retention,
                };
                return Ok(Started::Claim(RemoteClaim::acquired(terms, acquired, from), IsGuarded(true)));
            }
            BeginDecision::Unguarded { downstream_key } => {
                let claim = RemoteClaim::unguarded(self.begin.key, downstream_key);
                return Ok(Started::Claim(claim, IsGuarded(false)));
            }
            BeginDecision::Replay { outcome, expires_at } => match outcome.read() {
                Some(outcome) if is_not_kept(&outcome) => {
                    Error::OutcomeNotKept { intent, status: Some(outcome.status), outcome: None }
                }
                Some(outcome) => return Ok(Started::Replay(outcome, expires_at.map(|time| time.0))),
                None => Error::Unreadable { intent, reason: "its bytes are not base64".to_owned() },
            },
            BeginDecision::InFlight { retry_after_ms, running: false } => {
                return Err(RemoteError::NotYet(Duration::from_millis(retry_after_ms)));
            }
            BeginDecision::InFlight { retry_after_ms, .. } => {
                Error::InFlight { intent, retry_after: Duration::from_millis(retry_after_ms) }
            }
            BeginDecision::InDoubt { since } => Error::InDoubt { intent, since: since.0 },
            BeginDecision::Mismatch => Error::Mismatch { intent },
            BeginDecision::Collision => Error::Collision { intent },
            BeginDecision::MixedUse => Error::MixedUse { intent },
            BeginDecision::OutcomeNotKept { status } => Error::OutcomeNotKept { intent, status, outcome: None },
            BeginDecision::Queued => Error::Queued { intent },
            BeginDecision::Dead => Error::Dead { intent },
            BeginDecision::TryAgain { reason } if reason == OWNER_UNKNOWN => Error::OwnerUnknown { intent },
            BeginDecision::TryAgain { reason } => Error::OwnerFailed { intent, reason },
            BeginDecision::Stale => Error::Contended { intent },
        }))
    }
}

/// Whether a claim ended before any work began.
fn is_given_back(reason: &str) -> bool {
    reason == WITHDRAWN || reason == DISCONNECTED
}

/// A begin whose answer is not known. Dropped without an answer, it gives back the claim that it may have been granted.
struct PendingBegin {
    client: Arc<Client>,
    begin: BeginRequest,
    may_be_granted: bool,
}

impl PendingBegin {
    /// Asks until there is an answer, a few times, always with the same id: a claim that was granted is granted again.
    async fn ask(&mut self, wait: Duration) -> Result<(BeginDecision, Instant), Trouble> {
        let request = ApiRequest::post("/v1/begin", &self.begin);
        let give_up = Instant::now() + wait + TRIES_LIMIT;
        let (mut pauses, mut tries) = (Pauses::default(), 1);
        loop {
            let (from, granted_before) = (Instant::now(), self.may_be_granted);
            // True also if the caller stops waiting in the middle of the request.
            self.may_be_granted = true;
            match self.client.ask::<BeginResponse>(&request, wait + ANSWER_TIMEOUT).await {
                Ok(answer) if answer.key == self.begin.key => {
                    self.may_be_granted = false;
                    return Ok((answer.decision, from));
                }
                Ok(_) => {
                    let text = "the server answered about another key".to_owned();
                    return Err(Trouble::Temporary { text, may_have_acted: true });
                }
                Err(Trouble::Temporary { may_have_acted, .. }) if tries < MAX_TRIES && from < give_up => {
                    self.may_be_granted = granted_before || may_have_acted;
                }
                Err(trouble) => {
                    let may_have_acted = matches!(trouble, Trouble::Temporary { may_have_acted: true, .. });
                    self.may_be_granted = granted_before || may_have_acted;
                    return Err(trouble);
                }
            }
            tries += 1;
            pauses.next().await;
        }
    }
}

impl Drop for PendingBegin {
    fn drop(&mut self) {
        if self.may_be_granted {
            let (client, begin) = (Arc::clone(&self.client), self.begin.clone());
            self.client.background.run(release_if_granted(client, begin));
        }
    }
}

/// Asks once more with the same id, and releases the claim: no work was begun under it.
async fn release_if_granted(client: Arc<Client>, begin: BeginRequest) {
    let until = Instant::now() + GIVE_BACK_LIMIT;
    let begin = BeginRequest { wait_ms: Some(0), ..begin };
    let asked = client.insist::<BeginResponse>(&ApiRequest::post("/v1/begin", &begin), until).await;
    if let Ok(BeginResponse { decision: BeginDecision::Acquired(acquired), .. }) = asked {
        let (operation, key, fence) = (&begin.operation, &begin.key, &acquired.fence);
        let release = serde_json::json!({ "operation": operation, "key": key, "fence": fence, "error": WITHDRAWN });
        // A claim that cannot be given back lapses.
        let _ = client.insist::<ClaimUpdate>(&ApiRequest::post("/v1/release", &release), until).await;
    }
}

/// An id for one begin: random, so that a process never gets a claim of an earlier one.
fn claim_id() -> Result<String, RemoteError> {
    let mut bytes = [0_u8; 16];
    let refuse = |error: getrandom::Error| Error::Invalid(onceward::Invalid::Randomness(error.to_string()));
    getrandom::fill(&mut bytes).map_err(refuse)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn in_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What a start leads to, as Python gets it.
struct RemoteStart {
    started: Result<Started, RemoteError>,
    about: About,
}

impl Completion for RemoteStart {
    fn deliver(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Self { started, about } = self;
        match started {
            Ok(Started::Claim(claim, IsGuarded(is_guarded))) => {
                Ok(Py::new(py, NativeClaim::remote(claim, about, is_guarded))?.into_any())
            }
            Ok(Started::Replay(outcome, expires_at)) => {
                Ok(Py::new(py, Stored::new(outcome, expires_at, about))?.into_any())
            }
            Err(error) => Err(error.raised(py, &about)),
        }
    }

    fn begins_work(&self) -> bool {
        matches!(self.started, Ok(Started::Claim(..)))
    }

    /// Nothing was done under the claim: the next caller may have it at once.
    fn abandon(self) {
        if let Ok(Started::Claim(claim, _)) = self.started {
            give_back(claim);
        }
    }
}
