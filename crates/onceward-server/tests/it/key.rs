//! `key`: derived and explained.

use crate::place::Place;

const RECIPE: &str = "[operation.charge]\nkey = [\"/customer\", \"/invoice\"]\nmatch = [\"/amount\"]\nnormalise = [\"trim\"]\n\
                      window = { of = \"/at\", every = \"day\", zone = \"Europe/Berlin\" }\n";
const INTENT: &str = r#"{"memo":"x","amount":10,"customer":" c7 ","invoice":42,"at":"2026-11-15T23:30:00Z"}"#;

#[test]
fn a_key_is_explained_field_by_field() {
    let place = Place::new();
    place.write("onceward.toml", RECIPE);
    let answer = place.onceward(&["key", "--operation", "charge", "--intent", INTENT]);
    answer.says(0, &[]);
    for line in [
        "key           idem_v1_",
        "in logs       charge#",
        "ONCEWARD_KEY  once_v1_",
        r#"hashed        {"/customer":"c7","/invoice":42,"window":"2026-11-16"}"#,
        "identity      /customer, /invoice",
        "must match    /amount = 10",
        "left out      memo",
        "window        2026-11-16 (every day of /at, Europe/Berlin)",
    ] {
        assert!(answer.out().contains(line), "{line:?} is not in:\n{}", answer.out());
    }
    assert!(!place.path("onceward.db").exists());
}

#[test]
fn it_is_the_key_that_run_uses() {
    let place = Place::new();
    place.write("onceward.toml", RECIPE);
    let key = place.json(&["key", "--operation", "charge", "--intent", INTENT, "--json"]);
    let run =
        place.onceward(&["run", "--operation", "charge", "--intent", INTENT, "--", "sh", "-c", "echo $ONCEWARD_KEY"]);
    assert_eq!(run.out().trim(), key["downstream_key"]);
    let listed = place.json(&["list", "--json"]);
    assert_eq!(listed["intents"][0]["key"], key["key"]);
    assert_eq!(key["must_match"]["/amount"], 10);
    assert!(key["digest"].as_str().unwrap().starts_with(&key["key"].as_str().unwrap()["idem_v1_".len()..]));
}

#[test]
fn without_a_recipe_all_of_the_intent_counts() {
    let place = Place::new();
    let key = |session: &str| {
        place.json(&["key", "--operation", "op", "--intent", r#"{"b":1,"a":2}"#, "--session", session, "--json"])
    };
    assert_eq!(key("s")["hashed"], r#"{"a":2,"b":1}"#);
    assert_ne!(key("s")["key"], key("t")["key"]);
}

#[test]
fn refusals_say_what_is_wrong() {
    let place = Place::new();
    place.write("onceward.toml", RECIPE);
    place
        .onceward(&["key", "--operation", "charge", "--intent", "{"])
        .says(64, &["the intent is refused: bad JSON at byte 1"]);
    place.onceward(&["key", "--operation", "", "--intent", "1"]).says(64, &["the operation is empty"]);
    let missing = place.onceward(&["key", "--operation", "charge", "--intent", r#"{"at":"2026-11-15"}"#]);
    missing.says(64, &["the recipe of charge cannot be applied: the intent has no \"/customer\""]);
}
