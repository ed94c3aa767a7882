//! The rules of a route: which requests are guarded, where the key is, and the policy. Turns a request into a call.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Method, StatusCode, request};

use onceward_core::decide::Again;
use onceward_core::identify::{self, Content, Head, Identified, identify};
use onceward_core::json::Value;
use onceward_core::name::{Identity, Key, Operation, Session, Tenant};
use onceward_core::policy::{InDoubt, Policy, Retention};
use onceward_core::recipe::Recipe;
use onceward_core::time::Timestamp;

use super::exchange::Received;
use super::fingerprint;
use super::identity_headers;
use super::key_format::KeyFormat;
use super::paths;
use super::problem::{Kind, Problem};
use super::profile::Profile;
use super::stored_response::connection_names;
use super::tenant::TenantNames;
use crate::ledger::Call;

/// A guarded request is read whole; 1 MiB holds any order.
pub const DEFAULT_REQUEST_LIMIT: usize = 1024 * 1024;

/// The time-out for reading the body of a guarded request.
pub const DEFAULT_BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a repeat waits for the running request: shorter than the time-out of most clients.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(20);

/// How long a derived key holds after its request is done.
pub const DEFAULT_WINDOW: Duration = Duration::from_secs(10 * 60);

/// How long the first client may read nothing of a streamed answer: longer than any network stalls.
pub const DEFAULT_READER_PATIENCE: Duration = Duration::from_secs(30);

/// How long an answer is still read after its client is gone: a retry may want it, and some answers take an hour. An answer without
/// an end must not be read forever.
pub const DEFAULT_UNREAD_FOR: Duration = Duration::from_secs(3600);

/// The header of the IETF draft.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Whether a request has to have a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyMode {
    /// A request without a key is refused.
    #[default]
    Required,
    /// A request without a key passes through unguarded.
    Optional,
    /// A request without a key gets a derived one.
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
    /// The profile that the API follows.
    pub profile: Profile,
    /// Whether a request has to have a key.
    pub key_mode: KeyMode,
    /// Where the key is.
    pub key_from: KeyFrom,
    /// The format of the key.
    pub key_format: Option<KeyFormat>,
    /// Which methods are guarded.
    pub methods: Vec<Method>,
    /// The policy. Its `wait` is how long a repeat waits.
    pub policy: Arc<Policy>,
    /// Which fields of the body identify the intent, and which must agree.
    pub recipe: Option<Arc<Recipe>>,
    /// Headers that must agree when a key comes again.
    pub compared_headers: Vec<HeaderName>,
    /// Headers that tell callers apart: their values are part of the tenant.
    pub identity_headers: Vec<HeaderName>,
    /// Headers that do not tell callers apart. Where a key is derived, a cookie that is in neither list is refused.
    pub ignored_headers: Vec<HeaderName>,
    /// How tenants are named after the values of `identity_headers`.
    pub names: TenantNames,
    /// Statuses that prove that nothing happened.
    pub refusals: Vec<u16>,
    /// The status of a repeat while its request runs: 409, or 425.
    pub in_flight_status: StatusCode,
    /// The largest guarded request.
    pub request_limit: usize,
    /// How long the body of a guarded request may take to arrive. The call begins only after that.
    pub body_timeout: Duration,
    /// Sends our own downstream key upstream in this header, instead of the client's value.
    pub downstream_key: Option<HeaderName>,
    /// How long a derived key holds after its request is done; `None`: as the policy says.
    pub window: Option<Duration>,
    /// An equal request after the answer was delivered is a new one, even within the window. Set with [`Rules::causal`].
    pub is_causal: bool,
    /// The upstream honours keys. Set with [`Rules::honours_key`], which also sets the policy.
    pub honours: bool,
    /// How long the first client may read nothing of an answer. Then it is cut off, and the answer is kept without it.
    pub reader_patience: Duration,
    /// How long a streamed answer is still read once its first client is gone. An answer without an end by then is a doubt.
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
            names: TenantNames::default(),
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

