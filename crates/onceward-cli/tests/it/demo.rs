//! `onceward demo`: the real binary with its real processes. Charges are counted from the providers' own logs.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use onceward::Ledger;
use onceward::core::record::Status;
use onceward::store::Filter;

const PROGRAM: &str = env!("CARGO_BIN_EXE_onceward");

fn demo(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("demo").args(arguments).arg("--provider-logs").arg(folder).current_dir(folder);
    command.env("LC_ALL", "C.UTF-8").env_remove("CARGO").env_remove("NO_COLOR").stdin(Stdio::null());
    command
}

fn shown(folder: &Path, arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = demo(folder, arguments).output().unwrap();
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(status.success(), "{status}\n{stdout}\n{stderr}");
    assert_eq!(stderr, "");
    stdout
}

/// The three numbers of a row of the table.
fn totals(text: &str, label: &str) -> [Option<usize>; 3] {
    let row =
        text.lines().find_map(|line| line.trim().strip_prefix(label)).unwrap_or_else(|| panic!("{label}: {text}"));
    let numbers: Vec<_> = row.split_whitespace().map(|word| word.parse().ok()).collect();
    numbers.try_into().unwrap()
}

/// The events that the provider of a world logged, in order.
fn provider_log(folder: &Path, world: &str) -> Vec<serde_json::Value> {
    let log = fs::read_to_string(folder.join(format!("provider-{world}.log"))).unwrap();
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// How often each invoice was charged, according to the provider of a world.
fn charges(folder: &Path, world: &str) -> BTreeMap<String, usize> {
    let mut charges = BTreeMap::new();
    for event in provider_log(folder, world) {
        if event["event"] == "charged" {
            *charges.entry(event["invoice"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    charges
}

/// The invoices of the rows that end with this text in the last column.
fn invoices_with(text: &str, ending: &str) -> Vec<String> {
    let rows = text.lines().filter(|line| line.starts_with("  INV-") && line.ends_with(ending));
    rows.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

/// What `onceward get` says about a payment in the world whose provider ignores keys.
fn get(folder: &Path, operation: &str, invoice: &str) -> serde_json::Value {
    let mut command = Command::new(PROGRAM);
    command.args(["get", "--json", "--store", "demo.db", "--tenant", "demo-no-keys", "--operation", operation]);
    let Output { status, stdout, stderr } = command.args(["--key", invoice]).current_dir(folder).output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    serde_json::from_slice(&stdout).unwrap()
}

fn charged_times(charges: &BTreeMap<String, usize>, times: usize) -> usize {
    charges.values().filter(|count| **count == times).count()
}

#[test]
fn the_same_seed_shows_the_same_run_and_another_seed_shows_other_faults() {
    let (one, two, three) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = shown(one.path(), &["--seed", "11"]);
    assert_eq!(first, shown(two.path(), &["--seed", "11"]));
    let faults =
        |text: &str| text.lines().filter(|line| line.starts_with("  INV-")).map(str::to_owned).collect::<Vec<_>>();
    assert_ne!(faults(&first), faults(&shown(three.path(), &["--seed", "12"])));
}

#[test]
fn the_totals_are_what_the_providers_logged() {
    let folder = tempfile::tempdir().unwrap();
    let text = shown(folder.path(), &["--seed", "3", "--payments", "30"]);
    assert!(!text.contains('\x1b'), "the output has no colours without a terminal: {text}");
    let [bare, keys, no_keys] =
        ["without-onceward", "keys-honoured", "keys-ignored"].map(|world| charges(folder.path(), world));
    let (once, twice, held) =
        (totals(&text, "charged once"), totals(&text, "charged twice"), totals(&text, "held for you"));

    assert_eq!(once[0], Some(charged_times(&bare, 1)));
    assert_eq!(twice, [Some(charged_times(&bare, 2)), Some(0), Some(0)]);
    assert!(twice[0] > Some(0), "{text}");

    assert_eq!(once[1], Some(30));
    assert_eq!(charged_times(&keys, 1), 30, "{keys:?}");

    let probed = totals(&text, "of these, after a probe");
    assert_eq!(charged_times(&no_keys, 1), no_keys.len(), "{no_keys:?}");
    assert_eq!([(held[0], held[1]), (probed[0], probed[1])], [(None, Some(0)); 2]);
    assert!(held[2] > Some(0) && probed[2] > Some(0), "{text}");
    assert_eq!(once[2].unwrap() + held[2].unwrap(), 30);
    // The provider charged some of the held payments and not others: that is why a person has to look.
    let uncharged = 30 - no_keys.len();
    assert!(uncharged > 0 && uncharged < held[2].unwrap(), "{text}");

    let kills = totals(&text, "agent killed");
    assert!(kills[0] > Some(0) && kills[0] == kills[1] && kills[1] == kills[2], "{text}");
}

#[test]
fn a_probe_settles_lost_answers_of_card_payments() {
    let folder = tempfile::tempdir().unwrap();
    let text = shown(folder.path(), &["--seed", "3", "--payments", "30"]);
    let log = provider_log(folder.path(), "keys-ignored");
    let events = |invoice: &str| {
        // The provider notices a closed connection at any time.
        let of_invoice = log.iter().filter(|event| event["invoice"] == invoice && event["event"] != "client_gave_up");
        of_invoice.map(|event| (event["event"].as_str().unwrap(), event["found"].as_bool())).collect::<Vec<_>>()
    };
    let [found, paid] = ["found by probe", "paid after probe"].map(|ending| invoices_with(&text, ending));
    assert!(!found.is_empty() && !paid.is_empty(), "{text}");
    assert_eq!(totals(&text, "of these, after a probe")[2], Some(found.len() + paid.len()));

    for invoice in found {
        let events = events(&invoice);
        assert_eq!(events.first(), Some(&("charged", None)), "{invoice}: {events:?}");
        assert_eq!(events.iter().filter(|(event, _)| *event == "charged").count(), 1, "{invoice}: {events:?}");
        assert_eq!(events.last(), Some(&("looked_up", Some(true))), "{invoice}: {events:?}");
        let intent = get(folder.path(), "charge_card", &invoice);
        assert_eq!((&intent["state"], &intent["attempts"]), (&"done".into(), &2.into()), "{intent}");
    }
    for invoice in paid {
        let events = events(&invoice);
        let lookups = events.iter().filter(|event| **event == ("looked_up", Some(false))).count();
        assert!(lookups > 1, "the lookups go on until the settle time has passed: {invoice}: {events:?}");
        assert_eq!(events.len(), lookups + 2, "{invoice}: {events:?}");
        assert_eq!(events.first(), Some(&("connection_dropped", None)), "{invoice}: {events:?}");
        assert_eq!(events.last(), Some(&("charged", None)), "no charge before the last lookup: {invoice}: {events:?}");
    }
}

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// The milliseconds since midnight of a time such as `2026-11-18T07:11:32.881Z`.
fn millis_of_day(time: &str) -> i64 {
    let digits: Vec<i64> = time[11..23].split([':', '.']).map(|number| number.parse().unwrap()).collect();
    ((digits[0] * 60 + digits[1]) * 60 + digits[2]) * 1000 + digits[3]
}

#[test]
fn a_probe_that_finds_nothing_is_believed_only_after_the_settle_time() {
    let folder = tempfile::tempdir().unwrap();
    let text = shown(folder.path(), &["--payments", "8"]);
    let paid = invoices_with(&text, "paid after probe");
    assert!(!paid.is_empty(), "{text}");
    for invoice in paid {
        let intent = get(folder.path(), "charge_card", &invoice);
        let [entry] = intent["trail"].as_array().unwrap().as_slice() else { panic!("one entry: {intent}") };
        assert_eq!(entry["what"], "probe_found_nothing", "{intent}");
        let in_doubt_since = entry["note"].as_str().unwrap().rsplit_once(' ').unwrap().1;
        let passed = (millis_of_day(entry["at"].as_str().unwrap()) - millis_of_day(in_doubt_since)).rem_euclid(DAY_MS);
        assert!(passed >= 1000, "{passed} ms: {intent}");
    }
}

#[test]
fn transfers_are_never_looked_up_and_wait_for_a_person() {
    let folder = tempfile::tempdir().unwrap();
    let text = shown(folder.path(), &[]);
    let held = invoices_with(&text, "held for you");
    assert_eq!(totals(&text, "held for you")[2], Some(held.len()));
    let log = provider_log(folder.path(), "keys-ignored");
    for invoice in &held {
        let is_looked_up = |event: &&serde_json::Value| event["event"] == "looked_up" && event["invoice"] == **invoice;
        assert_eq!(log.iter().find(is_looked_up), None, "{invoice}");
    }
    let settled = text.lines().find_map(|line| line.trim().strip_prefix("A person settles one of them, ")).unwrap();
    let settled = settled.trim_end_matches(':');
    assert!(held.iter().any(|invoice| invoice == settled), "{text}");
    let intent = get(folder.path(), "bank_transfer", settled);
    assert_eq!((&intent["state"], &intent["trail"][0]["what"]), (&"done".into(), &"resolved_happened".into()));
    for invoice in held.iter().filter(|invoice| *invoice != settled) {
        assert_eq!(get(folder.path(), "bank_transfer", invoice)["state"], "in_doubt");
    }
}

#[tokio::test]
async fn the_ledger_keeps_all_held_payments_but_the_settled_one() {
    let folder = tempfile::tempdir().unwrap();
    let text = shown(folder.path(), &[]);
    let ledger = Ledger::open(folder.path().join("demo.db").to_str().unwrap()).await.unwrap();
    let counts = ledger.counts().await.unwrap();
    let held = totals(&text, "held for you")[2].unwrap() as u64;
    assert_eq!(counts.of(Status::InDoubt), held - 1);
    assert_eq!(counts.of(Status::Done), 2 * 24 - held + 1);
    assert_eq!(counts.0.values().sum::<u64>(), 2 * 24);
}

#[test]
fn an_earlier_demo_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let first = shown(folder.path(), &["--seed", "5", "--payments", "8"]);
    assert_eq!(first, shown(folder.path(), &["--seed", "5", "--payments", "8"]));
}

#[test]
fn a_second_demo_in_the_same_folder_is_refused_while_the_first_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = demo(folder.path(), &["--payments", "60"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(first.stdout.take().unwrap());
    stdout.read_line(&mut String::new()).unwrap();
    let second = demo(folder.path(), &[]).output().unwrap();
    assert_eq!(second.status.code(), Some(70));
    let stderr = String::from_utf8(second.stderr).unwrap();
    assert!(stderr.contains("another demo is running"), "{stderr}");
    stdout.read_to_string(&mut String::new()).unwrap();
    assert!(first.wait().unwrap().success(), "the first demo is not disturbed");
}

#[test]
fn a_file_that_is_not_a_ledger_is_refused_and_left_alone() {
    for content in ["", "my precious notes\n", &"SQLite format 3\0 or so ".repeat(300)] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("demo.db");
        fs::write(&file, content).unwrap();
        let output = demo(folder.path(), &[]).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(70), "{stderr}");
        assert!(stderr.contains("demo.db") && stderr.contains("--store"), "{stderr}");
        assert_eq!(fs::read_to_string(&file).unwrap(), content);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no other file is created");
    }
}

#[tokio::test]
async fn a_ledger_with_intents_of_the_user_is_refused_and_keeps_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("demo.db");
    let ledger = Ledger::open(file.to_str().unwrap()).await.unwrap();
    ledger.operation("charge_payment").tenant("acme").key("1").run(|_| async { Ok(1) }).await.unwrap();
    ledger.close().await;
    let output = demo(folder.path(), &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(70));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("not from a demo"), "{stderr}");
    let ledger = Ledger::open(file.to_str().unwrap()).await.unwrap();
    assert_eq!(ledger.list(&Filter::default(), None, 10).await.unwrap().listed.len(), 1);
}

#[test]
fn the_user_can_choose_another_file_and_the_environment_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = demo(folder.path(), &["--payments", "6", "--store", "other file.db"]);
    let output = command.env("ONCEWARD_STORE", "real.db").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("list --store 'other file.db'"), "{text}");
    let exists = |name: &str| folder.path().join(name).exists();
    assert_eq!([exists("other file.db"), exists("demo.db"), exists("real.db")], [true, false, false]);
}

