//! Asks the upstream which tenant a credential belongs to, and caches the response. So a refreshed token stays the same
//! tenant, and a revoked token gets no replays once the cache entry has expired.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::uri::PathAndQuery;
use http::{Request, StatusCode, request};
use onceward::core::hash::{Digest, Fields};
use onceward::core::json::Value;
use onceward::http::stored_response::connection_names;
use onceward::http::{Kind, NoAnswer, Problem, body, identity_headers};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use super::{CREDENTIALS, Route, Upstreams};

/// How long a response is cached. For this long, a revoked credential may still get replays.
const TENANT_TTL: Duration = Duration::from_secs(60);

/// How long a refusal is cached: long enough to protect the upstream from a client that keeps trying, and short enough for a
/// credential that has just been accepted.
const REFUSAL_TTL: Duration = Duration::from_secs(5);

/// Cached credentials, and as many refused ones, because clients can invent those. Each takes about 150 bytes.
const MAX_CACHED: usize = 10_000;

/// Concurrent lookups per route, so that a flood of invented credentials does not reach the upstream.
const MAX_LOOKUPS: usize = 32;

/// How long the upstream may take to respond.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a request waits for its lookup, including the wait for a free slot.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// `Retry-After` when the upstream did not respond.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A user profile takes a few kilobytes.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// Looks up the tenants of callers at one upstream. One per route, shared by all threads.
pub struct Whoami {
    path: PathAndQuery,
    pointer: String,
    credentials: Vec<HeaderName>,
    cache: Mutex<TenantCache>,
    lookups: Arc<Semaphore>,
}

/// What the upstream says about a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Lookup {
    /// The tenant that it belongs to.
    Tenant(String),
    /// The upstream refuses it: 401 or 403.
    Refused(StatusCode),
    /// The upstream did not tell; the log says why.
    Unknown,
}

#[derive(Default)]
struct TenantCache {
    known: HashMap<Digest, (Lookup, Instant)>,
    refused: HashMap<Digest, (Lookup, Instant)>,
    asking: HashMap<Digest, watch::Receiver<Option<Lookup>>>,
}

impl Whoami {
    /// Parses `PATH#POINTER`. `more` are headers that distinguish callers, in addition to the known ones.
    pub(super) fn new(text: &str, more: &[HeaderName]) -> Result<Self, String> {
        let wrong = |what: &str| format!("{what}; write `whoami:PATH#POINTER`, as in `whoami:/v1/me#/id`");
        let (path, pointer) =
            text.split_once('#').ok_or_else(|| wrong("the JSON pointer to the subject is missing"))?;
        if !path.starts_with('/') || !pointer.starts_with('/') {
            return Err(wrong("path and pointer start with `/`"));
        }
        let path = path.parse().map_err(|_| wrong(&format!("{path:?} is not a path")))?;
        let known = CREDENTIALS.into_iter().map(HeaderName::from_static);
        let mut credentials: Vec<HeaderName> = known.chain(more.iter().cloned()).collect();
        credentials.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        credentials.dedup();
        let lookups = Arc::new(Semaphore::new(MAX_LOOKUPS));
        Ok(Self { path, pointer: pointer.to_owned(), credentials, cache: Mutex::default(), lookups })
    }