/// What to do with a request, judged by its head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asks {
    /// Pass it through.
    Nothing,
    /// Guard it, under this key if the head has one.
    Guard(Option<String>),
}

impl Rules {
    /// Sets whether the upstream honours keys, and what happens in doubt accordingly.
    #[must_use]
    pub fn honours_key(mut self, honours: bool) -> Self {
        let policy = Arc::make_mut(&mut self.policy);
        policy.in_doubt = if honours { InDoubt::Retry } else { InDoubt::Hold };
        self.honours = honours;
        self
    }

    /// Derives a key from a request that has none. It holds for a window of time after the request is done.
    #[must_use]
    pub fn derived(mut self, window: Duration) -> Self {
        self.key_mode = KeyMode::Derived;
        self.window = Some(window);
        self
    }

    /// Derives a key from a request that has none. A request that comes again because its answer was not delivered is a repeat
    /// for as long as `window`; an equal request after the answer is a new one.
    #[must_use]
    pub fn causal(self, window: Duration) -> Self {
        Self { is_causal: true, ..self.derived(window) }
    }

    /// The header in which the upstream gets our own key, if any. Where keys are honoured, a request without a client's key needs
    /// ours.
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

    /// Whether the key of a call is derived, and forgotten when its window is over.
    pub(super) fn holds_for_a_window(&self, call: &Call) -> bool {
        call.key_digest.is_some() && self.window.is_some()
    }

    /// Headers that must agree: the configured ones, and those by which the profile names the account of a request.
    fn compared(&self) -> Vec<&HeaderName> {
        self.profile.compared_headers().iter().chain(&self.compared_headers).collect()
    }

    /// Whether requests with this method may be guarded. All others pass through, whatever their headers are.
    pub fn may_guard(&self, method: &str) -> bool {
        self.methods.iter().any(|guarded| guarded.as_str().eq_ignore_ascii_case(method))
    }

