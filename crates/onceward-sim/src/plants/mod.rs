//! Runs every planted bug against the checks, the cheapest first: which check finds it, how, and after how long. It
//! proves that a check which finds nothing in the product would find a bug.
//!
//! Each check runs in a child process, since a bug is planted until its process ends. First every check runs without a
//! bug, and must find nothing.
//!
//! - `check`: the checks.
//! - `child`: one check in a child process.

mod check;
mod child;

use std::time::Duration;

use onceward::plant::Plant;
use serde_json::json;

use check::{CHECKS, Check, missing};
use child::Verdict;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Only this bug.
    pub only: Option<Plant>,
    /// Only the checks that take seconds.
    pub quick: bool,
    /// All checks, also after one has found the bug.
    pub every: bool,
    /// A line of JSON for each bug.
    pub json: bool,
    /// The rows of the table in `docs/internals/proof.md`, at the end.
    pub table: bool,
}

/// The result of one bug.
struct Row {
    plant: Plant,
    caught: Vec<Caught>,
    /// The check that is needed and did not run.
    needs: Option<&'static str>,
}

struct Caught {
    by: &'static str,
    showed: String,
    after: Duration,
}

/// Runs everything, prints the result, and returns whether every bug was caught and no check failed without one.
pub fn run(options: &Options) -> bool {
    let checks: Vec<&Check> = CHECKS.iter().filter(|check| check.is_quick() || !options.quick).collect();
    if !is_sound(&checks, options) {
        return false;
    }
    let wanted = Plant::ALL.iter().filter(|plant| options.only.is_none_or(|only| **plant == only));
    let mut rows = Vec::new();
    for plant in wanted {
        let row = try_one(*plant, &checks, options);
        print(&row, options.json);
        rows.push(row);
    }
    if options.table {
        rows.iter().for_each(print_row);
    }
    sum_up(&rows, options.json)
}

/// Whether the checks find nothing without a bug.
fn is_sound(checks: &[&Check], options: &Options) -> bool {
    let mut sound = true;
    for check in checks {
        let ended = child::run(check, options.quick, None);
        let well = matches!(ended.verdict, Verdict::Well);
        sound &= well;
        if options.json {
            println!("{}", json!({ "check": check.name, "passes": well, "seconds": seconds(ended.after) }));
        } else {
            let word = if well { "finds nothing" } else { "FAILS" };
            println!("without a bug: {:<12} {word:<14} {:>6.1} s", check.name, seconds(ended.after));
        }
        if !well {
            println!("onceward-sim {}: {}", check.arguments(options.quick).join(" "), ended.verdict);
        }
    }
    sound
}

fn try_one(plant: Plant, checks: &[&Check], options: &Options) -> Row {
    let mut row = Row { plant, caught: Vec::new(), needs: missing(plant, checks) };
    if row.needs.is_some() {
        return row;
    }
    let mut spent = Duration::ZERO;
    for check in checks {
        let ended = child::run(check, options.quick, Some(plant));
        spent += ended.after;
        if let Verdict::Broken(showed) = ended.verdict {
            let after = if options.every { ended.after } else { spent };
            row.caught.push(Caught { by: check.name, showed, after });
            if !options.every {
                break;
            }
        }
    }
    row
}

fn print(row: &Row, json: bool) {
    let name = row.plant.name();
    if json {
        let caught =
            |caught: &Caught| json!({ "by": caught.by, "showed": caught.showed, "seconds": seconds(caught.after) });
        let caught: Vec<_> = row.caught.iter().map(caught).collect();
        println!("{}", json!({ "plant": name, "about": row.plant.about(), "caught": caught, "needs": row.needs }));
        return;
    }
    println!("\n{name}: {}", row.plant.about());
    for caught in &row.caught {
        println!("  caught by {} after {:.1} s: {}", caught.by, seconds(caught.after), shortened(&caught.showed));
    }
    match (row.caught.is_empty(), row.needs) {
        (true, Some(check)) => println!("  left out: needs {check}"),
        (true, None) => println!("  NOT CAUGHT"),
        _ => {}
    }
}

/// One row of the table of planted bugs.
fn print_row(row: &Row) {
    let by = row.caught.first().map_or("nothing", |caught| caught.by);
    println!("| `{}` | {} | {by} |", row.plant.name(), row.plant.about());
}

fn sum_up(rows: &[Row], json: bool) -> bool {
    let is_caught = |row: &&Row| !row.caught.is_empty();
    let caught = rows.iter().filter(is_caught).count();
    let left_out = rows.iter().filter(|row| !is_caught(row) && row.needs.is_some()).count();
    let escaped: Vec<&str> =
        rows.iter().filter(|row| !is_caught(row) && row.needs.is_none()).map(|row| row.plant.name()).collect();
    if json {
        println!("{}", json!({ "planted": rows.len(), "caught": caught, "left_out": left_out, "escaped": escaped }));
    } else {
        println!("\n{} planted, {caught} caught, {left_out} left out, {} escaped", rows.len(), escaped.len());
        escaped.iter().for_each(|name| println!("NOT CAUGHT: {name}"));
    }
    escaped.is_empty()
}

fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 100.0).round() / 100.0
}

/// The start of the message is enough; the steps that follow it are not printed.
fn shortened(text: &str) -> String {
    const LONGEST: usize = 160;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
