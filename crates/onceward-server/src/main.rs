//! The binary `onceward`.

mod demo;

use std::process::ExitCode;

use clap::Parser;

/// Makes side effects happen once
#[derive(Debug, Parser)]
#[command(name = "onceward", version)]
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
    match Command::parse() {
        Command::Demo(args) => demo::run(args).await,
        Command::DemoProvider(args) => demo::provider::run(args).await,
        Command::DemoAgent(args) => demo::agent::run(args).await,
    }
}