#[test]
fn a_broken_configuration_of_the_user_does_not_end_the_demo() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("onceward.toml"), "broken = [").unwrap();
    shown(folder.path(), &["--payments", "6"]);
}

#[test]
fn a_store_that_is_not_a_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for store in ["memory:", "postgres://localhost/ledger"] {
        let output = demo(folder.path(), &["--store", store]).output().unwrap();
        assert_eq!(output.status.code(), Some(70));
        assert!(String::from_utf8(output.stderr).unwrap().contains("file"), "{store}");
    }
}

#[test]
fn a_closed_output_pipe_ends_the_demo_without_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = demo(folder.path(), &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(stderr, "");
    assert_no_process_is_left(folder.path());
}

#[test]
fn killing_the_demo_ends_its_child_processes() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = demo(folder.path(), &["--payments", "60"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let fault = lines.map_while(Result::ok).find(|line| line.contains("INV-"));
    assert!(fault.is_some());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_no_process_is_left(folder.path());
}

/// The folder is an argument of every child process of a demo.
fn assert_no_process_is_left(folder: &Path) {
    let folder = folder.to_str().unwrap();
    let left = || {
        let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let lines = processes.filter_map(|process| fs::read_to_string(process.path().join("cmdline")).ok());
        lines.filter(|line| line.contains(folder) && line.contains("demo-")).collect::<Vec<_>>()
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    while !left().is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(left(), Vec::<String>::new());
}

#[test]
fn the_live_view_runs_on_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let command = format!("stty rows 30 cols 90; exec '{PROGRAM}' demo --payments 6 --provider-logs .");
    let script = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .current_dir(folder.path())
        .env("LC_ALL", "C.UTF-8")
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .output();
    let Ok(output) = script else { return eprintln!("skipped: `script`, which provides a terminal, is not installed") };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("\x1b[?25l") && text.contains("\x1b[?25h"), "the cursor is hidden, and shown again: {text}");
    assert!(text.contains("\x1b[32m"), "the output has colours: {text}");
    assert!(text.contains("The ledger is in demo.db"), "{text}");
}
