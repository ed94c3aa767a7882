//! Compares `docs/internals/proof.md` with the code: its numbers, and its table of planted bugs.

use std::path::Path;

use onceward::plant::Plant;

fn text(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

/// The list item of a check, with the items below it, as one line.
fn check(page: &str, name: &str) -> String {
    let start = page.find(&format!("\n- **{name}**: ")).unwrap_or_else(|| panic!("check `{name}` is not listed"));
    let item = &page[start + 1..];
    let end = ["\n- ", "\n\n"].iter().filter_map(|next| item.find(next)).min().unwrap_or(item.len());
    item[..end].split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The number that follows some words.
fn number_after(text: &str, words: &str) -> u64 {
    let rest = text.split_once(words).unwrap_or_else(|| panic!("`{words}` is not there")).1;
    let digits = rest.trim_start().chars().take_while(|c| c.is_ascii_digit() || *c == '_' || *c == ',');
    digits.filter(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

/// How much of a check the test command runs, by the page.
fn in_test(page: &str, name: &str) -> u64 {
    number_after(&check(page, name), "In `./test`: ")
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
    assert_eq!(table, switches, "print the rows with `onceward-sim plants --quick --table`");
    assert!(page.contains(&format!("{0} planted, {0} caught, none escaped", Plant::ALL.len())));
}

#[test]
fn the_numbers_of_the_test_command_are_those_that_it_runs() {
    let page = text("docs/internals/proof.md");
    let stages = text("tests/runner/stages.py");
    let frames = stages.lines().find(|line| line.contains("tests/mcp/fuzz.py")).unwrap();
    assert_eq!(in_test(&page, "MCP spoilt frames"), number_after(frames, "\"--cases\", \""));
    let interleave = text("crates/onceward-sim/src/interleave/mod.rs");
    assert_eq!(in_test(&page, "schedules of the ledger"), number_after(&interleave, "const TESTED_SCHEDULES: u64 ="));
    let harness = |name: &str| text(&format!("crates/onceward-sim/tests/it/{name}.rs"));
    let servers = harness("servers");
    let random = check(&page, "random calls");
    assert_eq!(number_after(&random, "runs;"), number_after(&servers, "passes_on(POSTGRES, \"walk --runs "));
    assert_eq!(number_after(&random, "PostgreSQL and"), number_after(&servers, "passes_on(REDIS, \"walk --runs "));
    assert_eq!(number_after(&random, "on Redis;"), number_after(&servers, "passes_on(CLUSTER, \"walk --runs "));
    let crashes = check(&page, "crashes");
    assert_eq!(number_after(&crashes, "on Redis;"), number_after(&servers, "survives_crashes_on(CLUSTER, "));
    assert_eq!(number_after(&crashes, "300 cycles;"), number_after(&servers, "survives_crashes_on(POSTGRES, "));
    assert_eq!(number_after(&crashes, "on PostgreSQL and"), number_after(&servers, "survives_crashes_on(REDIS, "));
    let gateways = number_after(&check(&page, "gateway, killed"), "two gateways;");
    assert_eq!(gateways, number_after(&servers, "\"gateway --gateways 3 --kills "));
    for (name, file, words) in [
        ("gateway, killed", "gateway", "\"gateway --kills "),
        ("MCP gateway, killed", "kills", "mcp --over stdio --kills "),
        ("API, killed", "kills", "\"api --kills "),
        ("run, killed", "kills", "\"run --kills "),
        ("crashes", "crash", "\"crash --cycles "),
        ("power cuts", "power", "\"power --cycles "),
        ("jumping clocks", "plants", "\"clock --runs "),
        ("random calls", "plants", "\"walk --runs "),
    ] {
        assert_eq!(in_test(&page, name), number_after(&harness(file), words), "{name}");
    }
}

macro_rules! count {
    (: $($name:ident,)*) => { [$(stringify!($name)),*].len() };
}

#[test]
fn the_number_of_conformance_cases_is_right() {
    let (page, cases) = (text("docs/internals/proof.md"), onceward::conformance! { @each [count] });
    assert_eq!(number_after(&page, "- **conformance**: "), u64::try_from(cases).unwrap());
}

#[test]
fn the_number_of_scenarios_is_right() {
    let page = text("docs/internals/proof.md");
    let files = ["http", "api", "mcp", "delivery", "command"]
        .map(|name| text(&format!("crates/onceward-sim/src/scenarios/{name}.rs")));
    let count = files.iter().map(|file| file.matches("    check(\"").count()).sum::<usize>();
    assert!(check(&page, "scenarios").contains(&format!("{count} short scenarios")), "{count} scenarios");
}
