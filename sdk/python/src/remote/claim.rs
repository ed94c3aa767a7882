//! The right to do the work, granted by a server, and how the work ended. A request of the owner goes on in the
//! background when its caller stops waiting: a known end must not turn into a doubt.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onceward::{Error, Outcome, store};
use onceward_core::class::{Class, Disposition, Errors, disposition};
use onceward_core::outcome::Verdict;
use pyo3::prelude::*;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use super::client::{ApiRequest, Client};
use super::failure::{RemoteError, Trouble};
use super::messages::{AcquiredClaim, ClaimUpdate, Time, outcome};
use super::renewal;
use crate::error::About;
use crate::runtime::{self, Completion};

/// How long an owner waits for its outcome to be recorded before the caller is told that it could not be. The tries go
/// on in the background. The same as for a ledger in a file.
const RECORD_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest time for which the background tries to report an end: a server that is down for longer is not waited
/// for.
const LONGEST_REPORT: Duration = Duration::from_secs(600);

/// The longest error text that a record keeps, in characters.
const MAX_ERROR_LENGTH: usize = 1000;

/// The longest wait before the next attempt that the server accepts: a week.
const LONGEST_NOT_BEFORE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The reason of a claim that is given back before any work. A client that waits for it begins in its turn.
pub(super) const WITHDRAWN: &str = "the caller went away before the work began";

/// The operations that were warned about.
static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// A claim of this process on a server.
pub(crate) struct RemoteClaim {
    pub(crate) downstream_key: String,
    pub(crate) key: String,
    pub(crate) attempt: u32,
    pub(crate) probe_first: bool,
    pub(crate) may_be_taken_over: bool,
    lost: watch::Receiver<bool>,
    /// `None` once the claim has ended, and for work that runs without a record.
    ownership: Mutex<Option<Ownership>>,
}

/// The claim while it is held. Dropping it means that the outcome is unknown.
pub(crate) struct Ownership {
    owner: Arc<Owner>,
    renewal: AbortHandle,
    ended: bool,
}

/// What every request of the owner needs.
pub(super) struct Owner {
    client: Arc<Client>,
    operation: String,
    key: String,
    intent: String,
    fence: String,
    lease: Duration,
    asked_lease_ms: Option<u64>,
    holds_in_doubt: bool,
    /// The effect may have happened.
    may_have_sent: AtomicBool,
    /// The work has marked `sent` itself.
    marked_sent: AtomicBool,
    errors: Errors,
    minimum_retention: Duration,
    lost: watch::Sender<bool>,
}

/// What a claim is made from, besides the server's answer.
pub(super) struct ClaimTerms {
    pub(super) client: Arc<Client>,
    pub(super) operation: String,
    pub(super) key: String,
    pub(super) intent: String,
    pub(super) asked_lease_ms: Option<u64>,
    pub(super) errors: Errors,
    pub(super) minimum_retention: Duration,
}

impl RemoteClaim {
    /// A claim whose lease is counted from before it was asked for.
    pub(super) fn acquired(terms: ClaimTerms, acquired: AcquiredClaim, from: Instant) -> Self {
        let (sender, lost) = watch::channel(false);
        let holds_in_doubt = acquired.when_in_doubt == "hold";
        let owner = Arc::new(Owner {
            client: terms.client,
            operation: terms.operation,
            key: terms.key.clone(),
            intent: terms.intent,
            fence: acquired.fence,
            lease: Duration::from_millis(acquired.lease_ms.max(1)),
            asked_lease_ms: terms.asked_lease_ms,
            holds_in_doubt,
            may_have_sent: AtomicBool::new(acquired.phase != "claimed"),
            marked_sent: AtomicBool::new(false),
            errors: terms.errors,
            minimum_retention: terms.minimum_retention,
            lost: sender,
        });
        let renewing = renewal::run(Arc::clone(&owner), from);
        let renewal = owner.client.background.runtime().spawn(renewing).abort_handle();
        Self {
            downstream_key: acquired.downstream_key,
            key: terms.key,
            attempt: acquired.attempt,
            probe_first: acquired.probe_first,
            may_be_taken_over: !holds_in_doubt,
            lost,
            ownership: Mutex::new(Some(Ownership { owner, renewal, ended: false })),
        }
    }

    /// Work that runs without a record: the server's store is down, and the operation says `store_down = "open"`.
    pub(super) fn unguarded(key: String, downstream_key: String) -> Self {
        let lost = watch::channel(false).1;
        Self {
            downstream_key,
            key,
            attempt: 1,
            probe_first: false,
            may_be_taken_over: false,
            lost,
            ownership: Mutex::new(None),
        }
    }

