//! From names and arguments to a [`Call`]: tenant, operation, key and fingerprint, checked before anything reaches the
//! store.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::plant::{Plant, planted};
use onceward_core::decide::{Again, Begin, BeginItem, Command, Take};
use onceward_core::fingerprint::{self, Fingerprint};
use onceward_core::hash::Digest;
use onceward_core::identify::{Content, Identified, Request, identify};
use onceward_core::json::{self, Value};
use onceward_core::name::{self, Identity, Key, Session, Tenant};
use onceward_core::policy::{Effect, InDoubt, OnError, Policy, Retention, StoreDown, Tier};
use onceward_core::recipe::Recipe;
use onceward_core::stream::{DEFAULT_START, Item, LARGEST_NUMBER, Stream};
use onceward_core::time::Timestamp;

use super::{Ledger, Settings};
use crate::clock::{Clock, SystemClock};
use crate::error::{Invalid, RESERVED};
use crate::store;

/// A guarded call, ready for the ledger.
#[derive(Clone, Debug)]
pub struct Call {
    /// The identity of its record: the intent, or the head of the stream whose item this is.
    pub identity: Identity,
    /// The full digest of a derived key.
    pub key_digest: Option<Digest>,
    /// The hash of the request.
    pub fingerprint: Fingerprint,
    /// The policy of the operation.
    pub policy: Arc<Policy>,
    /// Which item of which stream; `None` for an intent with a key of its own.
    pub item: Option<Item>,
    /// Whether finished work is done again for this call.
    pub again: Again,
}

impl Call {
    /// The identity of the intent itself.
    pub(super) fn intent(&self) -> Identity {
        self.item.as_ref().map_or_else(|| self.identity.clone(), Item::identity)
    }

    /// Its name in messages: never the key.
    pub(crate) fn name(&self) -> String {
        match &self.item {
            None => self.identity.to_string(),
            Some(item) => format!("item {} of {}", item.number, self.identity),
        }
    }

    /// The number of the item.
    pub(super) fn sequence(&self) -> Option<u64> {
        self.item.as_ref().map(|item| item.number)
    }

    /// The command that begins this call.
    pub(super) fn command(&self, take: Take) -> Command {
        let begin = Begin {
            identity: self.identity.clone(),
            key_digest: self.key_digest,
            fingerprint: self.fingerprint,
            terms: self.policy.terms(),
            take,
            again: self.again,
        };
        match &self.item {
            None => Command::Begin(begin),
            Some(item) => Command::BeginItem(BeginItem { item: item.clone(), begin }),
        }
    }

    /// Whether the policy lets the work run without a record after this error: only when the store is really out of reach,
    /// and not when it reports something about this record. An item of a stream never runs so: without the store it is
    /// unknown whether it is its turn.
    pub fn may_run_without_store(&self, error: &store::Error) -> bool {
        let may_run = self.policy.store_down == StoreDown::Open || planted(Plant::StoreDownRuns);
        error.is_out_of_reach() && self.item.is_none() && may_run
    }
}

/// Builds a guarded call. Mistakes are reported when it is used.
#[derive(Clone, Debug)]
#[must_use = "nothing happens until `run` or `begin`"]
pub struct CallBuilder {
    pub(super) ledger: Ledger,
    pub(super) settings: Settings,
    name: String,
    tenant: Option<String>,
    session: Option<String>,
    key: Option<String>,
    item: Option<(String, u64)>,
    start: u64,
    intent: Option<Result<Value, json::Error>>,
    arguments: Option<Vec<Vec<u8>>>,
}

impl Ledger {
    /// Builds a guarded call of an operation, with the policy and recipe that are configured for it.
    pub fn operation(&self, name: &str) -> CallBuilder {
        CallBuilder {
            ledger: self.home_of(name).clone(),
            settings: self.inner.operations.get(name).cloned().unwrap_or_default(),
            name: name.to_owned(),
            tenant: None,
            session: None,
            key: None,
            item: None,
            start: DEFAULT_START,
            intent: None,
            arguments: None,
        }
    }

