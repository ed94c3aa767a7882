//! The rules, each a pure function over a path and a text, and each with an example that it lets pass and one that it
//! does not.

/// What core must not name, and what it does instead.
const IMPURE: [(&str, &str); 13] = [
    ("SystemTime", "time comes in with every answer of a store"),
    ("Instant::now", "time comes in with every answer of a store"),
    ("Timestamp::now", "time comes in with every answer of a store"),
    ("Zoned::now", "time comes in with every answer of a store"),
    ("std::fs", "core touches no files"),
    ("std::net", "core touches no sockets"),
    ("std::env", "core reads no environment"),
    ("std::process", "core starts nothing"),
    ("std::io", "core does no I/O"),
    ("tokio", "core is not async"),
    ("getrandom", "random bits come in as arguments"),
    ("rand::", "random bits come in as arguments"),
    ("thread::", "core starts nothing"),
];

/// Names of modules into which anything would fit.
const COLLECTIONS: [&str; 7] = ["util", "utils", "common", "helper", "helpers", "misc", "types"];

/// A file past this length has a second idea in it.
const LONGEST: usize = 500;

/// Endings of files that people read.
const READ: [&str; 12] =
    [".rs", ".md", ".toml", ".sql", ".json", ".yml", ".yaml", ".sh", ".py", ".ts", "justfile", ".html"];

/// Core uses no clocks, randomness or I/O. Its tests may read vectors from files, under `tests/`.
pub(super) fn core_is_pure(path: &str, text: &str) -> Vec<String> {
    if !path.starts_with("crates/onceward-core/src/") {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for (place, line) in lines(path, text) {
        let named = IMPURE.iter().filter(|(name, _)| code(line).contains(name));
        faults.extend(named.map(|(name, instead)| format!("{place}: `{name}`: {instead}")));
    }
    faults
}

/// Core decides what may be written; a store that knew a policy would decide it a second time.
pub(super) fn stores_know_no_policy(path: &str, text: &str) -> Vec<String> {
    if !path.starts_with("crates/onceward/src/store/") {
        return Vec::new();
    }
    let knows = |line: &str| {
        let code = code(line);
        code.contains("policy::Policy") || (code.contains("policy::{") && words(code).any(|word| word == "Policy"))
    };
    let found = lines(path, text).filter(|(_, line)| knows(line));
    found.map(|(place, _)| format!("{place}: a store knows no policy, only the terms in a record")).collect()
}

/// Only the command line of a harness plants a bug.
pub(super) fn only_harnesses_plant(path: &str, text: &str) -> Vec<String> {
    if path.starts_with("crates/onceward-sim/") || path == "crates/onceward/src/plant.rs" {
        return Vec::new();
    }
    let found = lines(path, text).filter(|(_, line)| {
        let code = code(line);
        code.contains("plant::plant(") || code.contains("plant::plant;")
    });
    found.map(|(place, _)| format!("{place}: only a harness plants bugs")).collect()
}

/// A module is named for what it is for.
pub(super) fn no_collections(path: &str) -> Vec<String> {
    let parts = path.trim_end_matches(".rs").split('/');
    let is_source = path.ends_with(".rs");
    let found = parts.filter(|part| is_source && COLLECTIONS.contains(part));
    found.map(|part| format!("{path}: `{part}` says nothing; name the module for what it is for")).collect()
}

/// A file is one idea. `allowed` names the exceptions with their reasons.
pub(super) fn short(path: &str, text: &str, allowed: &[(&str, &str)]) -> Vec<String> {
    let length = text.lines().count();
    if length <= LONGEST || allowed.iter().any(|(file, _)| *file == path) {
        return Vec::new();
    }
    vec![format!("{path}: {length} lines; past {LONGEST}, ask what second idea has moved in, and give it a file")]
}

/// A file opens with what it is for.
pub(super) fn says_what_it_is_for(path: &str, text: &str) -> Vec<String> {
    if text.starts_with("//! ") {
        return Vec::new();
    }
    vec![format!("{path}: opens without a `//!` comment that says what it is for")]
}

/// No unfinished code, and no debugging aids.
pub(super) fn nothing_left_undone(path: &str, text: &str) -> Vec<String> {
    let undone = |line: &str| ["todo!", "unimplemented!", "dbg!"].into_iter().find(|name| code(line).contains(name));
    let found = lines(path, text).filter_map(|(place, line)| Some(format!("{place}: `{}` is left", undone(line)?)));
    found.collect()
}

/// Whitespace that shows only in a diff.
pub(super) fn no_stray_whitespace(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (place, line) in lines(path, text) {
        if line.ends_with(char::is_whitespace) {
            faults.push(format!("{place}: whitespace at the end of the line"));
        }
        if line.contains('\t') {
            faults.push(format!("{place}: a tab; write four spaces, or `\\t` in a string"));
        }
    }
    faults
}

/// Docs and sources hold on every machine. Tests, and test modules at the end of a file, may use any path.
pub(super) fn no_machine_paths(path: &str, text: &str) -> Vec<String> {
    let is_test = path.split('/').any(|part| part == "tests");
    if is_test || !READ.iter().any(|ending| path.ends_with(ending)) {
        return Vec::new();
    }
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let named = |line: &str| ["/root/", "/work/", "/tmp/"].into_iter().find(|folder| is_named(line, folder));
    let found = lines(path, text)
        .filter_map(|(place, line)| Some(format!("{place}: `{}` is a path of one machine", named(line)?)));
    found.collect()
}

/// Whether the folder is named as a whole path, and not as the middle of another one.
fn is_named(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        !before.is_some_and(|character| character.is_alphanumeric() || matches!(character, '_' | '-' | '.' | '}'))
    })
}

