//! The command line: one file per subcommand, with its arguments and its execution.

mod accept;
mod breakers;
mod copy;
mod courier;
mod enqueue;
mod enqueue_lines;
mod entries;
mod gateway;
mod get;
mod hints;
mod intent_arguments;
mod key;
mod list;
mod mcp;
mod migrate;
mod opening;
mod providers;
mod purge;
mod reference;
mod rerun;
mod resolve;
mod run;
mod serve;
mod token;

use std::env::VarError;
use std::ffi::OsString;
use std::path::Path;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use onceward::StoreUrl;
use onceward::core::name::Tenant;
use tokio::runtime::Builder;

use crate::demo;
use onceward_bench as bench;
use onceward_runtime::config::{ConfigSource, Settings};
use onceward_runtime::exit::Fault;
use onceward_runtime::{exit, output};

/// Make side effects happen once: record the intent, let one caller do the work, replay the outcome to every repeat
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

/// Options of every subcommand.
#[derive(Debug, clap::Args)]
pub(crate) struct Global {
    /// The ledger: a file path, file:PATH, postgres://…, redis://…, rediss://…, redis+sentinel://… or redis+cluster://…
    ///
    /// Defaults to the store in the configuration, or onceward.db in the working directory; for `onceward mcp`, onceward.db in
    /// your state folder (~/.local/state/onceward).
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        value_name = "URL",
        env = "ONCEWARD_STORE",
        hide_env_values = true
    )]
    store: Option<StoreUrl>,
    /// The configuration file [default: onceward.toml in the working directory, if it exists]
    ///
    /// `onceward mcp` only uses a file that is named: agents start servers in folders whose content is not trusted.
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        value_name = "FILE",
        env = "ONCEWARD_CONFIG",
        hide_env_values = true
    )]
    config: Option<OsString>,
    /// The tenant that intents belong to [default: ONCEWARD_TENANT, or `default`]
    ///
    /// `onceward gateway` and `onceward mcp --upstream` serve several callers. They take the source of the tenant instead:
    /// `authorization`, `header:NAME` or `fixed:NAME`, and ignore ONCEWARD_TENANT.
    #[arg(long, global = true, help_heading = "Global options", value_name = "NAME")]
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
    Enqueue(enqueue::Enqueue),
    Requeue(entries::Requeue),
    Cancel(entries::Cancel),
    Rerun(rerun::Rerun),
    Purge(purge::Purge),
    Accept(accept::Accept),
    Migrate(migrate::Migrate),
    Copy(copy::Copy),
    Serve(serve::Serve),
    Courier(courier::Courier),
    Breakers(breakers::Breakers),
    Token(token::Token),
    Providers(providers::Providers),
    Gateway(gateway::Gateway),
    Mcp(mcp::Mcp),
    Bench(bench::Bench),
    Demo(demo::Args),
    #[command(hide = true)]
    BenchPart(bench::BenchPart),
    #[command(hide = true)]
    DemoProvider(demo::provider::Args),
    #[command(hide = true)]
    DemoAgent(demo::agent::Args),
    /// Print shell completions
    #[command(
        after_help = "Example:\n  onceward completions bash > ~/.local/share/bash-completion/completions/onceward"
    )]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print a reference page
    #[command(hide = true)]
    Reference {
        /// The page
        page: reference::Page,
    },
}

impl Cli {
    /// The default log filter; `ONCEWARD_LOG` overrides it. A server has an access log.
    pub(crate) fn default_log(&self) -> &'static str {
        match self.command {
            Command::Serve(_) => "warn,onceward::access=info",
            _ => "warn",
        }
    }

    /// Runs the subcommand and returns the exit code.
    pub(crate) fn dispatch(self) -> Result<u8, Fault> {
        let global = self.global;
        match self.command {
            Command::Run(run) => run.execute(&global),
            Command::Key(key) => key.execute(&global),
            Command::Get(get) => get.execute(&global),
            Command::List(list) => list.execute(&global),
            Command::Resolve(resolve) => resolve.execute(&global),
            Command::Enqueue(enqueue) => enqueue.execute(&global),
            Command::Requeue(requeue) => requeue.execute(&global),
            Command::Cancel(cancel) => cancel.execute(&global),
            Command::Rerun(rerun) => rerun.execute(&global),
            Command::Purge(purge) => purge.execute(&global),
            Command::Accept(accept) => accept.execute(&global),
            Command::Migrate(migrate) => migrate.execute(&global),
            Command::Copy(copy) => copy.execute(),
            Command::Serve(serve) => serve.execute(&global),
            Command::Breakers(breakers) => breakers.execute(&global),
            Command::Courier(courier) => courier.execute(&global),
            Command::Token(token) => token.execute(&global),
            Command::Providers(providers) => providers.execute(),
            Command::Gateway(gateway) => gateway.execute(&global),
            Command::Mcp(mcp) => mcp.execute(&global),
            Command::Bench(bench) => bench::run(bench, global.store_text()),
            Command::BenchPart(part) => part.execute(),
            Command::Demo(demo) => block_on(async { Ok(demo::run(demo, global.store_text()).await) }),
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
    /// The settings. An empty environment variable counts as unset.
    fn settings(&self) -> Result<Settings, Fault> {
        Settings::load(self.source())
    }

    /// The settings, without a configuration file that is not named explicitly.
    fn explicit_settings(&self) -> Result<Settings, Fault> {
        Settings::load_explicit(self.source())
    }

    fn source(&self) -> ConfigSource<'_> {
        ConfigSource { config: self.named_config(), store: self.store.as_ref().filter(|store| !store.is_empty()) }
    }

    /// The store that the user named, with its password.
    fn store_text(&self) -> Option<String> {
        self.store.as_ref().map(|store| store.with_password().into_owned())
    }

    /// The configuration file that the user named.
    fn named_config(&self) -> Option<&Path> {
        self.config.as_deref().filter(|path| !path.is_empty()).map(Path::new)
    }

    /// The tenant that the user named.
    fn tenant(&self) -> Result<Option<Tenant>, Fault> {
        let named = match (&self.tenant, std::env::var("ONCEWARD_TENANT")) {
            (Some(flag), _) => Some(flag.clone()),
            (None, Ok(variable)) => Some(variable),
            (None, Err(VarError::NotPresent)) => None,
            (None, Err(error)) => return Err(Fault::usage(format!("ONCEWARD_TENANT: {error}"))),
        };
        named.filter(|named| !named.is_empty()).map(Tenant::new).transpose().map_err(Fault::usage)
    }

    /// The `--tenant` flag alone. ONCEWARD_TENANT, meant for the user's own commands, must not merge all callers of a gateway.
    fn tenant_flag(&self) -> Option<&str> {
        self.tenant.as_deref().filter(|tenant| !tenant.is_empty())
    }
}

/// Runs on the main thread, which lives as long as the program; two more threads renew leases and copy output.
fn block_on<T>(work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    on(Builder::new_multi_thread().worker_threads(2), work)
}

/// Runs on the main thread alone, so that no work has to wake another thread.
fn block_on_one_thread<T>(work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    on(&mut Builder::new_current_thread(), work)
}

/// Runs a server, with one thread per core.
fn block_on_every_core<T>(work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    on(&mut Builder::new_multi_thread(), work)
}

fn on<T>(runtime: &mut Builder, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let runtime = runtime.enable_all().build();
    let runtime = runtime.map_err(|error| Fault::new(exit::STORE, format!("cannot start: {error}")))?;
    let result = runtime.block_on(work);
    // A task may still wait for a terminal that does not respond.
    runtime.shutdown_background();
    result
}
