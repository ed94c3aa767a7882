//! Delivers entries of the outbox to Python functions. The courier of the library runs on the threads of the runtime; a function
//! runs on a thread or in an event loop of Python's, which gets each attempt as a `NativeDelivery` and never blocks the courier.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use onceward::Outcome;
use onceward::courier::{Courier, Health, LookUp, Parcel, Route, Sink, SinkResult, async_trait};
use onceward_core::class::{Class, Disposition, Errors, disposition};
use onceward_core::duration;
use onceward_core::policy::OnError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use tokio::sync::{oneshot, watch};

use crate::claim::{answer, class_of};
use crate::error::{self, About};
use crate::ledger::Handle;
use crate::process::{self, check_may_begin, inside_interpreter, is_ending};
use crate::runtime::{Completion, runtime};

/// Every courier that was started, for the end of the process.
static STARTED: Mutex<Vec<Weak<Stop>>> = Mutex::new(Vec::new());

/// How the entries of one operation are delivered, as Python gives it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct RouteOptions {
    operation: String,
    sink: String,
    /// Gets each attempt and returns at once.
    begin: Py<PyAny>,
    looks_up: bool,
    on_error: String,
    concurrency: usize,
    max_runtime: String,
    settle: Option<String>,
    passes_key: bool,
}

impl RouteOptions {
    fn route(self, shown: &str) -> Result<(String, Route), String> {
        let Self { operation, sink, begin, looks_up, on_error, concurrency, max_runtime, settle, passes_key } = self;
        let read = |name: &str, text: &str| duration::parse(text).map_err(|error| format!("{name}: {error}"));
        let on_error = match on_error.as_str() {
            "retry" => OnError::Retry,
            "doubt" => OnError::Doubt,
            "keep" => OnError::Keep,
            _ => OnError::Classify,
        };
        // A worker does not see whether the entry was queued with a tier, so the stricter reading holds.
        let errors = Errors { on_error, tier_declared: true };
        let sink_of = PythonSink { begin: Arc::new(begin), looks_up, errors, store: shown.to_owned() };
        let mut route = Route::to(&sink, Arc::new(sink_of));
        route.timeout = read("max_runtime", &max_runtime)?;
        route.concurrency = concurrency;
        route.passes_key = passes_key;
        if let Some(settle) = settle {
            route.settle = read("settle", &settle)?;
        }
        Ok((operation, route))
    }
}

/// Starts a courier.
pub(crate) fn start(
    py: Python<'_>,
    handle: &Handle,
    routes: Vec<RouteOptions>,
    until_idle: bool,
) -> PyResult<NativeCourier> {
    check_may_begin(py)?;
    let refuse = |why: String| error::invalid(py, &why, &About::default());
    let mut courier = Courier::new(handle.ledger(py)?);
    for options in routes {
        let (operation, route) = options.route(handle.shown()).map_err(refuse)?;
        courier = courier.route(&operation, route).map_err(|error| refuse(error.to_string()))?;
    }
    let (stop, stopped) = oneshot::channel();
    let (ended, has_ended) = watch::channel(false);
    let stop = Arc::new(Stop { stop: Mutex::new(Some(stop)), generation: process::generation() });
    {
        let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
        started.retain(|courier| courier.strong_count() > 0);
        started.push(Arc::downgrade(&stop));
    }
    runtime()?.spawn(async move {
        let stopped = async {
            // A courier that Python has forgotten stops too.
            let _ = stopped.await;
        };
        match until_idle {
            true => run_until_idle(courier, stopped).await,
            false => courier.run(stopped).await,
        }
        let _ = ended.send(true);
    });
    Ok(NativeCourier { stop, has_ended })
}

async fn run_until_idle(courier: Courier, stopped: impl Future<Output = ()>) {
    tokio::select! {
        () = courier.run_until_idle() => {}
        // Its attempts are given up, and those that have begun are in doubt.
        () = stopped => {}
    }
}

/// Stops every courier of this process: the interpreter is ending.
pub(crate) fn stop_all() {
    let started: Vec<_> = {
        let started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
        started.iter().filter_map(Weak::upgrade).collect()
    };
    for courier in started {
        courier.send();
    }
}

/// Ends a courier, in the process that started it.
struct Stop {
    stop: Mutex<Option<oneshot::Sender<()>>>,
    generation: u64,
}

impl Stop {
    fn send(&self) {
        let stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner).take();
        match stop {
            Some(stop) if self.generation == process::generation() => drop(stop.send(())),
            // The task that it would wake does not exist here.
            other => std::mem::forget(other),
        }
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.send();
    }
}

/// A courier that was started.
#[pyclass(frozen, module = "onceward")]
pub(crate) struct NativeCourier {
    stop: Arc<Stop>,
    has_ended: watch::Receiver<bool>,
}

