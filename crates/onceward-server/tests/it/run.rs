//! Every exit code of `run`, and what repeats get.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::place::{Answer, Place};

const K: [&str; 2] = ["--key", "k"];

/// Counts its runs.
const COUNTED: &str = "echo ran >> runs; ";

fn runs(place: &Place) -> usize {
    place.read("runs").lines().count()
}

#[test]
fn a_window_of_low_stakes_runs_again_when_it_is_over() {
    let place = Place::new();
    place.write("onceward.toml", "[operation.op]\ndedup = \"2s\"\n");
    let started = std::time::Instant::now();
    place.run(&["--key", "k"], "echo x >> ran").says(0, &[]);
    let repeat = place.run(&["--key", "k"], "echo x >> ran");
    // On a machine that is too slow for this, nothing can be said about repeats inside the window.
    if started.elapsed() < std::time::Duration::from_secs(2) {
        repeat.says(0, &["repeat of a finished run"]);
    }
    std::thread::sleep(std::time::Duration::from_millis(2100));
    let before = place.read("ran").len();
    place.run(&["--key", "k"], "echo x >> ran").says(0, &[]);
    assert_eq!(place.read("ran").len(), before + 2);
}

#[test]
fn a_repeat_gets_the_same_bytes_and_code_and_runs_nothing() {
    let place = Place::new();
    let script = format!("{COUNTED} printf 'a\\377\\000b\\r\\n'; printf 'e\\376' >&2");
    let first = place.command(&["run", "--operation", "op", "--key", "k", "--", "sh", "-c", &script]).output().unwrap();
    assert_eq!((first.stdout.as_slice(), first.stderr.as_slice()), (&b"a\xff\0b\r\n"[..], &b"e\xfe"[..]));
    let mut again = place.run_command(&K, &script).output().unwrap();
    assert_eq!(again.stdout, first.stdout);
    let line = again.stderr.split_off(first.stderr.len());
    assert_eq!(again.stderr, first.stderr);
    let line = String::from_utf8(line).unwrap();
    assert!(line.starts_with("onceward: repeat of a finished run from 2"), "{line}");
    assert!(line.ends_with("Z; not run again\n"), "{line}");
    let quiet = place.run_command(&["--key", "k", "--quiet"], &script).output().unwrap();
    assert_eq!((quiet.stdout, quiet.stderr), (first.stdout, first.stderr));
    assert_eq!(runs(&place), 1);
}

#[test]
fn a_repeat_keeps_the_order_of_stdout_and_stderr() {
    let place = Place::new();
    let script = "echo one; until [ -e s1 ]; do sleep 0.01; done; echo two >&2; \
                  until [ -e s2 ]; do sleep 0.01; done; echo three";
    let mut child = place.start(&K, script);
    let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    // Live: each line arrives while the command still runs.
    assert_eq!(stdout.next().unwrap().unwrap(), "one");
    place.write("s1", "");
    assert_eq!(stderr.next().unwrap().unwrap(), "two");
    place.write("s2", "");
    assert_eq!(stdout.next().unwrap().unwrap(), "three");
    assert!(child.wait().unwrap().success());
    let both = File::create(place.path("both")).unwrap();
    let mut again = place.run_command(&["--key", "k", "--quiet"], script);
    again.stdout(both.try_clone().unwrap()).stderr(both);
    assert!(again.status().unwrap().success());
    assert_eq!(place.read("both"), "one\ntwo\nthree\n");
}

#[test]
fn stdin_is_passed_through_and_is_no_part_of_the_fingerprint() {
    let place = Place::new();
    place.write("in", "hello");
    let with = |input: Stdio| Answer::of(place.run_command(&K, "cat").stdin(input).output().unwrap());
    assert_eq!(with(File::open(place.path("in")).unwrap().into()).out(), "hello");
    assert_eq!(with(Stdio::null()).out(), "hello");
}

