//! The command line. Each subcommand is a file with its arguments and what it does with them.

mod accept;
mod gateway;
mod get;
mod hints;
mod key;
mod list;
mod mcp;
mod purge;
mod reference;
mod resolve;
mod run;
mod serve;
mod token;
mod which;

use std::env::VarError;
use std::ffi::OsString;
use std::path::Path;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use onceward::Ledger;
use onceward::core::name::Tenant;
use tokio::runtime::Builder;

use crate::config::{Chosen, Settings};
use crate::exit::Fault;
use crate::{bench, demo, exit, output};

/// Makes side effects happen once: records the intent, lets one caller do the work, gives every repeat its outcome.
#[derive(Debug, Parser)]
#[command(name = "onceward", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Try it:\n  onceward run --operation digest --key 2026-11-15 -- sh -c 'date; echo sent'\n  \
                        onceward list")]
pub(crate) struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// What every subcommand takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Global {
    /// Where the ledger is: a file path, or file:PATH
    ///
    /// Without it: the store that the configuration names, or onceward.db in the working directory; for `onceward mcp`,
    /// onceward.db in your state folder (~/.local/state/onceward).
    #[arg(
        long,
        global = true,
        help_heading = "Everywhere",
        value_name = "URL",
        env = "ONCEWARD_STORE",
        hide_env_values = true
    )]
    store: Option<String>,
    /// The configuration file; onceward.toml in the working directory if there is one
    ///
    /// `onceward mcp` takes only a file that is named: agents start servers in folders that others have filled.
    #[arg(
        long,
        global = true,
        help_heading = "Everywhere",
        value_name = "FILE",
        env = "ONCEWARD_CONFIG",
        hide_env_values = true
    )]
    config: Option<OsString>,
    /// Whose intents: a name, ONCEWARD_TENANT, or `default`; for gateways, where requests say so
    ///
    /// `onceward gateway` and `onceward mcp --upstream` serve several callers, and take `authorization`, `header:NAME` or
    /// `fixed:NAME` instead of a name, and nothing from the environment.
    #[arg(long, global = true, help_heading = "Everywhere", value_name = "NAME")]
    tenant: Option<String>,
}

/// To add a subcommand: a file beside this one, a variant here, an arm in [`Cli::dispatch`].
#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Run),
    Key(key::Key),
    Get(get::Get),
    List(list::List),
    Resolve(resolve::Resolve),
    Purge(purge::Purge),
    Accept(accept::Accept),
    Serve(serve::Serve),
    Token(token::Token),
    Gateway(gateway::Gateway),
    Mcp(mcp::Mcp),
    Bench(bench::Bench),
    Demo(demo::Args),
    #[command(hide = true)]
    BenchPart(bench::Part),
    #[command(hide = true)]
    DemoProvider(demo::provider::Args),
    #[command(hide = true)]
    DemoAgent(demo::agent::Args),
    /// Print completions for a shell
    #[command(
        after_help = "Example:\n  onceward completions bash > ~/.local/share/bash-completion/completions/onceward"
    )]
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Print a reference page
    #[command(hide = true)]
    Reference {
        /// Which page
        page: reference::Page,
    },
}

impl Cli {
    /// What is logged unless `ONCEWARD_LOG` says otherwise: a server has an access log.
    pub(crate) fn default_log(&self) -> &'static str {
        match self.command {
            Command::Serve(_) => "warn,onceward::access=info",
            _ => "warn",
        }
    }

    /// Does what is asked. The answer is the exit code.
    pub(crate) fn dispatch(self) -> Result<u8, Fault> {
        let global = self.global;
        match self.command {
            Command::Run(run) => run.execute(&global),
            Command::Key(key) => key.execute(&global),
            Command::Get(get) => get.execute(&global),
            Command::List(list) => list.execute(&global),
            Command::Resolve(resolve) => resolve.execute(&global),
            Command::Purge(purge) => purge.execute(&global),
            Command::Accept(accept) => accept.execute(&global),
            Command::Serve(serve) => serve.execute(&global),
            Command::Token(token) => token.execute(&global),
            Command::Gateway(gateway) => gateway.execute(&global),
            Command::Mcp(mcp) => mcp.execute(&global),
            Command::Bench(bench) => bench::run(bench, global.store),
            Command::BenchPart(part) => part.execute(),
            Command::Demo(demo) => block_on(async { Ok(demo::run(demo, global.store).await) }),
            Command::DemoProvider(provider) => block_on(async { Ok(demo::provider::run(provider).await) }),
            Command::DemoAgent(agent) => block_on(async { Ok(demo::agent::run(agent).await) }),
            Command::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Self::command(), "onceward", &mut script);
                output::out_bytes(&script);
                Ok(0)
            }
            Command::Reference { page } => {
                output::out_bytes(reference::page(page).as_bytes());
                Ok(0)
            }
        }
    }
}

