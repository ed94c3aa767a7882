//! The gateway in the configuration of clients: which servers stand there, what would change, and the change itself.
//!
//! - `clients`: whose configuration is known, and where it is. `tree`: JSON with places. `edit`: the change of one server.
//! - `write`: replacing a file. `stated`: the servers as they are named, for who only looks.

mod clients;
mod edit;
mod stated;
mod tree;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use onceward::core::hash::Fields;
use onceward::core::name::Operation;
use onceward::core::time::Timestamp;

pub(crate) use clients::Client;
use edit::{Edit, Stands, arguments, edited};
pub(crate) use stated::{Start, Stated, stated};
use tree::{Member, Node};

/// The largest file that is read. Histories stand in some of them.
const LARGEST: u64 = 256 * 1024 * 1024;

/// What is wanted.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) client: Option<Client>,
    pub(crate) file: Option<PathBuf>,
    /// Only these servers; all, if none is named.
    pub(crate) servers: Vec<String>,
    /// The gateway away, instead of before them.
    pub(crate) undo: bool,
    /// How clients start us.
    pub(crate) program: Program,
    /// The configuration that gateways are to use, wherever they are started.
    pub(crate) config: Option<String>,
    /// The servers that it names.
    pub(crate) sections: BTreeSet<String>,
}

/// How this program is started from elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// By a client that has the PATH of a shell.
    pub(crate) short: String,
    /// By any.
    pub(crate) whole: String,
}

/// A file, and what becomes of it.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) client: Client,
    pub(crate) path: PathBuf,
    pub(crate) servers: Vec<Seen>,
    /// It has comments, and is not ours to write.
    pub(crate) is_loose: bool,
    before: String,
    after: String,
}

/// A server in a file.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) name: String,
    /// The project that it belongs to, where one file has several.
    pub(crate) project: Option<String>,
    pub(crate) what: What,
}

/// What becomes of a server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// From this command to that one, each with its arguments.
    Change {
        before: Vec<String>,
        after: Vec<String>,
    },
    /// It is as it should be.
    IsSo,
    /// It is not a command.
    Remote,
    LeftAlone(&'static str),
}

/// The files, as they are found, or why one of them cannot be read.
pub(crate) fn plans(wanted: &Wanted) -> Vec<(PathBuf, Result<Plan, String>)> {
    let files = match &wanted.file {
        Some(file) => vec![(wanted.client.unwrap_or(Client::Json), file.clone())],
        None => clients::existing(wanted.client),
    };
    let read: Vec<_> = files.into_iter().map(|(client, path)| (client, text(&path), path)).collect();
    let mut names = Names::default();
    for (client, text, _) in &read {
        if let Ok(Ok(tree)) = text.as_ref().map(|text| tree::read(text)) {
            names.note(&tree.root, *client, text.as_deref().unwrap_or_default());
        }
    }
    let plan = |(client, text, path): (Client, Result<String, String>, PathBuf)| {
        let plan = text.and_then(|text| Plan::new(client, &path, text, wanted, &mut names));
        (path, plan)
    };
    read.into_iter().map(plan).collect()
}

/// Where files would be, for who has none.
pub(crate) fn places(client: Option<Client>) -> Vec<PathBuf> {
    clients::places(client)
}

fn text(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("it cannot be read: {error}");
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > LARGEST {
        return Err(format!("it has {length} bytes, which is more than a configuration has"));
    }
    std::fs::read_to_string(path).map_err(failed)
}

impl Plan {
    fn new(client: Client, path: &Path, text: String, wanted: &Wanted, names: &mut Names) -> Result<Self, String> {
        let tree = tree::read(&text).map_err(|wrong| format!("it is no JSON: line {}: {}", wrong.line, wrong.what))?;
        let (mut servers, mut edits) = (Vec::new(), Vec::new());
        for (project, table, server) in servers_of(&tree.root, client) {
            if !wanted.servers.is_empty() && !wanted.servers.contains(&server.name) {
                continue;
            }
            let found = Found::of(server, &text);
            let what = match &found {
                _ if table.value.names_twice(&server.name) => What::LeftAlone("its name is there twice"),
                Found::Remote => What::Remote,
                Found::Unclear(why) => What::LeftAlone(why),
                Found::Command(command) => {
                    let (what, edit) = command.change(&server.name, client, wanted, names);
                    edits.extend(edit);
                    what
                }
            };
            servers.push(Seen { name: server.name.clone(), project: project.map(str::to_owned), what });
        }
        let after = edited(&text, edits);
        let (client, path) = (client, path.to_owned());
        Ok(Self { client, path, servers, is_loose: tree.is_loose, before: text, after })
    }

