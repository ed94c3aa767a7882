//! gRPC over HTTP/2: every response has the status 200, and the result is a `grpc-status`, usually in the trailers. Problems
//! are reported in the same way, because gRPC clients look nowhere else.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use onceward_core::outcome::Verdict;

use super::body::{self, Body};
use super::problem::Kind;
use super::profile::Profile;
use super::verdict::Ending;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Tells a client with a retry policy after how many milliseconds to retry. A negative number means: do not retry.
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Names the problem: several problems share one gRPC status.
const PROBLEM: HeaderName = HeaderName::from_static("onceward-problem");

const CANCELLED: u16 = 1;
const UNKNOWN: u16 = 2;
const INVALID_ARGUMENT: u16 = 3;
const DEADLINE_EXCEEDED: u16 = 4;
const NOT_FOUND: u16 = 5;
const ALREADY_EXISTS: u16 = 6;
const PERMISSION_DENIED: u16 = 7;
const RESOURCE_EXHAUSTED: u16 = 8;
const FAILED_PRECONDITION: u16 = 9;
const ABORTED: u16 = 10;
const OUT_OF_RANGE: u16 = 11;
const UNIMPLEMENTED: u16 = 12;
const INTERNAL: u16 = 13;
const UNAVAILABLE: u16 = 14;
const DATA_LOSS: u16 = 15;
const UNAUTHENTICATED: u16 = 16;

/// Whether these headers belong to a gRPC request or response.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    match kind.strip_prefix(b"application/grpc") {
        // `application/grpc-web` is another protocol, with its trailers in the body.
        Some(rest) => matches!(rest.first(), None | Some(b'+' | b';' | b' ')),
        None => false,
    }
}

/// How the claim ends after a response with these trailers, or with these headers if it has nothing else. `None` without a
/// gRPC status among them.
pub fn ending(profile: Profile, headers: &HeaderMap) -> Option<Ending> {
    let status: u16 = headers.get(STATUS)?.to_str().ok()?.trim().parse().ok()?;
    Some(match status {
        0 => Ending::Keep(Verdict::Success),
        INVALID_ARGUMENT | NOT_FOUND | ALREADY_EXISTS | FAILED_PRECONDITION | OUT_OF_RANGE | UNIMPLEMENTED => {
            Ending::Keep(Verdict::Failure)
        }
        // About the caller or the moment, not about the effect.
        UNAUTHENTICATED | PERMISSION_DENIED | RESOURCE_EXHAUSTED | ABORTED => Ending::Release(pushback(headers)),
        INTERNAL | DATA_LOSS if profile.keeps_server_errors() => Ending::Keep(Verdict::Failure),
        INTERNAL | DATA_LOSS | CANCELLED | UNKNOWN | DEADLINE_EXCEEDED | UNAVAILABLE => Ending::Doubt,
        // A status that gRPC does not define proves nothing.
        _ => Ending::Doubt,
    })
}

/// How long the upstream asks to wait.
fn pushback(headers: &HeaderMap) -> Duration {
    let millis = headers.get(PUSHBACK).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    millis.map_or(Duration::ZERO, Duration::from_millis)
}

/// The gRPC status of a problem. It is `UNAVAILABLE` where the same request may be sent again: clients with a retry policy
/// then retry automatically.
pub fn status(kind: Kind) -> u16 {
    match kind {
        Kind::KeyMissing
        | Kind::KeyMalformed
        | Kind::BodyMalformed
        | Kind::CookieNotListed
        | Kind::BadRequest
        | Kind::Mismatch => INVALID_ARGUMENT,
        Kind::BodyTooLarge | Kind::Quota => RESOURCE_EXHAUSTED,
        Kind::NoCredential | Kind::BadCredential => UNAUTHENTICATED,
        Kind::InFlight
        | Kind::AttemptFailed
        | Kind::StoreDown
        | Kind::TenantUnknown
        | Kind::Unreachable
        | Kind::TooSlow
        | Kind::Overloaded => UNAVAILABLE,
        Kind::InDoubt | Kind::Collision | Kind::NotKept | Kind::Queued | Kind::Dead => FAILED_PRECONDITION,
        Kind::NoAnswer => UNKNOWN,
        Kind::TimedOut => DEADLINE_EXCEEDED,
        Kind::NoRoute | Kind::WrongHost => UNIMPLEMENTED,
    }
}

