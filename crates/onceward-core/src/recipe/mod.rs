//! Which fields of an intent are its identity (`key`), which must agree (`match`), and which are left out. So a model that
//! rewords a memo still makes the same intent, and a model that changes the amount is refused.

mod error;
mod normalise;
mod volatile;
mod window;

use std::time::Duration;

pub use error::{Error, Role};
pub use normalise::Normalise;
use serde::{Deserialize, Serialize};
pub use volatile::volatile_fields;
pub use window::{Every, Window, WindowDefinition};

use crate::fingerprint::{self, Fingerprint};
use crate::json::{self, Pointer, Value};
use crate::key::{self, Derived};
use crate::name::{Operation, Session};
use crate::time::Timestamp;

/// The member of the reduced intent that holds the window's label. Pointers are empty or begin with a slash, so none is equal
/// to it.
const WINDOW_MEMBER: &str = "window";

/// A recipe as it is written in a configuration; [`Recipe::new`] checks it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Definition {
    /// JSON pointers to the fields that identify the intent.
    pub key: Vec<String>,
    /// JSON pointers to fields that must agree but do not identify the intent.
    #[serde(rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub match_fields: Vec<String>,
    /// How strings and numbers are normalised: `trim`, `case`, `nfc`, `number`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub normalise: Vec<String>,
    /// A window of time that is part of the identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<WindowDefinition>,
    /// Allows fields whose names suggest that they change with every try.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_volatile: bool,
}

/// A checked recipe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Definition", into = "Definition")]
pub struct Recipe {
    definition: Definition,
    key: Vec<Pointer>,
    match_fields: Vec<Pointer>,
    normalise: Vec<Normalise>,
    window: Option<Window>,
}

/// The result of applying a recipe to an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The key.
    pub derived: Derived,
    /// The match fields' fingerprint.
    pub fingerprint: Fingerprint,
    /// The value that was hashed for the key: each key pointer with its normalised value, and the window's label.
    pub intent: Value,
    /// Each match pointer with its normalised value, if the intent has one.
    pub matched: Vec<(String, Option<Value>)>,
    /// The window's label.
    pub window: Option<String>,
    /// The members of the intent that the recipe ignores.
    pub left_out: Vec<String>,
}

impl Recipe {
    /// Checks a definition.
    pub fn new(definition: Definition) -> Result<Self, Error> {
        if definition.key.is_empty() {
            return Err(Error::EmptyKey);
        }
        let key = pointers(Role::Key, &definition.key)?;
        let match_fields = pointers(Role::Match, &definition.match_fields)?;
        let normalise = Normalise::list(&definition.normalise)?;
        let window = definition.window.as_ref().map(Window::new).transpose()?;
        let recipe = Self { key, match_fields, normalise, window, definition };
        recipe.check_overlap()?;
        if !recipe.definition.allow_volatile {
            recipe.check_volatile()?;
        }
        Ok(recipe)
    }

    /// Every field with what it is used for.
    fn fields(&self) -> impl Iterator<Item = (Role, &Pointer)> {
        let window = self.window.as_ref().and_then(Window::field);
        let key = self.key.iter().map(|pointer| (Role::Key, pointer));
        let match_fields = self.match_fields.iter().map(|pointer| (Role::Match, pointer));
        key.chain(match_fields).chain(window.map(|pointer| (Role::Window, pointer)))
    }

    fn check_overlap(&self) -> Result<(), Error> {
        for (role, pointer) in self.fields().filter(|(role, _)| *role != Role::Key) {
            if let Some(key) = self.key.iter().find(|key| key.contains(pointer)) {
                return Err(Error::AlreadyInKey { role, pointer: pointer.to_string(), key: key.to_string() });
            }
        }
        Ok(())
    }

    fn check_volatile(&self) -> Result<(), Error> {
        match self.fields().find(|(_, pointer)| volatile::names(pointer)) {
            Some((role, pointer)) => Err(Error::Volatile { role, pointer: pointer.to_string() }),
            None => Ok(()),
        }
    }

    /// The definition that it was made from.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// The pointers to the fields that identify the intent.
    pub fn key(&self) -> &[Pointer] {
        &self.key
    }

    /// The pointers to the fields that must agree.
    pub fn match_fields(&self) -> &[Pointer] {
        &self.match_fields
    }

