//! Every exit code of `run`, and what repeats get.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::test_folder::{CommandOutput, TestFolder};

const K: [&str; 2] = ["--key", "k"];

/// A command that counts its runs.
const COUNTED: &str = "echo ran >> runs; ";

fn runs(folder: &TestFolder) -> usize {
    folder.read("runs").lines().count()
}

#[test]
fn after_the_dedup_window_the_command_runs_again() {
    let folder = TestFolder::new();
    folder.write("onceward.toml", "[operation.op]\ndedup = \"2s\"\n");
    let started = std::time::Instant::now();
    folder.run(&["--key", "k"], "echo x >> ran").says(0, &[]);
    let repeat = folder.run(&["--key", "k"], "echo x >> ran");
    // On a machine that is too slow for this, the repeat may come after the window.
    if started.elapsed() < std::time::Duration::from_secs(2) {
        repeat.says(0, &["replay of a run"]);
    }
    std::thread::sleep(std::time::Duration::from_millis(2100));
    let before = folder.read("ran").len();
    folder.run(&["--key", "k"], "echo x >> ran").says(0, &[]);
    assert_eq!(folder.read("ran").len(), before + 2);
}

#[test]
fn a_repeat_gets_the_same_bytes_and_code_and_runs_nothing() {
    let folder = TestFolder::new();
    let script = format!("{COUNTED} printf 'a\\377\\000b\\r\\n'; printf 'e\\376' >&2");
    let first =
        folder.command(&["run", "--operation", "op", "--key", "k", "--", "sh", "-c", &script]).output().unwrap();
    assert_eq!((first.stdout.as_slice(), first.stderr.as_slice()), (&b"a\xff\0b\r\n"[..], &b"e\xfe"[..]));
    let mut again = folder.run_command(&K, &script).output().unwrap();
    assert_eq!(again.stdout, first.stdout);
    let line = again.stderr.split_off(first.stderr.len());
    assert_eq!(again.stderr, first.stderr);
    let line = String::from_utf8(line).unwrap();
    assert!(line.starts_with("onceward: replay of a run that finished at 2"), "{line}");
    assert!(line.ends_with("Z; not run again\n"), "{line}");
    let quiet = folder.run_command(&["--key", "k", "--quiet"], &script).output().unwrap();
    assert_eq!((quiet.stdout, quiet.stderr), (first.stdout, first.stderr));
    assert_eq!(runs(&folder), 1);
}

#[test]
fn a_repeat_keeps_the_order_of_stdout_and_stderr() {
    let folder = TestFolder::new();
    let script = "echo one; until [ -e s1 ]; do sleep 0.01; done; echo two >&2; \
                  until [ -e s2 ]; do sleep 0.01; done; echo three";
    let mut child = folder.start(&K, script);
    let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    // Live: each line arrives while the command is still running.
    assert_eq!(stdout.next().unwrap().unwrap(), "one");
    folder.write("s1", "");
    assert_eq!(stderr.next().unwrap().unwrap(), "two");
    folder.write("s2", "");
    assert_eq!(stdout.next().unwrap().unwrap(), "three");
    assert!(child.wait().unwrap().success());
    let both = File::create(folder.path("both")).unwrap();
    let mut again = folder.run_command(&["--key", "k", "--quiet"], script);
    again.stdout(both.try_clone().unwrap()).stderr(both);
    assert!(again.status().unwrap().success());
    assert_eq!(folder.read("both"), "one\ntwo\nthree\n");
}

#[test]
fn stdin_is_passed_through_and_not_part_of_the_fingerprint() {
    let folder = TestFolder::new();
    folder.write("in", "hello");
    let with = |input: Stdio| CommandOutput::of(folder.run_command(&K, "cat").stdin(input).output().unwrap());
    assert_eq!(with(File::open(folder.path("in")).unwrap().into()).out(), "hello");
    assert_eq!(with(Stdio::null()).out(), "hello");
}

#[test]
fn the_command_gets_its_own_key_that_stays_the_same() {
    let folder = TestFolder::new();
    let script = "echo \"$ONCEWARD_KEY\" >> keys; exit 1";
    folder.run(&K, script).says(1, &[]);
    folder.run(&K, script).says(1, &[]);
    folder.run(&["--key", "other"], script).says(1, &[]);
    let keys = folder.read("keys");
    let keys: Vec<_> = keys.lines().collect();
    assert!(keys[0].starts_with("once_v1_"));
    assert_eq!(keys[0], keys[1]);
    assert_ne!(keys[0], keys[2]);
}

