//! One call of the app: the exchange asks for it, Python runs it and gives the response back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method, Request, Response, StatusCode, response};
use onceward::http::{NoAnswer, Unrecorded};
use onceward::{Claim, Error};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tokio::sync::{mpsc, oneshot};

use super::pieces::{self, Piece, Pieces, push};
use super::response::is_bodiless;
use super::{Event, HeaderPairs, header_map, header_pairs};
use crate::claim::answer;
use crate::error::{self, About};
use crate::process::with_interpreter;
use crate::runtime::{Completion, runtime};

/// Hands the call of the app to Python, and waits for the head of its response.
pub(super) async fn call_app(
    events: mpsc::Sender<Event>,
    original: HeaderMap,
    request: Request<Bytes>,
    claim: Option<Claim>,
) -> Result<Response<Pieces>, NoAnswer> {
    let ((response, responded), (pieces, body)) = (oneshot::channel(), pieces::channel());
    let (body, is_taken) = body.watched();
    let call = NativeHttpCall {
        claim,
        is_guarded: request.extensions().get::<Unrecorded>().is_none(),
        method: request.method().clone(),
        headers: (*request.headers() != original).then(|| request.into_parts().0.headers),
        is_begun: AtomicBool::new(false),
        head: Mutex::new(None),
        response: Mutex::new(Some(response)),
        pieces: Mutex::new(Some(pieces)),
        is_taken: Mutex::new(Some(is_taken)),
    };
    // In the error case, the call is dropped here, which answers it.
    let _ = events.send(Event::Call(Box::new(call))).await;
    drop(events);
    match responded.await {
        Ok(Ok((head, length))) => Ok(Response::from_parts(head, body.with_length(length))),
        Ok(Err(missing)) => Err(missing),
        Err(_) => Err(NoAnswer::Lost("the app was lost".to_owned())),
    }
}

/// The head of a response, and the length of its body if that is known.
type ResponseHead = (response::Parts, Option<u64>);

/// One call of the app. If it is dropped before it has begun, nothing happened; afterwards, the outcome is unknown.
#[pyclass(frozen, module = "onceward")]
pub(crate) struct NativeHttpCall {
    claim: Option<Claim>,
    is_guarded: bool,
    method: Method,
    headers: Option<HeaderMap>,
    is_begun: AtomicBool,
    /// The head of the response, between `head` and `respond`.
    head: Mutex<Option<response::Parts>>,
    /// `None` once the head has been handed over.
    response: Mutex<Option<oneshot::Sender<Result<ResponseHead, NoAnswer>>>>,
    /// `None` once the last piece has been given.
    pieces: Mutex<Option<pieces::Sender>>,
    is_taken: Mutex<Option<oneshot::Receiver<()>>>,
}

impl NativeHttpCall {
    fn push_piece(&self, py: Python<'_>, event_loop: &Bound<'_, PyAny>, piece: Piece) -> PyResult<(bool, Py<PyAny>)> {
        let pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match pieces {
            Some(pieces) => push(py, event_loop, pieces, piece),
            None => Err(PyValueError::new_err("the response has ended already")),
        }
    }

    fn no_answer(&self, missing: NoAnswer) {
        if let Some(response) = self.response.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = response.send(Err(missing));
        }
    }
}

#[pymethods]
impl NativeHttpCall {
    /// The claim; `None` if the request is not guarded.
    #[getter]
    fn claim(&self) -> Option<NativeHttpClaim> {
        let claim = self.claim.clone()?;
        // Claims show their intent, and never their key.
        let shown = format!("{claim:?}");
        let intent = shown.strip_prefix("Claim(").and_then(|rest| rest.strip_suffix(')')).unwrap_or(&shown).to_owned();
        Some(NativeHttpClaim { claim, is_guarded: self.is_guarded, about: About { intent, ..About::default() } })
    }

