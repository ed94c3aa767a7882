//! The servers that the files of clients name, and how a client starts them. Nothing here is changed or started.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::clients::{self, Client};
use super::tree::{self, Member, Node};
use super::{Found, Wrapped, servers_of, text, wrapped};

/// A file of a client, and the servers in it, or why it cannot be read.
#[derive(Debug)]
pub(crate) struct Stated {
    pub(crate) client: Client,
    pub(crate) path: PathBuf,
    pub(crate) servers: Result<Vec<Server>, String>,
}

/// A server in such a file.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    /// The project that it belongs to, where one file has several.
    pub(crate) project: Option<String>,
    pub(crate) start: Start,
}

/// How a client reaches a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Start {
    Command {
        words: Vec<String>,
        env: BTreeMap<String, String>,
        /// Where it is started, if not in the current folder.
        folder: Option<PathBuf>,
    },
    /// Through this gateway.
    Behind,
    /// By HTTP.
    Remote,
    Unclear(&'static str),
}

/// Every file of a client that is there.
pub(crate) fn stated() -> Vec<Stated> {
    let files = clients::existing(None).into_iter();
    files.map(|(client, path)| Stated { client, servers: servers(client, &path), path }).collect()
}

fn servers(client: Client, path: &Path) -> Result<Vec<Server>, String> {
    let text = text(path)?;
    let tree = tree::read(&text).map_err(|wrong| format!("it is not JSON: line {}: {}", wrong.line, wrong.what))?;
    let servers = servers_of(&tree.root, client).map(|(project, table, server)| {
        let start = match table.value.names_twice(&server.name) {
            true => Start::Unclear("its name is there twice"),
            false => start(server, &text, project),
        };
        Server { name: server.name.clone(), project: project.map(str::to_owned), start }
    });
    Ok(servers.collect())
}

fn start(server: &Member, text: &str, project: Option<&str>) -> Start {
    let entry = &server.value;
    if entry.get("disabled").is_some_and(|node| &text[node.at.clone()] == "true") {
        return Start::Unclear("it is disabled");
    }
    let command = match Found::of(server, text) {
        Found::Command(command) => command,
        Found::Remote => return Start::Remote,
        Found::Unclear(why) => return Start::Unclear(why),
    };
    if !matches!(wrapped(&command.words), Wrapped::Not) {
        return Start::Behind;
    }
    let Some(env) = environment(entry.get("env")) else { return Start::Unclear("its env is not a table of texts") };
    let folder = entry.get("cwd").and_then(Node::text).map(expanded).or_else(|| project.map(str::to_owned));
    let words = command.words.iter().map(|word| expanded(word)).collect();
    Start::Command { words, env, folder: folder.map(PathBuf::from) }
}

fn environment(node: Option<&Node>) -> Option<BTreeMap<String, String>> {
    let members = node.map(Node::members).unwrap_or_default();
    members.iter().map(|member| Some((member.name.clone(), expanded(member.value.text()?)))).collect()
}

/// A text with the variables that clients fill in: `${NAME}`, `${NAME:-default}`, `${env:NAME}`. What only a client knows stays
/// as it is, such as `${input:token}`: most servers list their tools without it.
fn expanded(text: &str) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, (name, after))) =
        rest.split_once("${").and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    {
        expanded += before;
        expanded += &value(name).unwrap_or_else(|| format!("${{{name}}}"));
        rest = after;
    }
    expanded + rest
}

fn value(name: &str) -> Option<String> {
    let (name, default) = name.split_once(":-").map_or((name, None), |(name, default)| (name, Some(default)));
    let name = name.strip_prefix("env:").unwrap_or(name);
    match name {
        "workspaceFolder" => std::env::current_dir().ok().map(|folder| folder.to_string_lossy().into_owned()),
        "userHome" => std::env::var("HOME").ok(),
        _ => std::env::var(name).ok().or_else(|| default.map(str::to_owned)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in_as_far_as_they_are_known() {
        let home = std::env::var("HOME").unwrap_or_default();
        for (text, expected) in [
            ("plain", "plain"),
            ("${ONCEWARD_NOT_THERE:-x}/y", "x/y"),
            ("a ${input:token} b ${", "a ${input:token} b ${"),
            ("${ONCEWARD_NOT_THERE}", "${ONCEWARD_NOT_THERE}"),
        ] {
            assert_eq!(expanded(text), expected);
        }
        assert_eq!(expanded("${env:HOME}-${userHome}"), format!("{home}-{home}"));
    }
}