    /// The tenant of a request. There is no fallback: any other source of tenants would be a guess.
    pub(super) async fn tenant(
        self: &Arc<Self>,
        parts: &request::Parts,
        upstreams: &Upstreams,
        route: &Arc<Route>,
    ) -> Result<String, Problem> {
        let credential = self.credential(parts)?;
        let digest = self.digest(&credential, route);
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, self.lookup(digest, credential, upstreams, route)).await;
        match answer.unwrap_or(Lookup::Unknown) {
            Lookup::Tenant(tenant) => Ok(tenant),
            Lookup::Refused(status) => {
                Err(Problem::because(Kind::BadCredential, "The upstream does not accept this credential.")
                    .status(status))
            }
            Lookup::Unknown => Err(Problem::new(Kind::TenantUnknown).later(RETRY_AFTER)),
        }
    }

    /// The credential headers of a request, which are sent to the upstream.
    fn credential(&self, parts: &request::Parts) -> Result<HeaderMap, Problem> {
        let dropped = connection_names(&parts.headers);
        let mut credential = HeaderMap::new();
        for name in self.credentials.iter().filter(|name| !dropped.contains(name)) {
            for value in identity_headers::values(&parts.headers, name) {
                if let Ok(mut value) = HeaderValue::from_bytes(&value) {
                    value.set_sensitive(true);
                    credential.append(name, value);
                }
            }
        }
        if credential.get_all(AUTHORIZATION).iter().count() > 1 {
            return Err(Problem::because(Kind::BadCredential, "The request has more than one header Authorization."));
        }
        if credential.values().all(HeaderValue::is_empty) {
            return Err(Problem::because(Kind::NoCredential, "This route requires a credential for the upstream."));
        }
        Ok(credential)
    }

    /// Identifies the whole credential: all of its headers with their values, and the upstream.
    fn digest(&self, credential: &HeaderMap, route: &Route) -> Digest {
        let place = Fields::new().field(route.upstream.to_string()).field(self.path.as_str()).field(&self.pointer);
        let all = self.credentials.iter().fold(place, |all, name| {
            let values: Vec<_> = credential.get_all(name).iter().collect();
            let all = all.field(name.as_str()).field(values.len().to_be_bytes());
            values.into_iter().fold(all, |all, value| all.field(value.as_bytes()))
        });
        all.digest()
    }

    /// The cached response, or a new lookup. Equal concurrent lookups share one request.
    async fn lookup(
        self: &Arc<Self>,
        digest: Digest,
        credential: HeaderMap,
        upstreams: &Upstreams,
        route: &Arc<Route>,
    ) -> Lookup {
        let mut slot = None;
        let mut answer = loop {
            {
                let mut cache = self.cache();
                if let Some(result) = cache.get(&digest) {
                    return result;
                }
                if let Some(asking) = cache.asking.get(&digest) {
                    break asking.clone();
                }
                if let Some(slot) = slot.take() {
                    let (sender, asking) = watch::channel(None);
                    cache.asking.insert(digest, asking.clone());
                    let lookup = PendingLookup { whoami: Arc::clone(self), digest, sender, _slot: slot };
                    // In a task of its own: other requests may wait for the result when this client is gone.
                    tokio::spawn(lookup.ask(credential, upstreams.clone(), Arc::clone(route)));
                    break asking;
                }
            }
            match Arc::clone(&self.lookups).acquire_owned().await {
                Ok(permit) => slot = Some(permit),
                Err(_) => return Lookup::Unknown,
            }
        };
        match answer.wait_for(Option::is_some).await {
            Ok(result) => result.clone().unwrap_or(Lookup::Unknown),
            Err(_) => Lookup::Unknown,
        }
    }

    /// Asks the upstream.
    async fn ask(&self, credential: HeaderMap, upstreams: &Upstreams, route: &Route) -> Result<Lookup, String> {
        let mut request = Request::get(self.path.as_str()).body(body::full(bytes::Bytes::new())).map_err(text)?;
        *request.headers_mut() = credential;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("onceward/", env!("CARGO_PKG_VERSION"))));
        let response = upstreams.ask(route, request).await.map_err(|missing| match missing {
            NoAnswer::NotSent(why) | NoAnswer::Refused(why) | NoAnswer::Lost(why) => why,
            NoAnswer::TimedOut => "it did not respond in time".to_owned(),
        })?;
        let status = response.status();
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Ok(Lookup::Refused(status)),
            status if status.is_success() => {}
            status => return Err(format!("it responded with {status}")),
        }
        let read = body::read_all(response.into_body(), MAX_RESPONSE_BYTES).await;
        let (bytes, _) = read.map_err(|_| "its response was cut off or is too large".to_owned())?;
        let subject = subject(&bytes, &self.pointer)?;
        let named = Fields::new().field(route.upstream.to_string()).field(subject.0).field(subject.1);
        Ok(Lookup::Tenant(format!("who:{}", &named.digest().to_hex()[..32])))
    }

    fn cache(&self) -> MutexGuard<'_, TenantCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running lookup. If it is dropped early, it removes itself from the cache.
struct PendingLookup {
    whoami: Arc<Whoami>,
    digest: Digest,
    sender: watch::Sender<Option<Lookup>>,
    _slot: OwnedSemaphorePermit,
}

impl PendingLookup {
    async fn ask(self, credential: HeaderMap, upstreams: Upstreams, route: Arc<Route>) {
        // Counted from before the request: the upstream may have decided at any moment after it.
        let asked = Instant::now();
        let answer = tokio::time::timeout(LOOKUP_TIMEOUT, self.whoami.ask(credential, &upstreams, &route)).await;
        let result = match answer.unwrap_or_else(|_| Err("it did not respond in time".to_owned())) {
            Ok(result) => result,
            Err(why) => {
                tracing::warn!(upstream = %route.upstream, path = self.whoami.path.path(), why, "whoami: the upstream did not name the tenant");
                Lookup::Unknown
            }
        };
        self.whoami.cache().insert(self.digest, &result, asked);
        self.sender.send_replace(Some(result));
    }
}

impl Drop for PendingLookup {
    fn drop(&mut self) {
        self.whoami.cache().asking.remove(&self.digest);
    }
}