#[test]
fn another_command_or_intent_under_the_same_key_is_65() {
    let folder = TestFolder::new();
    folder.run(&K, "true").says(0, &[]);
    let said = ["op#", "was recorded with another command or intent; nothing was run", "use another key"];
    folder.run(&K, "false").says(65, &said);
    folder.run(&["--key", "i", "--intent", "1"], "true").says(0, &[]);
    folder.run(&["--key", "i", "--intent", "2"], "true").says(65, &said);
    folder.write("onceward.toml", "[operation.op]\nkey = [\"/a\"]\nmatch = [\"/b\"]\n");
    folder.run(&["--intent", r#"{"a":1,"b":1,"c":1}"#], "true").says(0, &[]);
    folder.run(&["--intent", r#"{"a":1,"b":1,"c":2}"#], "true").says(0, &["replay of a run"]);
    folder.run(&["--intent", r#"{"a":1,"b":2,"c":1}"#], "true").says(65, &said);
}

#[test]
fn intents_of_different_tenants_and_sessions_are_separate() {
    let folder = TestFolder::new();
    for flags in [["--key", "k", "--tenant", "a"], ["--key", "k", "--tenant", "b"]] {
        folder.run(&flags, "true").says(0, &[]);
    }
    for flags in [["--intent", "1", "--session", "a"], ["--intent", "1", "--session", "b"]] {
        let answer = folder.run(&flags, "true");
        answer.says(0, &[]);
        assert_eq!(answer.stderr, "");
    }
    assert_eq!(folder.json(&["list", "--json"])["intents"].as_array().unwrap().len(), 4);
}

#[test]
fn a_failure_is_retried_kept_or_in_doubt_as_the_policy_says() {
    let folder = TestFolder::new();
    let script = format!("{COUNTED} echo no >&2; exit 3");
    for _ in 0..2 {
        folder.run(&["--key", "retry"], &script).says(3, &["no\n"]);
    }
    assert_eq!(runs(&folder), 2);
    for _ in 0..2 {
        folder.run(&["--key", "keep", "--on-error", "keep"], &script).says(3, &["no\n"]);
    }
    assert_eq!(runs(&folder), 3);
    let first = folder.run(&["--key", "doubt", "--on-error", "doubt"], &script);
    first.says(3, &["exit code 3", "is now in doubt", "onceward resolve --operation op --key doubt --did-not-happen"]);
    folder.run(&["--key", "doubt"], &script).says(76, &["is in doubt since 2", "nothing was run"]);
    folder.run(&["--key", "payment", "--tier", "payment"], &script).says(3, &["is now in doubt"]);
    assert_eq!(runs(&folder), 5);
}

#[test]
fn exit_codes_for_doubt_can_be_chosen() {
    let folder = TestFolder::new();
    for code in ["124", "129", "130", "131", "134", "137", "139", "141", "143"] {
        let flags = ["--key", code, "--on-error", "keep"];
        folder.run(&flags, &format!("exit {code}")).says(code.parse().unwrap(), &["is now in doubt"]);
        folder.run(&flags, &format!("exit {code}")).says(76, &[]);
    }
    folder.run(&["--key", "killed"], "kill -9 $$").says(137, &["exit code 137", "is now in doubt"]);
    folder.run(&["--key", "chosen", "--doubt-exit", "7"], "exit 7").says(7, &["is now in doubt"]);
    let released = folder.run(&["--key", "not chosen", "--doubt-exit", "7"], "exit 137");
    released.says(137, &[]);
    assert_eq!(released.stderr, "");
}

#[test]
fn in_doubt_with_retry_runs_again_with_the_same_key() {
    let folder = TestFolder::new();
    let flags = ["--key", "k", "--in-doubt", "retry"];
    let script = "echo \"$ONCEWARD_KEY\" >> keys; [ -e ok ] || { touch ok; exit 137; }";
    folder.run(&flags, script).says(137, &["is now in doubt", "retries with the same ONCEWARD_KEY"]);
    folder.run(&flags, script).says(0, &[]);
    let keys = folder.read("keys");
    let keys: Vec<_> = keys.lines().collect();
    assert_eq!((keys.len(), keys[0]), (2, keys[1]));
}

#[test]
fn a_command_that_cannot_be_started_is_126_or_127_and_may_be_retried() {
    let folder = TestFolder::new();
    let run = |key: &str, program: &str| folder.onceward(&["run", "--operation", "op", "--key", key, "--", program]);
    run("127", "no-such-program").says(127, &["no-such-program of op#"]);
    run("127", "./later").says(127, &["cannot start ./later of op#", "No such file", "nothing was run"]);
    folder.write("plain", "no program");
    run("126", "./plain").says(126, &["cannot start ./plain", "Permission denied"]);
    std::os::unix::fs::symlink("/bin/true", folder.path("later")).unwrap();
    run("127", "./later").says(0, &[]);
    std::fs::remove_file(folder.path("later")).unwrap();
    run("127", "./later").says(0, &["replay of a run"]);
}

#[test]
fn an_outcome_that_was_not_kept_is_77_and_is_not_run_again() {
    let folder = TestFolder::new();
    folder.write("onceward.toml", "[operation.op]\nkeep_limit = 100\n");
    let script = format!("{COUNTED} head -c 200 /dev/zero");
    folder.run(&K, &script).says(0, &["larger than 100 bytes and was not kept"]);
    folder.run(&K, &script).says(77, &["op#", "is done (exit code 0), but its output was not kept", "another key"]);
    folder.write("onceward.toml", "[operation.op]\nretention = \"1ms\"\ntombstone = \"1h\"\n");
    folder.run(&["--key", "late"], COUNTED).says(0, &[]);
    std::thread::sleep(std::time::Duration::from_millis(5));
    folder.run(&["--key", "late"], COUNTED).says(77, &["was not kept"]);
    assert_eq!(runs(&folder), 2);
}

#[test]
fn an_unusable_store_is_69_and_nothing_runs() {
    let folder = TestFolder::new();
    folder.write("text.db", "this is not a ledger, but a text that is long enough to be read as a header of a file.");
    let flags = ["--key", "k", "--store", "text.db"];
    folder.run(&flags, COUNTED).says(69, &["nothing was run: text.db is not an Onceward ledger"]);
    folder.run(&["--key", "k", "--store", "no/such.db"], COUNTED).says(69, &["cannot open the ledger no/such.db"]);
    folder.run(&["--key", "k", "--store", "mysql://u:secret@h/d"], COUNTED).says(69, &["unknown store `mysql://…`"]);
    let down = folder.run(&["--key", "k", "--store", "postgres://u:secret@127.0.0.1:1/d"], COUNTED);
    down.says(69, &["the store cannot be reached"]);
    assert!(!down.stderr.contains("secret"), "{}", down.stderr);
    folder.run(&["--key", "k", "--store", "memory:"], COUNTED).says(78, &["memory: lasts only as long as one process"]);
    assert_eq!(runs(&folder), 0);
    folder.write("onceward.toml", "store = \"no/such.db\"\n[operation.op]\nstore_down = \"open\"\n");
    let open = folder.run(&["--key", "k"], &format!("{COUNTED} echo hi; exit 4"));
    open.says(4, &["UNGUARDED", "cannot open the ledger", "It may happen twice"]);
    assert_eq!((open.out(), runs(&folder)), ("hi\n", 1));
}

#[test]
fn a_path_is_a_path_and_never_a_query() {
    let folder = TestFolder::new();
    for (store, file) in [("ledger.db?mode=memory", "ledger.db?mode=memory"), ("file:file:x.db?a=b", "file:x.db?a=b")] {
        assert_eq!(folder.run(&["--key", "k", "--store", store], "true").code, 0);
        assert!(folder.path(file).exists(), "{file}");
    }
    assert!(!folder.path("ledger.db").exists());
    let missing = folder.run(&["--key", "k", "--store", "missing/ledger.db"], "true");
    assert_eq!(missing.code, 69);
    assert!(missing.stderr.contains("the ledger missing/ledger.db"), "as the user gave it: {}", missing.stderr);
}

#[test]
fn a_usage_error_is_64_and_help_is_0() {
    let folder = TestFolder::new();
    let run = |arguments: &[&str]| folder.onceward(&[&["run"], arguments].concat());
    run(&["--operation", "op", "--", "true"]).says(64, &["--key <KEY>", "--intent <JSON>"]);
    run(&["--operation", "op", "--key", "k"]).says(64, &["COMMAND"]);
    run(&["--operation", "op", "--key", "k", "--teir", "x", "--", "true"]).says(64, &["--teir"]);
    run(&["--operation", "op", "--key", "k", "--tier", "gold", "--", "true"]).says(64, &["payment, notification"]);
    run(&["--operation", "op", "--key", "k", "--wait", "10", "--", "true"]).says(64, &["number without a unit"]);
    run(&["--operation", "op", "--key", "k", "--status-fd", "99", "--", "true"]).says(64, &["--status-fd 99"]);
    run(&["--operation", "op", "--key", "k", "--max-runtime", "2d", "--", "true"]).says(64, &["the maximum is 24h"]);
    folder.onceward(&[]).says(64, &["Usage"]);
    assert!(folder.onceward(&["run", "--help"]).out().contains("Examples:"));
    assert!(folder.onceward(&["--version"]).out().starts_with("onceward 0."));
    assert!(!folder.path("onceward.db").exists());
}

#[test]
fn invalid_keys_and_invalid_json_are_64_and_never_reach_the_store() {
    let folder = TestFolder::new();
    let long = "k".repeat(256);
    for (flags, said) in [
        (["--key", ""], "the key is empty"),
        (["--key", "a\nb"], "the key contains a control character at position 2"),
        (["--key", &long], "the key has 256 characters; at most 255 are allowed"),
        (["--intent", "{"], "invalid intent: bad JSON at byte 1"),
        (["--intent", ""], "bad JSON at byte 0"),
        (["--intent", r#"{"a":1,"a":2}"#], "has the same name as an earlier one"),
        (["--intent", "1 2"], "more follows at byte 2"),
        (["--intent", "0.10000000000000000001"], "send it as a string"),
        (["--intent", &"[".repeat(200)], "nested deeper than 128 levels"),
        (["--intent", r#""\ud800""#], "half of a surrogate pair"),
        (["--intent", "@missing.json"], "cannot read missing.json"),
    ] {
        folder.run(&flags, COUNTED).says(64, &[said]);
    }
    let tenant = ["--key", "k", "--tenant", "a\tb"];
    folder.run(&tenant, COUNTED).says(64, &["the tenant contains a control character"]);
    folder.write("onceward.toml", "[operation.op]\nkey = [\"/invoice\"]\n");
    folder.run(&["--intent", "{}"], COUNTED).says(64, &["the intent has no \"/invoice\""]);
    assert!(!folder.path("onceward.db").exists());
    assert_eq!(runs(&folder), 0);
}

#[test]
fn the_hint_for_a_key_that_looks_like_a_flag_works_in_a_shell() {
    let folder = TestFolder::new();
    let run = ["run", "--operation", "op", "--key=-x", "--", "sh", "-c", "exit 137"];
    folder.onceward(&run).says(137, &["onceward resolve --operation op --key=-x --happened\n"]);
    folder.onceward(&["resolve", "--operation", "op", "--key=-x", "--happened"]).says(0, &[]);
}

#[test]
fn a_retention_of_zero_is_refused() {
    let folder = TestFolder::new();
    let said = "0s would drop the outcome at once";
    folder.run(&["--key", "k", "--retention", "0s"], COUNTED).says(64, &[said]);
    folder.write("onceward.toml", "[operation.op]\nretention = \"0s\"\n");
    folder.run(&["--key", "k"], COUNTED).says(78, &[said]);
    assert_eq!(runs(&folder), 0);
}

#[test]
fn an_empty_list_of_exit_codes_puts_none_in_doubt() {
    let folder = TestFolder::new();
    for _ in 0..2 {
        let released = folder.run(&["--key", "k", "--doubt-exit", ""], "exit 137");
        assert_eq!((released.code, released.stderr.as_str()), (137, ""));
    }
    folder.run(&["--key", "l", "--doubt-exit", "1, 7"], "exit 7").says(7, &["is now in doubt"]);
    let twice = ["--key", "n", "--doubt-exit", "1", "--doubt-exit", "7"];
    folder.run(&twice, "exit 7").says(7, &["is now in doubt"]);
    let said = ["invalid exit code \"256\"", "0 to 255"];
    folder.run(&["--key", "m", "--doubt-exit", "1,256"], "true").says(64, &said);
}

#[test]
fn help_describes_each_command() {
    let help = TestFolder::new().onceward(&["--help"]);
    let line = help.out().lines().find(|line| line.trim_start().starts_with("demo")).unwrap();
    assert!(line.contains("Watch an agent pay invoices through a flaky provider"), "{line}");
}

#[test]
fn an_intent_can_come_from_a_file() {
    let folder = TestFolder::new();
    folder.write("intent.json", "{ \"b\": 1, \"a\": 2 }\n");
    folder.run(&["--intent", "@intent.json"], "true").says(0, &[]);
    folder.run(&["--intent", r#"{"a":2,"b":1}"#], "true").says(0, &["replay of a run"]);
}

#[test]
fn the_status_fd_gets_a_line_of_json() {
    let folder = TestFolder::new();
    // The shell opens descriptor 3 for the binary.
    let told = |flags: &str, script: &str| -> serde_json::Value {
        let line = format!("\"$0\" run --operation op --key k --status-fd 3 {flags} -- sh -c '{script}' 3>status");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &line, env!("CARGO_BIN_EXE_onceward")]).current_dir(folder.path(""));
        shell.stdin(Stdio::null()).output().unwrap();
        let status = folder.read("status");
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
fn the_default_retention_is_a_week() {
    let folder = TestFolder::new();
    let kept = |key: &str, flags: &[&str]| {
        folder.run(&[&["--key", key], flags].concat(), "true").says(0, &[]);
        let view = folder.json(&["get", "--operation", "op", "--key", key, "--json"]);
        let time = |name: &str| view[name].as_str().map(|text| text.parse::<jiff::Timestamp>().unwrap());
        time("expires_at").map(|expires| (expires - time("finished_at").unwrap()).total(jiff::Unit::Hour).unwrap())
    };
    assert_eq!(kept("a", &[]), Some(7.0 * 24.0));
    assert_eq!(kept("b", &["--tier", "payment"]), Some(30.0 * 24.0));
    assert_eq!(kept("c", &["--retention", "2h"]), Some(2.0));
    assert_eq!(kept("d", &["--retention", "forever"]), None);
    folder.write("onceward.toml", "[operation.op]\ntier = \"email\"\n");
    assert_eq!(kept("e", &[]), Some(24.0));
}

#[test]
fn logs_never_show_keys_or_arguments() {
    let folder = TestFolder::new();
    let log = |script: &str| {
        let mut command = folder.run_command(&["--key", "secret-key"], script);
        CommandOutput::of(command.env("ONCEWARD_LOG", "trace").output().unwrap())
    };
    for script in ["true secret-argument", "true secret-argument", "false secret-argument"] {
        let answer = log(script);
        assert!(!answer.stderr.contains("secret"), "{answer:?}");
    }
    let doubt = folder.run_command(&["--key", "2"], "exit 137").env("ONCEWARD_LOG", "trace").output().unwrap();
    assert!(!String::from_utf8_lossy(&doubt.stderr).contains("sh -c"), "{doubt:?}");
}

#[test]
fn in_doubt_the_stricter_policy_of_record_and_caller_applies() {
    let folder = TestFolder::new();
    let script = "echo ran >> runs; exit 7";
    let flags = |in_doubt| ["--key", "k", "--doubt-exit", "7", "--in-doubt", in_doubt];
    folder.run(&flags("retry"), script).says(7, &["retries with the same ONCEWARD_KEY"]);
    folder.run(&flags("hold"), script).says(76, &[]);
    assert_eq!(folder.read("runs").lines().count(), 1);
    folder.run(&flags("retry"), script).says(7, &[]);
    assert_eq!(folder.read("runs").lines().count(), 2);
}

#[test]
fn a_lost_response_of_curl_is_in_doubt() {
    let folder = TestFolder::new();
    for code in [28, 52, 55, 56] {
        let key = code.to_string();
        let script = format!("exit {code}");
        folder.run(&["--key", &key], &script).says(code, &["is now in doubt", "curl and ssh exit with this code"]);
        folder.run(&["--key", &key], &script).says(76, &[]);
        let flags = ["--key", &format!("{key} retried"), "--on-error", "retry"];
        let released = folder.run(&flags, &script);
        released.says(code, &[]);
        assert!(!released.stderr.contains("doubt"), "{}", released.stderr);
    }
}

#[test]
fn a_failure_under_a_declared_tier_is_in_doubt() {
    let folder = TestFolder::new();
    folder.run(&["--key", "k", "--tier", "email"], "exit 1").says(1, &["is now in doubt", "a tier is set"]);
    folder.run(&["--key", "k", "--tier", "email"], "exit 1").says(76, &[]);
}

#[test]
fn over_the_quota_of_its_tenant_a_new_key_runs_nothing_and_an_old_one_is_replayed() {
    let folder = TestFolder::new();
    folder.write("onceward.toml", "[limits]\nrecords_per_tenant = 1\n");
    folder.run(&["--key", "a"], &format!("{COUNTED} echo one")).says(0, &[]);
    folder.run(&["--key", "b"], COUNTED).says(75, &["quota of 1 records", "nothing was run", "records_per_tenant"]);
    folder.run(&["--key", "a"], &format!("{COUNTED} echo one")).says(0, &["replay of a run"]);
    folder.run(&["--key", "b", "--tenant", "other"], COUNTED).says(0, &[]);
    assert_eq!(runs(&folder), 2);
}