    /// Takes the ownership, to end the claim.
    pub(crate) fn take(&self) -> Option<Ownership> {
        self.ownership.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn owner(&self) -> Option<Arc<Owner>> {
        let ownership = self.ownership.lock().unwrap_or_else(PoisonError::into_inner);
        ownership.as_ref().map(|ownership| Arc::clone(&ownership.owner))
    }

    /// Marks that the first byte is about to leave.
    pub(crate) fn sent(&self, about: &About) -> impl Future<Output = Reported> + Send + use<> {
        let (owner, about) = (self.owner(), about.clone());
        async move {
            let result = match owner {
                Some(owner) => owner.mark_sent().await.map(|()| "sent"),
                None => Ok("sent"),
            };
            Reported { result, about }
        }
    }

    /// Records that the downstream knows of no earlier attempt.
    pub(crate) fn not_found(&self, about: &About) -> impl Future<Output = Reported> + Send + use<> {
        let (owner, about) = (self.owner(), about.clone());
        async move {
            let result = match owner {
                Some(owner) => owner.still_owned(ApiRequest::post("/v1/not_found", &owner.about(json!({})))).await,
                None => Ok(()),
            };
            Reported { result: result.map(|()| "not_found"), about }
        }
    }

    /// Resolves when another caller may go on with the work.
    pub(crate) fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut lost = self.lost.clone();
        async move {
            if lost.wait_for(|is_lost| *is_lost).await.is_err() {
                // The claim has ended.
                std::future::pending().await
            }
        }
    }
}

impl Owner {
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn lease(&self) -> Duration {
        self.lease
    }

    pub(super) fn asked_lease_ms(&self) -> Option<u64> {
        self.asked_lease_ms
    }

    pub(super) fn lose(&self) {
        self.lost.send_replace(true);
    }

    /// Whether another caller may do the work once the lease has lapsed.
    pub(super) fn may_run_elsewhere(&self) -> bool {
        !(self.holds_in_doubt && self.may_have_sent.load(Ordering::SeqCst))
    }

    /// A request about this claim: its names, and these fields where they are not null.
    pub(super) fn about(&self, fields: Value) -> Value {
        let mut request = json!({ "operation": self.operation, "key": self.key, "fence": self.fence });
        if let (Some(request), Value::Object(fields)) = (request.as_object_mut(), fields) {
            request.extend(fields.into_iter().filter(|(_, value)| !value.is_null()));
        }
        request
    }

    async fn mark_sent(self: Arc<Self>) -> Result<(), RemoteError> {
        // Before the request: if its answer is lost, the record may say so already.
        self.may_have_sent.store(true, Ordering::SeqCst);
        self.marked_sent.store(true, Ordering::SeqCst);
        let request = ApiRequest::post("/v1/sent", &self.about(json!({ "lease_ms": self.asked_lease_ms })));
        self.still_owned(request).await
    }

    /// A request in the middle of the work, which is asked again a few times.
    async fn still_owned(&self, request: ApiRequest) -> Result<(), RemoteError> {
        match self.client.ask_again(&request).await {
            Ok(ClaimUpdate::Written { .. }) => Ok(()),
            Ok(ClaimUpdate::Stale) => Err(Error::ClaimLost { intent: self.intent.clone(), outcome: None }.into()),
            Err(trouble) => {
                let text = format!("{} is held, but the server could not be told: {}", self.intent, trouble.text());
                Err(RemoteError::Named { kind: "StoreUnavailable", text })
            }
        }
    }
}

impl Ownership {
    /// Reports the end of the claim. The tries go on in the background when the caller stops waiting.
    async fn end(mut self, path: &str, fields: Value) -> Result<Option<ClaimUpdate>, Trouble> {
        self.ended = true;
        self.renewal.abort();
        let request = ApiRequest::post(path, &self.owner.about(fields));
        let writing = self.report(request);
        match timeout(RECORD_TIMEOUT, writing).await {
            Ok(Ok(result)) => result.map(Some),
            // The runtime is ending, or the time is over.
            Ok(Err(_)) | Err(_) => Ok(None),
        }
    }

    fn report(&self, request: ApiRequest) -> tokio::task::JoinHandle<Result<ClaimUpdate, Trouble>> {
        let owner = Arc::clone(&self.owner);
        let until = Instant::now() + owner.lease.clamp(RECORD_TIMEOUT, LONGEST_REPORT);
        self.owner.client.background.run(async move { owner.client.insist(&request, until).await })
    }

    /// The work is done. Without a body, its result cannot be kept.
    pub(crate) async fn finish(self, body: Option<Vec<u8>>, about: About) -> Reported {
        let owner = Arc::clone(&self.owner);
        let sent = outcome(Verdict::Success, body.as_deref());
        let is_too_large = ApiRequest::post("", &owner.about(json!({ "outcome": sent }))).is_too_large();
        // A known end must not fail because of its size.
        let sent = if is_too_large { outcome(Verdict::Success, None) } else { sent };
        let result = self.record(sent, Outcome::success(body.unwrap_or_default())).await;
        if let Ok(Some(expires_at)) = &result {
            owner.check_retention(*expires_at);
        }
        Reported { result: result.map(|_| "done"), about }
    }

