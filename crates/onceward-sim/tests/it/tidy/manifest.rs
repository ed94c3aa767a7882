//! Which crate may depend on which, and where the feature of the harness may be on.

/// Everything that core may use: data types and hashing. Nothing that reads a clock, draws random numbers, or does I/O.
const CORE: [&str; 7] = ["bytes", "jiff", "serde", "serde_json", "sha2", "thiserror", "unicode-normalization"];

/// Which of our crates each crate may depend on. Dependencies point one way, from the product to core; the harness and the
/// benchmark are on top. A new crate is a new row.
const LAYERS: [(&str, &[&str]); 10] = [
    ("onceward-core", &[]),
    ("onceward-macros", &["onceward-core"]),
    ("onceward", &["onceward-core", "onceward-macros"]),
    ("onceward-runtime", &["onceward-core", "onceward"]),
    ("onceward-mcp", &["onceward-core", "onceward", "onceward-runtime"]),
    ("onceward-courier", &["onceward-core", "onceward", "onceward-runtime", "onceward-mcp"]),
    ("onceward-server", &["onceward-core", "onceward", "onceward-runtime", "onceward-courier"]),
    (
        "onceward-cli",
        &[
            "onceward-core",
            "onceward",
            "onceward-runtime",
            "onceward-courier",
            "onceward-mcp",
            "onceward-server",
            "onceward-bench",
        ],
    ),
    ("onceward-bench", &["onceward-core", "onceward", "onceward-runtime", "onceward-mcp", "onceward-server"]),
    (
        "onceward-sim",
        &["onceward-core", "onceward", "onceward-runtime", "onceward-mcp", "onceward-server", "onceward-cli"],
    ),
];

/// Finds dependencies that a crate must not have.
pub(super) fn direction(path: &str, manifest: &str) -> Vec<String> {
    let name = path.trim_start_matches("crates/").trim_end_matches("/Cargo.toml");
    let Some((_, allowed)) = LAYERS.iter().find(|(known, _)| *known == name) else {
        return vec![format!("{path}: add {name} to LAYERS in {}, with what it may depend on", file!())];
    };
    let mut faults = Vec::new();
    for (section, dependency) in dependencies(manifest) {
        // A crate may have itself as a dependency of its tests, for another feature.
        let is_ours = LAYERS.iter().any(|(known, _)| *known == dependency) && dependency != name;
        if is_ours && !allowed.contains(&dependency.as_str()) {
            faults.push(format!(
                "{path}: must not depend on {dependency}: move the code that it needs to a lower crate, or pass it in"
            ));
        }
        if name == "onceward-core" && section != "dev-dependencies" && !CORE.contains(&dependency.as_str()) {
            faults.push(format!(
                "{path}: core must stay pure and may not depend on {dependency}; if it is data only, add it to CORE in {}",
                file!()
            ));
        }
    }
    faults
}

/// Finds where the feature `sim` is on outside of a harness: there bugs could be planted, and processes killed at steps.
pub(super) fn no_sim(path: &str, manifest: &str) -> Vec<String> {
    let is_harness = path == "crates/onceward-sim/Cargo.toml" || path.starts_with("fuzz/");
    let mut section = "";
    let mut faults = Vec::new();
    for line in manifest.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if line.starts_with('[') {
            section = line;
        }
        let names = line.contains("\"sim\"") || line.contains("/sim\"");
        // A feature `sim` may turn on the one of a lower crate.
        let passes_on = section == "[features]" && line.starts_with("sim =");
        if names && !is_harness && !passes_on && !section.contains("dev-dependencies") {
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
fn dependencies_point_from_the_product_to_core() {
    let path = "crates/onceward/Cargo.toml";
    assert!(direction(path, "[dependencies]\nonceward-core.workspace = true\ntokio.workspace = true").is_empty());
    assert!(direction(path, "[dev-dependencies]\nonceward = { path = \".\" }").is_empty());
    for name in ["onceward-server", "onceward-sim", "onceward-cli"] {
        assert!(!direction(path, &format!("[dependencies]\n{name}.workspace = true")).is_empty());
        assert!(!direction(path, &format!("[dev-dependencies]\n{name}.workspace = true")).is_empty());
    }
    assert!(!direction("crates/onceward-server/Cargo.toml", "[dependencies]\nonceward-mcp = \"1\"").is_empty());
    assert!(!direction("crates/onceward-server/Cargo.toml", "[dependencies]\nonceward-sim = \"1\"").is_empty());
    assert!(direction("crates/onceward-cli/Cargo.toml", "[dependencies]\nonceward-mcp = \"1\"").is_empty());
    assert!(!direction("crates/onceward-new/Cargo.toml", "").is_empty());
}

#[test]
fn only_a_harness_turns_sim_on() {
    let path = "crates/onceward/Cargo.toml";
    assert!(no_sim(path, "[features]\ndefault = [\"sqlite\"]\nsim = [\"onceward-runtime/sim\"]").is_empty());
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
fn other_tables_are_not_dependencies() {
    let manifest = "[features]\ntokio = []\n[dependencies]\nserde = \"1\"\n[lints]\nworkspace = true\n# tokio = 1";
    assert_eq!(dependencies(manifest), [("dependencies".to_owned(), "serde".to_owned())]);
}
