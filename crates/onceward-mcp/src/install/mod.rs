//! Puts the gateway into the configuration files of MCP clients: finds the servers in them, plans the change, and writes it.
//!
//! - `clients`: the known clients and their files. `json_tree`: JSON with byte positions. `edit`: the change of one server.
//! - `replace_file`: replaces a file atomically. `client_files`: reads the servers without changing anything.

mod client_files;
mod clients;
mod edit;
mod json_tree;
mod replace_file;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use onceward::core::hash::Fields;
use onceward::core::name::Operation;
use onceward::core::time::Timestamp;

pub use client_files::{ClientFile, StartMethod, client_files};
pub use clients::Client;
use edit::{CommandEntry, Edit, arguments, edited};
use json_tree::{Member, Node};

/// The largest file that is read. Some clients keep their history in the same file.
const MAX_FILE_BYTES: u64 = 256 * 1024 * 1024;

/// What `onceward mcp install` should do.
#[derive(Debug)]
pub struct InstallRequest {
    pub client: Option<Client>,
    pub file: Option<PathBuf>,
    /// Only these servers; all of them if empty.
    pub servers: Vec<String>,
    /// Remove the gateway instead of adding it.
    pub undo: bool,
    /// How clients start this program.
    pub program: Program,
    /// The absolute path of the configuration for the gateways.
    pub config: Option<String>,
    /// The servers in that configuration.
    pub sections: BTreeSet<String>,
}

/// How clients start this program.
#[derive(Clone, Debug)]
pub struct Program {
    /// For clients that have the PATH of a shell.
    pub short: String,
    /// For all other clients: the absolute path.
    pub whole: String,
}

/// A configuration file and the planned changes to it.
#[derive(Debug)]
pub struct Plan {
    pub client: Client,
    pub path: PathBuf,
    pub servers: Vec<ServerPlan>,
    /// It has comments or trailing commas; such a file is never written.
    pub is_loose: bool,
    before: String,
    after: String,
}

/// A server in a file and the planned change to it.
#[derive(Debug)]
pub struct ServerPlan {
    pub name: String,
    /// The project that it belongs to, where one file has several.
    pub project: Option<String>,
    pub change: ServerChange,
}

/// The change to one server.
#[derive(Debug, PartialEq, Eq)]
pub enum ServerChange {
    /// Replace this command by that one, each with its arguments.
    Rewrite {
        before: Vec<String>,
        after: Vec<String>,
    },
    /// It already is as requested.
    Unchanged,
    /// It is reached by URL and has no command.
    Remote,
    Skipped(&'static str),
}

/// The plan for each file found, or why the file cannot be read.
pub fn plans(request: &InstallRequest) -> Vec<(PathBuf, Result<Plan, String>)> {
    let files = match &request.file {
        Some(file) => vec![(request.client.unwrap_or(Client::Json), file.clone())],
        None => clients::existing(request.client),
    };
    let read: Vec<_> = files.into_iter().map(|(client, path)| (client, text(&path), path)).collect();
    let mut names = Names::default();
    for (client, text, _) in &read {
        if let Ok(Ok(tree)) = text.as_ref().map(|text| json_tree::read(text)) {
            names.note(&tree.root, *client, text.as_deref().unwrap_or_default());
        }
    }
    let plan = |(client, text, path): (Client, Result<String, String>, PathBuf)| {
        let plan = text.and_then(|text| Plan::new(client, &path, text, request, &mut names));
        (path, plan)
    };
    read.into_iter().map(plan).collect()
}

/// The paths where configuration files are looked for.
pub fn known_paths(client: Option<Client>) -> Vec<PathBuf> {
    clients::known_paths(client)
}

fn text(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("it cannot be read: {error}");
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > MAX_FILE_BYTES {
        return Err(format!("it has {length} bytes, too many for a configuration"));
    }
    std::fs::read_to_string(path).map_err(failed)
}

impl Plan {
    fn new(
        client: Client,
        path: &Path,
        text: String,
        request: &InstallRequest,
        names: &mut Names,
    ) -> Result<Self, String> {
        let tree =
            json_tree::read(&text).map_err(|error| format!("it is not JSON: line {}: {}", error.line, error.what))?;
        let (mut servers, mut edits) = (Vec::new(), Vec::new());
        for (project, table, server) in servers_of(&tree.root, client) {
            if !request.servers.is_empty() && !request.servers.contains(&server.name) {
                continue;
            }
            let found = ServerEntry::of(server, &text);
            let change = match &found {
                _ if table.value.names_twice(&server.name) => ServerChange::Skipped("its name appears twice"),
                ServerEntry::Remote => ServerChange::Remote,
                ServerEntry::Unclear(why) => ServerChange::Skipped(why),
                ServerEntry::Command(command) => {
                    let (change, edit) = command.change(&server.name, client, request, names);
                    edits.extend(edit);
                    change
                }
            };
            servers.push(ServerPlan { name: server.name.clone(), project: project.map(str::to_owned), change });
        }
        let after = edited(&text, edits);
        let (client, path) = (client, path.to_owned());
        Ok(Self { client, path, servers, is_loose: tree.is_loose, before: text, after })
    }

