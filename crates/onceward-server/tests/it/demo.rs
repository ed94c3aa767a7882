//! `onceward demo`, the real binary with its real processes. Charges are counted from the providers' own logs.

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

/// How often each invoice was charged, as the provider of a world logged it.
fn charges(folder: &Path, world: &str) -> BTreeMap<String, usize> {
    let log = fs::read_to_string(folder.join(format!("provider-{world}.log"))).unwrap();
    let mut charges = BTreeMap::new();
    for line in log.lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        if event["event"] == "charged" {
            *charges.entry(event["invoice"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    charges
}

fn charged_times(charges: &BTreeMap<String, usize>, times: usize) -> usize {
    charges.values().filter(|count| **count == times).count()
}

#[test]
fn the_same_seed_shows_the_same_and_another_seed_shows_other_faults() {
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
    assert!(!text.contains('\x1b'), "plain text without a terminal: {text}");
    let [bare, keys, no_keys] = ["bare", "keys", "no-keys"].map(|world| charges(folder.path(), world));
    let (once, twice, held) =
        (totals(&text, "charged once"), totals(&text, "charged twice"), totals(&text, "held for you"));

    assert_eq!(once[0], Some(charged_times(&bare, 1)));
    assert_eq!(twice, [Some(charged_times(&bare, 2)), Some(0), Some(0)]);
    assert!(twice[0] > Some(0), "{text}");

    assert_eq!(once[1], Some(30));
    assert_eq!(charged_times(&keys, 1), 30, "{keys:?}");

    assert_eq!(charged_times(&no_keys, 1), no_keys.len(), "{no_keys:?}");
    assert_eq!((held[0], held[1]), (None, Some(0)));
    assert!(held[2] > Some(0), "{text}");
    assert_eq!(once[2].unwrap() + held[2].unwrap(), 30);
    // Some that are held were charged and some were not: that is why nobody may guess.
    let uncharged = 30 - no_keys.len();
    assert!(uncharged > 0 && uncharged < held[2].unwrap(), "{text}");

    let kills = totals(&text, "agent killed");
    assert!(kills[0] > Some(0) && kills[0] == kills[1] && kills[1] == kills[2], "{text}");
}

#[tokio::test]
async fn the_ledger_that_is_left_holds_all_but_the_one_that_was_settled() {
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
    assert!(first.wait().unwrap().success(), "the first one is not disturbed");
}

#[test]
fn a_file_that_is_no_ledger_is_refused_and_untouched() {
    for content in ["", "my precious notes\n", &"SQLite format 3\0 or so ".repeat(300)] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("demo.db");
        fs::write(&file, content).unwrap();
        let output = demo(folder.path(), &[]).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(70), "{stderr}");
        assert!(stderr.contains("demo.db") && stderr.contains("--store"), "{stderr}");
        assert_eq!(fs::read_to_string(&file).unwrap(), content);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing was left beside it");
    }
}

#[tokio::test]
async fn a_ledger_with_real_intents_is_refused_and_keeps_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("demo.db");
    let ledger = Ledger::open(file.to_str().unwrap()).await.unwrap();
    ledger.operation("charge_payment").tenant("acme").key("1").run(|_| async { Ok(1) }).await.unwrap();
    ledger.close().await;
    let output = demo(folder.path(), &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(70));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("no demo made"), "{stderr}");
    let ledger = Ledger::open(file.to_str().unwrap()).await.unwrap();
    assert_eq!(ledger.list(&Filter::default(), None, 10).await.unwrap().listed.len(), 1);
}

#[test]
fn another_file_can_be_chosen_and_the_environment_does_not_choose_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = demo(folder.path(), &["--payments", "6", "--store", "other file.db"]);
    let output = command.env("ONCEWARD_STORE", "real.db").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("list --store 'other file.db' --state in_doubt"), "{text}");
    let exists = |name: &str| folder.path().join(name).exists();
    assert_eq!([exists("other file.db"), exists("demo.db"), exists("real.db")], [true, false, false]);
}

#[test]
fn a_store_that_is_no_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for store in ["memory:", "postgres://localhost/ledger"] {
        let output = demo(folder.path(), &["--store", store]).output().unwrap();
        assert_eq!(output.status.code(), Some(70));
        assert!(String::from_utf8(output.stderr).unwrap().contains("file"), "{store}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_trouble() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = demo(folder.path(), &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(stderr, "");
    assert_nobody_is_left(folder.path());
}

#[test]
fn killing_the_demo_leaves_no_process_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = demo(folder.path(), &["--payments", "60"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let fault = lines.map_while(Result::ok).find(|line| line.contains("INV-"));
    assert!(fault.is_some());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_nobody_is_left(folder.path());
}

/// The folder is an argument of every process of a demo.
fn assert_nobody_is_left(folder: &Path) {
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
    let command = format!("stty rows 30 cols 90; exec {PROGRAM} demo --payments 6 --provider-logs .");
    let script = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .current_dir(folder.path())
        .env("LC_ALL", "C.UTF-8")
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .output();
    let Ok(output) = script else { return eprintln!("skipped: no `script` here to make a terminal") };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("\x1b[?25l") && text.contains("\x1b[?25h"), "the cursor is hidden, and shown again: {text}");
    assert!(text.contains("\x1b[32m"), "there are colours: {text}");
    assert!(text.contains("more wait for you in demo.db"), "{text}");
}