    /// Judges a request by its head.
    pub fn asks(&self, parts: &request::Parts) -> Result<Asks, Problem> {
        if !self.methods.contains(&parts.method) {
            // Some servers take `post` for POST, and must not get an unguarded one.
            return if self.may_guard(parts.method.as_str()) {
                Err(Problem::because(Kind::BadRequest, "Methods are written in capital letters."))
            } else {
                Ok(Asks::Nothing)
            };
        }
        // A header that counts here must reach the upstream, which may honour it.
        let key_header = match &self.key_from {
            KeyFrom::Header(name) => Some(name),
            KeyFrom::Body(_) => None,
        };
        let compared = self.compared().into_iter().chain(&self.identity_headers);
        let mut counting = compared.chain(key_header).chain(&self.downstream_key);
        let named = connection_names(&parts.headers);
        if let Some(name) = counting.find(|name| named.contains(name)) {
            let detail = format!("{name}: the header Connection removes it before it reaches the upstream");
            return Err(Problem::because(Kind::KeyMalformed, detail));
        }
        let key = match &self.key_from {
            KeyFrom::Header(name) => super::key::in_headers(&parts.headers, name)
                .map_err(|error| Problem::because(Kind::KeyMalformed, format!("{name}: {error}")))?,
            KeyFrom::Body(_) => return Ok(Asks::Guard(None)),
        };
        match (key, self.key_mode) {
            (Some(key), _) => self.check_key_format(&key).map(|()| Asks::Guard(Some(key))),
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

    /// The guarded call of a request; `None` when its body has no key and none is required.
    pub(super) fn call(
        &self,
        received: &Received,
        key: Option<String>,
        now: Timestamp,
    ) -> Result<Option<Call>, Problem> {
        let bad = |error: onceward_core::name::Error| Problem::because(Kind::BadRequest, error);
        let tenant =
            identity_headers::tenant(&received.tenant, &received.parts.headers, &self.identity_headers, &self.names);
        let (tenant, operation) = (Tenant::new(tenant).map_err(bad)?, operation(&received.parts)?);
        let (mut body, mut policy) = (Body { received, value: None }, Arc::clone(&self.policy));
        let key = match (key, &self.key_from) {
            (None, KeyFrom::Body(_)) if self.key_mode == KeyMode::Optional && !body.is_json() => return Ok(None),
            (None, KeyFrom::Body(pointer)) => {
                let key = body.key(pointer)?;
                key.as_deref().map_or(Ok(()), |key| self.check_key_format(key))?;
                key
            }
            (key, _) => key,
        };
        if key.is_none() && self.key_mode == KeyMode::Derived {
            self.without_unlisted_cookie(&received.parts.headers)?;
        }
        let compared = self.compared();
        if let (None, Some(window)) = (&key, self.window) {
            let policy = Arc::make_mut(&mut policy);
            policy.retention = Some(Retention::For(window));
            policy.tombstone = Some(Duration::ZERO);
            policy.after_delivery = self.is_causal.then_some(Duration::ZERO);
        }
        match (&key, self.key_mode) {
            (None, KeyMode::Optional) => return Ok(None),
            (None, KeyMode::Required) => return Err(self.key_missing()),
            _ => {}
        }
        let session = Session::default();
        let key = key.map(Key::new).transpose().map_err(bad)?;
        let content = match &self.recipe {
            None => Content::Hashed(fingerprint::of_request(&received.parts, &received.body, &compared)),
            Some(recipe) => {
                let fingerprint = fingerprint::of_head(&received.parts, &compared);
                let head = Some(Head { fingerprint, query: fingerprint::query(&received.parts) });
                Content::Recipe { recipe, intent: body.json()?, now, head }
            }
        };
        let request = identify::Request { session: &session, operation: &operation, key, content };
        let malformed = |error| Problem::because(Kind::BodyMalformed, error);
        let Identified { key, key_digest, fingerprint, minimum_retention } = identify(request).map_err(malformed)?;
        if let Some(minimum) = minimum_retention {
            Arc::make_mut(&mut policy).minimum_retention = minimum;
        }
        let identity = Identity { tenant, operation, key };
        Ok(Some(Call { identity, key_digest, fingerprint, policy, item: None, again: Again::default() }))
    }
}

/// The body of a request, parsed as JSON at most once.
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

    /// The key at a pointer: a string that is a valid key, or a number.
    fn key(&mut self, pointer: &str) -> Result<Option<String>, Problem> {
        let text = match self.json()?.pointer(pointer) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) => text.clone(),
            Some(number @ Value::Number(_)) => number.canonical(),
            Some(_) => return Err(Problem::because(Kind::KeyMalformed, format!("{pointer} is not a string"))),
        };
        let bad = |error: onceward_core::name::Error| Problem::because(Kind::KeyMalformed, error);
        Key::new(&text).map_err(bad)?;
        Ok(Some(text))
    }
}

/// The longest path that is used as the name of an operation. The end of a longer one is replaced by its digest.
const LONGEST_PATH: usize = 180;

/// The name of the operation: method and concrete path.
fn operation(parts: &request::Parts) -> Result<Operation, Problem> {
    let (method, path) = (&parts.method, paths::normalised(parts.uri.path()));
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
    fn a_guarded_method_in_small_letters_does_not_pass_through() {
        assert_eq!(asked("GET", &[]), Ok(Asks::Nothing));
        assert_eq!(asked("POST", &[]), Err(Kind::KeyMissing));
        for method in ["post", "Post", "patch"] {
            assert_eq!(asked(method, &[]), Err(Kind::BadRequest), "{method}");
        }
    }

    #[test]
    fn a_key_that_the_connection_header_removes_is_refused() {
        let key = ("idempotency-key", "order-7");
        assert_eq!(asked("POST", &[key, ("connection", "close")]), Ok(Asks::Guard(Some("order-7".to_owned()))));
        let named = ("connection", "close, Idempotency-Key");
        assert_eq!(asked("POST", &[key, named]), Err(Kind::KeyMalformed));
    }
}
