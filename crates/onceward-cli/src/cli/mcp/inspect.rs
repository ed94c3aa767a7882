//! `onceward mcp inspect`: shows what the tools of a server do, which are guarded, and a configuration to start from.

use serde_json::json;

use super::super::{Global, block_on};
use super::{ServerArguments, inspect_all};
use onceward_mcp::inspect::{Report, ToolReport, inspect};
use onceward_runtime::config::Length;
use onceward_runtime::exit::Fault;
use onceward_runtime::output;
use onceward_runtime::output::{printable, quoted};
use onceward_server::view::{shortened, table};

/// Width limit of a tool name.
const MAX_WIDTH: usize = 60;

/// Show what the tools of an MCP server do, which are guarded and why, and a configuration to start from
///
/// Starts the server, asks for its tools, and stops it. Does not call a tool or open a ledger.
///
/// A tool reads, acts, or is outward: its effect reaches other people. A query tool takes a statement and acts unless the
/// statement is clearly a read. Annotations and the words of the name decide, unless the configuration has `guard` and
/// `repeats`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "onceward mcp inspect [OPTIONS] -- COMMAND...\n       onceward mcp inspect [OPTIONS] --all",
    after_help = "Examples:\n  onceward mcp inspect -- npx some-mail-server\n  \
                  onceward mcp inspect --server mail -- npx some-mail-server\n  onceward mcp inspect --server mail --json\n  \
                  onceward mcp inspect --all"
)]
pub(super) struct Inspect {
    #[command(flatten)]
    server: ServerArguments,
    /// Examine every server in the configurations of clients, and list the riskiest tools without a gateway first
    ///
    /// Starts each of these servers, one after the other, as its client would. Uses the same files as `onceward mcp install`.
    #[arg(long, conflicts_with_all = ["server", "command"])]
    all: bool,
    /// How long a server may take for each response
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    timeout: Length,
    /// Print one JSON object with `server`, `command`, `protocol`, `tools` and `configuration`; with --all, `unprotected`,
    /// `servers` and `unread`
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        if self.all {
            return inspect_all::execute(self.timeout.0, self.json);
        }
        let (name, server, command) = self.server.one(&global.explicit_settings()?)?;
        let report = block_on(inspect(&name, server, &command, self.timeout.0))?;
        if report.junk > 0 {
            output::say(&format!(
                "ignored {} on the server's stdout that are not messages. Some clients give up on such a server.",
                if report.junk == 1 { "1 line".to_owned() } else { format!("{} lines", report.junk) }
            ));
        }
        let command: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
        if self.json {
            let tools: Vec<_> = report.tools.iter().map(as_json).collect();
            output::json(&json!({
                "server": name,
                "command": command,
                "protocol": report.protocol,
                "tools": tools,
                "configuration": report.configuration,
            }));
            return Ok(0);
        }
        let command = command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        output::out(&as_text(&name, &command, &report));
        Ok(0)
    }
}

fn as_json(tool: &ToolReport) -> serde_json::Value {
    let suggestion = tool.suggestion.as_ref().map(
        |suggestion| json!({ "key": suggestion.key, "match": suggestion.match_fields, "tier": suggestion.tier, "key_argument": suggestion.key_argument }),
    );
    json!({
        "name": tool.name,
        "class": tool.class.text(),
        "steps": tool.steps,
        "sets_state": tool.sets_state,
        "ends": tool.ends,
        "guarded": tool.guarded,
        "queued": tool.queued,
        "why": tool.why,
        "in_doubt": tool.in_doubt.as_ref().map(|(what, _)| what),
        "fills": tool.fills,
        "warnings": tool.warnings,
        "suggestion": suggestion,
    })
}

/// The class of a tool and its other properties.
pub(super) fn marks(tool: &ToolReport) -> String {
    let marks = [(tool.steps, "steps"), (tool.sets_state, "sets state"), (tool.ends, "ends")];
    let marks = marks.into_iter().filter(|(is, _)| *is).map(|(_, mark)| mark);
    std::iter::once(tool.class.text()).chain(marks).collect::<Vec<_>>().join(", ")
}

fn as_text(name: &str, command: &str, report: &Report) -> String {
    if report.tools.is_empty() {
        return "The server has no tools, so there is nothing to guard.".to_owned();
    }
    let mut rows = vec![["TOOL", "CLASS", "GUARDED", "WHY", "IN DOUBT"].map(str::to_owned).to_vec()];
    for tool in &report.tools {
        let in_doubt = tool.in_doubt.as_ref().map_or_else(String::new, |(what, why)| match why.is_empty() {
            true => (*what).to_owned(),
            false => format!("{what}: {why}"),
        });
        let shown = printable(&tool.name);
        let guarded = match (tool.guarded, tool.queued) {
            (true, true) => "queued",
            (true, false) => "guarded",
            (false, _) => "passes",
        };
        rows.push(vec![shortened(&shown, MAX_WIDTH), marks(tool), guarded.to_owned(), tool.why.to_owned(), in_doubt]);
    }
    let guarded = report.tools.iter().filter(|tool| tool.guarded).count();
    let is_suggested = report.tools.iter().any(|tool| tool.suggestion.is_some());
    let fills = report.tools.iter().filter_map(|tool| {
        let fills = tool.fills.as_ref()?;
        Some(format!("\n{}: the gateway fills {}, the same on every attempt.", printable(&tool.name), printable(fills)))
    });
    let warnings = report.tools.iter().flat_map(|tool| {
        let name = printable(&tool.name);
        tool.warnings.iter().map(move |warning| format!("\nWarning: {name}: {}.", printable(warning)))
    });
    let notes: String = fills.chain(warnings).collect();
    let judge = "\n# Text after # is a guess based on names: check it, and remove the # to use it.";
    format!(
        "{}\n\n{guarded} of {} tools are guarded.{notes}\n\n# To start from, in onceward.toml, for onceward mcp --config \
         onceward.toml. It also works without a configuration: onceward mcp --server {} -- {}{}\n\n{}",
        table(&rows),
        report.tools.len(),
        printable(&quoted(name)),
        printable(command),
        if is_suggested { judge } else { "" },
        report.configuration,
    )
}