/// Lines with their places.
fn lines<'a>(path: &'a str, text: &'a str) -> impl Iterator<Item = (String, &'a str)> {
    text.split('\n').enumerate().map(move |(index, line)| (format!("{path}:{}", index + 1), line))
}

/// A line without its comment.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|character: char| !character.is_alphanumeric() && character != '_')
}

/// A checker that asks the ledger's own rule how a record stands would excuse a bug in that rule.
pub(super) fn checkers_judge_for_themselves(path: &str, text: &str) -> Vec<String> {
    if !path.starts_with("crates/onceward-sim/src/") {
        return Vec::new();
    }
    let asks = lines(path, text).filter(|(_, line)| line.contains(".standing()"));
    asks.map(|(place, _)| format!("{place}: asks the ledger how a record stands; a checker has a rule of its own"))
        .collect()
}

#[test]
fn core_may_speak_of_clocks_but_not_ask_them() {
    let path = "crates/onceward-core/src/x.rs";
    assert!(core_is_pure(path, "//! Not even tokio.\nuse std::time::Duration; // never SystemTime\n").is_empty());
    for line in ["SystemTime::now()", "use std::fs::File;", "thread::sleep(x)", "jiff::Zoned::now()", "tokio::spawn"] {
        assert_eq!(core_is_pure(path, line).len(), 1, "{line}");
    }
    assert!(core_is_pure(path, "fn a() {}\nlet x = std::env::var(y);")[0].contains("x.rs:2"));
}

#[test]
fn only_core_has_to_be_pure_and_its_tests_may_read_vectors() {
    assert!(core_is_pure("crates/onceward/src/clock.rs", "SystemTime::now()").is_empty());
    assert!(core_is_pure("crates/onceward-core/tests/it/vectors.rs", "std::fs::read(path)").is_empty());
}

