//! `bench store`: all figures are reported, and no existing ledger is touched.

use crate::test_folder::TestFolder;

const FIGURES: [&str; 10] = [
    "pairs_per_second",
    "claim_p50_us",
    "claim_p99_us",
    "pair_p50_us",
    "pair_p99_us",
    "replays_per_second",
    "cpu_us_per_pair",
    "fsync_p50_us",
    "raw_log_pairs_per_second",
    "ratio_to_raw_log",
];

#[test]
fn every_figure_is_measured_and_nothing_is_left_behind() {
    let folder = TestFolder::new();
    let report = folder.json(&[
        "bench",
        "store",
        "--store",
        "b.db",
        "--callers",
        "8",
        "--seconds",
        "1",
        "--preload",
        "300",
        "--expire",
        "200",
        "--json",
    ]);
    for figure in FIGURES.iter().chain(&["store_replays_per_second", "reopen_ms", "expiring_claim_p99_us"]) {
        assert!(report[figure].as_f64().is_some_and(|value| value > 0.0), "{figure} in {report}");
    }
    assert_eq!((&report["callers"], &report["preload"]), (&8.into(), &300.into()));
    let half = report["claim_p50_us"].as_f64();
    assert!(half <= report["claim_p99_us"].as_f64() && half <= report["pair_p50_us"].as_f64(), "{report}");
    let (ours, raw) =
        (report["pairs_per_second"].as_f64().unwrap(), report["raw_log_pairs_per_second"].as_f64().unwrap());
    assert!((report["ratio_to_raw_log"].as_f64().unwrap() - ours / raw).abs() < 1e-9, "{report}");
    let left: Vec<_> = std::fs::read_dir(folder.path(".")).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_existing_ledger_is_never_measured() {
    let folder = TestFolder::new();
    folder.onceward(&["run", "--operation", "digest", "--key", "k", "--", "true"]).says(0, &[]);
    folder.onceward(&["bench", "store", "--store", "onceward.db"]).says(64, &["onceward.db already exists"]);
    assert_eq!(folder.json(&["list", "--json"])["intents"].as_array().unwrap().len(), 1);
}

#[test]
fn the_ledger_is_kept_on_request() {
    let folder = TestFolder::new();
    let answer =
        folder.onceward(&["bench", "store", "--store", "kept.db", "--callers", "2", "--seconds", "1", "--keep"]);
    answer.says(0, &[]);
    for line in ["claims and finishes, durable", "relative to the bare log", "replays from memory"] {
        assert!(answer.out().contains(line), "{line:?} is not in:\n{}", answer.out());
    }
    let listed = folder.json(&["list", "--store", "kept.db", "--limit", "1", "--json"]);
    assert_eq!(listed["intents"][0]["state"], "done");
}
