//! `onceward mcp`: a gateway in front of an MCP server. `inspect` examines a server, `install` edits the configuration of
//! clients.

mod inspect;
mod inspect_all;
mod install;

use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

use onceward::StoreUrl;
use onceward::core::name::Tenant;

use super::gateway::tenant_source;
use super::{Global, block_on_every_core, block_on_one_thread};
use onceward_mcp::{GatewayOptions, Remote, name_in, serve_aggregate, serve_command, serve_remote, server_name};
use onceward_runtime::config::{Server, Settings, suggestion};
use onceward_runtime::exit::Fault;
use onceward_runtime::output::{self, quoted};
use onceward_runtime::stderr_writer;

/// The default address of a gateway in front of a server that is reached over HTTP.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8931);

/// Run a gateway in front of an MCP server; tools that act happen once, however often an agent calls them
///
/// All messages pass through unchanged, except calls of tools that act. A repeat gets the result of the first call; a repeat
/// while the first call is running waits for it; if the outcome is unknown, the model is told so. Calls of tools that only
/// read pass through.
///
/// A repeat is a call with equal arguments whose first result did not reach the client. A call after the result was delivered
/// runs; only tools that reach other people replay the result for 60 s more. With --session, or a recipe in the
/// configuration, a repeat is recognised for as long as the tier says, so that a resumed agent gets its earlier results.
///
/// Without a command, it runs the servers in the configuration. Several servers appear to the agent as one, and the name of
/// each tool starts with the name of its server, as in mail__send_email.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "onceward mcp [OPTIONS] -- COMMAND...\n       onceward mcp [OPTIONS] --upstream URL\n       onceward mcp inspect [OPTIONS] -- COMMAND...\n       onceward mcp install [OPTIONS]",
    after_help = "Examples:\n  onceward mcp inspect -- npx some-mail-server\n  onceward mcp install\n\n\
                  In the configuration of an agent:\n  \
                  \"mail\": { \"command\": \"onceward\", \"args\": [\"mcp\", \"--\", \"npx\", \"some-mail-server\"] }"
)]
pub(super) struct Mcp {
    #[command(subcommand)]
    verb: Option<McpSubcommand>,
    /// The session of the agent: equal arguments are the same call throughout the session
    #[arg(long, value_name = "ID", env = "ONCEWARD_SESSION", hide_env_values = true)]
    session: Option<String>,
    #[command(flatten)]
    server: ServerArguments,
    /// Deduplicate only calls from the same working directory, unless a session is given
    ///
    /// This is always the case for a server without a name.
    #[arg(long)]
    here: bool,
    /// A server that is reached over streamable HTTP, instead of a command
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    upstream: Option<String>,
    /// The address to listen on with --upstream; port 0 picks a free port [default: 127.0.0.1:8931]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Additional CA certificates for https upstreams, in PEM form
    #[arg(long, value_name = "FILE")]
    upstream_ca: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum McpSubcommand {
    Inspect(inspect::Inspect),
    Install(install::Install),
}

/// Identifies a server.
#[derive(Debug, clap::Args)]
struct ServerArguments {
    /// The name of the server, as in [mcp.server.NAME]: calls of servers with the same name share the ledger
    ///
    /// Defaults to the name that the configuration has for the same command, or to a name made from the command and, unless a
    /// session is given, the working directory.
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// The command that starts the server
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Mcp {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        match self.verb {
            // In front of the subcommand they would be ignored silently.
            Some(_) if self.upstream.is_some() || self.listen.is_some() || self.here || self.server.is_named() => {
                return Err(Fault::usage("write flags of `onceward mcp inspect` and `install` after that word"));
            }
            Some(McpSubcommand::Inspect(inspect)) => return inspect.execute(global),
            Some(McpSubcommand::Install(install)) => return install.execute(global),
            None if self.upstream.is_none() && (self.listen.is_some() || self.upstream_ca.is_some()) => {
                return Err(Fault::usage(
                    "--listen and --upstream-ca are only for a server that is reached over HTTP: --upstream URL",
                ));
            }
            None => {}
        }
        // If the thread cannot be started, messages are written directly.
        let _ = stderr_writer::start();
        let settings = global.explicit_settings()?;
        settings.check_mcp()?;
        settings.check_queue()?;
        let store = store(&settings);
        let (mcp, records_per_tenant) = (settings.mcp(), settings.records_per_tenant());
        if self.here && self.session.is_none() && settings.queued_tools().next().is_some() {
            return Err(Fault::usage(
                "--here separates the calls of each folder, and a courier does not know the folders: leave it out, or leave \
                 `deliver = \"queue\"` out of the configuration",
            ));
        }
        let flags = format!(" --store {}", quoted(&store.to_string()));
        let session = self.session.clone().filter(|session| !session.is_empty());
        // Calls belong together by session, or else by folder.
        let folder = if session.is_none() { std::env::current_dir().ok() } else { None };
        let meets = |name: &str| match &folder {
            Some(folder) if self.here => name_in(name, folder),
            _ => name.to_owned(),
        };
        if self.upstream.is_none() && self.server.is_for_several(&settings) {
            let tenant = global.tenant()?.unwrap_or_default();
            let runnable = mcp.server.iter().filter(|(_, server)| server.command.is_some());
            let fronts = runnable.map(|(name, server)| GatewayOptions {
                name: meets(name),
                shown: name.clone(),
                server: server.clone(),
                tenant: tenant.clone(),
                session: session.clone(),
                store: store.clone(),
                records_per_tenant,
                flags: flags.clone(),
            });
            return block_on_one_thread(serve_aggregate(fronts.collect(), mcp));
        }
        let known = match &self.upstream {
            Some(_) => self.server.server.clone(),
            None => self.server.known(&settings),
        };
        let name = match (&known, &self.upstream) {
            (Some(name), _) => meets(name),
            (None, Some(upstream)) => server_name(&[OsString::from(upstream)], None),
            (None, None) => server_name(&self.server.command, folder.as_deref()),
        };
        let (shown, server) = configured(&settings, known.as_deref().unwrap_or(&name));
        if let Some(upstream) = self.upstream {
            if let Some(tool) = server.queued_tools().next() {
                return Err(Fault::config(format!(
                    "mcp.server.{shown}.tool.{tool}.deliver: a server that is reached over HTTP cannot have queued tools"
                )));
            }
            let names = settings.tenant_names()?;
            let tenant = remote_tenant(global)?.map(|tenant| tenant.with(&names));
            let listen = self.listen.unwrap_or(LISTEN);
            let remote = Remote { upstream, listen, tenant, names, upstream_ca: self.upstream_ca };
            let front = GatewayOptions {
                name,
                shown,
                server,
                tenant: Tenant::default(),
                session,
                store,
                records_per_tenant,
                flags,
            };
            return block_on_every_core(serve_remote(front, mcp, remote));
        }
        let command = self.server.command(&server)?;
        let tenant = global.tenant()?.unwrap_or_default();
        let front = GatewayOptions { name, shown, server, tenant, session, store, records_per_tenant, flags };
        block_on_one_thread(serve_command(front, mcp, &command))
    }
}

impl ServerArguments {
    /// Whether the arguments name a server.
    fn is_named(&self) -> bool {
        self.server.is_some() || !self.command.is_empty()
    }