#[test]
fn a_store_may_know_terms_but_not_policies() {
    let path = "crates/onceward/src/store/sqlite/row.rs";
    assert!(stores_know_no_policy(path, "use onceward_core::policy::{InDoubt, Terms};").is_empty());
    assert!(stores_know_no_policy(path, "// policy::Policy is not for us").is_empty());
    assert!(!stores_know_no_policy(path, "use onceward_core::policy::Policy;").is_empty());
    assert!(!stores_know_no_policy(path, "use onceward_core::policy::{Policy, Terms};").is_empty());
    assert!(stores_know_no_policy("crates/onceward/src/ledger/call.rs", "policy::Policy").is_empty());
}

#[test]
fn the_product_may_ask_for_a_planted_bug_and_never_plant_one() {
    let path = "crates/onceward/src/ledger/cache.rs";
    assert!(only_harnesses_plant(path, "use crate::plant::{Plant, planted};\nif planted(Plant::X) {}").is_empty());
    assert!(!only_harnesses_plant(path, "crate::plant::plant(Plant::X);").is_empty());
    assert!(only_harnesses_plant("crates/onceward-sim/src/main.rs", "plant::plant(x)").is_empty());
}

#[test]
fn a_module_is_named_for_what_it_is_for() {
    assert!(no_collections("crates/onceward/src/ledger/guard.rs").is_empty());
    assert!(no_collections("docs/types.md").is_empty());
    assert!(!no_collections("crates/onceward/src/util.rs").is_empty());
    assert!(!no_collections("crates/onceward/src/common/mod.rs").is_empty());
}

#[test]
fn a_long_file_needs_a_reason() {
    let long = "x\n".repeat(LONGEST + 1);
    assert!(short("a.rs", &"x\n".repeat(LONGEST), &[]).is_empty());
    assert!(!short("a.rs", &long, &[]).is_empty());
    assert!(short("a.rs", &long, &[("a.rs", "one table")]).is_empty());
}

#[test]
fn a_file_opens_with_what_it_is_for() {
    assert!(says_what_it_is_for("a.rs", "//! For this.\n").is_empty());
    assert!(!says_what_it_is_for("a.rs", "use std::fmt;\n//! For this.\n").is_empty());
    assert!(!says_what_it_is_for("a.rs", "//!\n").is_empty());
}

#[test]
fn unfinished_code_is_found() {
    assert!(nothing_left_undone("a.rs", "fn done() {} // no todo! here").is_empty());
    assert_eq!(nothing_left_undone("a.rs", "fn a() { todo!() }\ndbg!(x);").len(), 2);
}

#[test]
fn stray_whitespace_is_found() {
    assert!(no_stray_whitespace("a.rs", "fn a() {\n    b();\n}\n").is_empty());
    assert_eq!(no_stray_whitespace("a.rs", "a \n\tb\n").len(), 2);
    assert_eq!(no_stray_whitespace("a.rs", "a\r\n").len(), 1);
}

#[test]
fn a_path_of_one_machine_is_found_in_docs_and_sources() {
    for path in ["README.md", "docs/a/b.md", "crates/x/src/a.rs", "justfile"] {
        assert!(!no_machine_paths(path, "see `/work/notes`").is_empty(), "{path}");
    }
    assert!(!no_machine_paths("README.md", "cd /tmp/x").is_empty());
    assert!(no_machine_paths("README.md", "see docs/work/plan and $HOME/tmp/x").is_empty());
    assert!(no_machine_paths("crates/x/tests/it/a.rs", "\"/tmp/x\"").is_empty());
    assert!(no_machine_paths("crates/x/src/a.rs", "fn a() {}\n#[cfg(test)]\nmod tests { \"/tmp/x\" }").is_empty());
}

#[test]
fn a_checker_that_asks_the_ledger_is_found() {
    let asks = "let standing = seen.and_then(|seen| seen.standing());";
    assert_eq!(checkers_judge_for_themselves("crates/onceward-sim/src/recording_store.rs", asks).len(), 1);
    assert!(checkers_judge_for_themselves("crates/onceward/src/ledger/begin.rs", asks).is_empty());
    assert!(checkers_judge_for_themselves("crates/onceward-sim/src/walk/end.rs", "oracle.standing(now)").is_empty());
}
