//! Whose request it is, as the upstream itself says: the gateway asks it with the caller's credentials. So a refreshed token
//! is the same tenant, and a revoked one gets no stored answers once the upstream's answer is forgotten.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::uri::PathAndQuery;
use http::{Request, StatusCode, request};
use onceward::core::hash::{Digest, Fields};
use onceward::core::json::Value;
use onceward::http::kept::connection_names;
use onceward::http::{Kind, NoAnswer, Problem, body, identity};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use super::{CREDENTIALS, Route, Upstreams};

/// How long an answer counts: for so long a revoked credential may still get stored answers.
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// How long a refusal counts: long enough to spare the upstream a client that keeps trying, and short enough for one that was
/// just let in.
const REFUSED_FOR: Duration = Duration::from_secs(5);

/// How many credentials are remembered, and as many refused ones, which anybody can make up. Each takes about 150 bytes.
const MOST_KNOWN: usize = 10_000;

/// How many questions a route asks at a time, so that a flood of made-up credentials does not become one at the upstream.
const MOST_QUESTIONS: usize = 32;

/// How long the upstream may take to answer. Such an answer is one look-up.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// How long a request waits for its answer, with its turn to ask.
const PATIENCE: Duration = Duration::from_secs(10);

/// When to try again where the upstream did not say.
const SOON: Duration = Duration::from_secs(1);

/// A profile of a user is some kilobytes.
const LARGEST_ANSWER: usize = 64 * 1024;

/// Asks one upstream who callers are. One for a route, shared by all threads.
pub(crate) struct Whoami {
    path: PathAndQuery,
    pointer: String,
    credentials: Vec<HeaderName>,
    memory: Mutex<Memory>,
    questions: Arc<Semaphore>,
}

/// What the upstream said about a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    /// Whose it is.
    Tenant(String),
    /// It does not accept it: 401 or 403.
    Refused(StatusCode),
    /// It did not say, and why is in the log.
    Nothing,
}

#[derive(Default)]
struct Memory {
    known: HashMap<Digest, (Said, Instant)>,
    refused: HashMap<Digest, (Said, Instant)>,
    asking: HashMap<Digest, watch::Receiver<Option<Said>>>,
}

