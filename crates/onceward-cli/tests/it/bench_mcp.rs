//! `bench mcp`: every case is measured, every effect happens once, and no process or file is left behind.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::processes::{descendants, is_running};
use crate::test_folder::{CommandOutput, TestFolder, wait_until};

/// A short run: checks the shape and the correctness, not the speed.
const SHORT: [&str; 6] = ["bench", "mcp", "--seconds", "0.2", "--rounds", "2"];

const CASES: [&str; 4] = ["direct", "pass_through", "guarded", "replay"];

fn left(folder: &TestFolder) -> Vec<std::ffi::OsString> {
    std::fs::read_dir(folder.path(".")).unwrap().map(|file| file.unwrap().file_name()).collect()
}

#[test]
fn every_case_is_measured_and_every_effect_happens_once() {
    let folder = TestFolder::new();
    // The user's own settings are ignored.
    folder.write("onceward.toml", "[mcp.server.bench.tool.act]\nguard = false\n");
    let answer = folder.onceward(&[&SHORT[..], &["--store", "b.db", "--json"]].concat());
    answer.says(0, &[]);
    let report: Value = serde_json::from_slice(&answer.stdout).unwrap();
    for case in CASES {
        for way in ["one_at_a_time", "in_flight"] {
            let row = &report["cases"][case][way];
            for figure in ["calls_per_second", "p50_us", "p99_us", "cpu_us_per_call"] {
                assert!(row[figure].as_f64().is_some_and(|value| value > 0.0), "{case}.{way}.{figure} in {report}");
            }
            assert!(row["p50_us"].as_f64() <= row["p99_us"].as_f64(), "{case}.{way} in {report}");
            assert_eq!(row["added_p50_us"].is_number(), case != "direct", "{case}.{way} in {report}");
        }
    }
    let count = |case: &str, what: &str| report["cases"][case][what].as_u64().unwrap();
    assert_eq!(count("direct", "effects"), count("direct", "calls"));
    assert_eq!(count("pass_through", "effects"), 0);
    assert_eq!(count("guarded", "effects"), count("guarded", "calls"));
    assert_eq!(count("replay", "effects"), 1);
    // One call at the start, and some in each round with both loads.
    assert!(CASES.iter().all(|case| count(case, "calls") > 4), "{report}");
    assert!(report["fsync_p50_us"].as_f64() <= report["fsync_p99_us"].as_f64() && report["fsync_p50_us"].is_number());
    // Which of the two is larger depends on what else the machine does.
    assert!(report["synced_p50_us"].as_f64() > Some(0.0) && report["fsync_p50_us"].as_f64() > Some(0.0), "{report}");
    let aims = report["aims"].as_array().unwrap();
    let limits: Vec<_> = aims.iter().map(|aim| aim["limit"].as_f64().unwrap()).collect();
    assert_eq!(limits, [200.0, 500.0]);
    assert!(aims.iter().all(|aim| aim["met"].is_boolean() && aim["measured"].is_number()), "{report}");
    let added = report["cases"]["pass_through"]["one_at_a_time"]["added_p50_us"].as_f64();
    assert_eq!(aims[0]["measured"].as_f64(), added, "{report}");
    assert_eq!(left(&folder), ["onceward.toml"]);
}

#[test]
fn people_get_a_table_and_an_existing_ledger_is_not_touched() {
    let folder = TestFolder::new();
    folder.onceward(&["run", "--operation", "digest", "--key", "k", "--", "true"]).says(0, &[]);
    folder.onceward(&["bench", "mcp", "--store", "onceward.db"]).says(64, &["onceward.db already exists"]);
    folder.onceward(&["bench", "mcp", "--store", "memory:"]).says(64, &["name one with --store"]);
    let answer = folder.onceward(&[&SHORT[..], &["--store", "b.db"]].concat());
    answer.says(0, &[]);
    for line in [
        "one call at a time",
        "16 calls in flight",
        "replays of one call: ",
        " calls, effects: 1",
        "between two syncs",
        "two syncs + 500 µs",
    ] {
        assert!(answer.out().contains(line), "{line:?} is not in:\n{}", answer.out());
    }
}

#[test]
fn an_interrupt_ends_all_started_processes() {
    let folder = TestFolder::new();
    let child = folder.command(&["bench", "mcp", "--seconds", "60"]).spawn().unwrap();
    let started = started(&folder, child.id());
    let signalled = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(signalled.success());
    let asked = Instant::now();
    let ended = CommandOutput::of(child.wait_with_output().unwrap());
    assert_eq!(ended.code, 130, "{ended:?}");
    assert!(asked.elapsed() < Duration::from_secs(30));
    wait_until(|| started.iter().all(|pid| !is_running(*pid)));
    assert!(left(&folder).is_empty(), "{:?}", left(&folder));
}

#[test]
fn a_killed_measurement_takes_its_processes_with_it() {
    let folder = TestFolder::new();
    let mut child = folder.command(&["bench", "mcp", "--seconds", "60"]).spawn().unwrap();
    let started = started(&folder, child.id());
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until(|| started.iter().all(|pid| !is_running(*pid)));
}

/// All processes of a measurement, once they are running: its bare log is created after the last of them is started.
fn started(folder: &TestFolder, measurement: u32) -> Vec<u32> {
    wait_until(|| folder.path(&format!("onceward-bench-{measurement}.db-bare-log")).exists());
    let started = descendants(measurement);
    // The direct server, and three gateways with one server each.
    assert_eq!(started.len(), 7, "{started:?}");
    started
}
