//! A look at every server that the configurations of clients name: which of their tools no gateway guards, so that they could
//! happen twice. Each server is started at most once, asked for its tools, and stopped.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::super::install::{Client, Start, Stated, stated};
use super::talk::{self, Noise, Started};
use super::{Class, Row, rows};
use crate::config::Server;

/// Everything that was found.
#[derive(Debug)]
pub(crate) struct Overview {
    /// In the order of the files.
    pub(crate) servers: Vec<Looked>,
    /// Files that cannot be read, and why.
    pub(crate) unread: Vec<(PathBuf, String)>,
}

/// A server in the configuration of a client.
#[derive(Debug)]
pub(crate) struct Looked {
    pub(crate) name: String,
    pub(crate) client: Client,
    pub(crate) path: PathBuf,
    pub(crate) project: Option<String>,
    pub(crate) state: State,
}

/// What is known of it.
#[derive(Clone, Debug)]
pub(crate) enum State {
    /// Nothing protects it.
    Open(Vec<Row>),
    /// It is behind this gateway already.
    Behind,
    /// It is reached by HTTP, and is not asked.
    Remote,
    /// It was not started, because of what its entry says.
    Unclear(&'static str),
    /// It was started, and did not list its tools.
    Failed(String),
}

impl Overview {
    /// How many servers are behind no gateway, how many are behind one, and of how many nothing is known.
    pub(crate) fn counts(&self) -> [usize; 3] {
        let count = |is: fn(&State) -> bool| self.servers.iter().filter(|server| is(&server.state)).count();
        let (open, behind) =
            (count(|state| matches!(state, State::Open(_))), count(|state| matches!(state, State::Behind)));
        [open, behind, self.servers.len() - open - behind]
    }

    /// The tools that act and are behind no gateway, the riskiest first.
    pub(crate) fn risks(&self) -> Vec<(&Looked, &Row)> {
        let open = self.servers.iter().filter_map(|server| match &server.state {
            State::Open(rows) => Some((server, rows)),
            _ => None,
        });
        let tools = open.flat_map(|(server, rows)| rows.iter().map(move |row| (server, row)));
        let mut risks: Vec<_> = tools.filter(|(_, row)| row.class != Class::Reads).collect();
        // Sorting is stable: otherwise the order of files and servers stays.
        risks.sort_by_key(|(_, row)| std::cmp::Reverse(row.class));
        risks
    }
}

/// Looks at all of them. Must be called on the main thread, like everything that starts a process.
pub(crate) async fn look_at_all(patience: Duration) -> Overview {
    let (mut servers, mut unread) = (Vec::new(), Vec::new());
    for Stated { client, path, servers: stated } in stated() {
        match stated {
            Ok(stated) => servers.extend(stated.into_iter().map(|server| (client, path.clone(), server))),
            Err(why) => unread.push((path, why)),
        }
    }
    let (count, mut looked) = (servers.len(), Vec::new());
    // Clients often have the same server.
    let mut known: BTreeMap<Start, State> = BTreeMap::new();
    for (at, (client, path, server)) in servers.into_iter().enumerate() {
        let state = match known.get(&server.start) {
            Some(state) => state.clone(),
            None => look_at(&server.name, &server.start, &format!("{} of {count}", at + 1), patience).await,
        };
        known.insert(server.start, state.clone());
        looked.push(Looked { name: server.name, client, path, project: server.project, state });
    }
    Overview { servers: looked, unread }
}

async fn look_at(name: &str, start: &Start, place: &str, patience: Duration) -> State {
    let (words, env, folder) = match start {
        Start::Command { words, env, folder } => (words, env, folder),
        Start::Behind => return State::Behind,
        Start::Remote => return State::Remote,
        Start::Unclear(why) => return State::Unclear(why),
    };
    if let Some(folder) = folder.as_ref().filter(|folder| !folder.is_dir()) {
        return State::Failed(format!("its folder {} is not there", folder.display()));
    }
    let command: Vec<OsString> = words.iter().map(OsString::from).collect();
    let label = format!("{place}: {}: ", super::plain(name));
    let started = Started { command: &command, env, folder: folder.as_deref(), label: &label, noise: Noise::Dropped };
    match talk::listed(&started, patience).await {
        Ok(heard) => State::Open(rows(&heard.pages, name, &Server::default())),
        Err(fault) => State::Failed(fault.message),
    }
}
