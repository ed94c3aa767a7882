//! What is configured for a route: which requests are guarded, where the key is, and the policy.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Method, StatusCode, request};

use onceward_core::decide::Again;
use onceward_core::fingerprint::Fingerprint;
use onceward_core::json::Value;
use onceward_core::key::{self, Derived};
use onceward_core::name::{Identity, Key, Operation, Session, Tenant};
use onceward_core::policy::{InDoubt, Policy, Retention};
use onceward_core::recipe::Recipe;
use onceward_core::time::Timestamp;

use super::exchange::Received;
use super::fingerprint;
use super::identity;
use super::kept::connection_names;
use super::key_format::KeyFormat;
use super::paths;
use super::problem::{Kind, Problem};
use super::profile::Profile;
use super::tenant::Names;
use crate::ledger::Call;

/// A guarded request is read whole; this holds any order.
pub const DEFAULT_REQUEST_LIMIT: usize = 1024 * 1024;

/// Who sends a guarded request more slowly than this is not waited for.
pub const DEFAULT_BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a repeat waits for the running one: within the patience of most clients.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(20);

/// How long a derived key holds after its request is done.
pub const DEFAULT_WINDOW: Duration = Duration::from_secs(10 * 60);

/// How long the first client may take nothing of an answer that comes bit by bit: longer than any network holds its breath.
pub const DEFAULT_READER_PATIENCE: Duration = Duration::from_secs(30);

/// How long an answer is read on when nobody takes it any more: its retry may want it, and some take an hour to be made. What
/// has no end at all must not be read for ever.
pub const DEFAULT_UNREAD_FOR: Duration = Duration::from_secs(3600);

/// The header of the draft.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Whether a request has to have a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyMode {
    /// Without one it is refused.
    #[default]
    Required,
    /// Without one it passes by unguarded.
    Optional,
    /// Without one it is made from the request.
    Derived,
}

/// Where the client's key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyFrom {
    /// In a header.
    Header(HeaderName),
    /// In the JSON body, at this pointer.
    Body(String),
}

/// How requests of a route are guarded.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Whose rules the API follows.
    pub profile: Profile,
    /// Whether a request has to have a key.
    pub key_mode: KeyMode,
    /// Where it is.
    pub key_from: KeyFrom,
    /// What it has to look like.
    pub key_format: Option<KeyFormat>,
    /// Which methods are guarded.
    pub methods: Vec<Method>,
    /// The policy. Its `wait` is how long a repeat waits.
    pub policy: Arc<Policy>,
    /// Which fields of the body make the intent, and which must agree.
    pub recipe: Option<Arc<Recipe>>,
    /// Headers that must agree when a key comes again.
    pub compared_headers: Vec<HeaderName>,
    /// Headers that tell callers apart: their values are part of whose request it is.
    pub identity_headers: Vec<HeaderName>,
    /// Headers that do not tell callers apart. A cookie that is in neither list is refused where a key is derived.
    pub ignored_headers: Vec<HeaderName>,
    /// How callers are named after the values of `identity_headers`.
    pub names: Names,
    /// Statuses that prove that nothing happened.
    pub refusals: Vec<u16>,
    /// The status of `in-flight`: 409, or 425.
    pub in_flight_status: StatusCode,
    /// The largest guarded request.
    pub request_limit: usize,
    /// How long the body of a guarded request may take to arrive. Nothing is begun before.
    pub body_timeout: Duration,
    /// Sends our own downstream key to the other side in this header, instead of what the client sent there.
    pub downstream_key: Option<HeaderName>,
    /// How long a key that is made from a request holds after it is done; `None` is as the policy says.
    pub window: Option<Duration>,
    /// The same request after its answer was delivered is another one, although its window is not over. Set with
    /// [`Rules::causal`].
    pub is_causal: bool,
    /// The other side remembers keys. Set with [`Rules::honours_key`], which makes the rest fit.
    pub honours: bool,
    /// How long the first client may take nothing of an answer. Then it is cut off, and the answer is kept without it.
    pub reader_patience: Duration,
    /// How long an answer may still come bit by bit once its first client is gone. What has no end by then is a doubt.
    pub unread_for: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            profile: Profile::default(),
            key_mode: KeyMode::default(),
            key_from: KeyFrom::Header(IDEMPOTENCY_KEY),
            key_format: None,
            methods: vec![Method::POST, Method::PATCH],
            policy: Arc::new(Policy { wait: DEFAULT_WAIT, ..Policy::default() }),
            recipe: None,
            compared_headers: Vec::new(),
            identity_headers: Vec::new(),
            ignored_headers: Vec::new(),
            names: Names::default(),
            refusals: Vec::new(),
            in_flight_status: StatusCode::CONFLICT,
            request_limit: DEFAULT_REQUEST_LIMIT,
            body_timeout: DEFAULT_BODY_TIMEOUT,
            downstream_key: None,
            window: None,
            is_causal: false,
            honours: false,
            reader_patience: DEFAULT_READER_PATIENCE,
            unread_for: DEFAULT_UNREAD_FOR,
        }
    }
}

