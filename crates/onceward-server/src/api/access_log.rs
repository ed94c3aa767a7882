//! The access log: one line per request, with the route instead of the path, and with masked intents. Keys, arguments and
//! tokens are never logged.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;

/// What the handlers report about a request.
#[derive(Debug, Default)]
pub(super) struct AccessNotes {
    pub(super) tenant: OnceLock<String>,
    pub(super) intent: OnceLock<String>,
    pub(super) answer: OnceLock<&'static str>,
}

pub(super) async fn logged(mut request: Request, next: Next) -> Response {
    let from = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let mut line = LogLine { noted: Arc::default(), from, method, route, status: None };
    request.extensions_mut().insert(Arc::clone(&line.noted));
    let response = next.run(request).await;
    line.status = Some(response.status().as_u16());
    response
}

/// One line, written on drop: also if the client disconnects before the response.
struct LogLine {
    status: Option<u16>,
    noted: Arc<AccessNotes>,
    from: Instant,
    method: http::Method,
    route: Option<MatchedPath>,
}

impl Drop for LogLine {
    fn drop(&mut self) {
        let text = |field: &OnceLock<String>| field.get().map_or("-", String::as_str).to_owned();
        // Only standard methods are logged: a client can write anything there.
        let method = if known(&self.method) { self.method.as_str() } else { "-" };
        tracing::info!(
            target: "onceward::access",
            method,
            route = self.route.as_ref().map_or("-", MatchedPath::as_str),
            status = self.status,
            milliseconds = u64::try_from(self.from.elapsed().as_millis()).unwrap_or(u64::MAX),
            tenant = text(&self.noted.tenant),
            intent = text(&self.noted.intent),
            answer = self.noted.answer.get().copied().unwrap_or("-"),
        );
    }
}

fn known(method: &http::Method) -> bool {
    use http::Method;
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS, Method::PATCH]
        .contains(method)
}
