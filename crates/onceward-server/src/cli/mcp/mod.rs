//! `onceward mcp`: a gateway before an MCP server. `inspect` looks at a server, `install` at the configuration of clients.

mod inspect;
mod install;

use std::ffi::OsString;
use std::path::PathBuf;

use super::which::quoted;
use super::{Global, block_on};
use crate::config::{Server, Settings};
use crate::exit::Fault;
use crate::mcp::{Front, before_command, server_name};

/// Put a gateway before an MCP server: its tools that act happen once, however often an agent calls them
///
/// Every message passes as it is, except calls of tools that act. A repeat gets the first call's result; one that comes
/// while the first is running waits for it; and when nobody knows what happened, the model is told so. Tools that only read
/// pass by.
///
/// Calls with equal arguments are one call while they run, and for 60 s afterwards. With --session, or a recipe in
/// onceward.toml, that holds for as long as the tier says, so that an agent that is resumed meets its earlier calls.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "onceward mcp [OPTIONS] -- COMMAND...\n       onceward mcp inspect [OPTIONS] -- COMMAND...\n       onceward mcp install [OPTIONS]",
    after_help = "Examples:\n  onceward mcp inspect -- npx some-mail-server\n  onceward mcp install\n\n\
                  In the configuration of an agent:\n  \
                  \"mail\": { \"command\": \"onceward\", \"args\": [\"mcp\", \"--\", \"npx\", \"some-mail-server\"] }"
)]
pub(super) struct Mcp {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// The session that an agent goes on in: the same arguments are the same call in all of it
    #[arg(long, value_name = "ID", env = "ONCEWARD_SESSION", hide_env_values = true)]
    session: Option<String>,
    #[command(flatten)]
    which: WhichServer,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Inspect(inspect::Inspect),
    Install(install::Install),
}

/// Which server.
#[derive(Debug, clap::Args)]
struct WhichServer {
    /// The server's name, as in [mcp.server.NAME]: calls of the same name meet in the ledger
    ///
    /// Without it: the one that the configuration has for the same command, or one that is made from the command.
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// The command that starts the server
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Mcp {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        match self.verb {
            // Elsewhere they would be lost in silence.
            Some(_) if self.which.server.is_some() || !self.which.command.is_empty() => {
                return Err(Fault::usage("flags of `onceward mcp inspect` and `install` stand behind that word"));
            }
            Some(Verb::Inspect(inspect)) => return inspect.execute(global),
            Some(Verb::Install(install)) => return install.execute(),
            None => {}
        }
        let settings = global.settings()?;
        let store = store(global, &settings)?;
        let mcp = settings.mcp();
        let (name, server, command) = self.which.chosen(&settings)?;
        let tenant = global.tenant()?.unwrap_or_default();
        let mut flags = format!(" --store {}", quoted(&store));
        if tenant != onceward::core::name::Tenant::default() {
            flags += &format!(" --tenant {}", quoted(tenant.as_str()));
        }
        let session = self.session.filter(|session| !session.is_empty());
        let front = Front { name, server, tenant, session, store, flags };
        block_on(before_command(front, mcp, &command))
    }
}

impl WhichServer {
    /// Its name, what is configured for it, and the command that starts it.
    fn chosen(&self, settings: &Settings) -> Result<(String, Server, Vec<OsString>), Fault> {
        for (server, named) in &settings.mcp().server {
            for (tool, configured) in &named.tool {
                if let Some((field, what)) = configured.mistake() {
                    return Err(Fault::config(format!("mcp.server.{server}.tool.{tool}.{field}: {what}")));
                }
            }
        }
        let name = self.name(settings)?;
        let server = settings.mcp().server.get(&name).cloned().unwrap_or_default();
        let command = if self.command.is_empty() {
            server.command.iter().flatten().map(OsString::from).collect()
        } else {
            self.command.clone()
        };
        if command.is_empty() {
            return Err(Fault::usage(
                "no server: name its command behind --, as in `onceward mcp -- npx some-mcp-server`, or as `command` in \
                 [mcp.server.NAME] of onceward.toml",
            ));
        }
        Ok((name, server, command))
    }

    /// The name that was given, that of the configured server with this command, or of the only one; or one from the command.
    fn name(&self, settings: &Settings) -> Result<String, Fault> {
        if let Some(name) = &self.server {
            return Ok(name.clone());
        }
        let servers = &settings.mcp().server;
        if self.command.is_empty() {
            let mut runnable = servers.iter().filter(|(_, server)| server.command.is_some()).map(|(name, _)| name);
            return match (runnable.next(), runnable.next()) {
                (Some(name), None) => Ok(name.clone()),
                (None, _) => Ok(String::new()),
                (Some(_), Some(_)) => Err(Fault::usage("several servers are configured: say which with --server NAME")),
            };
        }
        let is_ours = |server: &Server| {
            let command = server.command.iter().flatten().map(OsString::from);
            server.command.is_some() && command.eq(self.command.iter().cloned())
        };
        let configured = servers.iter().find(|(_, server)| is_ours(server)).map(|(name, _)| name.clone());
        Ok(configured.unwrap_or_else(|| server_name(&self.command)))
    }
}

/// The ledger: the one that is named, or one in the user's own folder, because agents start servers wherever they are.
fn store(global: &Global, settings: &Settings) -> Result<String, Fault> {
    if settings.names_store() {
        let store = settings.store_of_server();
        let is_path = store != "memory:" && !store.contains("://");
        let path = PathBuf::from(store.strip_prefix("file:").unwrap_or(store));
        let whole = if is_path { std::path::absolute(&path).ok() } else { None };
        return Ok(whole.map_or_else(|| store.to_owned(), |path| path.to_string_lossy().into_owned()));
    }
    let _ = global;
    let folder = crate::config::state_folder().ok_or_else(|| {
        Fault::config("there is no home folder to keep the ledger in; name a file with --store or ONCEWARD_STORE")
    })?;
    std::fs::create_dir_all(&folder)
        .map_err(|error| Fault::config(format!("{} cannot be made: {error}", folder.display())))?;
    Ok(folder.join("onceward.db").to_string_lossy().into_owned())
}
