//! `onceward mcp inspect --all`: the tools of every server that the clients' configurations name, the riskiest first.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::block_on;
use super::inspect::marks;
use crate::exit::{Fault, NO};
use crate::mcp::inspect::{Class, Looked, Overview, Row, State, look_at_all, plain};
use crate::mcp::install::places;
use crate::output;
use crate::view::{shortened, table};

/// How many tools that act, and reach nobody else, are shown. Those that reach other people are always shown.
const SHOWN: usize = 50;

/// How wide a name or a reason may get before it is cut.
const WIDEST: usize = 60;

pub(super) fn execute(patience: Duration, is_json: bool) -> Result<u8, Fault> {
    let overview = block_on(async { Ok(look_at_all(patience).await) })?;
    for (path, why) in &overview.unread {
        output::say(&format!("{}: {why}.", path.display()));
    }
    if is_json {
        output::json(&as_json(&overview));
    } else if overview.servers.is_empty() {
        let places: String = places(None).iter().map(|place| format!("\n  {}", place.display())).collect();
        output::out(&format!("No client's configuration names a server. Looked for:{places}"));
    } else {
        output::out(&as_text(&overview));
    }
    Ok(if overview.servers.is_empty() { NO } else { 0 })
}

fn as_json(overview: &Overview) -> Value {
    let tool = |row: &Row| json!({ "name": row.name, "class": row.class.text(), "why": row.why });
    let servers = overview.servers.iter().map(|server| {
        let tools = match &server.state {
            State::Open(rows) => Some(rows.iter().map(tool).collect::<Vec<_>>()),
            _ => None,
        };
        let (state, why) = state(&server.state);
        json!({
            "server": server.name,
            "client": server.client.title(),
            "file": server.path,
            "project": server.project,
            "state": state,
            "why": why,
            "tools": tools,
        })
    });
    let risks = overview.risks().into_iter().map(|(server, row)| {
        json!({ "server": server.name, "file": server.path, "project": server.project, "tool": row.name,
            "class": row.class.text(), "why": row.why })
    });
    let unread = overview.unread.iter().map(|(path, why)| json!({ "file": path, "why": why }));
    json!({
        "unprotected": risks.collect::<Vec<_>>(),
        "servers": servers.collect::<Vec<_>>(),
        "unread": unread.collect::<Vec<_>>(),
    })
}

/// The state of a server in one word, and what there is to say about it.
fn state(state: &State) -> (&'static str, Option<&str>) {
    match state {
        State::Open(_) => ("unprotected", None),
        State::Behind => ("protected", None),
        State::Remote => ("remote", Some("it is reached by HTTP, and was not asked")),
        State::Unclear(why) => ("not started", Some(why)),
        State::Failed(why) => ("failed", Some(why)),
    }
}

fn as_text(overview: &Overview) -> String {
    let risks = overview.risks();
    let outward = risks.iter().filter(|(_, row)| row.class == Class::Outward).count();
    let shown = risks.len().min(outward + SHOWN);
    let mut text = String::new();
    if !risks.is_empty() {
        let mut rows = vec![["SERVER", "TOOL", "CLASS", "WHY"].map(str::to_owned).to_vec()];
        rows.extend(risks[..shown].iter().map(|(server, row)| {
            let cut = |text: &str| shortened(&plain(text), WIDEST);
            vec![cut(&server.name), cut(&row.name), marks(row), row.why.to_owned()]
        }));
        text += &format!(
            "Tools that could take effect twice, because no gateway is in front of their server:\n\n{}\n",
            table(&rows)
        );
        if shown < risks.len() {
            text += &format!("and {} more that act; --json lists all of them.\n", risks.len() - shown);
        }
        text += "\n";
    }
    let mut rows = vec![["SERVER", "CLIENT", "FILE", "STATE"].map(str::to_owned).to_vec()];
    rows.extend(overview.servers.iter().map(|server| {
        let project = server.project.as_ref().map(|project| format!(" (project {})", plain(project)));
        let file = format!("{}{}", plain(&server.path.display().to_string()), project.unwrap_or_default());
        vec![shortened(&plain(&server.name), WIDEST), server.client.title().to_owned(), file, told(server)]
    }));
    text += &table(&rows);
    let [open, behind, unknown] = overview.counts();
    if open + behind > 0 {
        let (known, other) = (open + behind, risks.len() - outward);
        text += &format!(
            "\n\n{open} of the {known} servers that are known of are behind no gateway. {outward} of their tools reach other \
             people, {other} others act."
        );
    }
    if unknown > 0 {
        text += &format!(
            "\n\n{unknown} of all {} servers could not be started or asked: nothing is known of them.",
            overview.servers.len()
        );
    }
    if risks.is_empty() { text } else { text + "\nonceward mcp install puts the gateway in front of them." }
}

/// What people are told of a server.
fn told(server: &Looked) -> String {
    match &server.state {
        State::Open(rows) => {
            let of = |class| rows.iter().filter(|row| row.class == class).count();
            let acts = of(Class::Acts) + of(Class::Query);
            format!("unprotected: {} outward, {acts} act, {} read", of(Class::Outward), of(Class::Reads))
        }
        State::Behind => "behind onceward".to_owned(),
        State::Remote => "reached by HTTP: not asked".to_owned(),
        State::Unclear(why) => format!("not started: {why}"),
        // The first line says it; others say what to do when it is looked at alone.
        State::Failed(why) => {
            format!("could not be started: {}", plain(why.lines().next().unwrap_or_default()))
        }
    }
}
