//! `bench store` on Redis: all figures are reported, and no key is left behind.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use crate::test_folder::TestFolder;

/// The URL of a server for tests. Without the variable the test is skipped, except in CI.
fn server(variable: &str) -> Option<String> {
    let url = std::env::var(variable).ok();
    assert!(url.is_some() || std::env::var("CI").as_deref() != Ok("true"), "{variable} is not set");
    if url.is_none() {
        println!("skipped: {variable} is not set");
    }
    url
}

/// How many keys of a server match a pattern.
fn count(address: &str, pattern: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "KEYS {pattern}\r\n").unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// Measures briefly, and returns the report.
fn measured(url: &str) -> serde_json::Value {
    let report =
        TestFolder::new().json(&["bench", "store", "--store", url, "--callers", "16", "--seconds", "1", "--json"]);
    for case in ["ledger", "simple", "ledger_one", "simple_one", "ledger_many"] {
        let figures = &report["cases"][case];
        for figure in ["pairs_per_second", "claim_p50_us", "pair_p99_us", "client_cpu_us_per_pair"] {
            assert!(figures[figure].as_f64().is_some_and(|value| value > 0.0), "{figure} of {case} in {report}");
        }
        assert!(figures["server_cpu_us_per_pair"].is_f64() && figures["wal_bytes_per_pair"].is_null(), "{report}");
    }
    assert!(report["store_replays_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{report}");
    let place = url.split_once("://").unwrap().1;
    for address in place.split('/').next().unwrap().split(',') {
        assert_eq!(count(address, &format!("*{}*", report["prefix"].as_str().unwrap())), "*0", "keys are left");
    }
    report
}

#[test]
fn every_figure_of_a_server_is_measured_and_no_key_is_left() {
    let Some(url) = server("ONCEWARD_TEST_REDIS") else { return };
    let report = measured(&url);
    let round_trips = report["round_trips_per_replay"].as_f64();
    assert!(round_trips.is_some_and(|count| (1.0..2.0).contains(&count)), "{report}");
    assert_eq!(report["aims"][0]["limit"], 0.9);
}

#[test]
fn every_figure_of_a_cluster_is_measured_and_no_key_is_left() {
    let Some(url) = server("ONCEWARD_TEST_REDIS_CLUSTER") else { return };
    assert!(measured(&url)["round_trips_per_replay"].is_null(), "a proxy cannot stand in front of several servers");
}

#[test]
fn a_store_behind_sentinel_is_refused() {
    let folder = TestFolder::new();
    folder.onceward(&["bench", "store", "--store", "redis+sentinel://h/name"]).says(64, &["name its primary"]);
}
