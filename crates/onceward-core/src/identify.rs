//! What identifies a call: its key, the digest of a derived key, and its fingerprint. The one place where an explicit key,
//! an intent and a recipe are put together. Pure, and the same for every surface: equal calls have equal keys.

use std::time::Duration;

use crate::fingerprint::{self, Fingerprint};
use crate::hash::Digest;
use crate::json::Value;
use crate::key::{self, Derived};
use crate::name::{Key, Operation, Session};
use crate::recipe::{self, Recipe};
use crate::time::Timestamp;

/// What a call says about itself.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Part of a derived key.
    pub session: &'a Session,
    /// Part of a derived key.
    pub operation: &'a Operation,
    /// The caller's own key. Without one, the key is derived from the content.
    pub key: Option<Key>,
    /// What is asked for.
    pub content: Content<'a>,
}

/// What a call asks for: the source of a derived key, and what must agree whenever a key comes again.
#[derive(Clone, Debug)]
pub enum Content<'a> {
    /// Only the key counts.
    Empty,
    /// All of this intent counts.
    Intent(&'a Value),
    /// The fields of this intent count that the recipe names.
    Recipe {
        /// Which fields.
        recipe: &'a Recipe,
        /// The intent.
        intent: &'a Value,
        /// The time, for a window that is cut from the clock.
        now: Timestamp,
        /// The rest of an HTTP request, whose body is the intent.
        head: Option<Head<'a>>,
    },
    /// All of a request counts, and this is its hash.
    Hashed(Fingerprint),
}

/// The head of an HTTP request, which a recipe does not see.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The hash of what must agree besides the body.
    pub fingerprint: Fingerprint,
    /// The query. It is part of a derived key: a request with another query asks for something else.
    pub query: Option<&'a str>,
}

/// What identifies a call within its tenant and operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identified {
    /// The caller's own key, or the derived one.
    pub key: Key,
    /// The full digest of a derived key.
    pub key_digest: Option<Digest>,
    /// What must agree whenever the key comes again.
    pub fingerprint: Fingerprint,
    /// How long the outcome must be kept at least, where a recipe says so.
    pub minimum_retention: Option<Duration>,
}

/// Why a call cannot be identified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call has neither a key nor anything to derive one from.
    #[error("a guarded call needs a key or an intent")]
    NoKey,
    /// The recipe does not fit the intent.
    #[error(transparent)]
    Recipe(#[from] recipe::Error),
}

/// Identifies a call.
///
/// | | no key given | key given |
/// |---|---|---|
/// | nothing else | refused | compared by nothing |
/// | an intent, or a hashed request | key derived from all of it, compared by all of it | compared by all of it |
/// | an intent and a recipe | key derived from the key fields, compared by the match fields | compared by both |
pub fn identify(request: Request<'_>) -> Result<Identified, Error> {
    let Request { session, operation, key, content } = request;
    let (derived, fingerprint) = match content {
        Content::Empty => (None, Fingerprint::none()),
        Content::Intent(intent) => {
            let derived = key.is_none().then(|| key::derive(session, operation, intent));
            (derived, fingerprint::of_intent(intent))
        }
        Content::Hashed(fingerprint) => {
            let derive = || key::derive(session, operation, &Value::String(fingerprint.to_string()));
            (key.is_none().then(derive), fingerprint)
        }
        Content::Recipe { recipe, intent, now, head } => {
            let applied = recipe.apply(session, operation, intent, now)?;
            let compared = match head {
                Some(head) => Fingerprint::combine(&[applied.fingerprint, head.fingerprint]),
                None => applied.fingerprint,
            };
            let minimum_retention = Some(recipe.minimum_retention());
            let (key, key_digest, fingerprint) = match key {
                // The caller's key names the intent, so everything that the recipe looks at must agree.
                Some(key) => {
                    let identity = Fingerprint::from_digest(applied.derived.digest);
                    (key, None, Fingerprint::combine(&[identity, compared]))
                }
                None => {
                    let query = head.and_then(|head| head.query);
                    let derived = with_query(session, operation, applied.derived, query);
                    (derived.key, Some(derived.digest), compared)
                }
            };
            return Ok(Identified { key, key_digest, fingerprint, minimum_retention });
        }
    };
    let (key, key_digest) = match (key, derived) {
        (Some(key), _) => (key, None),
        (None, Some(derived)) => (derived.key, Some(derived.digest)),
        (None, None) => return Err(Error::NoKey),
    };
    Ok(Identified { key, key_digest, fingerprint, minimum_retention: None })
}