impl TenantCache {
    fn get(&self, digest: &Digest) -> Option<Lookup> {
        let found = self.known.get(digest).or_else(|| self.refused.get(digest));
        found.filter(|(_, until)| Instant::now() < *until).map(|(result, _)| result.clone())
    }

    /// Caches a result. An unknown result is not cached.
    fn insert(&mut self, digest: Digest, result: &Lookup, asked: Instant) {
        self.known.remove(&digest);
        self.refused.remove(&digest);
        let (kept, until) = match result {
            Lookup::Tenant(_) => (&mut self.known, asked + TENANT_TTL),
            Lookup::Refused(_) => (&mut self.refused, asked + REFUSAL_TTL),
            Lookup::Unknown => return,
        };
        if kept.len() >= MAX_CACHED {
            let now = Instant::now();
            kept.retain(|_, (_, until)| now < *until);
        }
        // All entries are still valid: evict one of them.
        if kept.len() >= MAX_CACHED
            && let Some(one) = kept.keys().next().copied()
        {
            kept.remove(&one);
        }
        kept.insert(digest, (result.clone(), until));
    }
}

/// The subject in a response, with its type: a non-empty string or an integer.
fn subject(bytes: &[u8], pointer: &str) -> Result<(&'static str, String), String> {
    let value = Value::parse(bytes).map_err(|error| format!("its response is not JSON: {error}"))?;
    match value.pointer(pointer) {
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(("text", text.clone())),
        Some(number @ Value::Number(_)) => {
            let digits = number.canonical();
            let is_integer = digits.strip_prefix('-').unwrap_or(&digits).bytes().all(|byte| byte.is_ascii_digit());
            if is_integer { Ok(("integer", digits)) } else { Err(format!("{pointer} is not an integer")) }
        }
        Some(_) => Err(format!("{pointer} is empty, or neither a string nor an integer")),
        None => Err(format!("{pointer} is missing in its response")),
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_a_string_or_an_integer() {
        let of = |text: &str| subject(text.as_bytes(), "/id").ok();
        assert_eq!(of(r#"{"id": "ann"}"#), Some(("text", "ann".to_owned())));
        assert_eq!(of(r#"{"id": 7}"#), Some(("integer", "7".to_owned())));
        assert_eq!(of(r#"{"id": 123456789012345678901}"#), Some(("integer", "123456789012345678901".to_owned())));
        for bad in [
            "",
            "ann",
            "{}",
            r#"{"id": null}"#,
            r#"{"id": ""}"#,
            r#"{"id": "  "}"#,
            r#"{"id": true}"#,
            r#"{"id": 1.5}"#,
            r#"{"id": {"a": 1}}"#,
            r#"{"id": ["a"]}"#,
            r#"{"id": "a", "id": "b"}"#,
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }

    #[test]
    fn only_a_path_with_a_pointer_is_accepted() {
        for bad in ["", "/v1/me", "v1/me#/id", "/v1/me#id", "/v1/me#", "/v1 me#/id"] {
            assert!(Whoami::new(bad, &[]).is_err(), "{bad}");
        }
        assert_eq!(Whoami::new("/v1/me?fields=id#/data/id", &[]).unwrap().path.query(), Some("fields=id"));
    }

    #[tokio::test(start_paused = true)]
    async fn cache_entries_expire_and_their_number_is_limited() {
        let (mut cache, now) = (TenantCache::default(), Instant::now());
        let named = |number: usize| Fields::new().field(number.to_be_bytes()).digest();
        let (tenant, refused) = (Lookup::Tenant("who:1".to_owned()), Lookup::Refused(StatusCode::FORBIDDEN));
        cache.insert(named(1), &tenant, now);
        cache.insert(named(2), &refused, now);
        cache.insert(named(3), &Lookup::Unknown, now);
        assert_eq!(
            [1, 2, 3].map(|number| cache.get(&named(number))),
            [Some(tenant.clone()), Some(refused.clone()), None]
        );
        tokio::time::advance(REFUSAL_TTL).await;
        assert_eq!([1, 2].map(|number| cache.get(&named(number))), [Some(tenant.clone()), None]);
        // A credential that is refused now was revoked.
        cache.insert(named(1), &refused, Instant::now());
        assert_eq!(cache.get(&named(1)), Some(refused.clone()));
        cache.insert(named(1), &tenant, now);
        for number in 0..2 * MAX_CACHED {
            cache.insert(named(number + 10), &refused, Instant::now());
        }
        assert_eq!(
            (cache.known.len(), cache.refused.len()),
            (1, MAX_CACHED),
            "invented credentials do not evict known ones"
        );
        tokio::time::advance(TENANT_TTL).await;
        assert_eq!(cache.get(&named(1)), None);
    }
}
