//! What headers say: who it is, and what a body is.

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use onceward::core::hash::Fields;

/// Where a client says which session it is in.
const SESSION: &str = "mcp-session-id";

/// Where servers are told who calls, by something that stays the same from one try to the next. Not cookies: one that a load
/// balancer sets would make a retry somebody else's call, and what it does would be done twice.
const CREDENTIALS: [&str; 12] = [
    "authorization",
    "x-authorization",
    "x-api-key",
    "api-key",
    "apikey",
    "x-apikey",
    "x-api-token",
    "x-auth-token",
    "x-access-token",
    "private-token",
    "x-goog-api-key",
    "ocp-apim-subscription-key",
];

/// A name for whoever has these credentials; `None` for one without any.
pub(super) fn credential(headers: &HeaderMap) -> Option<String> {
    let given = CREDENTIALS.iter().flat_map(|name| headers.get_all(*name).iter().map(move |value| (*name, value)));
    let mut given = given.peekable();
    given.peek()?;
    let all = given.fold(Fields::new(), |all, (name, value)| all.field(name).field(value.as_bytes()));
    Some(format!("credential-{}", &all.digest().to_hex()[..16]))
}

/// Which client it is; `None` for one that has no session.
pub(super) fn client(headers: &HeaderMap) -> Option<String> {
    let session = headers.get(SESSION)?.to_str().ok()?;
    (!session.is_empty()).then(|| format!("session {session}"))
}

/// Whether events come.
pub(super) fn is_stream(headers: &HeaderMap) -> bool {
    kind(headers).starts_with("text/event-stream")
}

/// Whether it is what the login of a server takes.
pub(super) fn is_form(headers: &HeaderMap) -> bool {
    let kind = kind(headers);
    kind.starts_with("application/x-www-form-urlencoded") || kind.starts_with("multipart/form-data")
}

/// Whether a text is written as every server reads it.
pub(super) fn is_plain(headers: &HeaderMap) -> bool {
    let kind = kind(headers);
    let is_one = headers.get_all(CONTENT_TYPE).iter().count() <= 1;
    let mut charsets = kind.split(';').skip(1).filter_map(|part| part.trim().strip_prefix("charset").map(str::trim));
    is_one && charsets.all(|charset| matches!(charset, "=utf-8" | "=utf8" | "=\"utf-8\"" | "=us-ascii"))
}

fn kind(headers: &HeaderMap) -> String {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.trim_start().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(headers: &[(&str, &str)]) -> Option<String> {
        credential(&headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect())
    }

    #[test]
    fn whoever_has_another_credential_is_somebody_else() {
        let names = [
            of(&[]),
            of(&[("authorization", "a")]),
            of(&[("authorization", "b")]),
            of(&[("x-api-key", "a")]),
            of(&[("X-Api-Key", "b")]),
            of(&[("authorization", "a"), ("x-api-key", "b")]),
            of(&[("authorization", "a"), ("x-api-key", "a")]),
        ];
        for (at, one) in names.iter().enumerate() {
            assert!(names[at + 1..].iter().all(|other| one != other), "{at}: {one:?}");
        }
        assert_eq!(of(&[("x-api-key", "a"), ("cookie", "1"), ("x-request-id", "1")]), names[3]);
        assert_eq!(of(&[("cookie", "1")]), None);
    }
}
