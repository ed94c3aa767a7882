//! What the settings of the servers promise: whether an acknowledged write survives a crash, and that nothing is evicted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::{Value, cmd};

use super::address::Topology;
use super::reply::bytes;
use super::server_connection::ServerConnection;
use crate::store::{Durability, Error};

/// How often the settings are looked at again: an operator may change them while the server runs.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// The oldest major version whose commands the scripts use.
const OLDEST: u32 = 7;

/// What is known about the settings.
pub(super) struct Condition {
    state: Mutex<State>,
    looking: AtomicBool,
}

struct State {
    looked: Instant,
    evicts: Option<String>,
}

/// The settings of one server; those that it does not show are empty.
#[derive(Debug, Default)]
struct Settings {
    values: Vec<(String, String)>,
    shows_configuration: bool,
}

impl Settings {
    fn get(&self, name: &str) -> &str {
        self.values.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// The policy by which it would evict keys.
    fn evicts(&self) -> Option<String> {
        let policy = self.get("maxmemory_policy");
        let is_limited = !matches!(self.get("maxmemory"), "" | "0");
        (is_limited && policy != "noeviction").then(|| policy.to_owned())
    }
}

impl Condition {
    /// Looks at the servers, and refuses those that cannot hold a ledger.
    pub(super) async fn open(link: &ServerConnection) -> Result<Self, Error> {
        let servers = settings(link).await?;
        for server in &servers {
            let version = server.get("redis_version");
            let major = version.split('.').next().and_then(|number| number.parse::<u32>().ok());
            if major.is_some_and(|major| major < OLDEST) {
                return Err(
                    link.refused(format!("it is Redis {version}, and a ledger needs version {OLDEST} or later"))
                );
            }
            if link.address.topology == Topology::Single && server.get("role") == "slave" {
                return Err(link.refused("it is a replica, which accepts no writes: use the address of its primary"));
            }
        }
        let evicts = servers.iter().find_map(Settings::evicts);
        if let Some(policy) = &evicts {
            return Err(evicting(link, policy));
        }
        let state = Mutex::new(State { looked: Instant::now(), evicts });
        Ok(Self { state, looking: AtomicBool::new(false) })
    }

    /// Refuses writes to a server that evicts keys. About once a minute it looks at the settings, without delaying this call.
    pub(super) fn check(self: &Arc<Self>, link: &Arc<ServerConnection>) -> Result<(), Error> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.looked.elapsed() >= LOOK_EVERY && !self.looking.swap(true, Ordering::SeqCst) {
            let (condition, link) = (Arc::clone(self), Arc::clone(link));
            tokio::spawn(async move { condition.look(&link).await });
        }
        match &state.evicts {
            None => Ok(()),
            Some(policy) => Err(evicting(link, policy)),
        }
    }

    async fn look(&self, link: &ServerConnection) {
        let found = settings(link).await;
        self.note(found.as_deref());
        self.looking.store(false, Ordering::SeqCst);
    }

    fn note(&self, found: Result<&[Settings], &Error>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.looked = Instant::now();
        if let Ok(servers) = found {
            state.evicts = servers.iter().find_map(Settings::evicts);
        }
    }

    /// What an acknowledged write survives.
    pub(super) async fn durability(&self, link: &ServerConnection) -> Result<Durability, Error> {
        let servers = settings(link).await?;
        self.note(Ok(&servers));
        let mut reasons = Vec::new();
        match link.address.topology {
            Topology::Single => {}
            Topology::Sentinel(_) => {
                reasons.push("Sentinel may promote a replica that does not have the last writes".to_owned());
            }
            Topology::Cluster => {
                reasons.push("the cluster may promote a replica that does not have the last writes".to_owned());
            }
        }
        for server in &servers {
            let reason = match (server.shows_configuration, server.get("appendonly"), server.get("appendfsync")) {
                (false, ..) => {
                    "the server does not show its settings (CONFIG GET), so its durability is unknown".to_owned()
                }
                (true, "yes", "always") => continue,
                (true, "yes", sync) => {
                    format!(
                        "the server syncs its log `appendfsync {sync}`: a crash of the machine may lose the last writes"
                    )
                }
                (true, ..) => "the server keeps no log (`appendonly no`): a restart may lose many writes".to_owned(),
            };
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        if let Some(policy) = servers.iter().find_map(Settings::evicts) {
            return Err(evicting(link, &policy));
        }
        Ok(Durability::unless(reasons))
    }
}

fn evicting(link: &ServerConnection, policy: &str) -> Error {
    link.refused(format!(
        "it evicts keys when memory is short (`maxmemory-policy {policy}`), and work that was done would run again: set \
         `maxmemory-policy noeviction`"
    ))
}

/// The settings of every primary.
async fn settings(link: &ServerConnection) -> Result<Vec<Settings>, Error> {
    let mut all = Vec::new();
    let mut information = cmd("INFO");
    information.arg("server").arg("memory").arg("replication");
    for value in link.query_each(&information).await? {
        let text = bytes_of_text(value);
        let values = text.lines().filter_map(|line| line.split_once(':'));
        let values = values.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect();
        all.push(Settings { values, shows_configuration: false });
    }
    let mut configuration = cmd("CONFIG");
    configuration.arg("GET").arg("appendonly").arg("appendfsync");
    // Managed servers often forbid this command.
    let shown = match link.query_each(&configuration).await {
        Ok(shown) => shown,
        Err(Error::Refused { .. } | Error::Other(_)) => return Ok(all),
        Err(error) => return Err(error),
    };
    // In a cluster, the order of both answers may differ. That does no harm: no setting is in both.
    for (server, answer) in all.iter_mut().zip(shown) {
        server.values.extend(pairs(answer));
        server.shows_configuration = true;
    }
    Ok(all)
}

fn bytes_of_text(value: Value) -> String {
    match value {
        Value::VerbatimString { text, .. } => text,
        value => bytes(value).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default(),
    }
}

fn pairs(value: Value) -> Vec<(String, String)> {
    let text =
        |value: Value| bytes(value).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    match value {
        Value::Array(values) => {
            let mut values = values.into_iter().map(text);
            let mut pairs = Vec::new();
            while let (Some(name), Some(value)) = (values.next(), values.next()) {
                pairs.push((name, value));
            }
            pairs
        }
        Value::Map(values) => values.into_iter().map(|(name, value)| (text(name), text(value))).collect(),
        _ => Vec::new(),
    }
}