    /// The headers for the app, if they are not those of the client.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> Option<HeaderPairs<'py>> {
        self.headers.as_ref().map(|headers| header_pairs(py, headers))
    }

    /// The app is about to run.
    fn begin(&self) {
        self.is_begun.store(true, Ordering::SeqCst);
    }

    /// Checks the head of the app's response, and keeps it until `respond`.
    fn head(&self, status: u16, headers: &Bound<'_, PyAny>) -> PyResult<()> {
        let (mut head, ()) = Response::new(()).into_parts();
        head.status = StatusCode::from_u16(status).map_err(|error| PyValueError::new_err(error.to_string()))?;
        head.headers = header_map(headers)?.map_err(PyValueError::new_err)?;
        *self.head.lock().unwrap_or_else(PoisonError::into_inner) = Some(head);
        Ok(())
    }

    /// Hands over the head, with the first piece of the body. Returns false if the head was handed over before.
    fn respond(&self, data: &[u8], more: bool) -> bool {
        let head = self.head.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(head) = head else { return false };
        let response = self.response.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(response) = response else { return false };
        let announced = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let length = match announced {
            // The length is that of a body which is not sent.
            _ if self.method == Method::HEAD || is_bodiless(head.status) => None,
            None if !more => Some(data.len() as u64),
            announced => announced,
        };
        if let Some(pieces) = self.pieces.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            // It is the first piece, so there is room for it.
            let _ = pieces.try_send(Ok(Piece::of(data, more)));
        }
        let _ = response.send(Ok((head, length)));
        true
    }

    /// A further piece of the body. The result is whether the response is still read.
    fn push(
        &self,
        py: Python<'_>,
        event_loop: &Bound<'_, PyAny>,
        data: &[u8],
        more: bool,
    ) -> PyResult<(bool, Py<PyAny>)> {
        self.push_piece(py, event_loop, Piece::of(data, more))
    }

    /// The trailers, which end the response.
    fn trailers(
        &self,
        py: Python<'_>,
        event_loop: &Bound<'_, PyAny>,
        headers: &Bound<'_, PyAny>,
    ) -> PyResult<(bool, Py<PyAny>)> {
        let trailers = header_map(headers)?.map_err(PyValueError::new_err)?;
        self.push_piece(py, event_loop, Piece { data: Bytes::new(), is_last: true, trailers: Some(trailers) })
    }

    /// The app ended without a whole response. `class` is `not_sent` or `refused` if it says that nothing happened.
    #[pyo3(signature = (class, why))]
    fn fail(&self, class: Option<&str>, why: String) {
        let pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(pieces) = pieces {
            // Where there is no room for it, the missing end says the same.
            let _ = pieces.try_send(Err(why.clone().into()));
        }
        self.no_answer(match class {
            Some("not_sent") => NoAnswer::NotSent(why),
            Some("refused") => NoAnswer::Refused(why),
            _ => NoAnswer::Lost(why),
        });
    }

    /// Calls `callback` in the event loop when the response is given up before its end.
    fn on_given_up(&self, event_loop: Py<PyAny>, callback: Py<PyAny>) -> PyResult<()> {
        let is_taken = self.is_taken.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(is_taken) = is_taken else { return Ok(()) };
        runtime()?.spawn(async move {
            if is_taken.await.is_ok() {
                return;
            }
            tokio::task::spawn_blocking(move || {
                with_interpreter(|py| {
                    // A loop that was closed has nothing to cancel.
                    let _ = event_loop.bind(py).call_method1("call_soon_threadsafe", (callback,));
                });
            });
        });
        Ok(())
    }
}

impl Drop for NativeHttpCall {
    fn drop(&mut self) {
        self.no_answer(if self.is_begun.load(Ordering::SeqCst) {
            NoAnswer::Lost("the app was stopped".to_owned())
        } else {
            NoAnswer::NotSent("the client went away before the app was called".to_owned())
        });
    }
}

/// The claim of a request, as `NativeClaim` is that of a function. The exchange ends it.
#[pyclass(frozen, module = "onceward")]
pub(crate) struct NativeHttpClaim {
    claim: Claim,
    is_guarded: bool,
    about: About,
}

/// What a write of the app leads to.
struct ClaimWrite {
    result: Result<(), Error>,
    about: About,
}

impl Completion for ClaimWrite {
    fn deliver(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.result.map(|()| py.None()).map_err(|error| error::raised(py, &error, &self.about))
    }
}

#[pymethods]
impl NativeHttpClaim {
    #[getter]
    fn downstream_key(&self) -> &str {
        self.claim.downstream_key()
    }

    #[getter]
    fn key(&self) -> &str {
        self.claim.key()
    }

    #[getter]
    fn attempt(&self) -> u32 {
        self.claim.attempt()
    }

    #[getter]
    fn probe_first(&self) -> bool {
        self.claim.probe_first()
    }

    #[getter]
    fn is_guarded(&self) -> bool {
        self.is_guarded
    }

    /// The intent in messages: never the key.
    #[getter]
    fn intent(&self) -> &str {
        &self.about.intent
    }

    #[getter]
    fn may_be_taken_over(&self) -> bool {
        self.claim.may_be_taken_over()
    }

    /// Marks that the first byte is about to leave.
    fn sent(&self, py: Python<'_>, event_loop: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        let (claim, about) = (self.claim.clone(), self.about.clone());
        answer(py, event_loop, async move { ClaimWrite { result: claim.sent().await, about } })
    }

    /// Records that the downstream knows of no earlier attempt.
    fn not_found(&self, py: Python<'_>, event_loop: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        let (claim, about) = (self.claim.clone(), self.about.clone());
        answer(py, event_loop, async move { ClaimWrite { result: claim.not_found().await, about } })
    }
}
