//! `key`: derives and explains a key.

use crate::test_folder::TestFolder;

const RECIPE: &str = "[operation.charge]\nkey = [\"/customer\", \"/invoice\"]\nmatch = [\"/amount\"]\nnormalise = [\"trim\"]\n\
                      window = { of = \"/at\", every = \"day\", zone = \"Europe/Berlin\" }\n";
const INTENT: &str = r#"{"memo":"x","amount":10,"customer":" c7 ","invoice":42,"at":"2026-11-15T23:30:00Z"}"#;

#[test]
fn a_key_is_explained_field_by_field() {
    let folder = TestFolder::new();
    folder.write("onceward.toml", RECIPE);
    let answer = folder.onceward(&["key", "--operation", "charge", "--intent", INTENT]);
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
    assert!(!folder.path("onceward.db").exists());
}

#[test]
fn run_uses_the_same_key() {
    let folder = TestFolder::new();
    folder.write("onceward.toml", RECIPE);
    let key = folder.json(&["key", "--operation", "charge", "--intent", INTENT, "--json"]);
    let run =
        folder.onceward(&["run", "--operation", "charge", "--intent", INTENT, "--", "sh", "-c", "echo $ONCEWARD_KEY"]);
    assert_eq!(run.out().trim(), key["downstream_key"]);
    let listed = folder.json(&["list", "--json"]);
    assert_eq!(listed["intents"][0]["key"], key["key"]);
    assert_eq!(key["must_match"]["/amount"], 10);
    assert!(key["digest"].as_str().unwrap().starts_with(&key["key"].as_str().unwrap()["idem_v1_".len()..]));
}

#[test]
fn without_a_recipe_the_whole_intent_counts() {
    let folder = TestFolder::new();
    let key = |session: &str| {
        folder.json(&["key", "--operation", "op", "--intent", r#"{"b":1,"a":2}"#, "--session", session, "--json"])
    };
    assert_eq!(key("s")["hashed"], r#"{"a":2,"b":1}"#);
    assert_ne!(key("s")["key"], key("t")["key"]);
}

#[test]
fn errors_say_what_is_wrong() {
    let folder = TestFolder::new();
    folder.write("onceward.toml", RECIPE);
    folder
        .onceward(&["key", "--operation", "charge", "--intent", "{"])
        .says(64, &["invalid intent: bad JSON at byte 1"]);
    folder.onceward(&["key", "--operation", "", "--intent", "1"]).says(64, &["the operation is empty"]);
    let missing = folder.onceward(&["key", "--operation", "charge", "--intent", r#"{"at":"2026-11-15"}"#]);
    missing.says(64, &["cannot apply the recipe of charge: the intent has no \"/customer\""]);
}

#[test]
fn volatile_fields_cause_a_warning_and_the_exit_code_stays() {
    let folder = TestFolder::new();
    folder.write("onceward.toml", RECIPE);
    let key = |operation: &str, intent: &str| folder.onceward(&["key", "--operation", operation, "--intent", intent]);
    let warned = key("op", r#"{"a":1,"timestamp":3}"#);
    warned.says(0, &["warning", "/timestamp", "no recipe"]);
    key("op", r#"{"a":1,"date":"2026-11-15"}"#).says(0, &[]);
    assert_eq!(key("op", r#"{"a":1}"#).stderr, "");
    // A recipe leaves it out.
    assert_eq!(key("charge", &INTENT.replace("memo", "timestamp")).stderr, "");
    let run = |flags: &[&str]| folder.onceward(&[&["run", "--operation", "op"], flags, &["--", "true"]].concat());
    run(&["--intent", r#"{"a":1,"nonce":3}"#]).says(0, &["/nonce"]);
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    for time in [now.as_secs().to_string(), now.as_millis().to_string(), "2026-11-15T08:00:00Z".to_owned()] {
        run(&["--key", &time]).says(0, &["looks like a time"]);
    }
    run(&["--key", "+49 30 1234567"]).says(0, &["looks like a phone number"]);
    for quiet in [&["--key", "2026-11-15"][..], &["--key", "invoice-42"], &["--quiet", "--key", "1763190000"]] {
        assert_eq!(run(quiet).stderr, "", "{quiet:?}");
    }
}