    /// The normalisers, in the order in which they are applied.
    pub fn normalise(&self) -> &[Normalise] {
        &self.normalise
    }

    /// The window of time, if it has one.
    pub fn window(&self) -> Option<&Window> {
        self.window.as_ref()
    }

    /// How long outcomes must be kept at least: a repeat may come until the window ends, and a day of retries after that. Zero
    /// without a window.
    pub fn minimum_retention(&self) -> Duration {
        const DAY_OF_RETRIES: Duration = Duration::from_secs(24 * 60 * 60);
        self.window.as_ref().map_or(Duration::ZERO, |window| window.length().saturating_add(DAY_OF_RETRIES))
    }

    /// Derives key and fingerprint from an intent. `now` matters only to a window that is cut from the clock.
    pub fn apply(
        &self,
        session: &Session,
        operation: &Operation,
        intent: &Value,
        now: Timestamp,
    ) -> Result<Applied, Error> {
        let window = self.window.as_ref().map(|window| window.label(intent, now)).transpose()?;
        let reduced = self.reduce(intent, window.as_deref())?;
        let matched: Vec<_> = self
            .match_fields
            .iter()
            .map(|pointer| (pointer.to_string(), pointer.find(intent).map(|value| self.normalised(value))))
            .collect();
        let fields = matched.iter().map(|(pointer, value)| (pointer.as_str(), value.as_ref()));
        Ok(Applied {
            derived: key::derive(session, operation, &reduced),
            fingerprint: fingerprint::of_fields(fields),
            intent: reduced,
            matched,
            window,
            left_out: self.left_out(intent),
        })
    }

    fn reduce(&self, intent: &Value, window: Option<&str>) -> Result<Value, Error> {
        let mut members = Vec::with_capacity(self.key.len() + 1);
        for pointer in &self.key {
            let value =
                pointer.find(intent).ok_or_else(|| Error::Missing { role: Role::Key, pointer: pointer.to_string() })?;
            members.push((pointer.to_string(), self.normalised(value)));
        }
        if let Some(label) = window {
            members.push((WINDOW_MEMBER.to_owned(), Value::String(label.to_owned())));
        }
        json::sort(&mut members);
        Ok(Value::Object(members))
    }

    fn normalised(&self, value: &Value) -> Value {
        normalise::apply(&self.normalise, value)
    }

    fn left_out(&self, intent: &Value) -> Vec<String> {
        let Value::Object(members) = intent else { return Vec::new() };
        let used = |name: &String| {
            self.fields().any(|(_, pointer)| pointer.segments().first().is_none_or(|first| first == name))
        };
        members.iter().map(|(name, _)| name).filter(|name| !used(name)).cloned().collect()
    }
}

impl TryFrom<Definition> for Recipe {
    type Error = Error;

    fn try_from(definition: Definition) -> Result<Self, Error> {
        Self::new(definition)
    }
}

impl From<Recipe> for Definition {
    fn from(recipe: Recipe) -> Self {
        recipe.definition
    }
}

