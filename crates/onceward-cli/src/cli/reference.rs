//! Prints the reference pages, generated from the code that parses arguments and configuration.

use clap::CommandFactory;

use super::Cli;
use onceward_runtime::{config, providers};

/// A reference page.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum Page {
    Cli,
    Configuration,
    Openapi,
    Providers,
}

/// Independent of the terminal.
const WIDTH: usize = 100;

pub(super) fn page(page: Page) -> String {
    match page {
        Page::Cli => command_line_page(),
        Page::Configuration => config::reference(),
        Page::Providers => providers::page(),
        Page::Openapi => onceward_server::api::document().to_owned(),
    }
}

fn command_line_page() -> String {
    let mut command = Cli::command().term_width(WIDTH);
    command.build();
    let mut page = String::from("# The command line\n\nGenerated from the code; to change it, change the code.\n");
    let mut section = |title: &str, help: String| {
        let help: Vec<&str> = help.lines().map(str::trim_end).collect();
        page += &format!("\n## {title}\n\n```text\n{}\n```\n", help.join("\n").trim_end());
    };
    section("onceward", command.render_long_help().to_string());
    let names: Vec<String> =
        command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(|sub| sub.get_name().to_owned()).collect();
    for name in names.iter().filter(|name| *name != "help") {
        let Some(sub) = command.find_subcommand_mut(name) else { continue };
        section(&format!("onceward {name}"), sub.render_long_help().to_string());
        for inner in sub.get_subcommands_mut().filter(|inner| inner.get_name() != "help") {
            section(&format!("onceward {name} {}", inner.get_name()), inner.render_long_help().to_string());
        }
    }
    page
}
