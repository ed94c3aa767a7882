//! Converts responses to outcomes and back: status, safe headers and body, byte for byte.

use std::time::SystemTime;

use bytes::Bytes;
use http::header::{self, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode, response};

use crate::plant::{Plant, planted};
use onceward_core::outcome::{self, Outcome, Verdict};
use onceward_core::time::Timestamp;

use super::body::{self, Body};

/// Marks a response as a replay.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Until when a repeat gets the same response.
pub const EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");

/// `false` when the outcome could not be recorded: a repeat may not get this response.
pub const RECORDED: HeaderName = HeaderName::from_static("idempotency-recorded");

/// Trailers are stored among the headers, under a prefix that no header name can have.
const TRAILER_PREFIX: &str = "trailer:";

/// Headers that belong to one connection and not to the response.
pub const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Headers that are only valid for one delivery: a replayed cookie would log another client in, length and date are set again
/// for each delivery, and retry advice does not apply to a replay.
const NOT_STORED: [HeaderName; 10] = [
    header::SET_COOKIE,
    header::CONTENT_LENGTH,
    header::DATE,
    header::RETRY_AFTER,
    HeaderName::from_static("retry-after-ms"),
    HeaderName::from_static("stripe-should-retry"),
    HeaderName::from_static("x-should-retry"),
    REPLAYED,
    EXPIRES,
    RECORDED,
];

/// Bodies of at least this size are stored without a copy: they fill most of the buffer that they came in, or already have a
/// buffer of their own.
const COPY_BELOW: usize = 64 * 1024;

/// The outcome to store for a response.
pub fn outcome(
    parts: &response::Parts,
    trailers: Option<&HeaderMap>,
    verdict: Verdict,
    body: outcome::Body,
) -> Outcome {
    let named = connection_names(&parts.headers);
    let content_type = parts.headers.get(CONTENT_TYPE).map(text).unwrap_or_default();
    let is_cookie = |name: &HeaderName| planted(Plant::CookieKept) && *name == header::SET_COOKIE;
    let kept = parts.headers.iter().filter(|(name, _)| {
        let is_transient = HOP_BY_HOP.contains(name) || NOT_STORED.contains(name) || named.contains(name);
        *name != CONTENT_TYPE && (!is_transient || is_cookie(name))
    });
    let mut headers: Vec<(String, String)> =
        kept.map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
    let trailers = trailers.into_iter().flatten().map(|(name, value)| (format!("{TRAILER_PREFIX}{name}"), text(value)));
    headers.extend(trailers);
    let body = match body {
        outcome::Body::Kept(bytes) => outcome::Body::Kept(detached(bytes)),
        large @ outcome::Body::TooLarge { .. } => large,
    };
    Outcome { verdict, status: i32::from(parts.status.as_u16()), content_type, headers, body, reference: None }
}

/// The bytes in their own allocation. A short body is a slice of the buffer into which its connection reads, and would keep
/// that whole buffer alive.
fn detached(bytes: Bytes) -> Bytes {
    if bytes.len() < COPY_BELOW { Bytes::copy_from_slice(&bytes) } else { bytes }
}

/// The stored response. `None` when its body was not kept.
pub fn response(outcome: &Outcome, expires: Option<Timestamp>) -> Option<Response<Body>> {
    let outcome::Body::Kept(bytes) = &outcome.body else { return None };
    let mut trailers = HeaderMap::new();
    let mut response = Response::new(());
    let status = u16::try_from(outcome.status).ok().filter(|status| *status >= 200);
    let status = if planted(Plant::StatusNotKept) { Some(200) } else { status };
    let status = status.and_then(|status| StatusCode::from_u16(status).ok());
    // An outcome that an operator or another surface recorded has no HTTP status.
    *response.status_mut() = status.unwrap_or(match outcome.verdict {
        Verdict::Success => StatusCode::OK,
        Verdict::Failure => StatusCode::UNPROCESSABLE_ENTITY,
    });
    let headers = response.headers_mut();
    for (name, kept) in &outcome.headers {
        let (to, name) = match name.strip_prefix(TRAILER_PREFIX) {
            Some(name) => (&mut trailers, name),
            None => (&mut *headers, name.as_str()),
        };
        if let (Ok(name), Some(value)) = (HeaderName::try_from(name), value(kept)) {
            to.append(name, value);
        }
    }
    // Without a body, the content type that another surface recorded means nothing.
    let has_type = status.is_some() || !bytes.is_empty();
    if let Some(value) = value(&outcome.content_type).filter(|value| has_type && !value.is_empty()) {
        headers.insert(CONTENT_TYPE, value);
    }
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    if let Some(expires) = expires.and_then(date) {
        headers.insert(EXPIRES, expires);
    }
    let body = body::with_trailers(bytes.clone(), Some(trailers).filter(|trailers| !trailers.is_empty()));
    Some(response.map(|()| body))
}