    /// Records an outcome. Returns when it expires.
    async fn record(self, sent: Value, known: Outcome) -> Result<Option<Time>, RemoteError> {
        let intent = self.owner.intent.clone();
        let not_recorded = |known: Outcome, text: String| {
            let source = store::Error::Unreachable(text);
            RemoteError::Library(Error::NotRecorded { intent: intent.clone(), outcome: Box::new(known), source })
        };
        match self.end("/v1/finish", json!({ "outcome": sent })).await {
            Ok(Some(ClaimUpdate::Written { expires_at })) => Ok(expires_at),
            Ok(Some(ClaimUpdate::Stale)) => Err(Error::ClaimLost { intent, outcome: Some(Box::new(known)) }.into()),
            Ok(None) => Err(not_recorded(known, "it does not answer; the tries go on in the background".to_owned())),
            Err(trouble) => Err(not_recorded(known, trouble.text().to_owned())),
        }
    }

    /// The work failed. An error without a class is a doubt: the server's operation may declare a tier, which this
    /// client cannot see. Only `on_error` says otherwise.
    pub(crate) async fn fail(self, class: Class, message: String, about: About) -> Reported {
        let marked_sent = self.owner.marked_sent.load(Ordering::SeqCst);
        let message = shortened(&message);
        let (path, fields, ending) = match disposition(class, self.owner.errors, marked_sent) {
            Disposition::Keep => {
                let body = Value::String(message).to_string();
                let sent = outcome(Verdict::Failure, Some(body.as_bytes()));
                let result = self.record(sent, Outcome::failure(body)).await;
                return Reported { result: result.map(|_| "kept"), about };
            }
            Disposition::Release(not_before) => {
                let not_before_ms = u64::try_from(not_before.min(LONGEST_NOT_BEFORE).as_millis()).unwrap_or_default();
                ("/v1/release", json!({ "not_before_ms": not_before_ms, "error": message }), "released")
            }
            Disposition::Doubt => ("/v1/doubt", json!({ "error": message }), "in_doubt"),
        };
        self.report_as(path, fields, ending, about).await
    }

    /// Gives the claim back before anything was done.
    pub(crate) async fn withdraw(self, about: About) -> Reported {
        self.report_as("/v1/release", json!({ "error": WITHDRAWN }), "released", about).await
    }

    async fn report_as(self, path: &str, fields: Value, ending: &'static str, about: About) -> Reported {
        let lapses = format!("the claim on {} is left to lapse", self.owner.intent);
        let result = match self.end(path, fields).await {
            // Another owner was admitted, or a person has settled it: there is nothing to give back.
            Ok(Some(_)) => Ok(ending),
            Ok(None) => Err(format!("the server does not answer; {lapses}")),
            Err(trouble) => Err(format!("{}; {lapses}", trouble.text())),
        };
        Reported { result: result.map_err(|text| RemoteError::Named { kind: "StoreUnavailable", text }), about }
    }
}

impl Owner {
    /// Warns where the server keeps the outcome for a shorter time than the window of the recipe needs.
    fn check_retention(&self, Time(expires_at): Time) {
        use onceward::clock::{Clock, SystemClock};
        let kept = SystemClock.now().until(expires_at);
        // The clocks may differ a little.
        if kept.saturating_add(Duration::from_secs(60)) >= self.minimum_retention {
            return;
        }
        let (operation, kept, needed) = (&self.operation, kept.as_secs(), self.minimum_retention.as_secs());
        if WARNED.lock().unwrap_or_else(PoisonError::into_inner).insert(operation.clone()) {
            let table = toml_key(operation);
            // As a message of the package, and not of a module of it.
            tracing::warn!(
                target: "onceward",
                "{operation}: the server keeps outcomes for {kept} s, but the window needs {needed} s: set retention in \
                 [operation.{table}] on the server, or a late repeat runs again"
            );
        }
    }
}

/// A name as a part of a table's name in TOML.
fn toml_key(name: &str) -> String {
    let is_bare = name.chars().all(|one| one.is_ascii_alphanumeric() || one == '_' || one == '-');
    if is_bare && !name.is_empty() {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

impl Drop for Ownership {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        self.renewal.abort();
        let error = "the work was dropped before it ended";
        drop(self.report(ApiRequest::post("/v1/doubt", &self.owner.about(json!({ "error": error })))));
    }
}

/// What a request of the owner leads to.
pub(crate) struct Reported {
    pub(super) result: Result<&'static str, RemoteError>,
    pub(super) about: About,
}

impl Completion for Reported {
    fn deliver(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.result {
            Ok(ending) => Ok(ending.into_pyobject(py)?.into_any().unbind()),
            Err(error) => Err(error.raised(py, &self.about)),
        }
    }
}

/// An error text, cut to the length that a record keeps.
fn shortened(error: &str) -> String {
    error.chars().take(MAX_ERROR_LENGTH).collect()
}

/// Gives back a claim that its caller no longer waits for.
pub(super) fn give_back(claim: RemoteClaim) {
    if let (Some(ownership), Ok(runtime)) = (claim.take(), runtime::runtime()) {
        runtime.spawn(ownership.withdraw(About::default()));
    }
}
