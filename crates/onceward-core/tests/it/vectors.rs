//! Runs the vectors for canonical JSON, keys, fingerprints and recipes, which `spec/vectors/README.md` explains. The harness in
//! `onceward-sim` runs them too, so each check is a function of its own.

use std::path::Path;

use onceward_core::fingerprint::{self, Fingerprint};
use onceward_core::json;
use onceward_core::key;
use onceward_core::name::{Identity, Key, Operation, Session, Tenant};
use onceward_core::recipe::{self, Recipe};
use onceward_core::record::downstream_key;
use onceward_core::time::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Reads a file of vectors. Unknown members are refused everywhere, so that no expectation is ignored.
fn read<T: DeserializeOwned>(file: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/vectors").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn value(text: &str) -> json::Value {
    json::Value::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16).expect("hex") as u8;
    hex.as_bytes().chunks(2).map(|pair| digit(pair[0]) * 16 + digit(pair[1])).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CanonicalJson {
    accepted: Vec<AcceptedJson>,
    refused: Vec<RefusedJson>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AcceptedJson {
    name: String,
    input: String,
    canonical: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RefusedJson {
    name: String,
    input: Option<String>,
    input_hex: Option<String>,
    input_repeat: Option<RepeatedText>,
    error: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RepeatedText {
    text: String,
    times: usize,
}

impl RefusedJson {
    fn bytes(&self) -> Vec<u8> {
        match (&self.input, &self.input_hex, &self.input_repeat) {
            (Some(text), None, None) => text.clone().into_bytes(),
            (None, Some(hex), None) => bytes(hex),
            (None, None, Some(repeat)) => repeat.text.repeat(repeat.times).into_bytes(),
            _ => panic!("{}: exactly one input is needed", self.name),
        }
    }
}

#[test]
fn canonical_json_agrees_with_its_vectors() {
    canonical_json();
}

pub(crate) fn canonical_json() {
    let vectors: CanonicalJson = read("canonical-json.json");
    for case in &vectors.accepted {
        let canonical = value(&case.input).canonical();
        assert_eq!(canonical, case.canonical, "{}", case.name);
        assert_eq!(value(&canonical).canonical(), canonical, "{}: again", case.name);
    }
    for case in &vectors.refused {
        let error = json::Value::parse(&case.bytes()).expect_err(&case.name);
        assert_eq!(error.kind(), case.error, "{}: {error}", case.name);
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    derived: Vec<DerivedKey>,
    identities: Vec<StoredIdentity>,
    downstream: Vec<DownstreamKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DownstreamKey {
    name: String,
    tenant: Tenant,
    operation: Operation,
    key: Key,
    sink: String,
    generation: u32,
    downstream_key: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DerivedKey {
    name: String,
    session: Session,
    operation: Operation,
    intent: String,
    canonical: String,
    digest: String,
    key: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredIdentity {
    name: String,
    tenant: Tenant,
    operation: Operation,
    key: Key,
    digest: String,
}

#[test]
fn keys_agree_with_their_vectors() {
    keys();
}

pub(crate) fn keys() {
    let vectors: Keys = read("keys.json");
    for case in vectors.derived {
        let intent = value(&case.intent);
        assert_eq!(intent.canonical(), case.canonical, "{}", case.name);
        let derived = key::derive(&case.session, &case.operation, &intent);
        assert_eq!(derived.digest.to_hex(), case.digest, "{}", case.name);
        assert_eq!(derived.key.as_str(), case.key, "{}", case.name);
    }
    for case in vectors.identities {
        let identity = Identity { tenant: case.tenant, operation: case.operation, key: case.key };
        assert_eq!(identity.digest().to_hex(), case.digest, "{}", case.name);
    }
    for case in vectors.downstream {
        let identity = Identity { tenant: case.tenant, operation: case.operation, key: case.key };
        let derived = downstream_key(&identity, &case.sink, case.generation);
        assert_eq!(derived, case.downstream_key, "{}", case.name);
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fingerprints {
    fingerprints: Vec<FingerprintCase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FingerprintCase {
    name: String,
    of: FingerprintInput,
    fingerprint: String,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum FingerprintInput {
    None,
    Intent { intent: String },
    Fields { fields: Vec<Field> },
    Arguments { arguments_hex: Vec<String> },
    Combined { parts: Vec<FingerprintInput> },
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Field {
    pointer: String,
    value: Option<String>,
}

impl FingerprintInput {
    fn fingerprint(&self) -> Fingerprint {
        match self {
            Self::None => Fingerprint::none(),
            Self::Intent { intent } => fingerprint::of_intent(&value(intent)),
            Self::Fields { fields } => {
                let values: Vec<_> = fields.iter().map(|field| field.value.as_deref().map(value)).collect();
                let pairs = fields.iter().zip(&values);
                fingerprint::of_fields(pairs.map(|(field, value)| (field.pointer.as_str(), value.as_ref())))
            }
            Self::Arguments { arguments_hex } => fingerprint::of_arguments(arguments_hex.iter().map(|hex| bytes(hex))),
            Self::Combined { parts } => Fingerprint::combine(&parts.iter().map(Self::fingerprint).collect::<Vec<_>>()),
        }
    }
}

#[test]
fn fingerprints_agree_with_their_vectors() {
    fingerprints();
}

pub(crate) fn fingerprints() {
    let vectors: Fingerprints = read("fingerprints.json");
    for case in vectors.fingerprints {
        assert_eq!(case.of.fingerprint().to_string(), case.fingerprint, "{}", case.name);
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Recipes {
    applied: Vec<AppliedCase>,
    refused_recipes: Vec<RefusedRecipe>,
    refused_intents: Vec<RefusedIntent>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AppliedCase {
    name: String,
    recipe: recipe::Definition,
    session: Session,
    operation: Operation,
    intent: String,
    now_ms: Timestamp,
    expect: Expected,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    reduced: String,
    window: Option<String>,
    digest: String,
    key: String,
    matched: Vec<Field>,
    fingerprint: String,
    left_out: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RefusedRecipe {
    name: String,
    recipe: recipe::Definition,
    error: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RefusedIntent {
    name: String,
    recipe: recipe::Definition,
    intent: String,
    error: String,
}

fn checked(name: &str, definition: recipe::Definition) -> Recipe {
    Recipe::new(definition).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn recipes_agree_with_their_vectors() {
    recipes();
}

pub(crate) fn recipes() {
    let vectors: Recipes = read("recipes.json");
    for case in vectors.applied {
        let applied = checked(&case.name, case.recipe)
            .apply(&case.session, &case.operation, &value(&case.intent), case.now_ms)
            .unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let field = |(pointer, value): (String, Option<json::Value>)| Field {
            pointer,
            value: value.map(|value| value.canonical()),
        };
        let found = Expected {
            reduced: applied.intent.canonical(),
            window: applied.window,
            digest: applied.derived.digest.to_hex(),
            key: applied.derived.key.as_str().to_owned(),
            matched: applied.matched.into_iter().map(field).collect(),
            fingerprint: applied.fingerprint.to_string(),
            left_out: applied.left_out,
        };
        assert_eq!(found, case.expect, "{}", case.name);
    }
}

#[test]
fn refused_recipes_and_intents_agree_with_their_vectors() {
    refused();
}

pub(crate) fn refused() {
    let vectors: Recipes = read("recipes.json");
    for case in vectors.refused_recipes {
        let error = Recipe::new(case.recipe).expect_err(&case.name);
        assert_eq!(error.kind(), case.error, "{}: {error}", case.name);
    }
    let operation = Operation::new("refused").unwrap();
    for case in vectors.refused_intents {
        let error = checked(&case.name, case.recipe)
            .apply(&Session::default(), &operation, &value(&case.intent), Timestamp::from_millis(0))
            .expect_err(&case.name);
        assert_eq!(error.kind(), case.error, "{}: {error}", case.name);
    }
}