/// What a request asks for, as far as its head tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asks {
    /// To be passed by.
    Nothing,
    /// To be guarded, under this key if the head has one.
    Guard(Option<String>),
}

impl Rules {
    /// Makes the rules fit an other side that remembers keys, or does not.
    #[must_use]
    pub fn honours_key(mut self, honours: bool) -> Self {
        let policy = Arc::make_mut(&mut self.policy);
        policy.in_doubt = if honours { InDoubt::Retry } else { InDoubt::Hold };
        self.honours = honours;
        self
    }

    /// Makes keys from requests that have none, each of which holds for a window of time after it is done.
    #[must_use]
    pub fn derived(mut self, window: Duration) -> Self {
        self.key_mode = KeyMode::Derived;
        self.window = Some(window);
        self
    }

    /// Makes keys from requests that have none. A request that comes again because its answer was not delivered is a repeat
    /// for as long as `window`; the same request after the answer is another one.
    #[must_use]
    pub fn causal(self, window: Duration) -> Self {
        Self { is_causal: true, ..self.derived(window) }
    }

    /// In which header the other side gets a key of ours, if it gets one. A client that sends none needs one where keys are
    /// honoured: what is not sent cannot be.
    pub(super) fn downstream_header(&self, call: &Call) -> Option<HeaderName> {
        let derived = || {
            let is_derived = call.key_digest.is_some();
            (is_derived && self.honours).then(|| match &self.key_from {
                KeyFrom::Header(name) => name.clone(),
                KeyFrom::Body(_) => IDEMPOTENCY_KEY,
            })
        };
        self.downstream_key.clone().or_else(derived)
    }

    /// Whether a call was made from its request, and is forgotten when its window is over.
    pub(super) fn holds_for_a_window(&self, call: &Call) -> bool {
        call.key_digest.is_some() && self.window.is_some()
    }

    /// Headers that must agree: those that are configured, and those by which the protocol says for whom a request is.
    fn compared(&self) -> Vec<&HeaderName> {
        self.profile.compared_headers().iter().chain(&self.compared_headers).collect()
    }

    /// What the head of a request asks for.
    pub fn asks(&self, parts: &request::Parts) -> Result<Asks, Problem> {
        if !self.methods.contains(&parts.method) {
            // Some servers take `post` for POST, and must not get one that nobody guards.
            let name = parts.method.as_str();
            return if self.methods.iter().any(|method| method.as_str().eq_ignore_ascii_case(name)) {
                Err(Problem::because(Kind::BadRequest, "Methods are written in capital letters."))
            } else {
                Ok(Asks::Nothing)
            };
        }
        // It would count here and be gone there, where it may be honoured.
        let key_header = match &self.key_from {
            KeyFrom::Header(name) => Some(name),
            KeyFrom::Body(_) => None,
        };
        let compared = self.compared().into_iter().chain(&self.identity_headers);
        let mut counting = compared.chain(key_header).chain(&self.downstream_key);
        let named = connection_names(&parts.headers);
        if let Some(name) = counting.find(|name| named.contains(name)) {
            let detail = format!("{name}: the header Connection says that it goes no further");
            return Err(Problem::because(Kind::KeyMalformed, detail));
        }
        let key = match &self.key_from {
            KeyFrom::Header(name) => super::key::in_headers(&parts.headers, name)
                .map_err(|error| Problem::because(Kind::KeyMalformed, format!("{name}: {error}")))?,
            KeyFrom::Body(_) => return Ok(Asks::Guard(None)),
        };
        match (key, self.key_mode) {
            (Some(key), _) => self.well_formed(&key).map(|()| Asks::Guard(Some(key))),
            (None, KeyMode::Derived) => Ok(Asks::Guard(None)),
            (None, KeyMode::Optional) => Ok(Asks::Nothing),
            (None, KeyMode::Required) => Err(self.key_missing()),
        }
    }

