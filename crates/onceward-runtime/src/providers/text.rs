//! The table of providers: as text, as JSON, and as the page `docs/reference/providers.md`.

use std::fmt::Write;

use super::fact::{BodyFailure, FailedAnswers, KeyMemory, KeyPlace, Lookup, ReferencePlace, RefusalProof};
use super::{Fact, Provider};

/// What is shown of one fact.
struct FactRow {
    name: &'static str,
    /// Ends without a full stop.
    value: String,
    note: &'static str,
    sources: Vec<String>,
}

/// For a terminal: each fact with its sources and their dates.
pub fn text(providers: &[&Provider]) -> String {
    let block = |provider: &&Provider| {
        let mut block = format!("{}: {}\n  {}\n", provider.name, provider.title, provider.request);
        for row in rows(provider) {
            let note = if row.note.is_empty() { String::new() } else { format!(": {}", row.note) };
            let _ = writeln!(block, "  {:<15} {}{}", row.name, row.value, note.trim_end_matches('.'));
            for source in row.sources {
                let _ = writeln!(block, "  {:<15} {source}", "");
            }
        }
        block
    };
    providers.iter().map(block).collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

/// For programs: `providers` with every fact as it is in the data.
pub fn json(providers: &[&Provider]) -> serde_json::Value {
    serde_json::json!({ "providers": providers })
}

/// `docs/reference/providers.md`.
pub fn page() -> String {
    let mut page = String::from(
        "# Providers\n\nGenerated from the code; to change it, change the code. `onceward providers` prints the same.\n\n\
         What is publicly known, each fact with its source and the day on which it was read, partly in stored copies that may be \
         older. What no page says is unknown here, and Onceward then takes the careful reading: no key, no proof, no probe. A \
         provider may have changed since. The name in brackets is the one that `onceward providers NAME` takes.\n",
    );
    for provider in super::ALL {
        let _ = write!(page, "\n## {} (`{}`)\n\n`{}`\n\n", provider.title, provider.name, provider.request);
        page.push_str("| | | source |\n|---|---|---|\n");
        for row in rows(provider) {
            let note =
                if row.note.is_empty() { String::new() } else { format!(": {}", row.note.trim_end_matches('.')) };
            let _ = writeln!(page, "| {} | {}{} | {} |", row.name, row.value, note, row.sources.join("<br>"));
        }
    }
    page
}

fn rows(provider: &Provider) -> Vec<FactRow> {
    let mut rows = vec![
        row("key", &provider.key, key),
        row("longest key", &provider.longest_key, |characters| format!("{characters} characters")),
        row("remembers key", &provider.remembers_key, memory),
        row("proven refusals", &provider.refusals, |proofs| refusals(proofs)),
    ];
    rows.extend(provider.body_failure.as_ref().map(|fact| row("failure in 200", fact, body_failure)));
    rows.push(row("failed answers", &provider.failed_answers, failed_answers));
    rows.push(row("reference", &provider.reference, reference));
    rows.push(row("lookup", &provider.lookup, lookup));
    rows
}

fn row<T>(name: &'static str, fact: &Fact<T>, shown: impl Fn(&T) -> String) -> FactRow {
    let value = match fact {
        Fact::Known { value, .. } => shown(value),
        Fact::Unknown { .. } => "unknown".to_owned(),
        Fact::NotApplicable { .. } => "does not apply".to_owned(),
    };
    let sources = fact.sources().iter().map(|source| format!("{} ({})", source.url, source.checked));
    FactRow { name, value, note: fact.note(), sources: sources.collect() }
}

fn key(place: &KeyPlace) -> String {
    match place {
        KeyPlace::Header(name) => format!("header `{name}`"),
        KeyPlace::Body(pointer) => format!("field `{pointer}` of the body"),
        KeyPlace::NoneDocumented => "none is documented".to_owned(),
    }
}

fn memory(memory: &KeyMemory) -> String {
    match memory {
        KeyMemory::Hours(hours) => format!("{hours} hours"),
        KeyMemory::WhileOpen => "as long as the alert is open".to_owned(),
    }
}

fn refusals(proofs: &[RefusalProof]) -> String {
    let shown = proofs.iter().map(|proof| {
        let again = if proof.retry { "try again" } else { "final" };
        format!("{} ({}; {again})", proof.status, proof.error)
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn body_failure(failure: &BodyFailure) -> String {
    format!(
        "`{}` is {}; doubtful if `{}` is {}",
        failure.pointer,
        failure.fails_if,
        failure.error,
        failure.doubtful.join(" or ")
    )
}

fn failed_answers(answers: &FailedAnswers) -> String {
    let shown = match answers {
        FailedAnswers::Replayed => "replayed to a repeat with the same key",
        FailedAnswers::NotReplayed => "not replayed",
    };
    shown.to_owned()
}

fn reference(place: &ReferencePlace) -> String {
    match place {
        ReferencePlace::Header(name) => format!("header `{name}`"),
        ReferencePlace::Body(pointer) => format!("`{pointer}`"),
        ReferencePlace::NotGiven => "none".to_owned(),
    }
}

fn lookup(lookup: &Lookup) -> String {
    match lookup {
        Lookup::ByKey(probe) => {
            let mark = if probe.mark.is_empty() { String::new() } else { format!("send `{}`; then ", probe.mark) };
            let settle = match probe.settle_minutes {
                Some(minutes) => format!("; \"not found\" counts after {minutes} minutes"),
                None => String::new(),
            };
            format!("{mark}`{} {}`: it happened if there is a `{}`{settle}", probe.method, probe.url, probe.found)
        }
        Lookup::ByScan => "only by reading a list".to_owned(),
        Lookup::NotOffered => "not offered".to_owned(),
    }
}
