//! The response for the client, which Python takes piece by piece: a piece counts as delivered when Python asks for the
//! next one.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRAILER, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use onceward::http::Body;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tokio::sync::{Mutex, watch};

use super::{HeaderPairs, header_pairs};
use crate::runtime::{Completion, runtime, wait_in_loop};

/// A response.
#[pyclass(frozen, module = "onceward")]
pub(crate) struct NativeHttpResponse {
    status: StatusCode,
    headers: HeaderMap,
    has_trailers: bool,
    /// `None` once it was closed.
    body: Arc<Mutex<Option<Body>>>,
    is_closed: watch::Sender<bool>,
}

impl NativeHttpResponse {
    /// `sends_trailers` is whether the server can send trailers. Without that, they are left out.
    pub(super) fn new(response: Response<Body>, sends_trailers: bool) -> Self {
        let (parts, body) = response.into_parts();
        let (status, mut headers) = (parts.status, parts.headers);
        let has_trailers = sends_trailers && headers.contains_key(TRAILER);
        if !sends_trailers {
            headers.remove(TRAILER);
        }
        Self {
            status,
            headers,
            has_trailers,
            body: Arc::new(Mutex::new(Some(body))),
            is_closed: watch::Sender::new(false),
        }
    }
}

/// Whether responses with this status have no body, and no length.
pub(super) fn is_bodiless(status: StatusCode) -> bool {
    status.is_informational() || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED
}

#[pymethods]
impl NativeHttpResponse {
    #[getter]
    fn status(&self) -> u16 {
        self.status.as_u16()
    }

    /// The headers, with the length of the body as HTTP servers add it. To be called only when they are about to be
    /// sent: a body that was asked for its length counts as begun.
    fn begin<'py>(&self, py: Python<'py>) -> HeaderPairs<'py> {
        let mut headers = self.headers.clone();
        let has_length = headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING);
        let length = self.body.try_lock().ok().and_then(|body| body.as_ref()?.size_hint().exact());
        if let Some(length) = length.filter(|_| !has_length && !is_bodiless(self.status)) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        header_pairs(py, &headers)
    }

    /// Whether trailers follow the body.
    #[getter]
    fn has_trailers(&self) -> bool {
        self.has_trailers
    }

    /// The next piece: its bytes, whether there are more, and the trailers. `None` if the response broke off or was
    /// closed.
    fn next(&self, py: Python<'_>, event_loop: &Bound<'_, PyAny>) -> PyResult<(bool, Py<PyAny>)> {
        let (body, mut is_closed) = (Arc::clone(&self.body), self.is_closed.subscribe());
        wait_in_loop(py, event_loop, async move {
            let mut body = body.lock().await;
            tokio::select! {
                biased;
                _ = is_closed.wait_for(|is_closed| *is_closed) => {
                    drop(body.take());
                    NextPiece::Broken
                }
                piece = NextPiece::of(body.as_mut()) => piece,
            }
        })
    }

    /// The response is not read any more: a wait for its next piece ends. Does not wait itself.
    fn close(&self) -> PyResult<()> {
        self.is_closed.send_replace(true);
        if let Ok(mut body) = self.body.try_lock() {
            drop(body.take());
            return Ok(());
        }
        let body = Arc::clone(&self.body);
        runtime()?.spawn(async move { drop(body.lock().await.take()) });
        Ok(())
    }
}

/// What comes next in a body.
enum NextPiece {
    Data(Bytes, bool),
    End(Option<HeaderMap>),
    Broken,
}

impl NextPiece {
    async fn of(body: Option<&mut Body>) -> Self {
        let Some(body) = body else { return Self::Broken };
        match body.frame().await.map(|frame| frame.map(Frame::into_data)) {
            None => Self::End(None),
            Some(Ok(Ok(data))) => Self::Data(data, !body.is_end_stream()),
            Some(Ok(Err(trailers))) => Self::End(trailers.into_trailers().ok()),
            Some(Err(_)) => Self::Broken,
        }
    }
}

impl Completion for NextPiece {
    fn deliver(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let (data, more, trailers) = match self {
            Self::Data(data, more) => (data, more, None),
            Self::End(trailers) => (Bytes::new(), false, trailers),
            Self::Broken => return Ok(py.None()),
        };
        let trailers = trailers.map(|trailers| header_pairs(py, &trailers));
        Ok((PyBytes::new(py, &data), more, trailers).into_pyobject(py)?.into_any().unbind())
    }
}