    /// Whether the arguments name no server, and the file has several.
    fn is_for_several(&self, settings: &Settings) -> bool {
        let runnable = settings.mcp().server.values().filter(|server| server.command.is_some()).count();
        !self.is_named() && runnable > 1
    }

    /// The single server to use: its name, its configuration, and the command that starts it.
    fn one(&self, settings: &Settings) -> Result<(String, Server, Vec<OsString>), Fault> {
        settings.check_mcp()?;
        if self.is_for_several(settings) {
            return Err(Fault::usage("several servers are configured: choose one with --server NAME"));
        }
        let folder = std::env::current_dir().ok();
        let name = self.known(settings).unwrap_or_else(|| server_name(&self.command, folder.as_deref()));
        let (_, server) = configured(settings, &name);
        let command = self.command(&server)?;
        Ok((name, server, command))
    }

    /// The command in the arguments, or the configured one.
    fn command(&self, server: &Server) -> Result<Vec<OsString>, Fault> {
        let command = if self.command.is_empty() {
            server.command.iter().flatten().map(OsString::from).collect()
        } else {
            self.command.clone()
        };
        if command.is_empty() {
            return Err(Fault::usage(
                "no server: write its command after --, as in `onceward mcp -- npx some-mcp-server`, or as `command` in \
                 [mcp.server.NAME] of onceward.toml",
            ));
        }
        Ok(command)
    }

    /// The name in the arguments, or that of the configured server with this command, or of the only one.
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

/// The configuration of a server and its name there. If the file has servers but not this one, there is most likely a typo
/// in it.
fn configured(settings: &Settings, name: &str) -> (String, Server) {
    let servers = &settings.mcp().server;
    if !servers.is_empty() && !servers.contains_key(name) {
        let suggestion = suggestion(name, servers.keys().map(String::as_str));
        output::say(&format!("the configuration has no server {name}, so it does not apply to this one; {suggestion}"));
    }
    (name.to_owned(), servers.get(name).cloned().unwrap_or_default())
}

/// The ledger: the named one, or one in the user's state folder, because agents start servers in any folder. Without such a
/// folder, tools that read still work.
fn store(settings: &Settings) -> StoreUrl {
    if settings.names_store() {
        let store = settings.server_store();
        let whole = store.file().and_then(|path| std::path::absolute(path).ok());
        return whole.map_or_else(|| store.clone(), StoreUrl::from);
    }
    let Some(own) = settings.user_ledger() else {
        output::say("there is no home folder for the ledger; name a file with --store or ONCEWARD_STORE.");
        // No ledger has this name, so opening it always fails.
        return StoreUrl::from("");
    };
    let folder = own.parent().unwrap_or(&own);
    // The ledger contains results of tools.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    let made = made.and_then(|()| OpenOptions::new().append(true).create(true).mode(0o600).open(&own));
    if let Err(error) = made {
        output::say(&format!(
            "cannot create {}: {error}; name another file with --store or ONCEWARD_STORE.",
            own.display()
        ));
    }
    own.into()
}

/// The source of the tenant in `--tenant`, in front of a server that is reached by HTTP.
fn remote_tenant(global: &Global) -> Result<Option<onceward_runtime::proxy::Tenant>, Fault> {
    let others = "authorization or header:NAME";
    let flag = global.tenant_flag().unwrap_or_default();
    let kind = flag.split(':').next().unwrap_or_default();
    if ["whoami", "token", "jwt"].contains(&kind) {
        return Err(Fault::usage(format!(
            "--tenant {kind} is only for the HTTP gateway; for an MCP server write {others}, or fixed:NAME"
        )));
    }
    tenant_source(global, others)
}
