//! `onceward rerun`: a finished entry is delivered once more, on purpose, and only then.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::test_folder::{CommandOutput, TestFolder};

const PAYLOAD: &str = r#"{"to":"ann"}"#;

/// A folder in which letters are delivered to a command, which writes each with its downstream key to the file `sent`.
fn folder(more: &str) -> TestFolder {
    let folder = TestFolder::new();
    let script = "cat >> sent; echo \" $ONCEWARD_KEY\" >> sent";
    // One at a time: letters that are written at once would be one line.
    let sink = format!("type = \"command\"\nconcurrency = 1\ncommand = [\"sh\", \"-c\", {script:?}]");
    folder.write(
        "onceward.toml",
        &format!("store = \"ledger.db\"\n[operation.mail]\nsink = \"post\"\n[sink.post]\n{sink}\n{more}"),
    );
    folder
}

fn enqueue(folder: &TestFolder, key: &str, flags: &[&str]) {
    let arguments = ["enqueue", "--operation", "mail", "--key", key, "--payload", PAYLOAD];
    folder.onceward(&[&arguments, flags].concat()).says(0, &[]);
}

fn deliver(folder: &TestFolder) {
    folder.onceward(&["courier", "--until-idle"]).says(0, &[]);
}

fn arguments<'a>(key: &'a str, flags: &[&'a str]) -> Vec<&'a str> {
    [&["rerun", "--operation", "mail", "--key", key, "--why", "she lost it", "--by", "ana"], flags].concat()
}

fn rerun(folder: &TestFolder, key: &str, flags: &[&str]) -> CommandOutput {
    folder.onceward(&arguments(key, flags))
}

fn as_json(output: &CommandOutput) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

fn get(folder: &TestFolder, key: &str) -> Value {
    folder.json(&["get", "--operation", "mail", "--key", key, "--json"])
}

/// The downstream keys of all effects.
fn effects(folder: &TestFolder) -> Vec<String> {
    let sent = folder.read("sent");
    sent.lines().map(|line| line.strip_prefix(PAYLOAD).unwrap().trim().to_owned()).collect()
}

#[test]
fn a_rerun_has_one_more_effect_with_another_downstream_key_however_often_it_is_asked_for() {
    let folder = folder("");
    enqueue(&folder, "user-7", &[]);
    deliver(&folder);
    deliver(&folder);
    assert_eq!(effects(&folder).len(), 1);
    let first = rerun(&folder, "user-7", &["--payload", PAYLOAD]);
    first.says(0, &[]);
    assert!(first.out().contains("runs again: run 2 is queued, with the key rerun_v1_"), "{}", first.out());
    let again = rerun(&folder, "user-7", &["--payload", PAYLOAD]);
    again.says(0, &[]);
    assert!(again.out().contains("waits for delivery; nothing was queued"), "{}", again.out());
    deliver(&folder);
    let report = as_json(&rerun(&folder, "user-7", &["--payload", PAYLOAD, "--json"]));
    let key = report["key"].as_str().unwrap();
    let expected = json!({ "result": "already_enqueued", "operation": "mail", "key": key, "run": 2, "state": "done", "of": "user-7" });
    assert_eq!(report, expected);
    deliver(&folder);
    let keys = effects(&folder);
    assert_eq!(keys.len(), 2, "{keys:?}");
    assert_ne!(keys[0], keys[1], "the provider acts again");
    assert_eq!(folder.json(&["list", "--json"])["intents"].as_array().unwrap().len(), 2);

    // The way to a third run is named, and is a decision of its own.
    let advice = rerun(&folder, "user-7", &["--payload", PAYLOAD]);
    assert!(
        advice.out().contains(&format!("rerun --store ledger.db --operation mail --key {key} --why TEXT")),
        "{advice:?}"
    );
    let third = as_json(&rerun(&folder, key, &["--payload", PAYLOAD, "--json"]));
    assert_eq!((&third["result"], &third["run"]), (&json!("enqueued"), &json!(3)));
    deliver(&folder);
    assert_eq!(effects(&folder).len(), 3);
}

#[test]
fn both_runs_name_each_other_and_the_audit_trail_says_why() {
    let folder = folder("");
    enqueue(&folder, "ann@example.com", &["--priority", "high"]);
    deliver(&folder);
    let report = as_json(&rerun(&folder, "ann@example.com", &["--payload", PAYLOAD, "--json"]));
    let key = report["key"].as_str().unwrap();
    assert!(!report.to_string().contains("ann@example.com"), "{report}");
    let new = get(&folder, key);
    assert_eq!(new["entry"]["priority"], "high");
    assert_eq!(new["entry"]["rerun"]["run"], 2);
    assert!(!new.to_string().contains("ann@example.com"), "the key is masked: {new}");
    let shown = folder.json(&["get", "--operation", "mail", "--key", key, "--json", "--show-keys"]);
    assert_eq!(shown["entry"]["rerun"]["of"], "ann@example.com");
    let old = get(&folder, "ann@example.com");
    for (intent, names) in [(&old, key), (&new, "run 2 of mail#")] {
        let trail = intent["trail"].as_array().unwrap();
        assert_eq!(trail.len(), 1, "{intent:#}");
        assert_eq!((&trail[0]["what"], &trail[0]["by"]), (&json!("rerun"), &json!("ana")));
        let note = trail[0]["note"].as_str().unwrap();
        assert!(note.contains(names) && note.ends_with(": she lost it"), "{note}");
    }
    let list = folder.onceward(&["list", "--show-keys"]);
    assert!(list.out().contains("run 2 of ann@example.com: due now"), "{}", list.out());
}

#[test]
fn two_processes_at_once_queue_one_run() {
    let folder = folder("");
    enqueue(&folder, "k", &[]);
    deliver(&folder);
    let children: Vec<_> = (0..6)
        .map(|_| {
            let mut command = folder.command(&arguments("k", &["--payload", PAYLOAD, "--json"]));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let outputs: Vec<_> =
        children.into_iter().map(|child| CommandOutput::of(child.wait_with_output().unwrap())).collect();
    let reports: Vec<_> = outputs.iter().map(as_json).collect();
    assert!(reports.iter().all(|report| report["key"] == reports[0]["key"] && report["run"] == 2), "{reports:#?}");
    assert_eq!(reports.iter().filter(|report| report["result"] == "enqueued").count(), 1, "{reports:#?}");
    deliver(&folder);
    assert_eq!(effects(&folder).len(), 2);
    assert_eq!(get(&folder, "k")["trail"].as_array().unwrap().len(), 1);
}

#[test]
fn a_wrong_or_missing_payload_is_refused_and_a_kept_one_is_enough() {
    let folder = folder("");
    enqueue(&folder, "k", &[]);
    enqueue(&folder, "kept", &["--keep-payload"]);
    deliver(&folder);
    rerun(&folder, "k", &[]).says(1, &["its payload was erased after delivery", "--payload"]);
    rerun(&folder, "k", &["--payload", r#"{"to":"bob"}"#]).says(65, &["was queued with another payload"]);
    rerun(&folder, "kept", &["--payload", "1"]).says(65, &["was queued with another payload"]);
    let refused = rerun(&folder, "k", &["--payload", "1", "--json"]);
    let expected = json!({ "result": "refused", "operation": "mail", "key": "k", "reason": "mismatch", "state": null });
    assert_eq!(as_json(&refused), expected);
    rerun(&folder, "kept", &[]).says(0, &[]);
    deliver(&folder);
    assert_eq!(effects(&folder).len(), 3);
}

#[test]
fn each_state_is_refused_with_the_command_that_helps() {
    let folder = folder("");
    let payload = ["--payload", PAYLOAD];
    enqueue(&folder, "k", &[]);
    rerun(&folder, "none", &payload).says(1, &["there is no such intent", "onceward list"]);
    rerun(&folder, "k", &payload).says(1, &["waits for delivery", "onceward get"]);
    folder.onceward(&["cancel", "--operation", "mail", "--key", "k"]).says(0, &[]);
    rerun(&folder, "k", &payload)
        .says(1, &["it is dead", "onceward requeue --store ledger.db --operation mail --key k"]);
    folder.onceward(&["run", "--operation", "mail", "--key", "direct", "--", "true"]).says(0, &[]);
    rerun(&folder, "direct", &payload).says(1, &["done by a direct call", "new key of your own"]);
    folder.onceward(&["run", "--operation", "mail", "--key", "doubt", "--", "sh", "-c", "kill -9 $$"]);
    rerun(&folder, "doubt", &payload).says(76, &["in doubt", "onceward resolve", "--did-not-happen"]);
    rerun(&folder, "doubt", &["--payload", "1", "--json"]).says(76, &[]);
    assert!(effects(&folder).is_empty());
}

#[test]
fn a_running_entry_is_waited_for_and_a_doubtful_new_run_is_settled() {
    let folder = folder("");
    // It runs until the test lets it end. The second time it is killed, so that it may have acted.
    let script = "echo started > started; until test -e end; do sleep 0.02; done; . ./ending";
    let config = folder.read("onceward.toml").replace("cat >> sent; echo \\\" $ONCEWARD_KEY\\\" >> sent", script);
    folder.write("onceward.toml", &config);
    folder.write("ending", "exit 0");
    enqueue(&folder, "k", &[]);
    let mut courier = folder.command(&["courier", "--until-idle"]);
    let mut courier = courier.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    folder.wait_for_file("started");
    rerun(&folder, "k", &["--payload", PAYLOAD]).says(1, &["it is being done; wait for its end"]);
    folder.write("end", "");
    courier.wait().unwrap();
    rerun(&folder, "k", &["--payload", PAYLOAD]).says(0, &[]);
    folder.write("ending", "kill -9 $$");
    deliver(&folder);
    let report = rerun(&folder, "k", &["--payload", PAYLOAD]);
    report.says(76, &[]);
    assert!(report.out().contains("is in doubt") && report.out().contains("onceward resolve"), "{report:?}");
    let key = as_json(&rerun(&folder, "k", &["--payload", PAYLOAD, "--json"]))["key"].as_str().unwrap().to_owned();
    rerun(&folder, &key, &["--payload", PAYLOAD]).says(76, &["onceward resolve"]);
    folder.onceward(&["resolve", "--operation", "mail", "--key", &key, "--happened"]).says(0, &[]);
    let report = rerun(&folder, "k", &["--payload", PAYLOAD]);
    report.says(0, &[]);
    assert!(report.out().contains("is done; nothing was queued"), "{report:?}");
}

#[test]
fn mistakes_are_usage_errors_and_create_no_ledger() {
    let folder = TestFolder::new();
    let long = "w".repeat(1001);
    for (arguments, said) in [
        (vec!["--operation", "mail", "--key", "k"], "--why"),
        (vec!["--operation", "mail", "--why", "w"], "--key"),
        (vec!["--operation", "mail", "--key", "k", "--why", " "], "1 to 1000 characters"),
        (vec!["--operation", "mail", "--key", "k", "--why", &long], "1 to 1000 characters"),
        (vec!["--operation", "mail", "--key", "", "--why", "w"], "the key is empty"),
        (vec!["--operation", "mail", "--key", "k", "--why", "w", "--payload", "@nothing"], "cannot read nothing"),
    ] {
        folder.onceward(&[&["rerun"], &arguments[..]].concat()).says(64, &[said]);
    }
    folder.onceward(&["rerun", "--operation", "mail", "--key", "k", "--why", "w"]).says(69, &["no ledger at"]);
    assert_eq!(std::fs::read_dir(folder.path("")).unwrap().count(), 0);
}

#[test]
fn the_recipe_and_a_named_store_count_as_when_it_was_queued() {
    let folder = folder("[stores.fast]\nurl = \"fast.db\"\n");
    let config = folder.read("onceward.toml");
    let mail = "[operation.mail]\nkey = [\"/to\"]\nmatch = [\"/subject\"]\nstore = \"fast\"\n";
    folder.write("onceward.toml", &config.replace("[operation.mail]\n", mail));
    let first = r#"{"to":"ann","subject":"a","memo":1}"#;
    let queued = folder.onceward(&["enqueue", "--operation", "mail", "--session", "s", "--payload", first, "--json"]);
    let key = as_json(&queued)["key"].as_str().unwrap().to_owned();
    deliver(&folder);
    let reworded = r#"{"to":"ann","subject":"a","memo":2}"#;
    rerun(&folder, &key, &["--payload", reworded]).says(65, &["--session"]);
    let other = r#"{"to":"ann","subject":"b","memo":1}"#;
    rerun(&folder, &key, &["--session", "s", "--payload", other]).says(65, &["another payload"]);
    rerun(&folder, &key, &["--session", "s", "--payload", reworded]).says(0, &[]);
    deliver(&folder);
    let sent = folder.read("sent");
    assert!(sent.lines().last().unwrap().starts_with(reworded), "{sent}");
    folder.write("none.toml", "");
    let elsewhere = folder.onceward(&["list", "--config", "none.toml", "--store", "ledger.db"]);
    assert_eq!(elsewhere.out(), "no intents\n");
}