    fn key_missing(&self) -> Problem {
        let place = match &self.key_from {
            KeyFrom::Header(name) => format!("the header {name}"),
            KeyFrom::Body(pointer) => format!("the field {pointer} of the body"),
        };
        Problem::because(Kind::KeyMissing, format!("This request needs an idempotency key in {place}."))
    }

    /// The guarded call that a request is; `None` when its body has no key and none is required.
    pub(super) fn call(
        &self,
        received: &Received,
        key: Option<String>,
        now: Timestamp,
    ) -> Result<Option<Call>, Problem> {
        let bad = |error: onceward_core::name::Error| Problem::because(Kind::BadRequest, error);
        let tenant = identity::tenant(&received.tenant, &received.parts.headers, &self.identity_headers, &self.names);
        let (tenant, operation) = (Tenant::new(tenant).map_err(bad)?, operation(&received.parts)?);
        let (mut body, mut policy) = (Body { received, value: None }, Arc::clone(&self.policy));
        let key = match (key, &self.key_from) {
            (None, KeyFrom::Body(_)) if self.key_mode == KeyMode::Optional && !body.is_json() => return Ok(None),
            (None, KeyFrom::Body(pointer)) => {
                let key = body.key(pointer)?;
                key.as_deref().map_or(Ok(()), |key| self.well_formed(key))?;
                key
            }
            (key, _) => key,
        };
        if key.is_none() && self.key_mode == KeyMode::Derived {
            self.without_unlisted_cookie(&received.parts.headers)?;
        }
        let compared = self.compared();
        let whole = || fingerprint::of_request(&received.parts, &received.body, &compared);
        if let (None, Some(window)) = (&key, self.window) {
            let policy = Arc::make_mut(&mut policy);
            policy.retention = Some(Retention::For(window));
            policy.tombstone = Some(Duration::ZERO);
            policy.after_delivery = self.is_causal.then_some(Duration::ZERO);
        }
        let (key, key_digest, fingerprint) = match (key, &self.recipe) {
            (None, _) if self.key_mode == KeyMode::Optional => return Ok(None),
            (None, _) if self.key_mode == KeyMode::Required => return Err(self.key_missing()),
            (Some(key), None) => (Key::new(key).map_err(bad)?, None, whole()),
            (key, Some(recipe)) => {
                let session = Session::new("").map_err(bad)?;
                let malformed = |error| Problem::because(Kind::BodyMalformed, error);
                let mut applied = recipe.apply(&session, &operation, body.json()?, now).map_err(malformed)?;
                // A recipe speaks for the body alone.
                let head = fingerprint::of_head(&received.parts, &compared);
                applied.fingerprint = Fingerprint::combine(&[applied.fingerprint, head]);
                Arc::make_mut(&mut policy).minimum_retention = recipe.minimum_retention();
                match key {
                    Some(key) => {
                        let identity = Fingerprint::from_digest(applied.derived.digest);
                        let both = Fingerprint::combine(&[identity, applied.fingerprint]);
                        (Key::new(key).map_err(bad)?, None, both)
                    }
                    None => {
                        let derived = match fingerprint::query(&received.parts) {
                            Some(query) => asked(&session, &operation, &applied.derived, query),
                            None => applied.derived,
                        };
                        (derived.key, Some(derived.digest), applied.fingerprint)
                    }
                }
            }
            (None, None) => {
                let session = Session::new("").map_err(bad)?;
                let whole = whole();
                let derived = key::derive(&session, &operation, &Value::String(whole.to_string()));
                (derived.key, Some(derived.digest), whole)
            }
        };
        let identity = Identity { tenant, operation, key };
        Ok(Some(Call { identity, key_digest, fingerprint, policy, item: None, again: Again::default() }))
    }
}