    /// Builds a guarded call for a message from a queue: one message id of one source is handled once, however often it is
    /// delivered.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onceward::Error> {
    /// # let ledger = onceward::Ledger::open("memory:").await?;
    /// for _delivery in 0..2 {
    ///     let done = ledger.consume("orders", "message-17").run(|_| async { Ok("packed".to_owned()) }).await?;
    ///     assert_eq!(done.value, "packed"); // once
    /// }
    /// # Ok(()) }
    /// ```
    pub fn consume(&self, source: &str, message_id: &str) -> CallBuilder {
        self.operation(&format!("consume:{source}")).key(message_id)
    }

    /// Builds a guarded call for an event of an event source: each event of an aggregate is handled once, and in the order
    /// of its sequence numbers. They start with 1, unless [`CallBuilder::starts_at`] says otherwise.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onceward::Error> {
    /// # let ledger = onceward::Ledger::open("memory:").await?;
    /// let project = async |sequence| {
    ///     ledger.consume_event("billing", "account-7", sequence).run(|_| async { Ok(format!("event {sequence}")) }).await
    /// };
    /// project(1).await?;
    /// let early = project(3).await.unwrap_err();
    /// assert!(matches!(early, onceward::Error::OutOfOrder { expected: 2, given: 3, .. }));
    /// project(2).await?;
    /// assert_eq!(project(1).await?.value, "event 1"); // a redelivery: the stored result
    /// # Ok(()) }
    /// ```
    pub fn consume_event(&self, source: &str, aggregate: &str, sequence: u64) -> CallBuilder {
        self.operation(&format!("events:{source}")).item(aggregate, sequence)
    }
}

impl CallBuilder {
    /// The tenant that the intent belongs to. One tenant can neither hit nor see the keys of another.
    pub fn tenant(mut self, tenant: &str) -> Self {
        self.tenant = Some(tenant.to_owned());
        self
    }

    /// The caller's session: part of a derived key.
    pub fn session(mut self, session: &str) -> Self {
        self.session = Some(session.to_owned());
        self
    }

    /// The caller's own key. Without one, the key is derived from the intent.
    pub fn key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    /// One item of a stream, instead of a key: items are numbered, and each is done before the next may begin. An old
    /// number gets its stored result; a gap is [`Error::OutOfOrder`](crate::Error::OutOfOrder), with the expected number.
    ///
    /// A final failure counts as done. An item that was released has to be tried again first. An item in doubt holds its
    /// stream until a person settles it: `onceward resolve` with the key `STREAM/head`.
    pub fn item(mut self, stream: &str, number: u64) -> Self {
        self.item = Some((stream.to_owned(), number));
        self
    }

    /// The number with which the stream starts: 1 unless given. Every caller of a stream must say the same.
    pub fn starts_at(mut self, number: u64) -> Self {
        self.start = number;
        self
    }

    /// The arguments that carry the intent.
    pub fn intent<T: Serialize + ?Sized>(mut self, intent: &T) -> Self {
        self.intent = Some(Value::from_serialize(intent));
        self
    }

    /// The intent as JSON text.
    pub fn intent_json(mut self, text: &[u8]) -> Self {
        self.intent = Some(Value::parse(text));
        self
    }

    /// The intent as a value that was read or built before.
    #[doc(hidden)]
    pub fn intent_value(mut self, intent: Value) -> Self {
        self.intent = Some(Ok(intent));
        self
    }

    /// An argument vector: part of the fingerprint, so that one key cannot mean two commands.
    pub fn arguments(mut self, arguments: Vec<Vec<u8>>) -> Self {
        self.arguments = Some(arguments);
        self
    }

    /// Uses this recipe instead of the configured one.
    pub fn recipe(mut self, recipe: impl Into<Arc<Recipe>>) -> Self {
        self.settings.recipe = Some(recipe.into());
        self
    }

    /// Uses this policy instead of the configured one.
    pub fn policy(mut self, policy: impl Into<Arc<Policy>>) -> Self {
        self.settings.policy = policy.into();
        self
    }

    /// How much is at stake: sets retention and tombstone. The rest of the policy stays as it is.
    pub fn tier(self, tier: Tier) -> Self {
        self.change(|policy| policy.tier = Some(tier))
    }

    fn change(mut self, change: impl FnOnce(&mut Policy)) -> Self {
        change(Arc::make_mut(&mut self.settings.policy));
        self
    }

