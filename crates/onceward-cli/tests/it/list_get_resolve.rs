//! Reading a ledger, settling doubts, and freeing expired records.

use crate::test_folder::{CommandOutput, TestFolder};

/// A ledger with an intent that is done, one that is open, one in doubt, and one of another tenant.
fn ledger() -> TestFolder {
    let folder = TestFolder::new();
    folder.run(&["--key", "done"], "echo secret output").says(0, &[]);
    folder.run(&["--key", "open"], "exit 3").says(3, &[]);
    folder.run(&["--key", "doubt"], "exit 137").says(137, &[]);
    folder.run(&["--key", "theirs", "--tenant", "acme"], "true").says(0, &[]);
    folder
}

fn resolve(folder: &TestFolder, key: &str, flags: &[&str]) -> CommandOutput {
    folder.onceward(&[&["resolve", "--operation", "op", "--key", key], flags].concat())
}

#[test]
fn a_list_is_an_aligned_table_with_the_newest_first() {
    let answer = ledger().onceward(&["list"]);
    answer.says(0, &[]);
    let lines: Vec<_> = answer.out().lines().collect();
    assert_eq!(lines.len(), 5, "{}", answer.out());
    let column = lines[0].find("KEY").unwrap();
    let keys: Vec<_> = lines[1..].iter().map(|line| line[column..].split_whitespace().next().unwrap()).collect();
    assert_eq!(keys, ["theirs", "doubt", "open", "done"]);
    assert!(lines[2].starts_with("in_doubt  default"), "{}", lines[2]);
    assert!(!answer.out().contains("secret"));
}

