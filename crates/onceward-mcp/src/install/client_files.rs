//! The servers in the files of clients, and how a client starts each of them. Changes and starts nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::clients::{self, Client};
use super::json_tree::{self, Member, Node};
use super::{ServerEntry, Wrapping, servers_of, text, wrapped};

/// A client's file with its servers, or why it cannot be read.
#[derive(Debug)]
pub struct ClientFile {
    pub client: Client,
    pub path: PathBuf,
    pub servers: Result<Vec<Server>, String>,
}

/// A server in such a file.
#[derive(Debug)]
pub struct Server {
    pub name: String,
    /// The project that it belongs to, where one file has several.
    pub project: Option<String>,
    pub start: StartMethod,
}

/// How a client reaches a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StartMethod {
    Command {
        words: Vec<String>,
        env: BTreeMap<String, String>,
        /// Where it is started, if not in the current folder.
        folder: Option<PathBuf>,
    },
    /// The client starts this gateway, which starts the server.
    Gateway,
    /// By HTTP.
    Remote,
    Unclear(&'static str),
}

/// Every existing file of every known client.
pub fn client_files() -> Vec<ClientFile> {
    let files = clients::existing(None).into_iter();
    files.map(|(client, path)| ClientFile { client, servers: servers(client, &path), path }).collect()
}

fn servers(client: Client, path: &Path) -> Result<Vec<Server>, String> {
    let text = text(path)?;
    let tree =
        json_tree::read(&text).map_err(|error| format!("it is not JSON: line {}: {}", error.line, error.what))?;
    let servers = servers_of(&tree.root, client).map(|(project, table, server)| {
        let start = match table.value.names_twice(&server.name) {
            true => StartMethod::Unclear("its name appears twice"),
            false => start(server, &text, project),
        };
        Server { name: server.name.clone(), project: project.map(str::to_owned), start }
    });
    Ok(servers.collect())
}

fn start(server: &Member, text: &str, project: Option<&str>) -> StartMethod {
    let entry = &server.value;
    if entry.get("disabled").is_some_and(|node| &text[node.at.clone()] == "true") {
        return StartMethod::Unclear("it is disabled");
    }
    let command = match ServerEntry::of(server, text) {
        ServerEntry::Command(command) => command,
        ServerEntry::Remote => return StartMethod::Remote,
        ServerEntry::Unclear(why) => return StartMethod::Unclear(why),
    };
    if !matches!(wrapped(&command.words), Wrapping::None) {
        return StartMethod::Gateway;
    }
    let Some(env) = environment(entry.get("env")) else {
        return StartMethod::Unclear("its env is not a table of texts");
    };
    let folder = entry.get("cwd").and_then(Node::text).map(expanded).or_else(|| project.map(str::to_owned));
    let words = command.words.iter().map(|word| expanded(word)).collect();
    StartMethod::Command { words, env, folder: folder.map(PathBuf::from) }
}

fn environment(node: Option<&Node>) -> Option<BTreeMap<String, String>> {
    let members = node.map(Node::members).unwrap_or_default();
    members.iter().map(|member| Some((member.name.clone(), expanded(member.value.text()?)))).collect()
}

/// Expands the variables that clients expand: `${NAME}`, `${NAME:-default}`, `${env:NAME}`. Variables that only a client knows,
/// such as `${input:token}`, stay as they are: most servers list their tools without them.
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
    fn known_variables_are_expanded() {
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
