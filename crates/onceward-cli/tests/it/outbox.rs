//! `onceward enqueue`, `requeue` and `cancel`, and how entries are shown.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::test_folder::{CommandOutput, TestFolder};

fn enqueue(folder: &TestFolder, flags: &[&str]) -> CommandOutput {
    folder.onceward(&[&["enqueue", "--operation", "mail"], flags].concat())
}

fn with_stdin(folder: &TestFolder, arguments: &[&str], input: &str) -> CommandOutput {
    let mut command = folder.command(arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // It may end before it has read everything.
    let writer = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    CommandOutput::of(output)
}

fn lines(output: &CommandOutput) -> Vec<Value> {
    output.out().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn get(folder: &TestFolder, key: &str, flags: &[&str]) -> Value {
    folder.json(&[&["get", "--operation", "mail", "--key", key, "--json"], flags].concat())
}

#[test]
fn an_entry_is_queued_once_and_another_payload_is_refused() {
    let folder = TestFolder::new();
    let first = enqueue(&folder, &["--key", "user-7", "--payload", r#"{"to":"ann","pin":"0815"}"#, "--json"]);
    first.says(0, &[]);
    let expected = json!({ "result": "enqueued", "operation": "mail", "key": "user-7", "state": "queued" });
    assert_eq!(lines(&first), [expected]);
    let again = enqueue(&folder, &["--key", "user-7", "--payload", r#"{"pin":"0815","to":"ann"}"#]);
    again.says(0, &[]);
    assert!(again.out().contains("was queued before and waits for delivery"), "{}", again.out());
    let other = enqueue(&folder, &["--key", "user-7", "--payload", r#"{"to":"bob"}"#]);
    other.says(65, &[]);
    assert!(other.out().contains("was recorded with another payload"), "{}", other.out());
    folder.write("payload.json", "[1, 2]");
    enqueue(&folder, &["--key", "file", "--payload", "@payload.json"]).says(0, &[]);
    let stdin = ["enqueue", "--operation", "mail", "--key", "stdin", "--payload", "-"];
    with_stdin(&folder, &stdin, "{\"a\": 1}").says(0, &[]);
    assert_eq!(get(&folder, "stdin", &["--show-payload"])["payload"]["text"], "{\"a\": 1}");
    assert!(!get(&folder, "user-7", &[]).to_string().contains("0815"));
    assert!(!folder.onceward(&["list"]).out().contains("0815"));
}

#[test]
fn the_recipe_derives_the_key() {
    let folder = TestFolder::new();
    folder.write("onceward.toml", "[operation.mail]\nkey = [\"/to\"]\nmatch = [\"/subject\"]\n");
    let key = |payload: &str| lines(&enqueue(&folder, &["--json", "--payload", payload]))[0].clone();
    let first = key(r#"{"to":"ann","subject":"a","memo":1}"#);
    assert_eq!(first["result"], "enqueued");
    let reworded = key(r#"{"to":"ann","subject":"a","memo":2}"#);
    assert_eq!((&reworded["result"], &reworded["key"]), (&json!("already_enqueued"), &first["key"]));
    assert_eq!(key(r#"{"to":"ann","subject":"b"}"#)["result"], "mismatch");
    enqueue(&folder, &["--payload", "{}"]).says(64, &["/to"]);
}

#[test]
fn mistakes_are_usage_errors_and_create_no_ledger() {
    let folder = TestFolder::new();
    let long = "k".repeat(256);
    for (flags, said) in [
        (vec!["--key", "k"], "--payload"),
        (vec!["--key", "k", "--payload", "{"], "invalid payload"),
        (vec!["--key", "", "--payload", "1"], "the key is empty"),
        (vec!["--key", &long, "--payload", "1"], "at most 255"),
        (vec!["--key", "k", "--payload", "@nothing"], "cannot read nothing"),
        (vec!["--key", "k", "--payload", "1", "--priority", "urgent"], "urgent"),
        (vec!["--key", "k", "--payload", "1", "--within", "0s"], "no attempt would be made"),
        (vec!["--key", "k", "--payload", "1", "--delay", "400d"], "at most 365 days"),
        (vec!["--batch", "--key", "k"], "cannot be used with"),
    ] {
        enqueue(&folder, &flags).says(64, &[said]);
    }
    folder.onceward(&["enqueue", "--payload", "1"]).says(64, &["--operation"]);
    assert_eq!(std::fs::read_dir(folder.path("")).unwrap().count(), 0);
}

#[test]
fn a_batch_answers_each_line_and_goes_on_where_it_stopped() {
    let folder = TestFolder::new();
    let campaign = |count: usize| -> String {
        (0..count).map(|n| format!("{{\"key\":\"user-{n}\",\"payload\":{{\"to\":{n}}}}}\n")).collect()
    };
    let batch = ["enqueue", "--operation", "mail", "--batch"];
    let half = with_stdin(&folder, &batch, &campaign(300));
    half.says(0, &[]);
    assert_eq!(lines(&half).iter().filter(|line| line["result"] == "enqueued").count(), 300);
    let all = with_stdin(&folder, &batch, &campaign(500));
    all.says(0, &[]);
    let answers = lines(&all);
    assert!(answers[..300].iter().all(|line| line["result"] == "already_enqueued" && line["state"] == "queued"));
    assert!(answers[300..].iter().all(|line| line["result"] == "enqueued"));
    assert!(answers.iter().zip(0..).all(|(line, n)| line["key"] == format!("user-{n}") && line["line"] == n + 1));
}

#[test]
fn a_wrong_line_of_a_batch_does_not_stop_the_others() {
    let folder = TestFolder::new();
    let input = [
        r#"{"key":"a","payload":1,"priority":"high","delay_ms":3600000,"deliver_within_ms":7200000,"keep_payload":true}"#,
        "",
        "not json, secret",
        r#"{"key":"b"}"#,
        r#"{"key":"c","payload":1,"colour":"secret"}"#,
        r#"{"key":{"secret":1},"payload":1}"#,
        r#"{"operation":"other","payload":{"a":1}}"#,
        r#"{"key":"a","payload":2}"#,
        r#"{"key":"d","payload":1,"delay_ms":-5}"#,
        &format!(r#"{{"key":"e","payload":"{}"}}"#, "x".repeat(1024 * 1024)),
        &"x".repeat(2 * 1024 * 1024),
        r#"{"key":"f","payload":1}"#,
    ]
    .join("\n");
    let answer = with_stdin(&folder, &["enqueue", "--operation", "mail", "--batch"], &input);
    answer.says(1, &["8 of 11 lines were refused"]);
    assert!(!answer.out().contains("secret") && !answer.stderr.contains("secret"), "{answer:?}");
    let results: Vec<String> = lines(&answer).iter().map(|line| line["result"].as_str().unwrap().to_owned()).collect();
    let expected =
        ["enqueued", "error", "error", "error", "error", "enqueued", "mismatch", "error", "error", "error", "enqueued"];
    assert_eq!(results, expected, "{}", answer.out());
    let entry = get(&folder, "a", &[]);
    assert_eq!(entry["entry"]["priority"], "high");
    assert_eq!(entry["entry"]["keeps_payload"], true);
    let none = with_stdin(&folder, &["enqueue", "--batch"], r#"{"key":"g","payload":1}"#);
    none.says(1, &[]);
    assert!(none.out().contains("--operation"), "{}", none.out());
}

#[test]
fn a_waiting_entry_is_cancelled_and_requeued_with_a_name_and_a_note() {
    let folder = TestFolder::new();
    enqueue(&folder, &["--key", "k", "--payload", "1"]).says(0, &[]);
    let one = ["--operation", "mail", "--key", "k", "--by", "ana", "--note", "wrong subject"];
    folder.onceward(&[&["requeue"], &one[..]].concat()).says(1, &["refused: mail#", "waits for delivery already"]);
    folder.onceward(&[&["cancel"], &one[..], &["--if-version", "7"]].concat()).says(1, &["has changed"]);
    let cancelled = folder.onceward(&[&["cancel"], &one[..]].concat());
    cancelled.says(0, &[]);
    assert!(cancelled.out().starts_with("cancelled mail#"), "{}", cancelled.out());
    folder.onceward(&[&["cancel"], &one[..]].concat()).says(1, &["is dead already"]);
    let dead = enqueue(&folder, &["--key", "k", "--payload", "1"]);
    dead.says(1, &[]);
    assert!(dead.out().contains("is dead and is not tried again"), "{}", dead.out());
    let shown = folder.onceward(&["get", "--operation", "mail", "--key", "k"]);
    assert!(shown.out().contains("onceward requeue --operation mail --key k"), "{}", shown.out());
    folder.onceward(&[&["requeue"], &one[..], &["--fresh-key"]].concat()).says(0, &[]);
    let entry = get(&folder, "k", &[]);
    assert_eq!(entry["state"], "queued");
    let trail: Vec<_> = entry["trail"].as_array().unwrap().iter().map(|event| event["what"].clone()).collect();
    assert_eq!(trail, ["cancelled", "requeued"]);
    assert_eq!(entry["trail"][0]["by"], "ana");
    let none = ["--operation", "mail", "--key", "none"];
    folder.onceward(&[&["requeue"], &none[..]].concat()).says(1, &["was not found", "onceward list"]);
}

#[test]
fn many_entries_are_changed_only_with_yes() {
    let folder = TestFolder::new();
    let input: String = (0..1200).map(|n| format!("{{\"key\":\"k{n}\",\"payload\":{n}}}\n")).collect();
    with_stdin(&folder, &["enqueue", "--operation", "mail", "--batch"], &input).says(0, &[]);
    folder.onceward(&["enqueue", "--operation", "other", "--key", "k", "--payload", "1"]).says(0, &[]);
    let cancel = |flags: &[&str]| folder.onceward(&[&["cancel", "--operation", "mail"], flags].concat());
    cancel(&["--state", "queued"]).says(64, &["1200 entries would be cancelled", "--yes", "--dry-run"]);
    let dry = cancel(&["--state", "queued", "--dry-run"]);
    dry.says(0, &["1200 entries would be cancelled; nothing was changed"]);
    assert_eq!(dry.out().lines().filter(|line| line.starts_with("would cancel mail#")).count(), 1200);
    cancel(&["--state", "queued", "--older-than", "1h", "--yes"]).says(1, &["0 entries cancelled"]);
    cancel(&["--state", "dead", "--yes"]).says(64, &["for entries that are queued"]);
    let done = cancel(&["--state", "queued", "--yes", "--json"]);
    done.says(0, &["1200 entries cancelled."]);
    assert!(lines(&done).iter().all(|line| line["result"] == "cancelled" && line["tenant"] == "default"));
    assert_eq!(get(&folder, "k7", &[])["state"], "dead");
    let left = folder.json(&["list", "--state", "queued", "--json"]);
    assert_eq!(left["intents"].as_array().unwrap().len(), 1);
    folder.onceward(&["requeue", "--state", "dead", "--yes"]).says(0, &["1200 entries requeued."]);
    folder.onceward(&["requeue", "--state", "dead", "--yes"]).says(1, &["0 entries requeued"]);
    folder.onceward(&["requeue"]).says(64, &["--operation"]);
    folder.onceward(&["requeue", "--operation", "mail", "--key", "k", "--yes"]).says(64, &["cannot be used with"]);
}

#[test]
fn the_list_shows_what_needs_attention() {
    let folder = TestFolder::new();
    enqueue(&folder, &["--key", "prompt", "--payload", "1"]).says(0, &[]);
    enqueue(&folder, &["--key", "later", "--payload", "1", "--delay", "2h"]).says(0, &[]);
    enqueue(&folder, &["--key", "stopped", "--payload", "1"]).says(0, &[]);
    folder.onceward(&["cancel", "--operation", "mail", "--key", "stopped"]).says(0, &[]);
    let list = folder.onceward(&["list"]);
    let line = |key: &str| {
        let found = list.out().lines().find(|line| line.contains(&format!(" {key} ")));
        found.unwrap_or_else(|| panic!("{key}: {}", list.out())).to_owned()
    };
    assert!(line("prompt").ends_with("due now"), "{}", line("prompt"));
    assert!(line("later").ends_with("due in 1h") || line("later").ends_with("due in 2h"), "{}", line("later"));
    assert!(line("stopped").contains("an operator cancelled it"), "{}", line("stopped"));
}

#[test]
fn the_quota_and_a_ledger_that_cannot_be_used_have_their_own_exit_codes() {
    let folder = TestFolder::new();
    folder.write("onceward.toml", "[limits]\nrecords_per_tenant = 1\n");
    enqueue(&folder, &["--key", "a", "--payload", "1"]).says(0, &[]);
    enqueue(&folder, &["--key", "b", "--payload", "1"]).says(75, &["quota"]);
    let input = "{\"key\":\"a\",\"payload\":1}\n{\"key\":\"b\",\"payload\":1}\n";
    let cut = with_stdin(&folder, &["enqueue", "--operation", "mail", "--batch"], input);
    cut.says(75, &["quota", "1 lines were answered", "Send the whole batch again"]);
    folder.write("broken.db", "this is not a ledger, and long enough to be read as one");
    enqueue(&folder, &["--store", "broken.db", "--key", "a", "--payload", "1"]).says(69, &[]);
}

#[test]
fn a_settled_doubt_says_what_happens_next() {
    let folder = TestFolder::new();
    enqueue(&folder, &["--key", "k", "--payload", "1"]).says(0, &[]);
    let happened = ["resolve", "--operation", "mail", "--key", "k", "--happened", "--value", "1"];
    let settled = folder.onceward(&happened);
    settled.says(0, &[]);
    assert!(settled.out().contains("was queued and is now done: repeats get the outcome"), "{}", settled.out());
    enqueue(&folder, &["--key", "k", "--payload", "1"]).says(0, &[]);
}
