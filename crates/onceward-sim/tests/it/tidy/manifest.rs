//! Who may depend on whom.

/// All that core may use: data types and hashing. Nothing that reads a clock, draws a number, or does I/O.
const CORE: [&str; 7] = ["bytes", "jiff", "serde", "serde_json", "sha2", "thiserror", "unicode-normalization"];

/// What each crate must not depend on: dependencies point from the outside in.
const OUTWARD: [(&str, &[&str]); 4] = [
    ("crates/onceward-core/Cargo.toml", &["onceward", "onceward-server", "onceward-sim", "onceward-macros"]),
    ("crates/onceward/Cargo.toml", &["onceward-server", "onceward-sim"]),
    ("crates/onceward-macros/Cargo.toml", &["onceward", "onceward-server", "onceward-sim"]),
    ("crates/onceward-server/Cargo.toml", &["onceward-sim"]),
];

/// Finds dependencies that a crate must not have.
pub(super) fn direction(path: &str, manifest: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (section, name) in dependencies(manifest) {
        let outward = OUTWARD.iter().any(|(owner, banned)| *owner == path && banned.contains(&name.as_str()));
        if outward {
            faults.push(format!(
                "{path}: depends on {name}, which lies outside of it: move what is needed inwards, or pass it in"
            ));
        }
        if path == "crates/onceward-core/Cargo.toml" && section != "dev-dependencies" && !CORE.contains(&name.as_str())
        {
            faults.push(format!(
                "{path}: core must stay pure and may not depend on {name}; if it is data only, add it to CORE in {}",
                file!()
            ));
        }
    }
    faults
}

/// Finds where the feature `sim` is on without a harness: there bugs could be planted, and processes killed at steps.
pub(super) fn no_sim(path: &str, manifest: &str) -> Vec<String> {
    let is_harness = path == "crates/onceward-sim/Cargo.toml" || path.starts_with("fuzz/");
    let mut section = "";
    let mut faults = Vec::new();
    for line in manifest.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if line.starts_with('[') {
            section = line;
        }
        let names = line.contains("\"sim\"") || line.contains("/sim\"");
        // A feature of this name that hands itself on inwards is off like its namesake.
        let hands_on = section == "[features]" && line.starts_with("sim =");
        if names && !is_harness && !hands_on && !section.contains("dev-dependencies") {
            faults.push(format!("{path}: `{line}` turns the feature `sim` on; only a harness may"));
        }
    }
    faults
}

/// The dependencies of a manifest, with the section that each is in.
fn dependencies(manifest: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut section = String::new();
    for line in manifest.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = header.to_owned();
            if let Some((section, name)) = header.split_once("dependencies.") {
                found.push((format!("{section}dependencies"), name.to_owned()));
            }
        } else if section.ends_with("dependencies") && !line.starts_with('#') {
            let name = line.split(['=', '.', ' ']).next().unwrap_or_default().trim_matches('"');
            if !name.is_empty() {
                found.push((section.clone(), name.to_owned()));
            }
        }
    }
    found
}

#[test]
fn core_may_use_data_types_and_nothing_that_acts() {
    let path = "crates/onceward-core/Cargo.toml";
    assert!(direction(path, "[dependencies]\nserde.workspace = true\nsha2 = \"0.11\"\n").is_empty());
    for name in ["tokio", "rusqlite", "rand", "getrandom", "reqwest", "onceward"] {
        assert!(!direction(path, &format!("[dependencies]\n{name}.workspace = true")).is_empty(), "{name}");
        assert!(!direction(path, &format!("[dependencies.{name}]\nversion = \"1\"")).is_empty(), "{name}");
        assert!(!direction(path, &format!("[target.'cfg(unix)'.dependencies]\n{name} = \"1\"")).is_empty(), "{name}");
    }
}

#[test]
fn only_a_test_of_core_may_use_more() {
    let path = "crates/onceward-core/Cargo.toml";
    assert!(direction(path, "[dev-dependencies]\nproptest = \"1\"").is_empty());
    assert!(!direction(path, "[dev-dependencies]\nonceward.workspace = true").is_empty());
}

#[test]
fn the_library_knows_neither_server_nor_harness() {
    let path = "crates/onceward/Cargo.toml";
    assert!(direction(path, "[dependencies]\nonceward-core.workspace = true\ntokio.workspace = true").is_empty());
    for name in ["onceward-server", "onceward-sim"] {
        assert!(!direction(path, &format!("[dependencies]\n{name}.workspace = true")).is_empty());
        assert!(!direction(path, &format!("[dev-dependencies]\n{name}.workspace = true")).is_empty());
    }
    assert!(!direction("crates/onceward-server/Cargo.toml", "[dependencies]\nonceward-sim = \"1\"").is_empty());
}

#[test]
fn only_a_harness_turns_sim_on() {
    let path = "crates/onceward/Cargo.toml";
    assert!(no_sim(path, "[features]\ndefault = [\"sqlite\"]\nsim = [\"onceward-core/sim\"]").is_empty());
    assert!(!no_sim(path, "[features]\ndefault = [\"sim\", \"sqlite\"]").is_empty());
    assert!(!no_sim(path, "[features]\nsqlite = [\"onceward-core/sim\"]").is_empty());
    let enabled = "[dependencies]\nonceward = { workspace = true, features = [\"sim\"] }";
    assert!(!no_sim("crates/onceward-server/Cargo.toml", enabled).is_empty());
    assert!(
        !no_sim("Cargo.toml", "[workspace.dependencies]\nonceward = { path = \"x\", features = [\"sim\"] }").is_empty()
    );
    assert!(no_sim("crates/onceward-sim/Cargo.toml", enabled).is_empty());
}

#[test]
fn other_tables_are_no_dependencies() {
    let manifest = "[features]\ntokio = []\n[dependencies]\nserde = \"1\"\n[lints]\nworkspace = true\n# tokio = 1";
    assert_eq!(dependencies(manifest), [("dependencies".to_owned(), "serde".to_owned())]);
}
