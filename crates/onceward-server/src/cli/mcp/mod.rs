//! `onceward mcp`: a gateway before an MCP server. `inspect` looks at a server, `install` at the configuration of clients.

mod inspect;
mod inspect_all;
mod install;

use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

use onceward::core::name::Tenant;

use super::gateway::source;
use super::{Global, block_on, block_on_every_core, block_on_one_thread};
use crate::aside;
use crate::config::{Server, Settings, instead};
use crate::exit::Fault;
use crate::mcp::{Front, Remote, before_command, before_remote, before_several, name_in, server_name};
use crate::output::{self, quoted};

/// Where a gateway before a server that is reached by HTTP listens, unless something else is said.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8931);

/// Put a gateway before an MCP server: its tools that act happen once, however often an agent calls them
///
/// Every message passes as it is, except calls of tools that act. A repeat gets the first call's result; one that comes
/// while the first is running waits for it; and when nobody knows what happened, the model is told so. Tools that only read
/// pass by.
///
/// A repeat is a call with equal arguments whose first answer did not reach the client. A call after the answer runs; only
/// tools that reach other people answer equal calls for 60 s more. With --session, or a recipe in the configuration, that
/// holds for as long as the tier says, so that an agent that is resumed meets its earlier calls.
///
/// Without a command: the servers of the configuration. Several are one server to the agent, and the names of their tools begin
/// with theirs, as in mail__send_email.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "onceward mcp [OPTIONS] -- COMMAND...\n       onceward mcp [OPTIONS] --upstream URL\n       onceward mcp inspect [OPTIONS] -- COMMAND...\n       onceward mcp install [OPTIONS]",
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
    /// The server's calls meet only those from the same working directory, unless a session is given
    ///
    /// A server that has no name at all is always taken so.
    #[arg(long)]
    here: bool,
    /// A server that is reached by streamable HTTP, instead of a command
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    upstream: Option<String>,
    /// Where to listen for it; port 0 takes a free one [default: 127.0.0.1:8931]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Certificates to believe of an https upstream, besides those that the system knows, as PEM
    #[arg(long, value_name = "FILE")]
    upstream_ca: Option<PathBuf>,
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
    /// Without it: the one that the configuration has for the same command, or one that is made from the command and, unless
    /// a session is given, the working directory.
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
            Some(_) if self.upstream.is_some() || self.listen.is_some() || self.here || self.which.is_said() => {
                return Err(Fault::usage("flags of `onceward mcp inspect` and `install` stand behind that word"));
            }
            Some(Verb::Inspect(inspect)) => return inspect.execute(global),
            Some(Verb::Install(install)) => return install.execute(global),
            None if self.upstream.is_none() && (self.listen.is_some() || self.upstream_ca.is_some()) => {
                return Err(Fault::usage(
                    "--listen and --upstream-ca are for a server that is reached by HTTP: --upstream URL",
                ));
            }
            None => {}
        }
        // Without such a thread, they are said as ever.
        let _ = aside::begin();
        let settings = global.named_settings()?;
        sound(&settings)?;
        let store = store(&settings);
        let (mcp, records_per_tenant) = (settings.mcp(), settings.records_per_tenant());
        let flags = format!(" --store {}", quoted(&store));
        let session = self.session.clone().filter(|session| !session.is_empty());
        // What belongs together, a session says; else the folder does.
        let folder = if session.is_none() { std::env::current_dir().ok() } else { None };
        let meets = |name: &str| match &folder {
            Some(folder) if self.here => name_in(name, folder),
            _ => name.to_owned(),
        };
        if self.upstream.is_none() && self.which.is_for_several(&settings) {
            let tenant = global.tenant()?.unwrap_or_default();
            let runnable = mcp.server.iter().filter(|(_, server)| server.command.is_some());
            let fronts = runnable.map(|(name, server)| Front {
                name: meets(name),
                shown: name.clone(),
                server: server.clone(),
                tenant: tenant.clone(),
                session: session.clone(),
                store: store.clone(),
                records_per_tenant,
                flags: flags.clone(),
            });
            return block_on(before_several(fronts.collect(), mcp));
        }
        let known = match &self.upstream {
            Some(_) => self.which.server.clone(),
            None => self.which.known(&settings),
        };
        let name = match (&known, &self.upstream) {
            (Some(name), _) => meets(name),
            (None, Some(upstream)) => server_name(&[OsString::from(upstream)], None),
            (None, None) => server_name(&self.which.command, folder.as_deref()),
        };
        let (shown, server) = configured(&settings, known.as_deref().unwrap_or(&name));
        if let Some(upstream) = self.upstream {
            let names = settings.tenant_names()?;
            let tenant = source(global)?.map(|tenant| tenant.with(&names));
            let listen = self.listen.unwrap_or(LISTEN);
            let remote = Remote { upstream, listen, tenant, names, upstream_ca: self.upstream_ca };
            let front =
                Front { name, shown, server, tenant: Tenant::default(), session, store, records_per_tenant, flags };
            return block_on_every_core(before_remote(front, mcp, remote));
        }
        let command = self.which.command(&server)?;
        let tenant = global.tenant()?.unwrap_or_default();
        let front = Front { name, shown, server, tenant, session, store, records_per_tenant, flags };
        block_on_one_thread(before_command(front, mcp, &command))
    }
}