fn pointers(role: Role, texts: &[String]) -> Result<Vec<Pointer>, Error> {
    let mut pointers: Vec<Pointer> = Vec::with_capacity(texts.len());
    for text in texts {
        let pointer = Pointer::parse(text).map_err(|source| Error::Pointer { role, source })?;
        if pointers.contains(&pointer) {
            return Err(Error::Repeated { role, pointer: text.clone() });
        }
        pointers.push(pointer);
    }
    Ok(pointers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(definition: &str) -> Result<Recipe, Error> {
        Recipe::new(serde_json::from_str(definition).unwrap())
    }

    fn apply(definition: &str, intent: &str) -> Result<Applied, Error> {
        let intent = Value::parse(intent.as_bytes()).unwrap();
        let operation = Operation::new("pay").unwrap();
        // 2026-11-15T12:00:00Z
        let now = Timestamp::from_millis(1_794_744_000_000);
        recipe(definition).unwrap().apply(&Session::default(), &operation, &intent, now)
    }

    fn applied(definition: &str, intent: &str) -> Applied {
        apply(definition, intent).unwrap()
    }

    const CHARGE: &str = r#"{"key":["/customer","/invoice"],"match":["/amount"],"normalise":["trim","number"]}"#;

    #[test]
    fn a_field_that_is_left_out_changes_nothing() {
        let one = applied(CHARGE, r#"{"customer":"c","invoice":7,"amount":10,"memo":"thanks"}"#);
        let other = applied(CHARGE, r#"{"memo":"many thanks","amount":"10.00","invoice":7,"customer":" c"}"#);
        assert_eq!((&one.derived, one.fingerprint), (&other.derived, other.fingerprint));
        assert_eq!(one.left_out, ["memo"]);
        assert_eq!(one.intent.canonical(), r#"{"/customer":"c","/invoice":"7"}"#);
        assert_eq!(one.matched, [("/amount".to_owned(), Some(Value::String("10".to_owned())))]);
    }

    #[test]
    fn a_match_field_changes_the_fingerprint_and_not_the_key() {
        let one = applied(CHARGE, r#"{"customer":"c","invoice":7,"amount":10}"#);
        let other = applied(CHARGE, r#"{"customer":"c","invoice":7,"amount":11}"#);
        let absent = applied(CHARGE, r#"{"customer":"c","invoice":7}"#);
        let null = applied(CHARGE, r#"{"customer":"c","invoice":7,"amount":null}"#);
        assert_eq!(one.derived, other.derived);
        assert_eq!(one.derived, absent.derived);
        assert_ne!(one.fingerprint, other.fingerprint);
        assert_ne!(absent.fingerprint, null.fingerprint);
    }

    #[test]
    fn the_order_of_the_lists_does_not_count() {
        let intent = r#"{"a":" X ","b":2,"c":3,"d":4}"#;
        let one = applied(r#"{"key":["/a","/b"],"match":["/c","/d"],"normalise":["trim","case"]}"#, intent);
        let other = applied(r#"{"key":["/b","/a"],"match":["/d","/c"],"normalise":["case","trim"]}"#, intent);
        assert_eq!((one.derived, one.fingerprint), (other.derived, other.fingerprint));
    }

    #[test]
    fn a_missing_key_field_is_refused_by_name() {
        let error = apply(CHARGE, r#"{"customer":"c"}"#).unwrap_err();
        assert_eq!(error, Error::Missing { role: Role::Key, pointer: "/invoice".to_owned() });
        assert!(error.to_string().contains("\"/invoice\""));
        assert_eq!(apply(CHARGE, "[]").unwrap_err().kind(), "missing");
    }

    #[test]
    fn the_window_is_part_of_the_identity() {
        let definition = r#"{"key":["/user"],"window":{"of":"/at","every":"day","zone":"Europe/Berlin"}}"#;
        let morning = applied(definition, r#"{"user":1,"at":"2026-11-15T06:00:00Z"}"#);
        let evening = applied(definition, r#"{"user":1,"at":"2026-11-15T22:59:59Z"}"#);
        let next = applied(definition, r#"{"user":1,"at":"2026-11-15T23:00:00Z"}"#);
        assert_eq!(morning.derived, evening.derived);
        assert_ne!(morning.derived, next.derived);
        assert_eq!(next.intent.canonical(), r#"{"/user":1,"window":"2026-11-16"}"#);
        assert_eq!(next.window.as_deref(), Some("2026-11-16"));
        assert!(next.left_out.is_empty());
    }

    #[test]
    fn a_window_of_now_uses_the_time_it_is_given() {
        let definition = r#"{"key":["/user"],"window":{"of":"now","every":"week","allow_now":true}}"#;
        assert_eq!(applied(definition, r#"{"user":1}"#).window.as_deref(), Some("2026-W46"));
    }

    #[test]
    fn every_mistake_in_a_definition_has_its_own_refusal() {
        for (definition, kind) in [
            (r#"{}"#, "empty_key"),
            (r#"{"key":["a"]}"#, "bad_pointer"),
            (r#"{"key":["/a"],"match":["/~2"]}"#, "bad_pointer"),
            (r#"{"key":["/a","/a"]}"#, "repeated"),
            (r#"{"key":["/a"],"match":["/b","/b"]}"#, "repeated"),
            (r#"{"key":["/a"],"match":["/a"]}"#, "already_in_key"),
            (r#"{"key":["/a"],"match":["/a/b"]}"#, "already_in_key"),
            (r#"{"key":["/a"],"window":{"of":"/a","every":"day"}}"#, "already_in_key"),
            (r#"{"key":["/a"],"normalise":["lower"]}"#, "unknown_normaliser"),
            (r#"{"key":["/a","/request_id"]}"#, "volatile"),
            (r#"{"key":["/a"],"match":["/meta/retryCount"]}"#, "volatile"),
            (r#"{"key":["/a"],"window":{"of":"/timestamp","every":"day"}}"#, "volatile"),
            (r#"{"key":["/a"],"window":{"of":"now","every":"day"}}"#, "now_not_allowed"),
            (r#"{"key":["/a"],"window":{"of":"at","every":"day"}}"#, "bad_pointer"),
            (r#"{"key":["/a"],"window":{"of":"/b","every":"fortnight"}}"#, "unknown_every"),
            (r#"{"key":["/a"],"window":{"of":"/b","every":"0"}}"#, "unknown_every"),
            (r#"{"key":["/a"],"window":{"of":"/b","every":"day","zone":"Mars/Olympus"}}"#, "unknown_zone"),
        ] {
            assert_eq!(recipe(definition).unwrap_err().kind(), kind, "{definition}");
        }
    }

    #[test]
    fn a_volatile_name_is_explained_and_can_be_allowed() {
        let error = recipe(r#"{"key":["/requestId"]}"#).unwrap_err().to_string();
        assert!(error.contains("\"/requestId\"") && error.contains("a retry would be a new intent"), "{error}");
        let error = recipe(r#"{"key":["/a"],"match":["/nonce"]}"#).unwrap_err().to_string();
        assert!(error.contains("a retry would be a mismatch"), "{error}");
        assert!(recipe(r#"{"key":["/requestId"],"allow_volatile":true}"#).is_ok());
    }

    #[test]
    fn a_part_of_a_field_may_be_key_and_the_rest_match() {
        assert!(recipe(r#"{"key":["/order/id"],"match":["/order"]}"#).is_ok());
    }

    #[test]
    fn outcomes_are_kept_for_the_window_and_a_day() {
        let hours = |every: &str| {
            let definition = format!(r#"{{"key":["/a"],"window":{{"of":"/b","every":"{every}"}}}}"#);
            recipe(&definition).unwrap().minimum_retention().as_secs() / 3600
        };
        assert_eq!(hours("day"), 48);
        assert_eq!(hours("week"), 8 * 24);
        assert_eq!(hours("month"), 32 * 24);
        assert_eq!(hours("6h"), 30);
        assert_eq!(recipe(CHARGE).unwrap().minimum_retention(), Duration::ZERO);
    }

    #[test]
    fn a_recipe_gives_its_parts() {
        let recipe = recipe(
            r#"{"key":["/a"],"match":["/b","/c"],"normalise":["nfc","trim"],"window":{"of":"/d","every":"6h"}}"#,
        )
        .unwrap();
        let texts = |pointers: &[Pointer]| pointers.iter().map(Pointer::to_string).collect::<Vec<_>>();
        assert_eq!(texts(recipe.key()), ["/a"]);
        assert_eq!(texts(recipe.match_fields()), ["/b", "/c"]);
        assert_eq!(recipe.normalise(), [Normalise::Trim, Normalise::Nfc]);
        assert_eq!(recipe.definition().normalise, ["nfc", "trim"]);
        let window = recipe.window().unwrap();
        assert_eq!(window.every(), Every::Duration(Duration::from_secs(6 * 3600)));
        assert_eq!(window.field().map(Pointer::as_str), Some("/d"));
        assert!(!window.is_of_now());
    }

    #[test]
    fn serde_writes_the_definition_and_checks_what_it_reads() {
        let text = serde_json::to_string(&recipe(CHARGE).unwrap()).unwrap();
        assert_eq!(text, CHARGE);
        assert_eq!(serde_json::from_str::<Recipe>(&text).unwrap(), recipe(CHARGE).unwrap());
        assert!(serde_json::from_str::<Recipe>(r#"{"key":[]}"#).is_err());
        let misspelt = r#"{"key":["/a"],"window":{"of":"/b","evry":"day"}}"#;
        assert!(serde_json::from_str::<Recipe>(misspelt).is_err());
    }
}