#[pymethods]
impl NativeCourier {
    /// Takes no further entries. The attempts that are under way go on.
    fn stop(&self) {
        self.stop.send();
    }

    /// Waits until the courier has ended.
    fn wait(&self, py: Python<'_>, event_loop: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        if self.stop.generation != process::generation() {
            return answer(py, event_loop, async { Ended });
        }
        let mut has_ended = self.has_ended.clone();
        answer(py, event_loop, async move {
            // Without its sender, the courier has gone.
            let _ = has_ended.wait_for(|ended| *ended).await;
            Ended
        })
    }
}

struct Ended;

impl Completion for Ended {
    fn deliver(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(py.None())
    }
}

/// A function of Python as a sink.
struct PythonSink {
    begin: Arc<Py<PyAny>>,
    looks_up: bool,
    errors: Errors,
    store: String,
}

impl PythonSink {
    /// Hands a parcel to Python. `None` if Python let it go without an answer; then, whether the function had begun.
    async fn ask(&self, parcel: &Parcel, looks_up: bool) -> Result<SinkReply, HadBegun> {
        let (sender, answered) = oneshot::channel();
        let progress = Arc::new(Progress::default());
        let identity = &parcel.identity;
        let delivery = NativeDelivery {
            about: About {
                store: self.store.clone(),
                tenant: identity.tenant.as_str().to_owned(),
                operation: identity.operation.as_str().to_owned(),
                key: identity.key.as_str().to_owned(),
                intent: identity.to_string(),
            },
            parcel: parcel.clone(),
            looks_up,
            errors: self.errors,
            progress: Arc::clone(&progress),
            answer: Mutex::new(Some(sender)),
            marked_sent: AtomicBool::new(false),
        };
        let mut give_up = GiveUp(Some(Arc::clone(&progress)));
        let begin = Arc::clone(&self.begin);
        // Taking the interpreter may wait for another thread of Python.
        tokio::task::spawn_blocking(move || {
            let _ = inside_interpreter((delivery, begin), |py, (delivery, begin)| {
                if let Err(error) = begin.call1(py, (delivery,)) {
                    // As of an event loop that was closed. The entry is tried again.
                    tracing::warn!(%error, "a worker cannot begin an attempt");
                }
            });
        });
        let answer = answered.await.map_err(|_| HadBegun(progress.has_begun()));
        give_up.0 = None;
        answer
    }
}

/// Whether the function had begun.
struct HadBegun(bool);

/// What Python says.
enum SinkReply {
    Attempt(SinkResult),
    LookUp(LookUp),
}

#[async_trait]
impl Sink for PythonSink {
    async fn deliver(&self, parcel: &Parcel) -> SinkResult {
        let (health, retry_after) = (Health::Working, None);
        match self.ask(parcel, false).await {
            Ok(SinkReply::Attempt(attempt)) => attempt,
            Err(HadBegun(false)) => {
                let error = "the worker ended before the function began".to_owned();
                SinkResult::Refused { error, retry_after, again: true, health }
            }
            Ok(SinkReply::LookUp(_)) | Err(HadBegun(true)) => {
                SinkResult::Unknown { error: "the worker ended during the attempt".to_owned(), retry_after, health }
            }
        }
    }

    async fn look_up(&self, parcel: &Parcel) -> LookUp {
        match self.ask(parcel, true).await {
            Ok(SinkReply::LookUp(found)) => found,
            _ => LookUp::Unknown("the worker ended before it had asked".to_owned()),
        }
    }

    fn can_look_up(&self) -> bool {
        self.looks_up
    }
}

/// How far an attempt has come. Of its beginning and its giving up, one comes first.
#[derive(Default)]
struct Progress {
    step: AtomicU8,
    /// Called when the courier gives up an attempt that has begun.
    on_given_up: Mutex<Option<Py<PyAny>>>,
}

const WAITING: u8 = 0;
const BEGUN: u8 = 1;
const GIVEN_UP: u8 = 2;