impl WhichServer {
    /// Whether anything says which server.
    fn is_said(&self) -> bool {
        self.server.is_some() || !self.command.is_empty()
    }

    /// Whether nothing says which server, and the file has several.
    fn is_for_several(&self, settings: &Settings) -> bool {
        let runnable = settings.mcp().server.values().filter(|server| server.command.is_some()).count();
        !self.is_said() && runnable > 1
    }

    /// The one server that is meant: its name, what is configured for it, and the command that starts it.
    fn one(&self, settings: &Settings) -> Result<(String, Server, Vec<OsString>), Fault> {
        sound(settings)?;
        if self.is_for_several(settings) {
            return Err(Fault::usage("several servers are configured: say which with --server NAME"));
        }
        let folder = std::env::current_dir().ok();
        let name = self.known(settings).unwrap_or_else(|| server_name(&self.command, folder.as_deref()));
        let (_, server) = configured(settings, &name);
        let command = self.command(&server)?;
        Ok((name, server, command))
    }

    /// The command that was given, or the configured one.
    fn command(&self, server: &Server) -> Result<Vec<OsString>, Fault> {
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
        Ok(command)
    }

    /// The name that was given, that of the configured server with this command, or of the only one.
    fn known(&self, settings: &Settings) -> Option<String> {
        let servers = &settings.mcp().server;
        let is_ours = |server: &Server| {
            let command = server.command.iter().flatten().map(OsString::from);
            server.command.is_some() && (self.command.is_empty() || command.eq(self.command.iter().cloned()))
        };
        let ours = || servers.iter().find(|(_, server)| is_ours(server)).map(|(name, _)| name.clone());
        self.server.clone().or_else(ours)
    }
}

/// What is configured for a server, and the name that it has there. A file that says something of servers, and nothing of
/// this one, has most likely a slip in it.
fn configured(settings: &Settings, name: &str) -> (String, Server) {
    let servers = &settings.mcp().server;
    if !servers.is_empty() && !servers.contains_key(name) {
        let instead = instead(name, servers.keys().map(String::as_str));
        output::say(&format!("the configuration has no server {name}, so nothing in it is for this one; {instead}"));
    }
    (name.to_owned(), servers.get(name).cloned().unwrap_or_default())
}

/// Whether every configured server and tool makes sense.
fn sound(settings: &Settings) -> Result<(), Fault> {
    for (server, named) in &settings.mcp().server {
        if let Some((field, what)) = named.mistake() {
            return Err(Fault::config(format!("mcp.server.{server}.{field}: {what}")));
        }
        for (tool, configured) in &named.tool {
            if let Some((field, what)) = configured.mistake() {
                return Err(Fault::config(format!("mcp.server.{server}.tool.{tool}.{field}: {what}")));
            }
        }
    }
    Ok(())
}

/// The ledger: the one that is named, or one in the user's own folder, because agents start servers wherever they are. Where
/// there is no such folder, tools that read work all the same.
fn store(settings: &Settings) -> String {
    if settings.names_store() {
        let store = settings.store_of_server();
        let is_path = store != "memory:" && !store.contains("://");
        let whole = if is_path { std::path::absolute(store.strip_prefix("file:").unwrap_or(store)).ok() } else { None };
        return whole.map_or_else(|| store.to_owned(), |path| path.to_string_lossy().into_owned());
    }
    let Some(own) = settings.own_ledger() else {
        output::say("there is no home folder to keep the ledger in; name a file with --store or ONCEWARD_STORE.");
        // No ledger has this name, so that none can be opened.
        return String::new();
    };
    let folder = own.parent().unwrap_or(&own);
    // Results of tools are kept there.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    let made = made.and_then(|()| OpenOptions::new().append(true).create(true).mode(0o600).open(&own));
    if let Err(error) = made {
        output::say(&format!(
            "{} cannot be made: {error}; name another with --store or ONCEWARD_STORE.",
            own.display()
        ));
    }
    own.to_string_lossy().into_owned()
}