#[test]
fn the_command_gets_a_key_of_its_own_that_stays_the_same() {
    let place = Place::new();
    let script = "echo \"$ONCEWARD_KEY\" >> keys; exit 1";
    place.run(&K, script).says(1, &[]);
    place.run(&K, script).says(1, &[]);
    place.run(&["--key", "other"], script).says(1, &[]);
    let keys = place.read("keys");
    let keys: Vec<_> = keys.lines().collect();
    assert!(keys[0].starts_with("once_v1_"));
    assert_eq!(keys[0], keys[1]);
    assert_ne!(keys[0], keys[2]);
}

#[test]
fn another_command_or_intent_under_the_same_key_is_65() {
    let place = Place::new();
    place.run(&K, "true").says(0, &[]);
    let said = ["op#", "was recorded with another command or intent; nothing was run", "use another key"];
    place.run(&K, "false").says(65, &said);
    place.run(&["--key", "i", "--intent", "1"], "true").says(0, &[]);
    place.run(&["--key", "i", "--intent", "2"], "true").says(65, &said);
    place.write("onceward.toml", "[operation.op]\nkey = [\"/a\"]\nmatch = [\"/b\"]\n");
    place.run(&["--intent", r#"{"a":1,"b":1,"c":1}"#], "true").says(0, &[]);
    place.run(&["--intent", r#"{"a":1,"b":1,"c":2}"#], "true").says(0, &["repeat"]);
    place.run(&["--intent", r#"{"a":1,"b":2,"c":1}"#], "true").says(65, &said);
}

#[test]
fn tenants_and_sessions_never_meet() {
    let place = Place::new();
    for flags in [["--key", "k", "--tenant", "a"], ["--key", "k", "--tenant", "b"]] {
        place.run(&flags, "true").says(0, &[]);
    }
    for flags in [["--intent", "1", "--session", "a"], ["--intent", "1", "--session", "b"]] {
        let answer = place.run(&flags, "true");
        answer.says(0, &[]);
        assert_eq!(answer.stderr, "");
    }
    assert_eq!(place.json(&["list", "--json"])["intents"].as_array().unwrap().len(), 4);
}

#[test]
fn a_failure_is_tried_again_kept_or_doubted_as_the_policy_says() {
    let place = Place::new();
    let script = format!("{COUNTED} echo no >&2; exit 3");
    for _ in 0..2 {
        place.run(&["--key", "retry"], &script).says(3, &["no\n"]);
    }
    assert_eq!(runs(&place), 2);
    for _ in 0..2 {
        place.run(&["--key", "keep", "--on-error", "keep"], &script).says(3, &["no\n"]);
    }
    assert_eq!(runs(&place), 3);
    let first = place.run(&["--key", "doubt", "--on-error", "doubt"], &script);
    first.says(3, &["exit code 3", "is now in doubt", "onceward resolve --operation op --key doubt --did-not-happen"]);
    place.run(&["--key", "doubt"], &script).says(76, &["is in doubt since 2", "nothing was run"]);
    place.run(&["--key", "payment", "--tier", "payment"], &script).says(3, &["is now in doubt"]);
    assert_eq!(runs(&place), 5);
}

#[test]
fn codes_that_mean_a_cut_are_in_doubt_and_can_be_chosen() {
    let place = Place::new();
    for code in ["124", "129", "130", "131", "134", "137", "139", "141", "143"] {
        let flags = ["--key", code, "--on-error", "keep"];
        place.run(&flags, &format!("exit {code}")).says(code.parse().unwrap(), &["is now in doubt"]);
        place.run(&flags, &format!("exit {code}")).says(76, &[]);
    }
    place.run(&["--key", "killed"], "kill -9 $$").says(137, &["exit code 137", "is now in doubt"]);
    place.run(&["--key", "chosen", "--doubt-exit", "7"], "exit 7").says(7, &["is now in doubt"]);
    let released = place.run(&["--key", "not chosen", "--doubt-exit", "7"], "exit 137");
    released.says(137, &[]);
    assert_eq!(released.stderr, "");
}

#[test]
fn in_doubt_with_retry_runs_again_with_the_same_key() {
    let place = Place::new();
    let flags = ["--key", "k", "--in-doubt", "retry"];
    let script = "echo \"$ONCEWARD_KEY\" >> keys; [ -e ok ] || { touch ok; exit 137; }";
    place.run(&flags, script).says(137, &["is now in doubt", "tries it again with the same ONCEWARD_KEY"]);
    place.run(&flags, script).says(0, &[]);
    let keys = place.read("keys");
    let keys: Vec<_> = keys.lines().collect();
    assert_eq!((keys.len(), keys[0]), (2, keys[1]));
}

#[test]
fn a_command_that_cannot_be_started_is_126_or_127_and_may_be_tried_again() {
    let place = Place::new();
    let run = |key: &str, program: &str| place.onceward(&["run", "--operation", "op", "--key", key, "--", program]);
    run("127", "no-such-program").says(127, &["no-such-program of op#"]);
    run("127", "./later").says(127, &["./later of op#", "cannot be started: No such file", "nothing was run"]);
    place.write("plain", "no program");
    run("126", "./plain").says(126, &["cannot be started: Permission denied"]);
    std::os::unix::fs::symlink("/bin/true", place.path("later")).unwrap();
    run("127", "./later").says(0, &[]);
    std::fs::remove_file(place.path("later")).unwrap();
    run("127", "./later").says(0, &["repeat of a finished run"]);
}

#[test]
fn an_outcome_that_is_not_kept_is_77_and_is_not_run_again() {
    let place = Place::new();
    place.write("onceward.toml", "[operation.op]\nkeep_limit = 100\n");
    let script = format!("{COUNTED} head -c 200 /dev/zero");
    place.run(&K, &script).says(0, &["over 100 bytes and was not kept"]);
    place.run(&K, &script).says(77, &["op#", "is done (exit code 0), but its output is not kept", "another key"]);
    place.write("onceward.toml", "[operation.op]\nretention = \"1ms\"\ntombstone = \"1h\"\n");
    place.run(&["--key", "late"], COUNTED).says(0, &[]);
    std::thread::sleep(std::time::Duration::from_millis(5));
    place.run(&["--key", "late"], COUNTED).says(77, &["is not kept"]);
    assert_eq!(runs(&place), 2);
}

#[test]
fn a_store_that_cannot_be_used_is_69_and_nothing_runs() {
    let place = Place::new();
    place.write("text.db", "this is no ledger, but a text that is long enough to be looked at, as files go.");
    let flags = ["--key", "k", "--store", "text.db"];
    place.run(&flags, COUNTED).says(69, &["nothing was run: text.db is not an Onceward ledger"]);
    place.run(&["--key", "k", "--store", "no/such.db"], COUNTED).says(69, &["cannot open the ledger no/such.db"]);
    place.run(&["--key", "k", "--store", "postgres://u:secret@h/d"], COUNTED).says(69, &["`postgres://…` is no store"]);
    place.run(&["--key", "k", "--store", "memory:"], COUNTED).says(78, &["memory: lasts only as long as one process"]);
    assert_eq!(runs(&place), 0);
    place.write("onceward.toml", "store = \"no/such.db\"\n[operation.op]\nstore_down = \"open\"\n");
    let open = place.run(&["--key", "k"], &format!("{COUNTED} echo hi; exit 4"));
    open.says(4, &["UNGUARDED", "cannot open the ledger", "It may happen twice"]);
    assert_eq!((open.out(), runs(&place)), ("hi\n", 1));
}

#[test]
fn a_path_is_a_path_and_never_a_query() {
    let place = Place::new();
    for (store, file) in [("ledger.db?mode=memory", "ledger.db?mode=memory"), ("file:file:x.db?a=b", "file:x.db?a=b")] {
        assert_eq!(place.run(&["--key", "k", "--store", store], "true").code, 0);
        assert!(place.path(file).exists(), "{file}");
    }
    assert!(!place.path("ledger.db").exists());
    let missing = place.run(&["--key", "k", "--store", "missing/ledger.db"], "true");
    assert_eq!(missing.code, 69);
    assert!(missing.stderr.contains("the ledger missing/ledger.db"), "as the user gave it: {}", missing.stderr);
}

#[test]
fn wrong_usage_is_64_and_help_is_0() {
    let place = Place::new();
    let run = |arguments: &[&str]| place.onceward(&[&["run"], arguments].concat());
    run(&["--operation", "op", "--", "true"]).says(64, &["--key <KEY>", "--intent <JSON>"]);
    run(&["--operation", "op", "--key", "k"]).says(64, &["COMMAND"]);
    run(&["--operation", "op", "--key", "k", "--teir", "x", "--", "true"]).says(64, &["--teir"]);
    run(&["--operation", "op", "--key", "k", "--tier", "gold", "--", "true"]).says(64, &["payment, notification"]);
    run(&["--operation", "op", "--key", "k", "--wait", "10", "--", "true"]).says(64, &["number without a unit"]);
    run(&["--operation", "op", "--key", "k", "--status-fd", "99", "--", "true"]).says(64, &["--status-fd 99"]);
    run(&["--operation", "op", "--key", "k", "--max-runtime", "2d", "--", "true"]).says(64, &["at most 24h"]);
    place.onceward(&[]).says(64, &["Usage"]);
    assert!(place.onceward(&["run", "--help"]).out().contains("Examples:"));
    assert!(place.onceward(&["--version"]).out().starts_with("onceward 0."));
    assert!(!place.path("onceward.db").exists());
}

#[test]
fn bad_keys_and_bad_json_are_64_and_never_reach_the_store() {
    let place = Place::new();
    let long = "k".repeat(256);
    for (flags, said) in [
        (["--key", ""], "the key is empty"),
        (["--key", "a\nb"], "the key contains a control character at position 2"),
        (["--key", &long], "the key has 256 characters; at most 255 are allowed"),
        (["--intent", "{"], "the intent is refused: bad JSON at byte 1"),
        (["--intent", ""], "bad JSON at byte 0"),
        (["--intent", r#"{"a":1,"a":2}"#], "has a name that came before"),
        (["--intent", "1 2"], "more follows at byte 2"),
        (["--intent", "0.10000000000000000001"], "send it as a string"),
        (["--intent", &"[".repeat(200)], "nested deeper than 128 levels"),
        (["--intent", r#""\ud800""#], "half of a surrogate pair"),
        (["--intent", "@missing.json"], "missing.json cannot be read"),
    ] {
        place.run(&flags, COUNTED).says(64, &[said]);
    }
    let tenant = ["--key", "k", "--tenant", "a\tb"];
    place.run(&tenant, COUNTED).says(64, &["the tenant contains a control character"]);
    place.write("onceward.toml", "[operation.op]\nkey = [\"/invoice\"]\n");
    place.run(&["--intent", "{}"], COUNTED).says(64, &["the intent has no \"/invoice\""]);
    assert!(!place.path("onceward.db").exists());
    assert_eq!(runs(&place), 0);
}

#[test]
fn a_key_that_looks_like_a_flag_is_hinted_at_in_a_way_that_works() {
    let place = Place::new();
    let run = ["run", "--operation", "op", "--key=-x", "--", "sh", "-c", "exit 137"];
    place.onceward(&run).says(137, &["onceward resolve --operation op --key=-x --happened\n"]);
    place.onceward(&["resolve", "--operation", "op", "--key=-x", "--happened"]).says(0, &[]);
}

#[test]
fn a_retention_of_nothing_is_refused() {
    let place = Place::new();
    let said = "0s would forget the outcome at once";
    place.run(&["--key", "k", "--retention", "0s"], COUNTED).says(64, &[said]);
    place.write("onceward.toml", "[operation.op]\nretention = \"0s\"\n");
    place.run(&["--key", "k"], COUNTED).says(78, &[said]);
    assert_eq!(runs(&place), 0);
}

#[test]
fn no_codes_are_in_doubt_when_none_are_named() {
    let place = Place::new();
    for _ in 0..2 {
        let released = place.run(&["--key", "k", "--doubt-exit", ""], "exit 137");
        assert_eq!((released.code, released.stderr.as_str()), (137, ""));
    }
    place.run(&["--key", "l", "--doubt-exit", "1, 7"], "exit 7").says(7, &["is now in doubt"]);
    let twice = ["--key", "n", "--doubt-exit", "1", "--doubt-exit", "7"];
    place.run(&twice, "exit 7").says(7, &["is now in doubt"]);
    let said = ["\"256\" is no exit code", "0 to 255"];
    place.run(&["--key", "m", "--doubt-exit", "1,256"], "true").says(64, &said);
}

#[test]
fn help_says_what_each_command_is_for() {
    let help = Place::new().onceward(&["--help"]);
    let line = help.out().lines().find(|line| line.trim_start().starts_with("demo")).unwrap();
    assert!(line.contains("See it: an agent, a flaky payment provider"), "{line}");
}

#[test]
fn an_intent_can_come_from_a_file() {
    let place = Place::new();
    place.write("intent.json", "{ \"b\": 1, \"a\": 2 }\n");
    place.run(&["--intent", "@intent.json"], "true").says(0, &[]);
    place.run(&["--intent", r#"{"a":2,"b":1}"#], "true").says(0, &["repeat"]);
}

#[test]
fn a_program_is_told_on_the_status_fd() {
    let place = Place::new();
    // The shell opens descriptor 3 for the binary.
    let told = |flags: &str, script: &str| -> serde_json::Value {
        let line = format!("\"$0\" run --operation op --key k --status-fd 3 {flags} -- sh -c '{script}' 3>status");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &line, env!("CARGO_BIN_EXE_onceward")]).current_dir(place.path(""));
        shell.stdin(Stdio::null()).output().unwrap();
        let status = place.read("status");
        assert_eq!(status.lines().count(), 1, "{status}");
        serde_json::from_str(&status).unwrap()
    };
    let expect = |told: serde_json::Value, decision: &str, code: u8| {
        assert_eq!(told["decision"], decision, "{told}");
        assert_eq!(told["exit_code"], code, "{told}");
        assert_eq!([&told["tenant"], &told["operation"], &told["key"]], ["default", "op", "k"]);
        told
    };
    let ran = expect(told("", "exit 9"), "ran", 9);
    assert_eq!((&ran["recorded"], &ran["attempt"]), (&"released".into(), &1.into()));
    let ran = expect(told("", "exit 9"), "ran", 9);
    assert_eq!(ran["attempt"], 2);
    expect(told("", "other"), "mismatch", 65);
    expect(told("--store no/such", "true"), "store_down", 69);
    let ran = expect(told("--store done.db", "true"), "ran", 0);
    assert_eq!(ran["recorded"], "success");
    let replayed = expect(told("--store done.db", "true"), "replayed", 0);
    assert!(replayed["expires"].as_str().unwrap() > replayed["since"].as_str().unwrap());
    expect(told("--store doubt.db", "exit 137"), "ran", 137);
    assert!(expect(told("--store doubt.db", "exit 137"), "in_doubt", 76)["since"].is_string());
}

#[test]
fn retention_is_a_week_unless_something_says_otherwise() {
    let place = Place::new();
    let kept = |key: &str, flags: &[&str]| {
        place.run(&[&["--key", key], flags].concat(), "true").says(0, &[]);
        let view = place.json(&["get", "--operation", "op", "--key", key, "--json"]);
        let time = |name: &str| view[name].as_str().map(|text| text.parse::<jiff::Timestamp>().unwrap());
        time("expires_at").map(|expires| (expires - time("finished_at").unwrap()).total(jiff::Unit::Hour).unwrap())
    };
    assert_eq!(kept("a", &[]), Some(7.0 * 24.0));
    assert_eq!(kept("b", &["--tier", "payment"]), Some(30.0 * 24.0));
    assert_eq!(kept("c", &["--retention", "2h"]), Some(2.0));
    assert_eq!(kept("d", &["--retention", "forever"]), None);
    place.write("onceward.toml", "[operation.op]\ntier = \"email\"\n");
    assert_eq!(kept("e", &[]), Some(24.0));
}

#[test]
fn logs_never_show_keys_or_arguments() {
    let place = Place::new();
    let log = |script: &str| {
        let mut command = place.run_command(&["--key", "secret-key"], script);
        Answer::of(command.env("ONCEWARD_LOG", "trace").output().unwrap())
    };
    for script in ["true secret-argument", "true secret-argument", "false secret-argument"] {
        let answer = log(script);
        assert!(!answer.stderr.contains("secret"), "{answer:?}");
    }
    let doubt = place.run_command(&["--key", "2"], "exit 137").env("ONCEWARD_LOG", "trace").output().unwrap();
    assert!(!String::from_utf8_lossy(&doubt.stderr).contains("sh -c"), "{doubt:?}");
}

#[test]
fn the_stricter_of_record_and_caller_holds_in_doubt() {
    let place = Place::new();
    let script = "echo ran >> runs; exit 7";
    let flags = |in_doubt| ["--key", "k", "--doubt-exit", "7", "--in-doubt", in_doubt];
    place.run(&flags("retry"), script).says(7, &["tries it again"]);
    place.run(&flags("hold"), script).says(76, &[]);
    assert_eq!(place.read("runs").lines().count(), 1);
    place.run(&flags("retry"), script).says(7, &[]);
    assert_eq!(place.read("runs").lines().count(), 2);
}

#[test]
fn a_lost_answer_of_curl_is_in_doubt() {
    let place = Place::new();
    for code in [28, 52, 55, 56] {
        let key = code.to_string();
        let script = format!("exit {code}");
        place.run(&["--key", &key], &script).says(code, &["is now in doubt", "curl and ssh end with this code"]);
        place.run(&["--key", &key], &script).says(76, &[]);
        let flags = ["--key", &format!("{key} retried"), "--on-error", "retry"];
        let released = place.run(&flags, &script);
        released.says(code, &[]);
        assert!(!released.stderr.contains("doubt"), "{}", released.stderr);
    }
}

#[test]
fn a_failure_under_a_declared_tier_is_in_doubt() {
    let place = Place::new();
    place.run(&["--key", "k", "--tier", "email"], "exit 1").says(1, &["is now in doubt", "a tier is declared"]);
    place.run(&["--key", "k", "--tier", "email"], "exit 1").says(76, &[]);
}

#[test]
fn over_the_quota_of_its_tenant_a_new_key_runs_nothing_and_an_old_one_is_replayed() {
    let place = Place::new();
    place.write("onceward.toml", "[limits]\nrecords_per_tenant = 1\n");
    place.run(&["--key", "a"], &format!("{COUNTED} echo one")).says(0, &[]);
    place.run(&["--key", "b"], COUNTED).says(75, &["quota of 1 records", "nothing was run", "records_per_tenant"]);
    place.run(&["--key", "a"], &format!("{COUNTED} echo one")).says(0, &["repeat of a finished run"]);
    place.run(&["--key", "b", "--tenant", "other"], COUNTED).says(0, &[]);
    assert_eq!(runs(&place), 2);
}