impl Progress {
    fn begin(&self) -> bool {
        self.step.compare_exchange(WAITING, BEGUN, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    fn has_begun(&self) -> bool {
        // Nothing begins after this, so that what is said about it stays true.
        self.step.compare_exchange(WAITING, GIVEN_UP, Ordering::SeqCst, Ordering::SeqCst) == Err(BEGUN)
    }
}

/// Tells Python that the courier has given up an attempt, unless there is an answer.
struct GiveUp(Option<Arc<Progress>>);

impl Drop for GiveUp {
    fn drop(&mut self) {
        let Some(progress) = self.0.take().filter(|progress| progress.has_begun() && !is_ending()) else { return };
        let callback = progress.on_given_up.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (Some(callback), Ok(handle)) = (callback, tokio::runtime::Handle::try_current()) else { return };
        handle.spawn_blocking(move || {
            let _ = inside_interpreter(callback, |py, callback| {
                // A loop that was closed has nothing to cancel.
                let _ = callback.call0(py);
            })
            .map_err(std::mem::forget);
        });
    }
}

/// One attempt, as the function of Python sees it.
#[pyclass(frozen, module = "onceward")]
pub(crate) struct NativeDelivery {
    about: About,
    parcel: Parcel,
    looks_up: bool,
    errors: Errors,
    progress: Arc<Progress>,
    answer: Mutex<Option<oneshot::Sender<SinkReply>>>,
    marked_sent: AtomicBool,
}

impl NativeDelivery {
    fn end(&self, answer: SinkReply) {
        let sender = self.answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(sender) = sender {
            // A courier that has given up does not listen.
            let _ = sender.send(answer);
        }
    }

    fn retry_after(seconds: Option<f64>) -> Option<Duration> {
        seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }
}

#[pymethods]
impl NativeDelivery {
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.parcel.payload)
    }

    /// Whether the downstream is to be asked about an earlier attempt, instead of another one.
    #[getter]
    fn looks_up(&self) -> bool {
        self.looks_up
    }

    #[getter]
    fn downstream_key(&self) -> &str {
        &self.parcel.downstream_key
    }

    #[getter]
    fn key(&self) -> &str {
        &self.about.key
    }

    #[getter]
    fn attempt(&self) -> u32 {
        self.parcel.attempt
    }

    #[getter]
    fn probe_first(&self) -> bool {
        self.looks_up
    }

    #[getter]
    fn is_guarded(&self) -> bool {
        true
    }

    #[getter]
    fn intent(&self) -> &str {
        &self.about.intent
    }

    #[getter]
    fn about<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.about.fields(py)
    }

    #[getter]
    fn may_be_taken_over(&self) -> bool {
        true
    }

    /// The function is about to run. False if the courier has given up, or the interpreter is ending: then it must not.
    fn begin(&self) -> bool {
        !process::is_ending_elsewhere() && self.progress.begin()
    }

    /// Calls this when the courier gives up the attempt, on a thread of the library. It must not wait for anything.
    fn on_given_up(&self, callback: Py<PyAny>) {
        *self.progress.on_given_up.lock().unwrap_or_else(PoisonError::into_inner) = Some(callback);
    }

    /// An error without a class says nothing about the effect any more. The record says so since the attempt was taken.
    fn sent(&self, py: Python<'_>, event_loop: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        self.marked_sent.store(true, Ordering::SeqCst);
        answer(py, event_loop, async { Ended })
    }

    /// The courier settles the doubt itself.
    fn not_found(&self, py: Python<'_>, event_loop: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        answer(py, event_loop, async { Ended })
    }

    /// It happened. Without `body`, its result cannot be kept.
    fn finish(&self, body: Option<Vec<u8>>) {
        let outcome = match body {
            Some(body) => Outcome::success(body),
            None => Outcome::success(&b"null"[..]).within(0),
        };
        self.end(match self.looks_up {
            true => SinkReply::LookUp(LookUp::Happened(outcome)),
            false => SinkReply::Attempt(SinkResult::Ended(outcome)),
        });
    }

    /// The downstream knows nothing of an earlier attempt.
    fn is_unknown_there(&self) {
        self.end(SinkReply::LookUp(LookUp::NotFound));
    }

    /// The function cannot be called with this payload, now or later.
    fn refuse(&self, why: String) {
        self.end(match self.looks_up {
            true => SinkReply::LookUp(LookUp::Unknown(why)),
            false => SinkReply::Attempt(SinkResult::Refused {
                error: why,
                retry_after: None,
                again: false,
                health: Health::Working,
            }),
        });
    }

    /// The function raised. The class and the messages are those of a claim.
    #[pyo3(signature = (class, messages, retry_after = None))]
    fn fail(&self, class: Option<&str>, messages: Vec<String>, retry_after: Option<f64>) {
        let class = class_of(class, &messages, Self::retry_after(retry_after));
        let error = messages.into_iter().next().unwrap_or_default();
        if self.looks_up {
            return self.end(SinkReply::LookUp(LookUp::Unknown(error)));
        }
        let health = Health::of_failure(class);
        let attempt = match disposition(class, self.errors, self.marked_sent.load(Ordering::SeqCst)) {
            Disposition::Keep => SinkResult::Ended(Outcome::failure(serde_json::Value::String(error).to_string())),
            Disposition::Doubt => SinkResult::Unknown { error, retry_after: None, health },
            Disposition::Release(wait) => {
                let retry_after = matches!(class, Class::Refused { .. }).then_some(wait).filter(|wait| !wait.is_zero());
                SinkResult::Refused { error, retry_after, again: true, health }
            }
        };
        self.end(SinkReply::Attempt(attempt));
    }
}
