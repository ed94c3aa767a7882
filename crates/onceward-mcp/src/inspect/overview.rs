//! Inspects every server in the configurations of clients and reports the tools that no gateway guards. Each server is started at
//! most once, asked for its tools, and stopped.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::super::install::{Client, ClientFile, StartMethod, client_files};
use super::conversation::{self, ServerCommand, Stderr};
use super::{ToolClass, ToolReport, rows};
use onceward_runtime::config::Server;

/// All servers in the configurations of clients.
#[derive(Debug)]
pub struct Overview {
    /// In the order of the files.
    pub servers: Vec<InspectedServer>,
    /// Files that could not be read, and why.
    pub unread: Vec<(PathBuf, String)>,
}

/// A server in the configuration of a client.
#[derive(Debug)]
pub struct InspectedServer {
    pub name: String,
    pub client: Client,
    pub path: PathBuf,
    pub project: Option<String>,
    pub state: ServerState,
}

/// What inspecting a server found.
#[derive(Clone, Debug)]
pub enum ServerState {
    /// No gateway is in front of it; these are its tools.
    Unguarded(Vec<ToolReport>),
    /// It is behind this gateway.
    Guarded,
    /// It is reached by HTTP and was not asked.
    Remote,
    /// It was not started, for a reason in its entry.
    NotStarted(&'static str),
    /// It was started but did not list its tools.
    Failed(String),
}

impl Overview {
    /// The numbers of servers without a gateway, with one, and in an unknown state.
    pub fn counts(&self) -> [usize; 3] {
        let count = |is: fn(&ServerState) -> bool| self.servers.iter().filter(|server| is(&server.state)).count();
        let (open, guarded) = (
            count(|state| matches!(state, ServerState::Unguarded(_))),
            count(|state| matches!(state, ServerState::Guarded)),
        );
        [open, guarded, self.servers.len() - open - guarded]
    }

    /// The tools that act without a gateway in front of them, the riskiest first.
    pub fn risks(&self) -> Vec<(&InspectedServer, &ToolReport)> {
        let open = self.servers.iter().filter_map(|server| match &server.state {
            ServerState::Unguarded(rows) => Some((server, rows)),
            _ => None,
        });
        let tools = open.flat_map(|(server, rows)| rows.iter().map(move |row| (server, row)));
        let mut risks: Vec<_> = tools.filter(|(_, row)| row.class != ToolClass::Reads).collect();
        // The sort is stable and keeps the order of files and servers within a class.
        risks.sort_by_key(|(_, row)| std::cmp::Reverse(row.class));
        risks
    }
}

/// Inspects all servers. Call it on the main thread, like every function that starts a process.
pub async fn inspect_all(patience: Duration) -> Overview {
    let (mut servers, mut unread) = (Vec::new(), Vec::new());
    for ClientFile { client, path, servers: listed } in client_files() {
        match listed {
            Ok(listed) => servers.extend(listed.into_iter().map(|server| (client, path.clone(), server))),
            Err(why) => unread.push((path, why)),
        }
    }
    let (count, mut inspected) = (servers.len(), Vec::new());
    // Several clients often use the same server.
    let mut known: BTreeMap<StartMethod, ServerState> = BTreeMap::new();
    for (at, (client, path, server)) in servers.into_iter().enumerate() {
        let state = match known.get(&server.start) {
            Some(state) => state.clone(),
            None => inspect_server(&server.name, &server.start, &format!("{} of {count}", at + 1), patience).await,
        };
        known.insert(server.start, state.clone());
        inspected.push(InspectedServer { name: server.name, client, path, project: server.project, state });
    }
    Overview { servers: inspected, unread }
}

async fn inspect_server(name: &str, start: &StartMethod, position: &str, patience: Duration) -> ServerState {
    let (words, env, folder) = match start {
        StartMethod::Command { words, env, folder } => (words, env, folder),
        StartMethod::Gateway => return ServerState::Guarded,
        StartMethod::Remote => return ServerState::Remote,
        StartMethod::Unclear(why) => return ServerState::NotStarted(why),
    };
    if let Some(folder) = folder.as_ref().filter(|folder| !folder.is_dir()) {
        return ServerState::Failed(format!("its folder {} does not exist", folder.display()));
    }
    let command: Vec<OsString> = words.iter().map(OsString::from).collect();
    let label = format!("{position}: {}: ", onceward_runtime::output::printable(name));
    let started =
        ServerCommand { command: &command, env, folder: folder.as_deref(), label: &label, stderr: Stderr::Dropped };
    match conversation::listed(&started, patience).await {
        Ok(tools) => ServerState::Unguarded(rows(&tools.pages, name, &Server::default())),
        Err(fault) => ServerState::Failed(fault.message),
    }
}
