//! Responses that the gateway makes itself.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use onceward::http::Body;
use onceward::http::body::full;
use serde_json::value::RawValue;

use crate::message;

pub(super) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = status;
    response
}

pub(super) fn json(status: StatusCode, line: Bytes) -> Response<Body> {
    let mut response = Response::new(full(line));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The response to a message that was not forwarded.
pub(super) fn refused(status: StatusCode, id: Option<&RawValue>, code: i32, why: &str) -> Response<Body> {
    json(status, message::error(id, code, why).into())
}