    /// Whether anything changes.
    pub fn changes(&self) -> bool {
        self.servers.iter().any(|server| matches!(server.change, ServerChange::Rewrite { .. }))
    }

    /// Writes the change. Returns the path of the backup.
    pub fn write(&self, now: Timestamp) -> Result<PathBuf, String> {
        if self.is_loose {
            return Err("it has comments or trailing commas, which a rewrite could lose, so it was not changed. \
                        Make the change shown above by hand, or remove them first"
                .to_owned());
        }
        // Check with a second parser before writing.
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text.trim_start_matches('\u{feff}'));
        if let Err(error) = value(&self.before).and_then(|_| value(&self.after)) {
            return Err(format!("it is not JSON: {error}; nothing was changed"));
        }
        replace_file::replaced(&self.path, self.before.as_bytes(), self.after.as_bytes(), now)
    }
}

/// Every server in a file, with its project and the object that contains it.
fn servers_of(root: &Node, client: Client) -> impl Iterator<Item = (Option<&str>, &Member, &Member)> {
    let tables = client.tables(root).into_iter();
    tables.flat_map(|(project, table)| table.value.members().iter().map(move |server| (project, table, server)))
}

/// A server's entry in a file.
enum ServerEntry<'t> {
    Command(Command<'t>),
    Remote,
    Unclear(&'static str),
}

struct Command<'t> {
    entry: CommandEntry<'t>,
    /// The program and its arguments.
    words: Vec<String>,
    /// Its environment and working directory, which also identify it.
    others: String,
}

impl<'t> ServerEntry<'t> {
    fn of(server: &'t Member, text: &'t str) -> Self {
        let entry = &server.value;
        let kind = entry.get("type").and_then(Node::text).unwrap_or("stdio");
        let Some(command) = entry.member("command") else {
            let is_remote = ["url", "serverUrl", "httpUrl"].iter().any(|name| entry.get(name).is_some());
            return if is_remote { Self::Remote } else { Self::Unclear("it has neither a command nor a URL") };
        };
        if kind != "stdio" {
            return Self::Unclear("it has a command, but its type is not stdio");
        }
        if ["command", "args"].iter().any(|name| entry.names_twice(name)) {
            return Self::Unclear("it has command or args twice");
        }
        let Some(program) = command.value.text() else { return Self::Unclear("its command is not a string") };
        let Some(arguments) = arguments(entry.get("args"), text) else {
            return Self::Unclear("its args are not a list of strings");
        };
        let mut words = vec![program.to_owned()];
        words.extend(arguments);
        let part = |name: &str| entry.get(name).map(|node| plain(&text[node.at.clone()])).unwrap_or_default();
        let others = format!("{} {} {}", part("env"), part("envFile"), part("cwd"));
        let entry = CommandEntry { text, command, arguments: entry.member("args"), start: entry.at.start };
        Self::Command(Command { entry, words, others })
    }
}

/// A text that is equal for equal JSON, however it was formatted.
fn plain(text: &str) -> String {
    serde_json::from_str::<serde_json::Value>(text).map_or_else(|_| text.to_owned(), |value| value.to_string())
}

