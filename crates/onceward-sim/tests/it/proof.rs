//! The page about what is checked, held against the code: its numbers and its table of planted bugs.

use std::path::Path;

use onceward::core::plant::Plant;

fn text(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

/// The cells of the row of a table that begins with this name.
fn row(page: &str, name: &str) -> Vec<String> {
    let line = page.lines().find(|line| line.starts_with(&format!("| {name} |")));
    let line = line.unwrap_or_else(|| panic!("there is no row `{name}`"));
    // A bar inside a cell is escaped.
    let cells = line.replace("\\|", "/");
    cells.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// The number that follows some words.
fn number_after(text: &str, words: &str) -> u64 {
    let rest = text.split_once(words).unwrap_or_else(|| panic!("`{words}` is not there")).1;
    let digits = rest.trim_start().chars().take_while(|c| c.is_ascii_digit() || *c == '_');
    digits.filter(|c| *c != '_').collect::<String>().parse().unwrap()
}

#[test]
fn the_table_of_planted_bugs_is_that_of_the_switches() {
    let page = text("docs/internals/proof.md");
    let table: Vec<(String, String)> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|line| {
            let (name, rest) = line.split_once("` | ")?;
            let (about, by) = rest.trim_end_matches(" |").rsplit_once(" | ")?;
            assert!(!by.is_empty(), "no check finds {name}");
            Some((name.to_owned(), about.to_owned()))
        })
        .collect();
    let switches: Vec<(String, String)> =
        Plant::ALL.iter().map(|plant| (plant.name().to_owned(), plant.about().to_owned())).collect();
    assert_eq!(table, switches, "`onceward-sim plants --quick --table` prints the rows anew");
    assert!(row(&page, "planted bugs")[1].starts_with(&format!("{} bugs", Plant::ALL.len())));
    assert!(page.contains(&format!("{0} planted, {0} caught, none escaped", Plant::ALL.len())));
}

#[test]
fn the_numbers_of_the_test_command_are_those_that_it_runs() {
    let page = text("docs/internals/proof.md");
    let in_test = |name: &str| row(&page, name)[2].clone();
    let test = text("test");
    let spoilt = test.lines().find(|line| line.contains("tests/mcp/fuzz.py")).unwrap();
    let frames = number_after(spoilt, "--cases");
    assert_eq!(in_test("MCP spoilt frames"), frames.to_string());
    let interleave = text("crates/onceward-sim/src/interleave/mod.rs");
    let question =
        "fn every_answer_was_true_at_some_moment_between_question_and_answer() {\n        let tally = tally(";
    assert_eq!(in_test("schedules of the ledger"), number_after(&interleave, question).to_string());
    let kills = text("crates/onceward-sim/tests/it/kills.rs");
    for (name, words) in [
        ("MCP gateway, killed", "mcp --over stdio --kills "),
        ("API, killed", "\"api --kills "),
        ("run, killed", "\"run --kills "),
    ] {
        assert!(in_test(name).starts_with(&format!("{} kills", number_after(&kills, words))), "{name}");
    }
    let crash = text("crates/onceward-sim/tests/it/crash.rs");
    assert_eq!(in_test("crashes"), format!("{} cycles", number_after(&crash, "crash(&[\"--cycles\", \"")));
    let scenes = ["http", "api", "mcp", "delivery", "command"]
        .map(|name| text(&format!("crates/onceward-sim/src/scenes/{name}.rs")));
    let told = scenes.iter().map(|scene| scene.matches("    tell(\"").count()).sum::<usize>();
    assert!(row(&page, "scenes")[1].starts_with(&format!("{told} short scenes")), "{told} scenes");
}
