//! The rule that ARCHITECTURE.md names only files and folders that exist.

/// How names of files end.
const ENDINGS: [&str; 8] = [".rs", ".md", ".json", ".toml", ".sql", ".py", ".sh", ".svg"];

/// Folders at the root with which a path may begin.
const FOLDERS: [&str; 7] = ["crates/", "docs/", "examples/", "fuzz/", "sdk/", "spec/", "tests/"];

/// Paths that the text names and that do not exist. Paths may begin at the root or below `crates/`; a name without a folder may
/// be anywhere.
pub(super) fn missing<'a>(text: &str, files: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    let is_there = |named: &str| {
        let path = named.trim_end_matches('/');
        let below = |file: &str| file == path || file.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
        match named.contains('/') {
            true => files.clone().any(|file| below(file) || file.strip_prefix("crates/").is_some_and(below)),
            false => files.clone().any(|file| file.rsplit('/').next() == Some(path)),
        }
    };
    let named =
        text.lines().enumerate().flat_map(|(index, line)| named(line).into_iter().map(move |path| (index, path)));
    let found = named.filter(|(_, path)| !is_there(path));
    found.map(|(index, path)| format!("ARCHITECTURE.md:{}: `{path}` does not exist", index + 1)).collect()
}

/// The paths in a line, with groups such as `a/{b,c}.rs` taken apart.
fn named(line: &str) -> Vec<String> {
    let words = line.split(|c: char| c.is_whitespace() || matches!(c, '`' | '(' | ')' | '|' | ';' | '"'));
    let words = words.map(|word| word.trim_matches(|c: char| matches!(c, ',' | ':' | '.')));
    let is_path = |word: &&str| {
        let is_file = ENDINGS.iter().any(|ending| word.ends_with(ending) && word.len() > ending.len());
        is_file || FOLDERS.iter().any(|folder| word.starts_with(folder)) || word.contains("/src/")
    };
    // A web address is not a file of ours.
    words.filter(is_path).filter(|word| !word.contains("://")).flat_map(expanded).collect()
}

fn expanded(path: &str) -> Vec<String> {
    let Some((start, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let Some((group, end)) = rest.split_once('}') else { return vec![path.to_owned()] };
    group.split(',').flat_map(|part| expanded(&format!("{start}{part}{end}"))).collect()
}

#[test]
fn a_path_that_does_not_exist_is_found() {
    let files = ["crates/onceward/src/ledger/call.rs", "spec/vectors/keys.json", "README.md"];
    let missing = |text: &str| missing(text, files.iter().copied());
    for text in [
        "see `crates/onceward/src/ledger/call.rs`, `spec/vectors/` and spec/",
        "  3 onceward/src/ledger/call.rs    the call",
        "`call.rs`, README.md, and https://example.org/x.md",
        "decide and begin / finish",
    ] {
        assert!(missing(text).is_empty(), "{text}: {:?}", missing(text));
    }
    assert_eq!(missing("`crates/onceward/src/ledger/other.rs`").len(), 1);
    assert_eq!(missing("`other.rs`, `crates/other/`").len(), 2);
    assert_eq!(missing("crates/onceward/src/ledger/{call,begin}.rs").len(), 1);
}