    /// What happens in doubt.
    pub fn in_doubt(self, in_doubt: InDoubt) -> Self {
        self.change(|policy| policy.in_doubt = in_doubt)
    }

    /// What an error without a class means.
    pub fn on_error(self, on_error: OnError) -> Self {
        self.change(|policy| policy.on_error = on_error)
    }

    /// How long the work should take at most: sizes the lease, and does not stop the work.
    pub fn max_runtime(self, max_runtime: Duration) -> Self {
        self.change(|policy| policy.max_runtime = max_runtime)
    }

    /// How long the outcome is kept.
    pub fn retention(self, retention: Duration) -> Self {
        self.change(|policy| policy.retention = Some(Retention::For(retention)))
    }

    /// How long a repeat waits for a running one.
    pub fn wait(self, wait: Duration) -> Self {
        self.change(|policy| policy.wait = wait)
    }

    /// The closure calls [`Claim::sent`](crate::Claim::sent) before the first byte leaves. A crash before that leaves no
    /// doubt.
    pub fn marks_sent(self) -> Self {
        self.change(|policy| policy.marks_sent = true)
    }

    /// The closure asks the downstream first when [`Claim::probe_first`](crate::Claim::probe_first) says so. Under
    /// `in_doubt = "probe"`, only such a call gets the claim while the intent is in doubt.
    pub fn probes(self) -> Self {
        self.change(|policy| policy.probes = true)
    }

    /// Whether something says what the intent is.
    pub(super) fn has_intent(&self) -> bool {
        self.intent.is_some() || self.arguments.is_some()
    }

    /// Builds the call: checks the names, derives the key and takes the fingerprint.
    pub fn call(&self) -> Result<Call, Invalid> {
        self.call_at(SystemClock.now())
    }

    fn call_at(&self, now: Timestamp) -> Result<Call, Invalid> {
        let operation = name::Operation::new(self.name.as_str())?;
        if operation.as_str().starts_with(RESERVED) {
            return Err(Invalid::ReservedOperation);
        }
        let tenant = match &self.tenant {
            Some(tenant) => Tenant::new(tenant.as_str())?,
            None => Tenant::default(),
        };
        let session = Session::new(self.session.as_deref().unwrap_or_default())?;
        let item = self.stream_item(&tenant, &operation)?;
        let key = match &item {
            Some(item) => Some(item.stream.head().key),
            None => self.key.as_deref().map(Key::new).transpose()?,
        };
        let intent = self.intent.as_ref().map(|intent| intent.as_ref().map_err(|error| error.clone())).transpose()?;
        let mut policy = Arc::clone(&self.settings.policy);
        if policy.effect == Effect::Transactional {
            return Err(Invalid::Transactional);
        }
        let content = match (intent, &self.settings.recipe) {
            (None, _) => Content::Empty,
            (Some(intent), None) => Content::Intent(intent),
            (Some(intent), Some(recipe)) => Content::Recipe { recipe, intent, now, head: None },
        };
        let request = Request { session: &session, operation: &operation, key, content };
        let Identified { key, key_digest, fingerprint, minimum_retention } = identify(request)?;
        if let Some(minimum) = minimum_retention {
            Arc::make_mut(&mut policy).minimum_retention = minimum;
        }
        let fingerprint = match &self.arguments {
            Some(arguments) => Fingerprint::combine(&[fingerprint, fingerprint::of_arguments(arguments)]),
            None => fingerprint,
        };
        let identity = Identity { tenant, operation, key };
        Ok(Call { identity, key_digest, fingerprint, policy, item, again: Again::default() })
    }

    fn stream_item(&self, tenant: &Tenant, operation: &name::Operation) -> Result<Option<Item>, Invalid> {
        let Some((stream, number)) = &self.item else { return Ok(None) };
        if self.key.is_some() {
            return Err(Invalid::KeyAndItem);
        }
        if (*number).max(self.start) > LARGEST_NUMBER {
            return Err(Invalid::Number);
        }
        let name = name::Stream::new(stream.as_str())?;
        let stream = Stream { tenant: tenant.clone(), operation: operation.clone(), name };
        Ok(Some(Item { stream, number: *number, start: self.start }))
    }
}