impl Global {
    /// The settings. An empty variable in the environment is the same as none.
    fn settings(&self) -> Result<Settings, Fault> {
        Settings::load(self.chosen())
    }

    /// The same, without a file that nobody has named.
    fn named_settings(&self) -> Result<Settings, Fault> {
        Settings::load_named(self.chosen())
    }

    fn chosen(&self) -> Chosen<'_> {
        Chosen { config: self.named_config(), store: self.store.as_deref().filter(|store| !store.is_empty()) }
    }

    /// The file that was named.
    fn named_config(&self) -> Option<&Path> {
        self.config.as_deref().filter(|path| !path.is_empty()).map(Path::new)
    }

    /// The tenant that was named.
    fn tenant(&self) -> Result<Option<Tenant>, Fault> {
        let named = match (&self.tenant, std::env::var("ONCEWARD_TENANT")) {
            (Some(flag), _) => Some(flag.clone()),
            (None, Ok(variable)) => Some(variable),
            (None, Err(VarError::NotPresent)) => None,
            (None, Err(error)) => return Err(Fault::usage(format!("ONCEWARD_TENANT: {error}"))),
        };
        named.filter(|named| !named.is_empty()).map(Tenant::new).transpose().map_err(Fault::usage)
    }

    /// What the flag says. A variable that names the tenant of one's own commands must not make one of all callers.
    fn tenant_flag(&self) -> Option<&str> {
        self.tenant.as_deref().filter(|tenant| !tenant.is_empty())
    }
}

/// Opens a ledger to look at it or to settle something. Unlike `run`, this never makes a new one: who looks at a
/// ledger that is not there has named the wrong one.
async fn open(settings: &Settings) -> Result<Ledger, Fault> {
    let store = settings.store()?;
    let path = store.strip_prefix("file:").unwrap_or(store);
    let is_missing = !store.contains("://") && !Path::new(path).exists();
    // Agents start gateways wherever they are, so those have a ledger of their own.
    if let Some(own) = settings.own_ledger().filter(|own| is_missing && own.exists()) {
        output::say(&format!("there is no {path} here; this is the ledger of your MCP gateways, {}.", own.display()));
        return Ok(Ledger::open(&own.to_string_lossy()).await?);
    }
    if is_missing {
        return Err(Fault::new(
            exit::STORE,
            format!(
                "there is no ledger at {path}; nothing was done.\n  Name it with --store, ONCEWARD_STORE, or `store` in \
                 onceward.toml. `onceward run` makes a new one."
            ),
        ));
    }
    Ok(Ledger::open(store).await?)
}

/// Runs on the main thread, which lives to the end of the program; two more threads renew leases and carry output.
fn block_on<T>(work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    on(Builder::new_multi_thread().worker_threads(2), work)
}

/// Runs on the main thread alone: what is done there wakes nobody else.
fn block_on_one_thread<T>(work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    on(&mut Builder::new_current_thread(), work)
}

/// Runs a server, which has a thread for every core.
fn block_on_every_core<T>(work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    on(&mut Builder::new_multi_thread(), work)
}

fn on<T>(runtime: &mut Builder, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let runtime = runtime.enable_all().build();
    let runtime = runtime.map_err(|error| Fault::new(exit::STORE, format!("cannot start: {error}")))?;
    let result = runtime.block_on(work);
    // Something may still wait for a terminal that never answers.
    runtime.shutdown_background();
    result
}