/// A time as an HTTP date; `None` for a time after the year 9999, which the format cannot express.
pub fn date(time: Timestamp) -> Option<HeaderValue> {
    const LAST: i64 = 253_402_300_799_000;
    let millis = u64::try_from(time.as_millis()).ok().filter(|_| time.as_millis() <= LAST)?;
    let time = SystemTime::UNIX_EPOCH.checked_add(std::time::Duration::from_millis(millis))?;
    HeaderValue::try_from(httpdate::fmt_http_date(time)).ok()
}

/// The headers that `Connection` names as hop-by-hop.
pub fn connection_names(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let names = values.flat_map(|value| value.split(','));
    names.filter_map(|name| HeaderName::try_from(name.trim()).ok()).collect()
}

/// The value as text. Bytes that are not ASCII become the characters with their numbers (Latin-1), so that nothing is lost.
fn text(value: &HeaderValue) -> String {
    match value.to_str() {
        Ok(text) => text.to_owned(),
        Err(_) => value.as_bytes().iter().map(|byte| char::from(*byte)).collect(),
    }
}

fn value(text: &str) -> Option<HeaderValue> {
    if text.is_ascii() {
        return HeaderValue::from_str(text).ok();
    }
    let bytes: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
    HeaderValue::from_bytes(&bytes?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_body_does_not_keep_the_buffer_that_it_came_in() {
        let buffer = Bytes::from(vec![b'x'; 8 * 1024]);
        let parts = Response::new(()).into_parts().0;
        let kept = outcome(&parts, None, Verdict::Success, outcome::Body::Kept(buffer.slice(100..200)));
        assert!(buffer.is_unique());
        assert_eq!(kept.body, outcome::Body::Kept(Bytes::from(vec![b'x'; 100])));
    }

    #[tokio::test]
    async fn a_response_is_replayed_unchanged_except_for_connection_headers() {
        let original = Response::builder()
            .status(201)
            .header("content-type", "application/json")
            .header("x-odd", HeaderValue::from_bytes(b"caf\xc3\xa9 \xff").unwrap())
            .header("x-two", "1")
            .header("x-two", "2")
            .header("connection", "close, x-private")
            .header("x-private", "1")
            .header("keep-alive", "timeout=5")
            .header("set-cookie", "session=7")
            .header("content-length", "3")
            .body(())
            .unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        let kept = outcome(
            &original.into_parts().0,
            Some(&trailers),
            Verdict::Success,
            outcome::Body::Kept(Bytes::from_static(b"\x00\xff1")),
        );
        let again = response(&kept, Some(Timestamp::from_millis(784_111_777_000))).unwrap();
        assert_eq!(again.status(), 201);
        let headers = again.headers();
        assert_eq!(headers["x-odd"].as_bytes(), b"caf\xc3\xa9 \xff");
        assert_eq!(headers.get_all("x-two").iter().count(), 2);
        assert_eq!(headers["idempotent-replayed"], "true");
        assert_eq!(headers["idempotency-expires"], "Sun, 06 Nov 1994 08:49:37 GMT");
        for gone in ["connection", "x-private", "keep-alive", "set-cookie", "content-length", "grpc-status"] {
            assert!(!headers.contains_key(gone), "{gone}");
        }
        let (bytes, trailers) = body::read_all(again.into_body(), 10).await.unwrap();
        assert_eq!(bytes.as_ref(), b"\x00\xff1");
        assert_eq!(trailers.unwrap()["grpc-status"], "0");
    }

    #[test]
    fn an_outcome_recorded_by_hand_without_a_body_has_no_content_type() {
        let settled = Outcome::of(Verdict::Success, "application/vnd.onceward.run", "");
        let replay = response(&settled, None).unwrap();
        assert_eq!((replay.status(), replay.headers().get("content-type")), (StatusCode::OK, None));
        let responded = Outcome::of(Verdict::Success, "application/json", "").with_status(204);
        assert_eq!(response(&responded, None).unwrap().headers()["content-type"], "application/json");
    }

    #[test]
    fn an_outcome_without_its_body_cannot_be_replayed() {
        let large = Outcome::success("12345").within(1);
        assert!(response(&large, None).is_none());
    }
}
