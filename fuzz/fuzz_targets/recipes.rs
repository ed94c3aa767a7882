//! Any recipe on any intent is refused, or gives an intent the same key whichever unused fields are left out, however it is
//! written, and in whatever order the recipe names its fields.

#![no_main]

use libfuzzer_sys::fuzz_target;
use onceward_core::fingerprint::of_fields;
use onceward_core::json::Value;
use onceward_core::name::{Operation, Session};
use onceward_core::recipe::{Applied, Definition, Recipe};
use onceward_core::time::Timestamp;

// The first line is the recipe, the rest is the intent.
fuzz_target!(|text: &str| {
    let (definition, intent) = text.split_once('\n').unwrap_or((text, "{}"));
    let Ok(definition) = serde_json::from_str::<Definition>(definition) else { return };
    let Ok(recipe) = Recipe::new(definition.clone()) else { return };
    let json = serde_json::to_string(&recipe).expect("a recipe can be written");
    assert_eq!(serde_json::from_str::<Recipe>(&json).expect("what was written is read"), recipe);
    let Ok(intent) = Value::parse(intent.as_bytes()) else { return };
    // A time around 1970, for windows of the clock.
    let now = (text.len() as i64 - 2048) * 500_000_000;
    let Ok(applied) = apply(&recipe, &intent, now) else { return };

    let spelled = serde_json::to_string_pretty(&intent).expect("a value can be written");
    let again = Value::parse(spelled.as_bytes()).expect("what was written is read");
    assert_eq!(apply(&recipe, &again, now).as_ref(), Ok(&applied), "another spelling, another intent");

    let mut reversed = definition;
    reversed.key.reverse();
    reversed.match_fields.reverse();
    reversed.normalise.reverse();
    let reversed = Recipe::new(reversed).expect("any order is valid");
    let other = apply(&reversed, &intent, now).expect("any order is valid");
    assert_eq!((&other.derived, other.fingerprint), (&applied.derived, applied.fingerprint), "the order counts");

    let fields = applied.matched.iter().map(|(pointer, value)| (pointer.as_str(), value.as_ref()));
    assert_eq!(of_fields(fields), applied.fingerprint);
    without_what_is_left_out(&recipe, &intent, &applied, now);
});

fn apply(recipe: &Recipe, intent: &Value, now: i64) -> Result<Applied, onceward_core::recipe::Error> {
    let operation = Operation::new("charge").expect("this is a name");
    recipe.apply(&Session::default(), &operation, intent, Timestamp::from_millis(now))
}

/// Fields that the recipe does not use can be removed or changed.
fn without_what_is_left_out(recipe: &Recipe, intent: &Value, applied: &Applied, now: i64) {
    let Value::Object(members) = intent else { return };
    let is_left_out = |name: &String| applied.left_out.contains(name);
    let rest = members.iter().filter(|(name, _)| !is_left_out(name)).cloned();
    let reduced = Value::object(rest).expect("no name comes twice");
    let other = apply(recipe, &reduced, now).expect("what is left out is not needed");
    assert_eq!((&other.derived, other.fingerprint), (&applied.derived, applied.fingerprint));
    assert!(other.left_out.is_empty());
    let changed = members.iter().cloned().map(|(name, value)| match is_left_out(&name) {
        true => (name, Value::Array(vec![value])),
        false => (name, value),
    });
    let other = apply(recipe, &Value::object(changed).expect("no name comes twice"), now).expect("nothing is missing");
    assert_eq!((&other.derived, other.fingerprint), (&applied.derived, applied.fingerprint));
}