impl Whoami {
    /// Reads `PATH#POINTER`. `more` are headers that tell callers apart besides the known ones.
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
        let questions = Arc::new(Semaphore::new(MOST_QUESTIONS));
        Ok(Self { path, pointer: pointer.to_owned(), credentials, memory: Mutex::default(), questions })
    }

    /// Whose request it is. Without an answer there is no tenant: any other source of tenants would be a guess.
    pub(super) async fn tenant(
        self: &Arc<Self>,
        parts: &request::Parts,
        upstreams: &Upstreams,
        route: &Arc<Route>,
    ) -> Result<String, Problem> {
        let credential = self.credential(parts)?;
        let digest = self.digest(&credential, route);
        let answer = tokio::time::timeout(PATIENCE, self.answer(digest, credential, upstreams, route)).await;
        match answer.unwrap_or(Said::Nothing) {
            Said::Tenant(tenant) => Ok(tenant),
            Said::Refused(status) => {
                Err(Problem::because(Kind::BadCredential, "The upstream does not accept this credential.")
                    .status(status))
            }
            Said::Nothing => Err(Problem::new(Kind::TenantUnknown).later(SOON)),
        }
    }

    /// The credential headers of a request that go upstream with it.
    fn credential(&self, parts: &request::Parts) -> Result<HeaderMap, Problem> {
        let dropped = connection_names(&parts.headers);
        let mut credential = HeaderMap::new();
        for name in self.credentials.iter().filter(|name| !dropped.contains(name)) {
            for value in identity::values(&parts.headers, name) {
                if let Ok(mut value) = HeaderValue::from_bytes(&value) {
                    value.set_sensitive(true);
                    credential.append(name, value);
                }
            }
        }
        if credential.get_all(AUTHORIZATION).iter().count() > 1 {
            return Err(Problem::because(Kind::BadCredential, "The header authorization came twice."));
        }
        if credential.values().all(HeaderValue::is_empty) {
            return Err(Problem::because(Kind::NoCredential, "This route needs the credential of the upstream."));
        }
        Ok(credential)
    }

    /// Names the whole credential: all of its headers with their values, and where it is used.
    fn digest(&self, credential: &HeaderMap, route: &Route) -> Digest {
        let place = Fields::new().field(route.upstream.to_string()).field(self.path.as_str()).field(&self.pointer);
        let all = self.credentials.iter().fold(place, |all, name| {
            let values: Vec<_> = credential.get_all(name).iter().collect();
            let all = all.field(name.as_str()).field(values.len().to_be_bytes());
            values.into_iter().fold(all, |all, value| all.field(value.as_bytes()))
        });
        all.digest()
    }

    /// What is remembered, or what the upstream says now. Equal questions at one time are one question.
    async fn answer(
        self: &Arc<Self>,
        digest: Digest,
        credential: HeaderMap,
        upstreams: &Upstreams,
        route: &Arc<Route>,
    ) -> Said {
        let mut turn = None;
        let mut answer = loop {
            {
                let mut memory = self.memory();
                if let Some(said) = memory.recall(&digest) {
                    return said;
                }
                if let Some(asking) = memory.asking.get(&digest) {
                    break asking.clone();
                }
                if let Some(turn) = turn.take() {
                    let (told, asking) = watch::channel(None);
                    memory.asking.insert(digest, asking.clone());
                    let question = Question { whoami: Arc::clone(self), digest, told, _turn: turn };
                    // In a task of its own: others may wait for the answer when this client is gone.
                    tokio::spawn(question.ask(credential, upstreams.clone(), Arc::clone(route)));
                    break asking;
                }
            }
            match Arc::clone(&self.questions).acquire_owned().await {
                Ok(place) => turn = Some(place),
                Err(_) => return Said::Nothing,
            }
        };
        match answer.wait_for(Option::is_some).await {
            Ok(said) => said.clone().unwrap_or(Said::Nothing),
            Err(_) => Said::Nothing,
        }
    }

    /// Asks the upstream.
    async fn ask(&self, credential: HeaderMap, upstreams: &Upstreams, route: &Route) -> Result<Said, String> {
        let mut request = Request::get(self.path.as_str()).body(body::full(bytes::Bytes::new())).map_err(words)?;
        *request.headers_mut() = credential;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("onceward/", env!("CARGO_PKG_VERSION"))));
        let response = upstreams.ask(route, request).await.map_err(|missing| match missing {
            NoAnswer::NotSent(why) | NoAnswer::Refused(why) | NoAnswer::Lost(why) => why,
            NoAnswer::TimedOut => "it did not answer in time".to_owned(),
        })?;
        let status = response.status();
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Ok(Said::Refused(status)),
            status if status.is_success() => {}
            status => return Err(format!("it answered {status}")),
        }
        let read = body::whole(response.into_body(), LARGEST_ANSWER).await;
        let (bytes, _) = read.map_err(|_| "its answer broke off or is too large".to_owned())?;
        let subject = subject(&bytes, &self.pointer)?;
        let named = Fields::new().field(route.upstream.to_string()).field(subject.0).field(subject.1);
        Ok(Said::Tenant(format!("who:{}", &named.digest().to_hex()[..32])))
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question that is being asked. Dropped in the middle, it leaves none behind.
struct Question {
    whoami: Arc<Whoami>,
    digest: Digest,
    told: watch::Sender<Option<Said>>,
    _turn: OwnedSemaphorePermit,
}

impl Question {
    async fn ask(self, credential: HeaderMap, upstreams: Upstreams, route: Arc<Route>) {
        // Counted from before the question: the upstream may have made up its mind at any moment after it.
        let asked = Instant::now();
        let answer = tokio::time::timeout(ANSWER_WITHIN, self.whoami.ask(credential, &upstreams, &route)).await;
        let said = match answer.unwrap_or_else(|_| Err("it did not answer in time".to_owned())) {
            Ok(said) => said,
            Err(why) => {
                tracing::warn!(upstream = %route.upstream, path = self.whoami.path.path(), why, "whoami: the upstream did not say whose request it is");
                Said::Nothing
            }
        };
        self.whoami.memory().remember(self.digest, &said, asked);
        self.told.send_replace(Some(said));
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.whoami.memory().asking.remove(&self.digest);
    }
}