    /// Whether anything changes.
    pub(crate) fn changes(&self) -> bool {
        self.servers.iter().any(|server| matches!(server.what, What::Change { .. }))
    }

    /// Makes the change. The answer is where the old file is kept.
    pub(crate) fn write(&self, now: Timestamp) -> Result<PathBuf, String> {
        if self.is_loose {
            return Err("it has comments, or commas too many: it is not written, so that nothing of that is lost. \
                        Make the change that is shown by hand, or take them out first"
                .to_owned());
        }
        // What every reader of JSON makes of it, as the last word.
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text.trim_start_matches('\u{feff}'));
        if let Err(error) = value(&self.before).and_then(|_| value(&self.after)) {
            return Err(format!("it is no JSON: {error}; nothing was changed"));
        }
        write::replaced(&self.path, self.before.as_bytes(), self.after.as_bytes(), now)
    }
}

/// Every server in a file, with its project and the object that it stands in.
fn servers_of(root: &Node, client: Client) -> impl Iterator<Item = (Option<&str>, &Member, &Member)> {
    let tables = client.tables(root).into_iter();
    tables.flat_map(|(project, table)| table.value.members().iter().map(move |server| (project, table, server)))
}

/// A server, as far as it is understood.
enum Found<'t> {
    Command(Command<'t>),
    Remote,
    Unclear(&'static str),
}

struct Command<'t> {
    stands: Stands<'t>,
    /// The program and its arguments.
    words: Vec<String>,
    /// What else makes it the server that it is.
    others: String,
}

impl<'t> Found<'t> {
    fn of(server: &'t Member, text: &'t str) -> Self {
        let entry = &server.value;
        let kind = entry.get("type").and_then(Node::text).unwrap_or("stdio");
        let Some(command) = entry.member("command") else {
            let is_remote = ["url", "serverUrl", "httpUrl"].iter().any(|name| entry.get(name).is_some());
            return if is_remote { Self::Remote } else { Self::Unclear("it has neither a command nor an address") };
        };
        if kind != "stdio" {
            return Self::Unclear("it has a command, and its type is not stdio");
        }
        if ["command", "args"].iter().any(|name| entry.names_twice(name)) {
            return Self::Unclear("it names its command or its args twice");
        }
        let Some(program) = command.value.text() else { return Self::Unclear("its command is not a text") };
        let Some(arguments) = arguments(entry.get("args"), text) else {
            return Self::Unclear("its args are not a list of texts");
        };
        let mut words = vec![program.to_owned()];
        words.extend(arguments);
        let part = |name: &str| entry.get(name).map(|node| plain(&text[node.at.clone()])).unwrap_or_default();
        let others = format!("{} {} {}", part("env"), part("envFile"), part("cwd"));
        let stands = Stands { text, command, arguments: entry.member("args"), start: entry.at.start };
        Self::Command(Command { stands, words, others })
    }
}

/// Equal for equal JSON, whoever wrote it.
fn plain(text: &str) -> String {
    serde_json::from_str::<serde_json::Value>(text).map_or_else(|_| text.to_owned(), |value| value.to_string())
}

