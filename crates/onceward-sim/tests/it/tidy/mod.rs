//! Style and architecture as a test: walks the workspace and applies each rule to each file that it is for.
//!
//! - `rules`: purity, layering and form of source files.
//! - `manifest`: dependencies between crates.
//! - `names`: names of modules and types.
//! - `wording`: plain English.
//! - `architecture`: files that ARCHITECTURE.md names.

mod architecture;
mod manifest;
mod names;
mod rules;
mod wording;

use std::fs;
use std::path::{Path, PathBuf};

/// Folders without files of ours.
const SKIPPED: [&str; 5] = ["target", ".git", "node_modules", ".venv", "dist"];

/// This test has to name what it forbids.
const ITSELF: &str = "crates/onceward-sim/tests/it/tidy/";

/// Files that may be long, each with its reason.
const LONG: [(&str, &str); 0] = [];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every text file below a folder, as its path from the root and its text.
fn files() -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type().unwrap().is_dir() {
                if !SKIPPED.contains(&name.as_str()) {
                    folders.push(entry.path());
                }
            } else if let Ok(text) = fs::read_to_string(entry.path()) {
                let path = entry.path().strip_prefix(&root).unwrap().to_string_lossy().into_owned();
                found.push((path, text));
            }
        }
    }
    found.sort();
    assert!(found.len() > 40, "the workspace is not where it should be: {}", root.display());
    found
}

fn check(faults: Vec<String>) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// Applies a rule to the Rust sources.
fn in_sources(rule: impl Fn(&str, &str) -> Vec<String>) {
    let all = files();
    let sources = all.iter().filter(|(path, _)| path.ends_with(".rs") && !path.starts_with(ITSELF));
    check(sources.flat_map(|(path, text)| rule(path, text)).collect());
}

#[test]
fn dependencies_point_one_way() {
    let all = files();
    let manifests = all.iter().filter(|(path, _)| path.starts_with("crates/") && path.ends_with("Cargo.toml"));
    check(manifests.flat_map(|(path, text)| manifest::direction(path, text)).collect());
}

#[test]
fn no_bug_can_be_planted_in_the_product() {
    let all = files();
    let manifests = all.iter().filter(|(path, _)| path.ends_with("Cargo.toml"));
    check(manifests.flat_map(|(path, text)| manifest::no_sim(path, text)).collect());
    in_sources(rules::only_harnesses_plant);
}

#[test]
fn core_is_pure() {
    in_sources(rules::core_is_pure);
}

#[test]
fn no_store_knows_a_policy() {
    in_sources(rules::stores_know_no_policy);
}

#[test]
fn checkers_judge_for_themselves() {
    in_sources(rules::checkers_judge_for_themselves);
}

#[test]
fn no_module_is_a_collection_of_anything() {
    let all = files();
    check(all.iter().flat_map(|(path, _)| rules::no_collections(path)).collect());
}

#[test]
fn module_names_explain_themselves() {
    let all = files();
    let faults: Vec<String> = all.iter().flat_map(|(path, _)| names::modules(path)).collect();
    check(faults);
}

#[test]
fn type_names_say_what_the_thing_is() {
    let all = files();
    let sources = all.iter().filter(|(path, _)| path.ends_with(".rs") && !path.starts_with(ITSELF));
    let faults: Vec<String> = sources.flat_map(|(path, text)| names::vague_types(path, text)).collect();
    check(faults);
}

#[test]
fn a_type_name_means_one_thing() {
    let all = files();
    let sources = all.iter().filter(|(path, _)| path.starts_with("crates/") && path.ends_with(".rs"));
    let faults = names::repeated_types(sources.map(|(path, text)| (path.as_str(), text.as_str())));
    check(faults);
}

#[test]
fn the_wording_is_plain() {
    let all = files();
    let ours = all.iter().filter(|(path, _)| !path.starts_with(ITSELF));
    let faults: Vec<String> = ours.flat_map(|(path, text)| wording::plain(path, text)).collect();
    check(faults);
}

#[test]
fn the_files_that_the_architecture_names_exist() {
    let all = files();
    let (_, text) = all.iter().find(|(path, _)| path == "ARCHITECTURE.md").unwrap();
    check(architecture::missing(text, all.iter().map(|(path, _)| path.as_str())));
}

#[test]
fn no_source_file_is_too_long() {
    in_sources(|path, text| rules::short(path, text, &LONG));
}

#[test]
fn every_script_that_names_its_interpreter_is_executable() {
    use std::os::unix::fs::PermissionsExt;
    let is_executable = |path: &str| fs::metadata(root().join(path)).unwrap().permissions().mode() & 0o111 != 0;
    let scripts = files().into_iter().filter(|(_, text)| text.starts_with("#!/"));
    let faults = scripts.filter(|(path, _)| !is_executable(path)).map(|(path, _)| format!("{path} is not executable"));
    check(faults.collect());
}

#[test]
fn every_source_file_says_what_it_is_for() {
    in_sources(rules::says_what_it_is_for);
}

#[test]
fn nothing_is_left_undone() {
    in_sources(rules::nothing_left_undone);
}

#[test]
fn no_spaces_at_the_end_of_lines_and_no_tabs() {
    in_sources(rules::no_stray_whitespace);
}

#[test]
fn no_path_of_one_machine() {
    let all = files();
    let ours = all.iter().filter(|(path, _)| !path.starts_with(ITSELF));
    check(ours.flat_map(|(path, text)| rules::no_machine_paths(path, text)).collect());
}