/// The key of an intent that is asked for with a query: what the query says is as much wanted as what the body does.
fn asked(session: &Session, operation: &Operation, derived: &Derived, query: &str) -> Derived {
    key::derive(session, operation, &Value::String(format!("{}?{query}", derived.digest)))
}

/// The body of a request, read as JSON at most once.
struct Body<'a> {
    received: &'a Received,
    value: Option<Value>,
}

impl Body<'_> {
    fn is_json(&self) -> bool {
        matches!(fingerprint::json(&self.received.parts, &self.received.body), Some(Ok(_)))
    }

    fn json(&mut self) -> Result<&Value, Problem> {
        if self.value.is_none() {
            let Some(read) = fingerprint::json(&self.received.parts, &self.received.body) else {
                return Err(Problem::because(Kind::BodyMalformed, "The key is in the body, which has to be JSON."));
            };
            self.value = Some(read.map_err(|error| Problem::because(Kind::BodyMalformed, error))?);
        }
        self.value.as_ref().ok_or_else(|| Problem::new(Kind::BodyMalformed))
    }

    /// The key at a pointer: a text that is fit to be one, or a whole number.
    fn key(&mut self, pointer: &str) -> Result<Option<String>, Problem> {
        let text = match self.json()?.pointer(pointer) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) => text.clone(),
            Some(number @ Value::Number(_)) => number.canonical(),
            Some(_) => return Err(Problem::because(Kind::KeyMalformed, format!("{pointer} is no text"))),
        };
        let bad = |error: onceward_core::name::Error| Problem::because(Kind::KeyMalformed, error);
        Key::new(&text).map_err(bad)?;
        Ok(Some(text))
    }
}

/// The longest path that is an operation's name as it is; of a longer one the end is a digest.
const LONGEST_PATH: usize = 180;

/// The name of the operation: method and concrete path.
fn operation(parts: &request::Parts) -> Result<Operation, Problem> {
    let (method, path) = (&parts.method, paths::plain(parts.uri.path()));
    let shown: String = path.chars().take(LONGEST_PATH).collect();
    let name = if shown.len() == path.len() {
        format!("{method} {path}")
    } else {
        format!("{method} {shown}~{}", &onceward_core::hash::digest(path.as_bytes()).to_hex()[..32])
    };
    Operation::new(name).map_err(|error| Problem::because(Kind::BadRequest, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &str, headers: &[(&str, &str)]) -> Result<Asks, Kind> {
        let mut request = http::Request::builder().method(method).uri("/v1/charges");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Rules::default().asks(&request.body(()).unwrap().into_parts().0).map_err(|problem| problem.kind)
    }

    #[test]
    fn a_guarded_method_in_small_letters_does_not_pass_by() {
        assert_eq!(asked("GET", &[]), Ok(Asks::Nothing));
        assert_eq!(asked("POST", &[]), Err(Kind::KeyMissing));
        for method in ["post", "Post", "patch"] {
            assert_eq!(asked(method, &[]), Err(Kind::BadRequest), "{method}");
        }
    }

    #[test]
    fn a_key_that_would_go_no_further_is_none() {
        let key = ("idempotency-key", "order-7");
        assert_eq!(asked("POST", &[key, ("connection", "close")]), Ok(Asks::Guard(Some("order-7".to_owned()))));
        let named = ("connection", "close, Idempotency-Key");
        assert_eq!(asked("POST", &[key, named]), Err(Kind::KeyMalformed));
    }
}
