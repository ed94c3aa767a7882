//! `onceward mcp inspect --all`: lists the tools of every server in the configurations of clients, riskiest first.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::block_on;
use super::inspect::marks;
use onceward_mcp::inspect::{InspectedServer, Overview, ServerState, ToolClass, ToolReport, inspect_all};
use onceward_mcp::install::known_paths;
use onceward_runtime::exit::{Fault, NO};
use onceward_runtime::output;
use onceward_runtime::output::printable;
use onceward_server::view::{shortened, table};

/// How many acting tools are shown. Tools that reach other people are always shown.
const MAX_SHOWN: usize = 50;

/// Width limit of a name or a reason.
const MAX_WIDTH: usize = 60;

pub(super) fn execute(timeout: Duration, is_json: bool) -> Result<u8, Fault> {
    let overview = block_on(async { Ok(inspect_all(timeout).await) })?;
    for (path, why) in &overview.unread {
        output::say(&format!("{}: {why}.", path.display()));
    }
    if is_json {
        output::json(&as_json(&overview));
    } else if overview.servers.is_empty() {
        let places: String = known_paths(None).iter().map(|place| format!("\n  {}", place.display())).collect();
        output::out(&format!("No server found in the configuration of any client. InspectedServer in:{places}"));
    } else {
        output::out(&as_text(&overview));
    }
    Ok(if overview.servers.is_empty() { NO } else { 0 })
}

fn as_json(overview: &Overview) -> Value {
    let tool = |row: &ToolReport| json!({ "name": row.name, "class": row.class.text(), "why": row.why });
    let servers = overview.servers.iter().map(|server| {
        let tools = match &server.state {
            ServerState::Unguarded(rows) => Some(rows.iter().map(tool).collect::<Vec<_>>()),
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

/// The state of a server in one word, and details.
fn state(state: &ServerState) -> (&'static str, Option<&str>) {
    match state {
        ServerState::Unguarded(_) => ("unprotected", None),
        ServerState::Guarded => ("protected", None),
        ServerState::Remote => ("remote", Some("it is reached over HTTP and was not queried")),
        ServerState::NotStarted(why) => ("not started", Some(why)),
        ServerState::Failed(why) => ("failed", Some(why)),
    }
}

fn as_text(overview: &Overview) -> String {
    let risks = overview.risks();
    let outward = risks.iter().filter(|(_, row)| row.class == ToolClass::Outward).count();
    let shown = risks.len().min(outward + MAX_SHOWN);
    let mut text = String::new();
    if !risks.is_empty() {
        let mut rows = vec![["SERVER", "TOOL", "CLASS", "WHY"].map(str::to_owned).to_vec()];
        rows.extend(risks[..shown].iter().map(|(server, row)| {
            let cut = |text: &str| shortened(&printable(text), MAX_WIDTH);
            vec![cut(&server.name), cut(&row.name), marks(row), row.why.to_owned()]
        }));
        text += &format!(
            "Tools that could take effect twice, because their server has no gateway in front of it:\n\n{}\n",
            table(&rows)
        );
        if shown < risks.len() {
            text += &format!("and {} more that act; --json lists all.\n", risks.len() - shown);
        }
        text += "\n";
    }
    let mut rows = vec![["SERVER", "CLIENT", "FILE", "STATE"].map(str::to_owned).to_vec()];
    rows.extend(overview.servers.iter().map(|server| {
        let project = server.project.as_ref().map(|project| format!(" (project {})", printable(project)));
        let file = format!("{}{}", printable(&server.path.display().to_string()), project.unwrap_or_default());
        vec![shortened(&printable(&server.name), MAX_WIDTH), server.client.title().to_owned(), file, state_text(server)]
    }));
    text += &table(&rows);
    let [open, behind, unknown] = overview.counts();
    if open + behind > 0 {
        let (known, other) = (open + behind, risks.len() - outward);
        text += &format!(
            "\n\n{open} of {known} examined servers have no gateway in front of them. {outward} of their tools reach other \
             people, {other} others act."
        );
    }
    if unknown > 0 {
        text += &format!(
            "\n\n{unknown} of all {} servers could not be started or queried, so nothing is known about their tools.",
            overview.servers.len()
        );
    }
    if risks.is_empty() { text } else { text + "\nRun onceward mcp install to put the gateway in front of them." }
}

/// The state of a server, for people.
fn state_text(server: &InspectedServer) -> String {
    match &server.state {
        ServerState::Unguarded(rows) => {
            let of = |class| rows.iter().filter(|row| row.class == class).count();
            let acts = of(ToolClass::Acts) + of(ToolClass::Query);
            format!("unprotected: {} outward, {acts} act, {} read", of(ToolClass::Outward), of(ToolClass::Reads))
        }
        ServerState::Guarded => "behind onceward".to_owned(),
        ServerState::Remote => "reached over HTTP: not queried".to_owned(),
        ServerState::NotStarted(why) => format!("not started: {why}"),
        // The first line is the error; the others are advice for inspecting this server alone.
        ServerState::Failed(why) => {
            format!("could not be started: {}", printable(why.lines().next().unwrap_or_default()))
        }
    }
}