impl Command<'_> {
    fn change(
        &self,
        name: &str,
        client: Client,
        request: &InstallRequest,
        names: &mut Names,
    ) -> (ServerChange, Vec<Edit>) {
        match (wrapped(&self.words), request.undo) {
            (Wrapping::Command(own), false)
                if request.config.iter().any(|config| !self.words[..own].contains(config)) =>
            {
                let why =
                    "the gateway is already in front of it, without this configuration: remove it with --undo first";
                (ServerChange::Skipped(why), Vec::new())
            }
            (Wrapping::None, true) | (Wrapping::Command(_) | Wrapping::FromConfig, false) => {
                (ServerChange::Unchanged, Vec::new())
            }
            (Wrapping::FromConfig, true) => {
                (ServerChange::Skipped("its command is not in its args, so it cannot be restored"), Vec::new())
            }
            (Wrapping::Command(own), true) => match self.entry.unwrapped(own - 1) {
                Some(edits) => (self.to(self.words[own..].to_vec()), edits),
                None => (ServerChange::Skipped("its args cannot be read"), Vec::new()),
            },
            (Wrapping::None, false) => {
                let program = if client.lacks_path() { &request.program.whole } else { &request.program.short };
                let mut first = vec!["mcp".to_owned()];
                first.extend(request.config.iter().flat_map(|config| ["--config".to_owned(), config.clone()]));
                first.extend(names.flags(name, self.signature(&self.words), &request.sections));
                first.push("--".to_owned());
                let after = [std::slice::from_ref(program), &first, &self.words].concat();
                (self.to(after), self.entry.wrapped(program, &first))
            }
        }
    }

    fn to(&self, after: Vec<String>) -> ServerChange {
        ServerChange::Rewrite { before: self.words.clone(), after }
    }

    /// Distinguishes servers with the same name.
    fn signature(&self, own: &[String]) -> String {
        let mut fields = Fields::new().field(b"mcp install v1").field(self.others.as_bytes());
        for word in own {
            fields = fields.field(word.as_bytes());
        }
        fields.digest().to_hex()
    }
}

/// Whether a command starts the gateway.
enum Wrapping {
    None,
    /// Yes; the server's own command begins at this word.
    Command(usize),
    /// Yes; the server's own command is in onceward.toml.
    FromConfig,
}

fn wrapped(words: &[String]) -> Wrapping {
    let Some((program, arguments)) = words.split_first() else { return Wrapping::None };
    let name = program.rsplit(['/', '\\']).next().unwrap_or_default();
    let own = arguments.iter().position(|word| word == "--");
    let flags = &arguments[..own.unwrap_or(arguments.len())];
    if !matches!(name, "onceward" | "onceward.exe") || !flags.iter().any(|word| word == "mcp") {
        return Wrapping::None;
    }
    // Its index among all words: after the program and after `--`.
    match own.map(|own| own + 2).filter(|own| *own < words.len()) {
        Some(own) => Wrapping::Command(own),
        None => Wrapping::FromConfig,
    }
}

/// The names of servers in the ledger, so that different servers with the same name do not share records.
#[derive(Debug, Default)]
struct Names(BTreeMap<String, String>);

impl Names {
    /// Notes the names that a file already uses.
    fn note(&mut self, root: &Node, client: Client, text: &str) {
        for (_, _, server) in servers_of(root, client) {
            if let ServerEntry::Command(command) = ServerEntry::of(server, text)
                && let Wrapping::Command(own) = wrapped(&command.words)
                && let Some(name) = named(&command.words[..own])
            {
                let signature = command.signature(&command.words[own..]);
                self.0.entry(name.to_owned()).or_insert(signature);
            }
        }
    }

    /// The flags that name a server. A name that is not valid in an operation is left out; then the command names the server.
    ///
    /// Clients start all servers in the project's folder, and a project's file is copied with the project. With the name alone,
    /// two projects would share records, and one would get the other's results. So the folder is part of the name, unless the
    /// configuration has a section for the server.
    fn flags(&mut self, name: &str, signature: String, sections: &BTreeSet<String>) -> Vec<String> {
        let is_fit = !name.is_empty() && Operation::new(format!("mcp:{name}/tool")).is_ok();
        if !is_fit {
            return Vec::new();
        }
        let other = format!("{name}-{}", &signature[..6]);
        let taken = self.0.entry(name.to_owned()).or_insert_with(|| signature.clone());
        let name = if *taken == signature { name.to_owned() } else { other };
        let is_configured = sections.contains(&name);
        // A name that begins with a dash would be parsed as a flag.
        let mut flags =
            if name.starts_with('-') { vec![format!("--server={name}")] } else { vec!["--server".to_owned(), name] };
        if !is_configured {
            flags.push("--here".to_owned());
        }
        flags
    }
}

/// The server name in the flags of a gateway.
fn named(words: &[String]) -> Option<&str> {
    words.iter().enumerate().find_map(|(at, word)| match word.strip_prefix("--server") {
        Some("") => words.get(at + 1).map(String::as_str),
        Some(rest) => rest.strip_prefix('='),
        None => None,
    })
}
