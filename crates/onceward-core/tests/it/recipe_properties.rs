//! Properties that hold for every recipe and every intent: which intents are the same, which are different, and which are a
//! mismatch. "The same" is defined here a second time, over trees, independently of the code under test.

use std::collections::BTreeMap;

use onceward_core::json::Value;
use onceward_core::name::{Operation, Session};
use onceward_core::recipe::{Applied, Definition, Recipe};
use onceward_core::time::Timestamp;
use proptest::prelude::*;
use unicode_normalization::UnicodeNormalization;

use crate::properties::config;
use crate::tree::{Tree, near_miss, normal, plain, spelled, tree};

/// An intent with its fields grouped by their use in the recipe. The first letters of the names keep the groups apart, and
/// prevent names that a recipe refuses as volatile.
#[derive(Clone, Debug)]
struct SampleIntent {
    key: BTreeMap<String, Tree>,
    matched: BTreeMap<String, Tree>,
    rest: BTreeMap<String, Tree>,
    /// Whether the fields are at the top or one level down.
    nested: bool,
    normalise: Vec<&'static str>,
}

fn intent() -> impl Strategy<Value = SampleIntent> {
    let fields = |letter: &'static str, least| {
        let name = any::<String>().prop_map(move |name| format!("{letter}{name}"));
        prop::collection::btree_map(name, tree(), least..4)
    };
    let normalise = prop::sample::subsequence(vec!["trim", "case", "nfc", "number"], 0..=4).prop_shuffle();
    (fields("k", 1), fields("m", 0), fields("x", 0), any::<bool>(), normalise)
        .prop_map(|(key, matched, rest, nested, normalise)| SampleIntent { key, matched, rest, nested, normalise })
}

impl SampleIntent {
    fn recipe(&self) -> Recipe {
        let pointers = |fields: &BTreeMap<String, Tree>| fields.keys().map(|name| self.pointer(name)).collect();
        Recipe::new(Definition {
            key: pointers(&self.key),
            match_fields: pointers(&self.matched),
            normalise: self.normalise.iter().map(|&name| name.to_owned()).collect(),
            ..Definition::default()
        })
        .unwrap()
    }

    fn pointer(&self, name: &str) -> String {
        let name = name.replace('~', "~0").replace('/', "~1");
        if self.nested { format!("/order/{name}") } else { format!("/{name}") }
    }

    fn text(&self, spelling: u64) -> String {
        let fields = [&self.key, &self.matched, &self.rest].into_iter().flatten();
        let all = Tree::Map(fields.map(|(name, tree)| (name.clone(), tree.clone())).collect());
        let all = if self.nested { Tree::Map(BTreeMap::from([("order".to_owned(), all)])) } else { all };
        spelled(&all, spelling)
    }

    fn applied(&self, recipe: &Recipe, spelling: u64) -> Applied {
        let text = self.text(spelling);
        let intent = Value::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"));
        let operation = Operation::new("charge").unwrap();
        recipe.apply(&Session::default(), &operation, &intent, Timestamp::from_millis(0)).unwrap()
    }

    /// The normalised key fields or match fields.
    fn normalised(&self, fields: &BTreeMap<String, Tree>) -> BTreeMap<String, Tree> {
        fields.iter().map(|(name, tree)| (name.clone(), normalised(&self.normalise, tree))).collect()
    }
}

/// A value, normalised as the recipe says.
fn normalised(normalise: &[&str], tree: &Tree) -> Tree {
    let wants = |name: &str| normalise.contains(&name);
    match tree {
        Tree::Text(text) => {
            let text = if wants("trim") { text.trim() } else { text };
            let text = if wants("case") { text.to_lowercase() } else { text.to_owned() };
            let text = if wants("nfc") { text.nfc().collect() } else { text };
            match decimal(&text) {
                Some(decimal) if wants("number") => Tree::Text(decimal),
                _ => Tree::Text(text),
            }
        }
        Tree::Number(..) => match normal(tree) {
            Tree::Number(digits, power) if wants("number") => Tree::Text(plain(digits, power)),
            number => number,
        },
        Tree::List(items) => Tree::List(items.iter().map(|item| normalised(normalise, item)).collect()),
        Tree::Map(members) => {
            Tree::Map(members.iter().map(|(name, tree)| (name.clone(), normalised(normalise, tree))).collect())
        }
        other => other.clone(),
    }
}

/// The shortest text of a decimal such as `-1.50`; `None` for other texts.
fn decimal(text: &str) -> Option<String> {
    let mut digits = text.strip_prefix('-').unwrap_or(text).split('.');
    let (whole, fraction) = (digits.next()?, digits.next());
    let is_number = |part: &str| !part.is_empty() && part.chars().all(|digit| digit.is_ascii_digit());
    let has_leading_zero = whole.len() > 1 && whole.starts_with('0');
    if digits.next().is_some() || !is_number(whole) || has_leading_zero || !fraction.is_none_or(is_number) {
        return None;
    }
    let fraction = fraction.unwrap_or("").trim_end_matches('0');
    let unsigned = if fraction.is_empty() { whole.to_owned() } else { format!("{whole}.{fraction}") };
    let sign = if text.starts_with('-') && unsigned != "0" { "-" } else { "" };
    Some(format!("{sign}{unsigned}"))
}

