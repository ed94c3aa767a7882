//! The shipped binary contains no planted bugs: neither by its features nor by its bytes.

use std::process::Command;

use onceward::plant::MARKER;

/// The package of the binary `onceward`.
const PRODUCT: &str = "onceward-cli";

/// The variable with the path of a binary that was built without the harness. The test command sets it.
const BINARY: &str = "ONCEWARD_PRODUCT";

/// The features of the library when this package alone is built, as for a release.
fn library_features(package: &str) -> Vec<String> {
    let arguments = ["tree", "--locked", "--offline", "--edges", "no-dev", "--prefix", "none", "--format", "{p}|{f}"];
    let output = Command::new(env!("CARGO")).args(arguments).args(["--package", package]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let library = text.lines().find(|line| line.starts_with("onceward v")).expect("it uses the library");
    let features = library.rsplit_once('|').expect("features follow the bar").1;
    features.trim_end_matches(" (*)").split(',').map(str::to_owned).collect()
}

fn contains_marker(path: &str) -> bool {
    let binary = std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    binary.windows(MARKER.len()).any(|bytes| bytes == MARKER)
}

#[test]
fn the_product_is_built_without_the_feature_of_the_harness() {
    let sim = "sim".to_owned();
    assert!(library_features("onceward-sim").contains(&sim), "the harness has the feature, so this test would see it");
    let features = library_features(PRODUCT);
    assert!(features.contains(&"sqlite".to_owned()) && !features.contains(&sim), "{PRODUCT}: {features:?}");
}

#[test]
fn the_product_contains_no_planted_bug() {
    assert!(
        contains_marker(env!("CARGO_BIN_EXE_onceward-sim")),
        "the harness has the marker, so this test would see it"
    );
    let Ok(path) = std::env::var(BINARY) else {
        println!("skipped: set {BINARY} to a binary that was built with --no-default-features");
        return;
    };
    assert!(!contains_marker(&path), "{path} contains planted bugs");
}
