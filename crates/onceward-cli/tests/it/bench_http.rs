//! `bench http`: every case is measured, with and without nginx, and no process or file is left behind.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::processes::{descendants, is_running};
use crate::test_folder::{CommandOutput, TestFolder, wait_until};

/// A short run: checks the shape and the correctness, not the speed.
const SHORT: [&str; 10] = ["bench", "http", "--connections", "4", "--seconds", "0.3", "--rounds", "1", "--idle", "40"];

const OURS: [&str; 6] = ["echo", "unguarded", "guarded", "replay_one", "replay_many", "store_pair"];

fn figures_are_there(report: &Value, case: &str) {
    for figure in ["requests_per_second", "p50_us", "p99_us", "cpu_us_per_request"] {
        let value = &report["cases"][case][figure];
        assert!(value.as_f64().is_some_and(|value| value > 0.0), "{case}.{figure} in {report}");
    }
    let of = |figure: &str| report["cases"][case][figure].as_f64();
    assert!(of("p50_us") <= of("p99_us"), "{case} in {report}");
}

fn left(folder: &TestFolder) -> Vec<std::ffi::OsString> {
    std::fs::read_dir(folder.path(".")).unwrap().map(|file| file.unwrap().file_name()).collect()
}

#[test]
fn every_case_is_measured_and_nothing_is_left_behind() {
    let folder = TestFolder::new();
    let answer = folder.onceward(&[&SHORT[..], &["--store", "b.db", "--json"]].concat());
    answer.says(0, &[]);
    let report: Value = serde_json::from_slice(&answer.stdout).unwrap();
    for case in OURS {
        figures_are_there(&report, case);
    }
    // The machine may have nginx or not; the row and the version belong together, and a missing nginx is reported.
    match report["nginx"].as_str() {
        Some(version) => {
            assert!(version.starts_with(|digit: char| digit.is_ascii_digit()), "{version}");
            figures_are_there(&report, "nginx");
        }
        None => {
            assert!(report["cases"]["nginx"].is_null(), "{report}");
            answer.says(0, &["skipping nginx, which is not installed: apt-get install nginx-light"]);
        }
    }
    let cost = |case: &str| report["cases"][case]["cpu_us_per_request"].as_f64().unwrap();
    // On any machine, a case that calls the service costs more than one that does not, and writing costs more than not.
    assert!(cost("guarded") > cost("unguarded"), "{report}");
    let (before, after) = (report["idle"]["before_mb"].as_f64().unwrap(), report["idle"]["after_mb"].as_f64().unwrap());
    assert!(0.0 < before && before <= after, "{report}");
    let aims = report["aims"].as_array().unwrap();
    assert_eq!(aims.len(), 5, "{report}");
    for aim in aims {
        assert_eq!(aim["met"].is_boolean(), aim["measured"].is_number(), "{aim}");
    }
    // The aim is about 5,000 connections.
    assert!(aims[4]["measured"].is_null(), "{report}");
    let over = cost("guarded") - cost("unguarded") - cost("store_pair");
    assert!((aims[3]["measured"].as_f64().unwrap() - over).abs() < 1e-6, "{report}");
    assert!(left(&folder).is_empty(), "{:?}", left(&folder));
}

#[test]
fn people_get_a_table_and_an_existing_ledger_is_not_touched() {
    let folder = TestFolder::new();
    folder.onceward(&["run", "--operation", "digest", "--key", "k", "--", "true"]).says(0, &[]);
    let taken = folder.onceward(&["bench", "http", "--store", "onceward.db"]);
    taken.says(64, &["onceward.db already exists"]);
    folder.onceward(&["bench", "http", "--store", "memory:"]).says(64, &["name one with --store"]);
    let answer = folder.onceward(&[&SHORT[..8], &["--idle", "0", "--store", "b.db"]].concat());
    answer.says(0, &[]);
    for line in ["bare echo (axum)", "gateway replaying many keys", "CPU/request", "idle connections: memory of the"] {
        assert!(answer.out().contains(line), "{line:?} is not in:\n{}", answer.out());
    }
}

#[test]
fn an_interrupt_ends_all_started_processes() {
    let folder = TestFolder::new();
    let child = folder.command(&["bench", "http", "--seconds", "60", "--idle", "0"]).spawn().unwrap();
    let started = started(&folder, child.id());
    let signalled = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
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
    let mut child = folder.command(&["bench", "http", "--seconds", "60", "--idle", "0"]).spawn().unwrap();
    let started = started(&folder, child.id());
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until(|| started.iter().all(|pid| !is_running(*pid)));
}

/// All processes of a measurement, once they are running: its own ledger is created after the last of them is started.
fn started(folder: &TestFolder, measurement: u32) -> Vec<u32> {
    wait_until(|| folder.path(&format!("onceward-bench-{measurement}.db")).exists());
    let started = descendants(measurement);
    assert!(started.len() >= 5, "{started:?}");
    started
}
