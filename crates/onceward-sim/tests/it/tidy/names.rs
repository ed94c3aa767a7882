//! The rules about names of modules and types.

use std::collections::BTreeMap;

/// Names of modules that do not explain themselves, with the kind of name that does.
const MODULES: [(&str, &str); 18] = [
    ("util", "the thing that it works on"),
    ("common", "what its users share"),
    ("types", "the concept"),
    ("helpers", "the thing that it works on"),
    ("misc", "one module for each idea"),
    ("own", "the actor or the command"),
    ("aside", "stderr_writer"),
    ("lanes", "thread_per_core"),
    ("first_words", "protocol_timeout"),
    ("carried_on", "finish_on_drop"),
    ("several", "aggregate"),
    ("era", "protocol_version"),
    ("turns", "write_order"),
    ("books", "lazy_ledger"),
    ("words", "values"),
    ("reads", "tool_names"),
    ("strangers", "origin_check"),
    ("link", "transport"),
];

/// Names of types that do not say what the thing is.
const TYPES: [&str; 56] = [
    "Answer", "Asked", "At", "Book", "Books", "Carrier", "Cast", "Casting", "Cue", "Deed", "Dice", "Do", "Drawer",
    "Era", "Eye", "Given", "Heard", "Held", "InTurn", "Kept", "Known", "Lane", "Lanes", "Lie", "Life", "Link",
    "Looked", "Meant", "Misdeed", "One", "Other", "Others", "Own", "Part", "Pen", "Place", "Roll", "Said", "Scene",
    "Share", "Sort", "Stage", "Stranger", "Taker", "Thing", "Told", "Turn", "Turns", "Visit", "Wanted", "Way", "Who",
    "Whose", "Witness", "Word", "Words",
];

/// How often a name may be defined before it must be on [`SHARED`].
const MOST: usize = 3;

/// Names that many modules define, because the path says the difference.
const SHARED: [(&str, &str); 30] = [
    ("Args", "the arguments of a command"),
    ("Arguments", "the arguments of a command"),
    ("Behaviour", "how an effect of a harness behaves"),
    ("Body", "the body of a message of its module"),
    ("Caller", "the caller on the surface of its module"),
    ("Case", "a case of a test or benchmark"),
    ("Client", "the client on the surface of its module"),
    ("Command", "a command of its module"),
    ("Config", "the configuration of its module"),
    ("Entry", "an entry of the list or log of its module"),
    ("Error", "the error of its module"),
    ("Event", "an event of its module"),
    ("Fault", "what a harness breaks on purpose"),
    ("Gateway", "the gateway: configured, started, running, or under test"),
    ("Judge", "the rules of a harness"),
    ("Kind", "the kind of thing that its module is about"),
    ("Operation", "an operation: configured, called, or on a disk"),
    ("Options", "the options of a command"),
    ("Plan", "what a harness, a demo or an installation is about to do"),
    ("Report", "what its module prints"),
    ("Request", "a request on the surface of its module"),
    ("Response", "the answer on the surface of its module"),
    ("Row", "a row of the table of its module"),
    ("Run", "one run of a command or harness"),
    ("Server", "the server on the surface of its module"),
    ("Settings", "what can be set in its module"),
    ("State", "the state of its module"),
    ("Step", "a step of its module"),
    ("Tally", "what a harness has counted"),
    ("Verdict", "what its module decides about an answer"),
];

/// Modules whose name explains nothing.
pub(super) fn modules(path: &str) -> Vec<String> {
    let is_ours = path.starts_with("crates/") && path.ends_with(".rs");
    let parts = path.trim_end_matches(".rs").split('/').filter(|_| is_ours);
    let found = parts.filter_map(|part| MODULES.iter().find(|(name, _)| *name == part));
    found.map(|(name, better)| format!("{path}: module `{name}`; name it after {better}")).collect()
}

/// The types that a file defines at its top level, with their lines.
fn defined(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let mut rest = line;
        if let Some(public) = line.strip_prefix("pub") {
            rest = match public.strip_prefix('(') {
                Some(limited) => limited.split_once(") ")?.1,
                None => public.strip_prefix(' ')?,
            };
        }
        let item = ["struct ", "enum ", "trait ", "union ", "type "].iter().find_map(|item| rest.strip_prefix(item))?;
        let end = item.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(item.len());
        Some((index + 1, &item[..end]))
    })
}

/// Types whose name does not say what they are.
pub(super) fn vague_types(path: &str, text: &str) -> Vec<String> {
    let found = defined(text).filter(|(_, name)| TYPES.contains(name));
    found.map(|(line, name)| format!("{path}:{line}: type `{name}`; name it after its role")).collect()
}

/// Names that mean too many things in the workspace.
pub(super) fn repeated_types<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (path, text) in files {
        for (line, name) in defined(text) {
            places.entry(name).or_default().push(format!("{path}:{line}"));
        }
    }
    let is_shared = |name: &str| SHARED.iter().any(|(shared, _)| *shared == name);
    let found = places.iter().filter(|(name, places)| places.len() > MOST && !is_shared(name));
    found.map(|(name, places)| format!("`{name}` is defined {} times: {}", places.len(), places.join(", "))).collect()
}

#[test]
fn a_module_says_what_it_is_for() {
    assert!(modules("crates/onceward/src/ledger/guard.rs").is_empty());
    assert!(modules("docs/words.md").is_empty());
    assert_eq!(modules("crates/onceward-mcp/src/several/mod.rs").len(), 1);
    assert_eq!(modules("crates/onceward/src/own.rs").len(), 1);
}

#[test]
fn a_type_says_what_it_is() {
    let text = "pub struct Place;\npub(super) enum Told {}\nstruct Ledger<T>(T);\n    struct Stage;\ntype At = u8;\n";
    let found = vague_types("a.rs", text);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[1].contains("a.rs:2: type `Told`"), "{found:?}");
}

#[test]
fn a_name_that_means_too_much_is_found() {
    let files = |name: &str| vec![format!("struct {name};"); MOST + 1];
    let count = |texts: &[String]| repeated_types(texts.iter().map(|text| ("a.rs", text.as_str()))).len();
    assert_eq!(count(&files("Widget")), 1);
    assert_eq!(count(&files("Widget")[1..]), 0);
    assert_eq!(count(&files("Error")), 0);
}