/// The tree of a JSON value.
fn tree_of(value: &Value) -> Tree {
    match value {
        Value::Null => Tree::Null,
        Value::Bool(bool) => Tree::Bool(*bool),
        Value::String(text) => Tree::Text(text.clone()),
        Value::Array(items) => Tree::List(items.iter().map(tree_of).collect()),
        Value::Object(members) => {
            Tree::Map(members.iter().map(|(name, value)| (name.clone(), tree_of(value))).collect())
        }
        Value::Number(number) => {
            let (digits, power) = number.as_str().split_once("e").unwrap_or((number.as_str(), "0"));
            let places = digits.split_once('.').map_or(0, |(_, fraction)| fraction.len());
            let power: i8 = power.parse::<i8>().unwrap() - i8::try_from(places).unwrap();
            normal(&Tree::Number(digits.replace('.', "").parse().unwrap(), power))
        }
    }
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn fields_outside_of_key_and_match_do_not_count(one in intent(), rest in intent(), first: u64, second: u64) {
        let other = SampleIntent { rest: rest.rest, ..one.clone() };
        let recipe = one.recipe();
        let (one, other) = (one.applied(&recipe, first), other.applied(&recipe, second));
        prop_assert_eq!(one.derived, other.derived);
        prop_assert_eq!(one.fingerprint, other.fingerprint);
    }

    #[test]
    fn a_changed_key_field_is_another_intent(one in intent(), (was, is) in near_miss(), at: prop::sample::Index) {
        let name = one.key.keys().nth(at.index(one.key.len())).unwrap().clone();
        let (mut one, mut other) = (one.clone(), one);
        one.key.insert(name.clone(), was);
        other.key.insert(name, is);
        let is_same = one.normalised(&one.key) == other.normalised(&other.key);
        let recipe = one.recipe();
        let (one, other) = (one.applied(&recipe, 0), other.applied(&recipe, 7));
        prop_assert_eq!(one.derived.key == other.derived.key, is_same, "{:?} {:?}", one.intent, other.intent);
        prop_assert_eq!(one.derived.digest == other.derived.digest, is_same);
        prop_assert_eq!(one.fingerprint, other.fingerprint);
    }

    #[test]
    fn a_changed_match_field_is_a_mismatch_of_the_same_intent(one in intent(), (was, is) in near_miss()) {
        let (mut one, mut other) = (one.clone(), one);
        one.matched.insert("must agree".to_owned(), was);
        other.matched.insert("must agree".to_owned(), is);
        let is_same = one.normalised(&one.matched) == other.normalised(&other.matched);
        let recipe = one.recipe();
        let mut absent = one.clone();
        absent.matched.remove("must agree");
        let absent = absent.applied(&recipe, 3);
        let (one, other) = (one.applied(&recipe, 0), other.applied(&recipe, 7));
        prop_assert_eq!(&one.derived, &other.derived);
        prop_assert_eq!(one.fingerprint == other.fingerprint, is_same);
        prop_assert_eq!(&one.derived, &absent.derived);
        prop_assert_ne!(one.fingerprint, absent.fingerprint);
    }

    #[test]
    fn normalising_twice_is_the_same_as_once(one in intent()) {
        let recipe = one.recipe();
        let applied = one.applied(&recipe, 0);
        let Value::Object(members) = &applied.intent else { panic!("the intent is not an object") };
        let normalised: BTreeMap<_, _> = members.iter().map(|(name, value)| (name.as_str(), tree_of(value))).collect();
        let mut again = one.clone();
        for (name, tree) in &mut again.key {
            tree.clone_from(&normalised[one.pointer(name).as_str()]);
        }
        for (pointer, value) in &applied.matched {
            let name = again.matched.keys().find(|name| one.pointer(name) == *pointer).unwrap().clone();
            again.matched.insert(name, tree_of(value.as_ref().unwrap()));
        }
        let again = again.applied(&recipe, 5);
        prop_assert_eq!(&again.intent, &applied.intent);
        prop_assert_eq!(again.matched, applied.matched);
        prop_assert_eq!(again.derived, applied.derived);
        prop_assert_eq!(again.fingerprint, applied.fingerprint);
    }

    #[test]
    fn the_order_of_the_lists_does_not_count(one in intent(), spelling: u64) {
        let mut reversed = one.recipe().definition().clone();
        reversed.key.reverse();
        reversed.match_fields.reverse();
        reversed.normalise.reverse();
        let (forward, backward) = (one.recipe(), Recipe::new(reversed).unwrap());
        let (forward, backward) = (one.applied(&forward, spelling), one.applied(&backward, spelling));
        prop_assert_eq!(forward.derived, backward.derived);
        prop_assert_eq!(forward.fingerprint, backward.fingerprint);
    }

    #[test]
    fn a_field_moves_its_value_from_key_to_match_only_by_the_recipe(one in intent()) {
        let before = one.applied(&one.recipe(), 0);
        let mut moved = one.clone();
        let value = moved.key.remove(one.key.keys().next().unwrap()).unwrap();
        moved.key.insert("kept elsewhere".to_owned(), value);
        prop_assert_ne!(moved.applied(&moved.recipe(), 0).derived, before.derived);
    }
}