/// The derived key of a request with a query.
fn with_query(session: &Session, operation: &Operation, derived: Derived, query: Option<&str>) -> Derived {
    match query {
        Some(query) => key::derive(session, operation, &Value::String(format!("{}?{query}", derived.digest))),
        None => derived,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(0);

    fn operation() -> Operation {
        Operation::new("charge").unwrap()
    }

    fn value(text: &str) -> Value {
        Value::parse(text.as_bytes()).unwrap()
    }

    fn recipe(definition: &str) -> Recipe {
        serde_json::from_str(definition).unwrap()
    }

    fn identified(key: Option<&str>, content: Content<'_>) -> Result<Identified, Error> {
        let (session, operation) = (Session::default(), operation());
        let key = key.map(|key| Key::new(key).unwrap());
        identify(Request { session: &session, operation: &operation, key, content })
    }

    #[test]
    fn a_call_without_key_and_content_is_refused() {
        assert_eq!(identified(None, Content::Empty), Err(Error::NoKey));
    }

    #[test]
    fn a_bare_key_is_compared_by_nothing() {
        let bare = identified(Some("k"), Content::Empty).unwrap();
        assert_eq!((bare.key.as_str(), bare.key_digest, bare.fingerprint), ("k", None, Fingerprint::none()));
        assert_eq!(bare.minimum_retention, None);
    }

    #[test]
    fn an_intent_makes_the_key_unless_one_is_given_and_is_compared_in_either_case() {
        let intent = value(r#"{"invoice":7}"#);
        let derived = identified(None, Content::Intent(&intent)).unwrap();
        let expected = key::derive(&Session::default(), &operation(), &intent);
        assert_eq!((derived.key, derived.key_digest), (expected.key, Some(expected.digest)));
        let given = identified(Some("k"), Content::Intent(&intent)).unwrap();
        assert_eq!((given.key.as_str(), given.key_digest), ("k", None));
        assert_eq!(given.fingerprint, fingerprint::of_intent(&intent));
        assert_eq!(derived.fingerprint, given.fingerprint);
    }

    #[test]
    fn a_hashed_request_makes_the_key_unless_one_is_given() {
        let whole = fingerprint::of_arguments(["a"]);
        let derived = identified(None, Content::Hashed(whole)).unwrap();
        let expected = key::derive(&Session::default(), &operation(), &Value::String(whole.to_string()));
        assert_eq!((derived.key, derived.key_digest), (expected.key, Some(expected.digest)));
        let given = identified(Some("k"), Content::Hashed(whole)).unwrap();
        assert_eq!((given.key_digest, given.fingerprint), (None, whole));
    }

    #[test]
    fn with_a_recipe_and_a_key_everything_that_the_recipe_looks_at_must_agree() {
        let recipe = recipe(r#"{"key":["/invoice"],"match":["/cents"]}"#);
        let of = |key: Option<&str>, intent: &str| {
            let intent = value(intent);
            identified(key, Content::Recipe { recipe: &recipe, intent: &intent, now: NOW, head: None }).unwrap()
        };
        let derived = of(None, r#"{"invoice":7,"cents":1,"memo":"a"}"#);
        assert_eq!(derived, of(None, r#"{"invoice":7,"cents":1,"memo":"b"}"#), "the memo is left out");
        let dearer = of(None, r#"{"invoice":7,"cents":2}"#);
        assert_eq!((&derived.key, derived.key_digest), (&dearer.key, dearer.key_digest));
        assert_ne!(derived.fingerprint, dearer.fingerprint);

        let given = of(Some("k"), r#"{"invoice":7,"cents":1}"#);
        assert_eq!((given.key.as_str(), given.key_digest), ("k", None));
        for other in [r#"{"invoice":8,"cents":1}"#, r#"{"invoice":7,"cents":2}"#] {
            assert_ne!(given.fingerprint, of(Some("k"), other).fingerprint);
        }
        let identity = Fingerprint::from_digest(derived.key_digest.unwrap());
        assert_eq!(given.fingerprint, Fingerprint::combine(&[identity, derived.fingerprint]));
    }

    #[test]
    fn the_head_of_a_request_is_compared_and_its_query_makes_another_key() {
        let (recipe, intent) = (recipe(r#"{"key":["/invoice"]}"#), value(r#"{"invoice":7}"#));
        let head_of = |query| Some(Head { fingerprint: fingerprint::of_arguments(["POST"]), query });
        let of =
            |key, head| identified(key, Content::Recipe { recipe: &recipe, intent: &intent, now: NOW, head }).unwrap();
        let (plain, asked) = (of(None, head_of(None)), of(None, head_of(Some("dry_run=1"))));
        let bare = of(None, None);
        assert_eq!(bare.key, plain.key);
        assert_eq!(
            plain.fingerprint,
            Fingerprint::combine(&[bare.fingerprint, fingerprint::of_arguments(["POST"])]),
            "the head is compared"
        );
        assert_ne!(plain.key, asked.key);
        let text = Value::String(format!("{}?dry_run=1", plain.key_digest.unwrap()));
        assert_eq!(asked.key, key::derive(&Session::default(), &operation(), &text).key);
        assert_eq!(
            of(Some("k"), head_of(None)),
            of(Some("k"), head_of(Some("dry_run=1"))),
            "the head compares the query"
        );
    }

    #[test]
    fn a_recipe_says_how_long_the_outcome_is_kept_at_least_and_which_field_is_missing() {
        let daily = recipe(r#"{"key":["/user"],"window":{"of":"/at","every":"day"}}"#);
        let intent = value(r#"{"user":1,"at":"2026-11-15T06:00:00Z"}"#);
        let of = |intent| identified(None, Content::Recipe { recipe: &daily, intent, now: NOW, head: None });
        assert_eq!(of(&intent).unwrap().minimum_retention, Some(Duration::from_secs(48 * 3600)));
        assert!(matches!(of(&value("{}")), Err(Error::Recipe(_))));
    }
}