#[test]
fn lists_are_filtered_and_paged() {
    let folder = ledger();
    let keys = |flags: &[&str]| -> Vec<String> {
        let list = folder.json(&[&["list", "--json"], flags].concat());
        list["intents"].as_array().unwrap().iter().map(|intent| intent["key"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(keys(&["--state", "in_doubt"]), ["doubt"]);
    assert_eq!(keys(&["--state", "in-doubt,open"]), ["doubt", "open"]);
    assert_eq!(keys(&["--tenant", "acme"]), ["theirs"]);
    assert_eq!(keys(&["--operation", "other"]), [""; 0]);
    assert_eq!(keys(&["--older-than", "1h"]), [""; 0]);
    assert_eq!(keys(&["--newer-than", "1h"]).len(), 4);
    let first = folder.json(&["list", "--json", "--limit", "3"]);
    let next = first["next"].as_str().unwrap().to_owned();
    assert_eq!(keys(&["--limit", "3", "--cursor", &next]), ["done"]);
    let footer = folder.onceward(&["list", "--limit", "3"]);
    assert!(footer.out().ends_with(&format!("There are more: add --cursor {next}\n")), "{}", footer.out());
    assert_eq!(folder.json(&["list", "--json"])["next"], serde_json::Value::Null);
    folder
        .onceward(&["list", "--state", "doubtful"])
        .says(64, &["known states are queued, running, open, in_doubt, done"]);
    assert_eq!(folder.onceward(&["list", "--operation", "other"]).out(), "no intents\n");
}

#[test]
fn get_shows_one_intent_of_one_tenant() {
    let folder = ledger();
    let get = |flags: &[&str]| folder.onceward(&[&["get", "--operation", "op"], flags].concat());
    let doubt = get(&["--key", "doubt"]);
    doubt.says(0, &[]);
    for text in
        ["state           in_doubt", "exit code 137", "onceward resolve --operation op --key doubt --did-not-happen"]
    {
        assert!(doubt.out().contains(text), "{}", doubt.out());
    }
    let done = get(&["--key", "done"]);
    assert!(done.out().contains("success, exit code 0") && !done.out().contains("secret"), "{}", done.out());
    get(&["--key", "theirs"]).says(1, &["op#", "not found in onceward.db"]);
    get(&["--key", "theirs", "--tenant", "acme"]).says(0, &[]);
    let json = folder.json(&["get", "--operation", "op", "--key", "done", "--json"]);
    assert_eq!(json["outcome"]["stdout"]["text"], "secret output\n");
    assert_eq!(json["state"], "done");
}

#[test]
fn a_doubt_is_settled_with_a_name_and_a_note() {
    let folder = ledger();
    let flags = ["--happened", "--stdout", "receipt 17", "--by", "alice", "--note", "seen in the books", "--json"];
    let settled = resolve(&folder, "doubt", &flags);
    settled.says(0, &[]);
    let settled: serde_json::Value = serde_json::from_slice(&settled.stdout).unwrap();
    assert_eq!((&settled["was"]["state"], &settled["is"]["state"]), (&"in_doubt".into(), &"done".into()));
    let intent = folder.json(&["get", "--operation", "op", "--key", "doubt", "--json"]);
    assert_eq!(intent["trail"][0]["by"], "alice");
    assert_eq!(intent["trail"][0]["note"], "seen in the books");
    assert_eq!(intent["trail"][0]["what"], "resolved_happened");
}

#[test]
fn the_current_user_decides_unless_another_name_is_given() {
    let folder = ledger();
    let arguments = ["resolve", "--operation", "op", "--key", "doubt", "--did-not-happen"];
    let answer = CommandOutput::of(folder.command(&arguments).env("USER", "bob").output().unwrap());
    assert!(answer.out().contains("was in_doubt and is now open: the next run may try again"), "{answer:?}");
    let intent = folder.json(&["get", "--operation", "op", "--key", "doubt", "--json"]);
    assert_eq!(intent["trail"][0]["by"], "bob");
}

#[test]
fn a_refused_resolve_says_why() {
    let folder = ledger();
    resolve(&folder, "nothing", &["--happened"]).says(1, &["refused: op#", "not found", "`onceward list`"]);
    resolve(&folder, "done", &["--happened"]).says(1, &["is done: there is nothing to settle"]);
    resolve(&folder, "open", &["--did-not-happen"]).says(1, &["is open: nothing is in doubt"]);
    resolve(&folder, "doubt", &["--happened", "--if-version", "1"]).says(1, &["has changed since you looked at it"]);
    resolve(&folder, "doubt", &["--happened", "--if-version", "2"]).says(0, &[]);
    resolve(&folder, "doubt", &[]).says(64, &["--happened"]);
    resolve(&folder, "doubt", &["--happened", "--did-not-happen"]).says(64, &["cannot be used with"]);
    resolve(&folder, "open", &["--did-not-happen", "--stdout", "x"]).says(64, &["cannot be used with"]);
    resolve(&folder, "open", &["--happened", "--value", "{"]).says(64, &["invalid --value: bad JSON"]);
    let mut running =
        folder.start(&["--key", "running"], "touch started; echo > pid; until [ -e go ]; do sleep 0.02; done");
    folder.wait_for_file("pid");
    resolve(&folder, "running", &["--did-not-happen"]).says(1, &["refused: op#", "is running; it can be settled"]);
    folder.write("go", "");
    assert!(running.wait().unwrap().success());
}

#[test]
fn reading_never_creates_a_ledger() {
    let folder = TestFolder::new();
    let named = ["--operation", "op", "--key", "k"];
    for arguments in [
        vec!["list"],
        vec!["purge"],
        [&["get"], &named[..]].concat(),
        [&["resolve", "--happened"], &named[..]].concat(),
    ] {
        let said = ["no ledger at onceward.db; nothing was done", "--store, ONCEWARD_STORE"];
        folder.onceward(&arguments).says(69, &said);
    }
    assert_eq!(std::fs::read_dir(folder.path("")).unwrap().count(), 0);
}

#[test]
fn purge_frees_expired_records_and_nothing_else() {
    let folder = ledger();
    folder.write("onceward.toml", "[operation.op]\nretention = \"1ms\"\ntombstone = \"0s\"\n");
    folder.run(&["--key", "short"], "true").says(0, &[]);
    std::thread::sleep(std::time::Duration::from_millis(5));
    let purged = folder.json(&["purge", "--json"]);
    assert_eq!(purged["tombstones"].as_u64().unwrap() + purged["removed"].as_u64().unwrap(), 1, "{purged}");
    assert_eq!(
        folder.onceward(&["purge"]).out(),
        "0 outcomes dropped (their keys are still held), 0 records removed\n"
    );
    assert_eq!(folder.json(&["list", "--json"])["intents"].as_array().unwrap().len(), 4);
}

#[test]
fn completions_are_printed_for_every_shell() {
    let folder = TestFolder::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(folder.onceward(&["completions", shell]).out().contains("onceward"));
    }
}

#[test]
fn a_typo_does_not_use_up_a_key() {
    let folder = TestFolder::new();
    assert_eq!(folder.run(&["--key", "k"], "exit 1").code, 1);
    let other = folder.run(&["--key", "k"], "echo as meant");
    assert_eq!(other.code, 65);
    assert!(other.stderr.contains("`onceward resolve --reset` frees the key"), "{}", other.stderr);
    let reset = folder.onceward(&["resolve", "--operation", "op", "--key", "k", "--reset"]);
    assert_eq!((reset.code, reset.stderr.as_str()), (0, ""));
    assert!(String::from_utf8_lossy(&reset.stdout).contains("was open and is now open: its key may be used"));
    assert_eq!(folder.run(&["--key", "k"], "echo as meant").code, 0);
    let done = folder.onceward(&["resolve", "--operation", "op", "--key", "k", "--reset"]);
    assert_eq!(done.code, 1, "a finished intent cannot be reset");
    let trail = folder.json(&["get", "--operation", "op", "--key", "k", "--json"]);
    assert_eq!(trail["trail"][0]["what"], "resolved_reset", "the trail records the reset");
}

/// A ledger with a stream whose second item is in doubt, as a program leaves it.
fn stream() -> TestFolder {
    let folder = TestFolder::new();
    let ledger = onceward::blocking::Ledger::open(folder.path("onceward.db").to_str().unwrap()).unwrap();
    let item = |number| ledger.operation("op").item("s", number);
    item(1).run(|_| Ok("one".to_owned())).unwrap();
    item(2).run(|_| Err::<u32, _>(onceward::Failure::unknown("time-out"))).unwrap_err();
    folder
}

#[test]
fn items_of_a_stream_are_shown_with_their_numbers() {
    let folder = stream();
    let list = folder.json(&["list", "--json"]);
    let shown: Vec<_> =
        list["intents"].as_array().unwrap().iter().map(|intent| (&intent["key"], &intent["sequence"])).collect();
    assert_eq!(shown, [(&"s/1".into(), &1.into()), (&"s/head".into(), &2.into())]);
    let head = folder.onceward(&["get", "--operation", "op", "--key", "s/head"]);
    assert!(head.out().contains("item            2"), "{}", head.out());
    let other = ledger().json(&["get", "--operation", "op", "--key", "done", "--json"]);
    assert_eq!(other["sequence"], serde_json::Value::Null);
}

#[test]
fn an_item_in_doubt_is_settled_on_the_head_of_its_stream() {
    let folder = stream();
    folder.run(&["--key", "s/head"], "true").says(65, &["belongs to a stream"]);
    resolve(&folder, "s/1", &["--did-not-happen"]).says(1, &["is done: there is nothing to settle"]);
    resolve(&folder, "s/head", &["--happened", "--value", "2"]).says(0, &[]);
    let head = folder.json(&["get", "--operation", "op", "--key", "s/head", "--json"]);
    assert_eq!((&head["state"], &head["trail"][0]["note"]), (&"done".into(), &"item 2".into()));
    let ledger = onceward::blocking::Ledger::open(folder.path("onceward.db").to_str().unwrap()).unwrap();
    let item = |number| ledger.operation("op").item("s", number);
    assert_eq!(item(3).run(|_| Ok(3)).unwrap().value, 3);
    assert_eq!(item(2).run(|_| Ok(0)).unwrap().value, 2);
}

#[test]
fn keys_that_look_like_personal_data_are_masked_unless_requested() {
    let folder = TestFolder::new();
    let key = "welcome:ann@example.com";
    let run = folder.onceward(&["run", "--operation", "op", "--key", key, "--on-error", "doubt", "--", "false"]);
    assert!(run.stderr.contains("the key looks like an e-mail address"), "{}", run.stderr);
    let name = ["--operation", "op", "--key", key];
    let looks: [&[&str]; 4] = [&["list"], &["list", "--json"], &["get"], &["get", "--json"]];
    let answer = |look: &[&str], flags: &[&str]| {
        let name: &[&str] = if look[0] == "list" { &[] } else { &name };
        folder.onceward(&[look, name, flags].concat()).out().to_owned()
    };
    for look in looks {
        let shown = answer(look, &[]);
        assert!(!shown.contains("ann@") && shown.contains("[email "), "{look:?}: {shown}");
        let shown = answer(look, &["--show-keys"]);
        assert!(shown.contains(key), "{look:?}: {shown}");
    }
    let listed = folder.json(&["list", "--json"]);
    assert_eq!(listed["intents"][0]["key_masked"], true);
    assert_eq!(folder.json(&["list", "--json", "--show-keys"])["intents"][0]["key_masked"], false);
    let settled = folder.onceward(&[&["resolve"], &name[..], &["--did-not-happen", "--json"]].concat());
    assert!(!settled.out().contains("ann@") && settled.out().contains("\"key_masked\":true"), "{}", settled.out());
}

#[test]
fn running_work_is_put_in_doubt_by_force_and_settled_by_a_second_command() {
    let folder = TestFolder::new();
    let mut running = folder.start(&["--key", "k"], "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done; echo late");
    folder.wait_for_file("pid");
    resolve(&folder, "k", &["--happened"]).says(1, &["is running", "--force --why"]);
    resolve(&folder, "k", &["--force"]).says(64, &["--why"]);
    resolve(&folder, "k", &["--force", "--why", "it hangs", "--by", "alice"]).says(0, &[]);
    folder.run(&["--key", "k"], "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done; echo late").says(76, &[]);
    let intent = folder.json(&["get", "--operation", "op", "--key", "k", "--json"]);
    assert_eq!(intent["state"], "in_doubt");
    assert_eq!(intent["trail"][0]["what"], "forced_in_doubt");
    assert_eq!((&intent["trail"][0]["by"], &intent["trail"][0]["note"]), (&"alice".into(), &"it hangs".into()));
    resolve(&folder, "k", &["--force", "--why", "again"]).says(1, &["in_doubt"]);
    // The owner was not superseded, so its late outcome still settles the doubt.
    folder.write("go", "");
    assert_eq!(running.wait().unwrap().code(), Some(0));
    assert_eq!(folder.json(&["get", "--operation", "op", "--key", "k", "--json"])["state"], "done");
    resolve(&folder, "k", &["--force", "--why", "too late"]).says(1, &["is done"]);
}

#[test]
fn the_owner_of_work_that_was_forced_into_doubt_and_settled_cannot_overwrite_it() {
    let folder = TestFolder::new();
    let mut running = folder.start(&["--key", "k"], "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done; echo late");
    folder.wait_for_file("pid");
    resolve(&folder, "k", &["--force", "--why", "it hangs"]).says(0, &[]);
    resolve(&folder, "k", &["--happened", "--stdout", "by hand"]).says(0, &[]);
    folder.write("go", "");
    running.wait().unwrap();
    let intent = folder.json(&["get", "--operation", "op", "--key", "k", "--json"]);
    assert_eq!(intent["outcome"]["stdout"]["text"], "by hand\n");
    assert_eq!(intent["trail"][2]["what"], "contradiction");
}

#[test]
fn after_force_the_time_is_named_until_which_the_owner_may_be_at_work() {
    let folder = TestFolder::new();
    let script = "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done; echo late";
    let mut running = folder.start(&["--key", "k"], script);
    folder.wait_for_file("pid");
    resolve(&folder, "k", &["--force", "--why", "it hangs"]).says(0, &[]);
    let settled = resolve(&folder, "k", &["--did-not-happen"]);
    let settled = settled.out();
    assert!(settled.contains("may try again from 2") && settled.contains("may still be at work"), "{settled}");
    folder.run(&["--key", "k"], script).says(75, &["must not be tried again yet", "Run it again in"]);
    folder.write("go", "");
    running.wait().unwrap();
}
