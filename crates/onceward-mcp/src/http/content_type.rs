//! What the headers of a request say about its session and its body.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// The header with the session id.
const SESSION: &str = "mcp-session-id";

/// The session of a request; `None` without one.
pub(super) fn session(headers: &HeaderMap) -> Option<String> {
    let session = headers.get(SESSION)?.to_str().ok()?;
    (!session.is_empty()).then(|| format!("session {session}"))
}

/// Whether the body is a stream of server-sent events.
pub(super) fn is_stream(headers: &HeaderMap) -> bool {
    kind(headers).starts_with("text/event-stream")
}

/// Whether the body is a form, which the login of a server takes.
pub(super) fn is_form(headers: &HeaderMap) -> bool {
    let kind = kind(headers);
    kind.starts_with("application/x-www-form-urlencoded") || kind.starts_with("multipart/form-data")
}

/// Whether the text is UTF-8, which every server reads alike.
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
