//! `onceward mcp install`: the gateway in the configuration of clients.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use onceward::clock::{Clock, SystemClock};

use super::super::Global;
use crate::exit::{CONFIG, Fault, NO};
use crate::mcp::install::{Client, Plan, Program, Seen, Wanted, What, places, plans};
use crate::output;

/// Put the gateway before the servers that a client's configuration names, or take it away
///
/// Shows what would change. With --write, changes it, and keeps the old file beside it. Looks for the configuration of
/// Claude Code, Claude Desktop, Cursor and VS Code, of the user and of the project in the working directory. Only the
/// command and the args of servers change; everything else in the file stays byte for byte.
///
/// With --config, the gateways use that file. A server that it names is the same one in every folder; any other is the
/// server of the folder that it is started in (--here).
///
/// Ends with 0 when every server is as wanted or can be, with 1 when there is none or one was left alone, and with 78 when a
/// file cannot be read or written.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  onceward mcp install\n  onceward mcp install --client claude-code --server mail --write\n  \
                  onceward mcp install --file my-agent.json --config onceward.toml --write\n  \
                  onceward mcp install --undo --write"
)]
pub(super) struct Install {
    /// Only this client
    #[arg(long, value_name = "CLIENT", value_enum)]
    client: Option<Client>,
    /// This file, wherever it is
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Only the server of this name; may be given several times
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,
    /// Make the change; the old file stays as FILE.onceward-backup-DATE-TIME
    #[arg(long)]
    write: bool,
    /// Take the gateway away again
    #[arg(long)]
    undo: bool,
}

impl Install {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        if self.client == Some(Client::Json) && self.file.is_none() {
            return Err(Fault::usage(
                "which file? Name it, as in `onceward mcp install --client json --file agent.json`",
            ));
        }
        let (config, sections) = if self.undo { Default::default() } else { configured(global)? };
        let (client, file, servers, undo, program) = (self.client, self.file, self.server, self.undo, program()?);
        let wanted = Wanted { client, file, servers, undo, program, config, sections };
        let plans = plans(&wanted);
        if plans.is_empty() {
            output::out(&format!("No configuration of a client was found. Looked for:{}", looked_for(client)));
            output::out("Name a file with --file PATH.");
            return Ok(NO);
        }
        for name in &wanted.servers {
            let is_there = |plan: &Plan| plan.servers.iter().any(|server| server.name == *name);
            if plans.iter().all(|(_, plan)| plan.as_ref().is_ok_and(|plan| !is_there(plan))) {
                return Err(Fault::usage(format!("no server is called {name}; `onceward mcp install` lists them all")));
            }
        }
        let (mut code, mut open, mut seen, mut written, mut left) = (0, 0, 0, 0, 0);
        for (path, plan) in &plans {
            let told = plan.as_ref().map_err(Clone::clone).and_then(|plan| {
                output::out(&format!("{}: {}", plan.client.title(), path.display()));
                seen += plan.servers.len();
                left += plan.servers.iter().filter(|server| is_left(server, undo)).count();
                output::out(&shown(&plan.servers, wanted.undo));
                match self.write && plan.changes() {
                    true => plan.write(SystemClock.now()).map(Some),
                    false => Ok(None),
                }
            });
            match told {
                Ok(Some(backup)) => {
                    written += 1;
                    output::out(&format!("  Written. The old file is {}", backup.display()));
                }
                Ok(None) => open += usize::from(plan.as_ref().is_ok_and(Plan::changes)),
                Err(why) => {
                    output::say(&format!("{}: {why}.", path.display()));
                    code = CONFIG;
                }
            }
            output::out("");
        }
        if written > 0 {
            output::out("Start the client anew, so that it reads its configuration.");
        }
        if !self.write && open > 0 && code != CONFIG {
            output::out("Nothing was written. Add --write to make these changes; the old files are kept.");
        }
        Ok(if code == 0 && (seen == 0 || left > 0) { NO } else { code })
    }
}

/// The configuration that was named, as it is found from anywhere, and the servers in it.
fn configured(global: &Global) -> Result<(Option<String>, BTreeSet<String>), Fault> {
    let settings = global.named_settings()?;
    let Some(config) = global.named_config() else { return Ok(Default::default()) };
    let whole = std::path::absolute(config).unwrap_or_else(|_| config.to_owned());
    let Some(whole) = whole.to_str() else {
        return Err(Fault::usage(format!("--config {}: JSON cannot hold this path", whole.display())));
    };
    Ok((Some(whole.to_owned()), settings.mcp().server.keys().cloned().collect()))
}

/// Whether a server is not as wanted, and nothing makes it so.
fn is_left(server: &Seen, undo: bool) -> bool {
    match server.what {
        What::Change { .. } | What::IsSo => false,
        What::Remote => !undo,
        What::LeftAlone(_) => true,
    }
}

/// What becomes of each server.
fn shown(servers: &[Seen], undo: bool) -> String {
    if servers.is_empty() {
        return "  It has no servers.".to_owned();
    }
    let lines = servers.iter().map(|server| {
        let project = server.project.as_ref().map(|project| format!(" (project {})", output::tame(project)));
        let name = format!("  {}{}", output::tame(&server.name), project.unwrap_or_default());
        match &server.what {
            What::Change { before, after } => format!("{name}:\n{}\n{}", side('-', before), side('+', after)),
            What::IsSo if undo => format!("{name}: no gateway stands before it"),
            What::IsSo => format!("{name}: the gateway stands before it already"),
            What::Remote => format!(
                "{name}: it is reached by HTTP. Run `onceward mcp --upstream URL --listen 127.0.0.1:PORT` before it, and name \
                 that address here instead"
            ),
            What::LeftAlone(why) => format!("{name}: left alone, because {why}"),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The lines that go, or come. Nothing else of a server is shown: its environment may hold secrets.
fn side(sign: char, words: &[String]) -> String {
    let words: Vec<_> = words.iter().map(|word| serde_json::Value::from(word.as_str()).to_string()).collect();
    let (command, arguments) = words.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    format!("    {sign} \"command\": {command}\n    {sign} \"args\": [{}]", arguments.join(", "))
}

fn looked_for(client: Option<Client>) -> String {
    places(client).iter().map(|place| format!("\n  {}", place.display())).collect()
}

/// How clients start this program: by its name, if that finds it; else by its path.
fn program() -> Result<Program, Fault> {
    let own = std::env::current_exe()
        .map_err(|error| Fault::config(format!("the system does not say where this program is: {error}")))?;
    let is_own = |path: &Path| path.canonicalize().ok().is_some_and(|path| own.canonicalize().ok() == Some(path));
    let path = std::env::var_os("PATH").unwrap_or_default();
    // The first one is what a shell takes.
    let first = std::env::split_paths(&path).map(|folder| folder.join("onceward")).find(|file| file.is_file());
    let Some(found) = first.filter(|file| is_own(file)) else {
        let whole = own.to_string_lossy().into_owned();
        return Ok(Program { short: whole.clone(), whole });
    };
    // As PATH has it: what a link leads to may go away with the next version.
    let whole = std::path::absolute(&found).unwrap_or(own).to_string_lossy().into_owned();
    Ok(Program { short: "onceward".to_owned(), whole })
}
