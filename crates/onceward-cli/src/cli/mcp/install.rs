//! `onceward mcp install`: adds the gateway to the configuration of clients, or removes it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use onceward::clock::{Clock, SystemClock};

use super::super::Global;
use onceward_mcp::install::{Client, InstallRequest, Plan, Program, ServerChange, ServerPlan, known_paths, plans};
use onceward_runtime::exit::{CONFIG, Fault, NO};
use onceward_runtime::output;

/// Put the gateway in front of the servers in a client's configuration, or remove it
///
/// Shows the changes. With --write, makes them and keeps a backup next to each file. Looks for the configuration of Claude
/// Code, Claude Desktop, Cursor and VS Code, of the user and of the project in the working directory. Only the command and
/// the arguments of servers change; everything else in the file stays byte for byte.
///
/// With --config, the gateways use that file. A server that it names is the same in every folder; any other server is
/// separate in each folder that it is started in (--here).
///
/// Exits with 0 if every server is as requested or can be, with 1 if there is none or one was skipped, and with 78 if a file
/// cannot be read or written.
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
    /// Use this file
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Only the server with this name; repeatable
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,
    /// Make the changes; the old file is kept as FILE.onceward-backup-DATE-TIME
    #[arg(long)]
    write: bool,
    /// Remove the gateway
    #[arg(long)]
    undo: bool,
}

impl Install {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        if self.client == Some(Client::Json) && self.file.is_none() {
            return Err(Fault::usage(
                "--client json needs a file, as in `onceward mcp install --client json --file agent.json`",
            ));
        }
        let (config, sections) = if self.undo { Default::default() } else { configured(global)? };
        let (client, file, servers, undo, program) = (self.client, self.file, self.server, self.undo, program()?);
        let wanted = InstallRequest { client, file, servers, undo, program, config, sections };
        let plans = plans(&wanted);
        if plans.is_empty() {
            output::out(&format!("No client configuration found. Looked for:{}", looked_for(client)));
            output::out("Name a file with --file PATH.");
            return Ok(NO);
        }
        for name in &wanted.servers {
            let is_there = |plan: &Plan| plan.servers.iter().any(|server| server.name == *name);
            if plans.iter().all(|(_, plan)| plan.as_ref().is_ok_and(|plan| !is_there(plan))) {
                return Err(Fault::usage(format!("unknown server {name}; `onceward mcp install` lists all servers")));
            }
        }
        let (mut code, mut open, mut seen, mut written, mut skipped) = (0, 0, 0, 0, 0);
        for (path, plan) in &plans {
            let result = plan.as_ref().map_err(Clone::clone).and_then(|plan| {
                output::out(&format!("{}: {}", plan.client.title(), path.display()));
                seen += plan.servers.len();
                skipped += plan.servers.iter().filter(|server| is_skipped(server, undo)).count();
                output::out(&shown(&plan.servers, wanted.undo));
                match self.write && plan.changes() {
                    true => plan.write(SystemClock.now()).map(Some),
                    false => Ok(None),
                }
            });
            match result {
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
            output::out("Restart the client to load its configuration.");
        }
        if !self.write && open > 0 && code != CONFIG {
            output::out("Nothing was written. Add --write to make these changes; the old files are kept.");
        }
        Ok(if code == 0 && (seen == 0 || skipped > 0) { NO } else { code })
    }
}

/// The named configuration as an absolute path, and the servers in it.
fn configured(global: &Global) -> Result<(Option<String>, BTreeSet<String>), Fault> {
    let settings = global.explicit_settings()?;
    let Some(config) = global.named_config() else { return Ok(Default::default()) };
    let whole = std::path::absolute(config).unwrap_or_else(|_| config.to_owned());
    let Some(whole) = whole.to_str() else {
        return Err(Fault::usage(format!("--config {}: JSON cannot hold this path", whole.display())));
    };
    Ok((Some(whole.to_owned()), settings.mcp().server.keys().cloned().collect()))
}

/// Whether a server is not as requested and will not be changed.
fn is_skipped(server: &ServerPlan, undo: bool) -> bool {
    match server.change {
        ServerChange::Rewrite { .. } | ServerChange::Unchanged => false,
        ServerChange::Remote => !undo,
        ServerChange::Skipped(_) => true,
    }
}

/// The change for each server.
fn shown(servers: &[ServerPlan], undo: bool) -> String {
    if servers.is_empty() {
        return "  no servers".to_owned();
    }
    let lines = servers.iter().map(|server| {
        let project = server.project.as_ref().map(|project| format!(" (project {})", output::printable(project)));
        let name = format!("  {}{}", output::printable(&server.name), project.unwrap_or_default());
        match &server.change {
            ServerChange::Rewrite { before, after } => format!("{name}:\n{}\n{}", side('-', before), side('+', after)),
            ServerChange::Unchanged if undo => format!("{name}: has no gateway in front of it"),
            ServerChange::Unchanged => format!("{name}: already has the gateway in front of it"),
            ServerChange::Remote => format!(
    "{name}: is reached over HTTP. Run `onceward mcp --upstream URL --listen 127.0.0.1:PORT` in front of it, and \
     use that address here instead"
            ),
            ServerChange::Skipped(why) => format!("{name}: skipped, because {why}"),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The removed or added lines. Shows nothing else of a server: its environment may contain secrets.
fn side(sign: char, words: &[String]) -> String {
    let words: Vec<_> = words.iter().map(|word| serde_json::Value::from(word.as_str()).to_string()).collect();
    let (command, arguments) = words.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    format!("    {sign} \"command\": {command}\n    {sign} \"args\": [{}]", arguments.join(", "))
}

fn looked_for(client: Option<Client>) -> String {
    known_paths(client).iter().map(|place| format!("\n  {}", place.display())).collect()
}

/// How clients start this program: by its name if it is in PATH; else by its path.
fn program() -> Result<Program, Fault> {
    let own = std::env::current_exe()
        .map_err(|error| Fault::config(format!("cannot find the path of this program: {error}")))?;
    let is_own = |path: &Path| path.canonicalize().ok().is_some_and(|path| own.canonicalize().ok() == Some(path));
    let path = std::env::var_os("PATH").unwrap_or_default();
    // A shell uses the first match.
    let first = std::env::split_paths(&path).map(|folder| folder.join("onceward")).find(|file| file.is_file());
    let Some(found) = first.filter(|file| is_own(file)) else {
        let whole = own.to_string_lossy().into_owned();
        return Ok(Program { short: whole.clone(), whole });
    };
    // As in PATH: the target of a link may disappear with the next version.
    let whole = std::path::absolute(&found).unwrap_or(own).to_string_lossy().into_owned();
    Ok(Program { short: "onceward".to_owned(), whole })
}