/// A problem as a gRPC response that has only headers.
pub(super) fn problem(kind: Kind, detail: &str, later: Option<Duration>, retry: Option<bool>) -> Response<Body> {
    let mut response = Response::new(body::full(Bytes::new()));
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(STATUS, HeaderValue::from(status(kind)));
    if let Ok(message) = HeaderValue::try_from(encoded(&format!("{}. {detail}", kind.title()))) {
        headers.insert(MESSAGE, message);
    }
    headers.insert(PROBLEM, HeaderValue::from_static(kind.name()));
    let millis = match (later, retry) {
        (_, Some(false)) => Some("-1".to_owned()),
        (Some(later), _) => Some(later.as_millis().max(1).to_string()),
        (None, _) => None,
    };
    if let Some(millis) = millis.and_then(|millis| HeaderValue::try_from(millis).ok()) {
        headers.insert(PUSHBACK, millis);
    }
    response
}

/// The text percent-encoded, except for visible ASCII.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn every_status_has_an_ending() {
        let of = |profile, status: u16| ending(profile, &headers(&[("grpc-status", &status.to_string())])).unwrap();
        for profile in [Profile::Ietf, Profile::Stripe, Profile::Acp] {
            assert_eq!(of(profile, 0), Ending::Keep(Verdict::Success));
            for status in [3, 5, 6, 9, 11, 12] {
                assert_eq!(of(profile, status), Ending::Keep(Verdict::Failure), "{status}");
            }
            for status in [7, 8, 10, 16] {
                assert_eq!(of(profile, status), Ending::Release(Duration::ZERO), "{status}");
            }
            for status in [1, 2, 4, 14, 17, 99] {
                assert_eq!(of(profile, status), Ending::Doubt, "{status}");
            }
        }
        for status in [13, 15] {
            assert_eq!(of(Profile::Ietf, status), Ending::Keep(Verdict::Failure));
            assert_eq!(of(Profile::Acp, status), Ending::Doubt);
        }
        assert_eq!(ending(Profile::Ietf, &headers(&[])), None);
        let later = headers(&[("grpc-status", "8"), ("grpc-retry-pushback-ms", "250")]);
        assert_eq!(ending(Profile::Ietf, &later), Some(Ending::Release(Duration::from_millis(250))));
    }

    #[test]
    fn grpc_is_recognised_by_its_content_type_and_grpc_web_is_not() {
        for (kind, is) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc; a=b", true),
            ("application/grpc-web", false),
            ("application/json", false),
        ] {
            assert_eq!(is_grpc(&headers(&[("content-type", kind)])), is, "{kind}");
        }
    }

    #[test]
    fn a_problem_is_a_response_of_headers_with_a_grpc_status() {
        let response = problem(Kind::InDoubt, "50% sure, caf\u{e9}", None, Some(false));
        assert_eq!(response.status(), 200);
        let headers = response.headers();
        assert_eq!(headers["grpc-status"], "9");
        assert_eq!(headers["grpc-retry-pushback-ms"], "-1");
        assert!(headers["grpc-message"].to_str().unwrap().ends_with("50%25 sure, caf%C3%A9"));
        assert_eq!(headers["onceward-problem"], "in-doubt");
    }

    #[test]
    fn an_exceeded_quota_is_resource_exhausted_and_says_when_to_retry() {
        let response = problem(Kind::Quota, "later", Some(Duration::from_secs(60)), None);
        let headers = response.headers();
        assert_eq!(headers["grpc-status"], "8");
        assert_eq!(headers["grpc-retry-pushback-ms"], "60000");
        assert_eq!(headers["onceward-problem"], "quota");
    }
}