impl Command<'_> {
    fn change(&self, name: &str, client: Client, wanted: &Wanted, names: &mut Names) -> (What, Vec<Edit>) {
        match (wrapped(&self.words), wanted.undo) {
            (Wrapped::Before(own), false) if wanted.config.iter().any(|config| !self.words[..own].contains(config)) => {
                let why =
                    "the gateway stands before it already, without this configuration: take it away with --undo first";
                (What::LeftAlone(why), Vec::new())
            }
            (Wrapped::Not, true) | (Wrapped::Before(_) | Wrapped::Otherwise, false) => (What::IsSo, Vec::new()),
            (Wrapped::Otherwise, true) => {
                (What::LeftAlone("its command is not in its args, so that it cannot be put back"), Vec::new())
            }
            (Wrapped::Before(own), true) => match self.stands.unwrapped(own - 1) {
                Some(edits) => (self.to(self.words[own..].to_vec()), edits),
                None => (What::LeftAlone("its args cannot be read"), Vec::new()),
            },
            (Wrapped::Not, false) => {
                let program = if client.lacks_path() { &wanted.program.whole } else { &wanted.program.short };
                let mut first = vec!["mcp".to_owned()];
                first.extend(wanted.config.iter().flat_map(|config| ["--config".to_owned(), config.clone()]));
                first.extend(names.flags(name, self.signature(&self.words), &wanted.sections));
                first.push("--".to_owned());
                let after = [std::slice::from_ref(program), &first, &self.words].concat();
                (self.to(after), self.stands.wrapped(program, &first))
            }
        }
    }

    fn to(&self, after: Vec<String>) -> What {
        What::Change { before: self.words.clone(), after }
    }

    /// Tells servers apart that have the same name.
    fn signature(&self, own: &[String]) -> String {
        let mut fields = Fields::new().field(b"mcp install v1").field(self.others.as_bytes());
        for word in own {
            fields = fields.field(word.as_bytes());
        }
        fields.digest().to_hex()
    }
}

/// Whether a gateway stands before a command.
enum Wrapped {
    Not,
    /// And the word at which the server's own command begins.
    Before(usize),
    /// The server's command stands in onceward.toml.
    Otherwise,
}

fn wrapped(words: &[String]) -> Wrapped {
    let Some((program, arguments)) = words.split_first() else { return Wrapped::Not };
    let name = program.rsplit(['/', '\\']).next().unwrap_or_default();
    let own = arguments.iter().position(|word| word == "--");
    let flags = &arguments[..own.unwrap_or(arguments.len())];
    if !matches!(name, "onceward" | "onceward.exe") || !flags.iter().any(|word| word == "mcp") {
        return Wrapped::Not;
    }
    // Its place among all words: behind the program and behind the dashes.
    match own.map(|own| own + 2).filter(|own| *own < words.len()) {
        Some(own) => Wrapped::Before(own),
        None => Wrapped::Otherwise,
    }
}

/// The names that servers have in the ledger, so that different servers of the same name do not take each other's calls.
#[derive(Debug, Default)]
struct Names(BTreeMap<String, String>);

impl Names {
    /// Those that are taken already.
    fn note(&mut self, root: &Node, client: Client, text: &str) {
        for (_, _, server) in servers_of(root, client) {
            if let Found::Command(command) = Found::of(server, text)
                && let Wrapped::Before(own) = wrapped(&command.words)
                && let Some(name) = named(&command.words[..own])
            {
                let signature = command.signature(&command.words[own..]);
                self.0.entry(name.to_owned()).or_insert(signature);
            }
        }
    }

    /// The flags that name a server. One that cannot be part of an operation's name is left to be named by its command.
    ///
    /// Clients start servers in the folder of the project, also those of the user, and a project's file is copied with it: a
    /// name alone would be the same server in two projects, and what one has done the other would not do. So the folder
    /// counts too, unless the configuration says what makes calls of this server the same.
    fn flags(&mut self, name: &str, signature: String, sections: &BTreeSet<String>) -> Vec<String> {
        let is_fit = !name.is_empty() && Operation::new(format!("mcp:{name}/tool")).is_ok();
        if !is_fit {
            return Vec::new();
        }
        let other = format!("{name}-{}", &signature[..6]);
        let taken = self.0.entry(name.to_owned()).or_insert_with(|| signature.clone());
        let name = if *taken == signature { name.to_owned() } else { other };
        let is_configured = sections.contains(&name);
        // What begins with a dash would be taken for the next flag.
        let mut flags =
            if name.starts_with('-') { vec![format!("--server={name}")] } else { vec!["--server".to_owned(), name] };
        if !is_configured {
            flags.push("--here".to_owned());
        }
        flags
    }
}

/// The name that the flags of a gateway give a server.
fn named(words: &[String]) -> Option<&str> {
    words.iter().enumerate().find_map(|(at, word)| match word.strip_prefix("--server") {
        Some("") => words.get(at + 1).map(String::as_str),
        Some(rest) => rest.strip_prefix('='),
        None => None,
    })
}
