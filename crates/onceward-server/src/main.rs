//! The binary `onceward`.

mod demo;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Makes side effects happen once
#[derive(Debug, Parser)]
#[command(name = "onceward", version)]
struct Cli {
    /// Where the ledger is
    #[arg(long, global = true, value_name = "URL")]
    store: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// See it in 15 seconds: an agent, a flaky payment provider, with and without Onceward
    Demo(demo::Args),
    #[command(hide = true)]
    DemoProvider(demo::provider::Args),
    #[command(hide = true)]
    DemoAgent(demo::agent::Args),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Cli { store, command } = Cli::parse();
    ExitCode::from(match command {
        Command::Demo(args) => demo::run(args, store).await,
        Command::DemoProvider(args) => demo::provider::run(args).await,
        Command::DemoAgent(args) => demo::agent::run(args).await,
    })
}