impl Memory {
    fn recall(&self, digest: &Digest) -> Option<Said> {
        let found = self.known.get(digest).or_else(|| self.refused.get(digest));
        found.filter(|(_, until)| Instant::now() < *until).map(|(said, _)| said.clone())
    }

    /// Keeps an answer. What was not answered is asked again.
    fn remember(&mut self, digest: Digest, said: &Said, asked: Instant) {
        self.known.remove(&digest);
        self.refused.remove(&digest);
        let (kept, until) = match said {
            Said::Tenant(_) => (&mut self.known, asked + KNOWN_FOR),
            Said::Refused(_) => (&mut self.refused, asked + REFUSED_FOR),
            Said::Nothing => return,
        };
        if kept.len() >= MOST_KNOWN {
            let now = Instant::now();
            kept.retain(|_, (_, until)| now < *until);
        }
        // All of them are still good: one of them is asked about once more.
        if kept.len() >= MOST_KNOWN
            && let Some(one) = kept.keys().next().copied()
        {
            kept.remove(&one);
        }
        kept.insert(digest, (said.clone(), until));
    }
}

/// The subject in an answer, with its type: a text that is not empty, or an integer.
fn subject(bytes: &[u8], pointer: &str) -> Result<(&'static str, String), String> {
    let value = Value::parse(bytes).map_err(|error| format!("its answer is not JSON: {error}"))?;
    match value.pointer(pointer) {
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(("text", text.clone())),
        Some(number @ Value::Number(_)) => {
            let digits = number.canonical();
            let is_integer = digits.strip_prefix('-').unwrap_or(&digits).bytes().all(|byte| byte.is_ascii_digit());
            if is_integer { Ok(("integer", digits)) } else { Err(format!("{pointer} is not an integer")) }
        }
        Some(_) => Err(format!("{pointer} is neither a text nor an integer, or it is empty")),
        None => Err(format!("{pointer} is not in its answer")),
    }
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_a_text_or_an_integer() {
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
    fn what_is_no_path_with_a_pointer_is_refused() {
        for bad in ["", "/v1/me", "v1/me#/id", "/v1/me#id", "/v1/me#", "/v1 me#/id"] {
            assert!(Whoami::new(bad, &[]).is_err(), "{bad}");
        }
        assert_eq!(Whoami::new("/v1/me?fields=id#/data/id", &[]).unwrap().path.query(), Some("fields=id"));
    }

    #[tokio::test(start_paused = true)]
    async fn answers_are_forgotten_in_time_and_never_too_many() {
        let (mut memory, now) = (Memory::default(), Instant::now());
        let named = |number: usize| Fields::new().field(number.to_be_bytes()).digest();
        let (tenant, refused) = (Said::Tenant("who:1".to_owned()), Said::Refused(StatusCode::FORBIDDEN));
        memory.remember(named(1), &tenant, now);
        memory.remember(named(2), &refused, now);
        memory.remember(named(3), &Said::Nothing, now);
        assert_eq!(
            [1, 2, 3].map(|number| memory.recall(&named(number))),
            [Some(tenant.clone()), Some(refused.clone()), None]
        );
        tokio::time::advance(REFUSED_FOR).await;
        assert_eq!([1, 2].map(|number| memory.recall(&named(number))), [Some(tenant.clone()), None]);
        // A credential that is refused now was revoked.
        memory.remember(named(1), &refused, Instant::now());
        assert_eq!(memory.recall(&named(1)), Some(refused.clone()));
        memory.remember(named(1), &tenant, now);
        for number in 0..2 * MOST_KNOWN {
            memory.remember(named(number + 10), &refused, Instant::now());
        }
        assert_eq!((memory.known.len(), memory.refused.len()), (1, MOST_KNOWN), "made-up credentials push none out");
        tokio::time::advance(KNOWN_FOR).await;
        assert_eq!(memory.recall(&named(1)), None);
    }
}
