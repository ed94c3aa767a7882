//! What the settings of the servers promise: whether an acknowledged write survives a crash, and that nothing is evicted.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::address::Topology;
use super::server_connection::ServerConnection;
use super::settings::{Settings, settings};
use crate::kept_answer::KeptAnswer;
use crate::store::{Durability, Error};

/// How old the last look at the servers may be when a claim is made: an operator may change their settings while they run. Two
/// short commands in this time cost nothing.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The oldest major version whose commands the scripts use.
const OLDEST: u32 = 7;

/// What is known about the servers.
pub(super) struct Condition {
    opened: Instant,
    servers: Mutex<HashMap<String, ServerHistory>>,
    /// Why no claims may be made; `None` while they may.
    refusal: KeptAnswer<Option<String>>,
    /// Keys were evicted since the ledger was opened. That cannot be taken back.
    evicted: Mutex<u64>,
}

/// What is known about one server since it has started.
struct ServerHistory {
    evicted: u64,
    has_whole_log: bool,
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
        let condition = Self {
            opened: Instant::now(),
            servers: Mutex::default(),
            refusal: KeptAnswer::default(),
            evicted: Mutex::default(),
        };
        match condition.note(&servers) {
            Some(reason) => Err(link.refused(reason)),
            None => Ok(condition),
        }
    }

    /// Refuses claims on servers that evict keys. If the last look is too old, it looks first: a process that made no claims for
    /// a while must not make one without the records that were evicted meanwhile.
    pub(super) async fn check(&self, link: &ServerConnection) -> Result<(), Error> {
        match self.refusal.get(|_| LOOK_EVERY, || self.look(link)).await? {
            None => Ok(()),
            Some(reason) => Err(link.refused(reason)),
        }
    }

    async fn look(&self, link: &ServerConnection) -> Result<Option<String>, Error> {
        if link.address.topology != Topology::Cluster {
            return Ok(self.note(&settings(link).await?));
        }
        // A node that does not answer must not stop the claims on the others, nor delay them for long.
        match timeout(link.address.timeout / 4, settings(link)).await {
            Ok(Ok(servers)) => Ok(self.note(&servers)),
            Ok(Err(error)) if !error.is_out_of_reach() => Err(error),
            Ok(Err(_)) | Err(_) => Ok(self.refusal.last().flatten()),
        }
    }

    /// Compares the servers with what was known, and keeps what they show. Returns why no claims may be made.
    fn note(&self, servers: &[Settings]) -> Option<String> {
        let mut known = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all_evicted = self.evicted.lock().unwrap_or_else(PoisonError::into_inner);
        let mut present = HashMap::new();
        for server in servers {
            let run = server.get("run_id").to_owned();
            let before = known.get(&run);
            let evicted = server.number("evicted_keys");
            let evicted_before = match before {
                Some(before) => before.evicted,
                // It counts from its start. What it has evicted before the ledger was opened is not known to have been ours.
                None if server.started_within(self.opened.elapsed()) => 0,
                None => evicted,
            };
            *all_evicted += evicted.saturating_sub(evicted_before);
            let has_whole_log = server.has_whole_log(before.map(|before| before.has_whole_log));
            present.insert(run, ServerHistory { evicted, has_whole_log });
        }
        *known = present;
        let refusal = match (*all_evicted, servers.iter().find_map(Settings::evicts)) {
            (0, None) => None,
            (0, Some(policy)) => Some(format!(
                "it evicts keys when memory is short (`maxmemory-policy {policy}`), and work that was done would run again: set \
                 `maxmemory-policy noeviction`"
            )),
            (number, _) => Some(format!(
                "it has evicted {number} keys since the ledger was opened. If records of the ledger were among them, work that \
                 was done would run again: set `maxmemory-policy noeviction`, restore the data, and restart this process"
            )),
        };
        self.refusal.set(refusal.clone());
        refusal
    }

    fn has_whole_log(&self, server: &Settings) -> bool {
        let known = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(server.get("run_id")).is_some_and(|known| known.has_whole_log)
    }

    /// What an acknowledged write survives.
    pub(super) async fn durability(&self, link: &ServerConnection) -> Result<Durability, Error> {
        let servers = settings(link).await?;
        if let Some(reason) = self.note(&servers) {
            return Err(link.refused(reason));
        }
        let mut reasons = Vec::new();
        match link.address.topology {
            Topology::Single => reasons.extend(servers.iter().find_map(|server| unconfirmed(link, server))),
            Topology::Sentinel(_) => {
                reasons.push("Sentinel may promote a replica that does not have the last writes".to_owned());
            }
            Topology::Cluster => {
                reasons.push("the cluster may promote a replica that does not have the last writes".to_owned());
            }
        }
        for reason in servers.iter().filter_map(|server| server.weakness(self.has_whole_log(server))) {
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        Ok(Durability::unless(reasons))
    }
}

/// Replicas of a single server that need not have the last writes: a proxy or a name in front of the servers may make one of them
/// the primary, and nothing in Redis shows that.
fn unconfirmed(link: &ServerConnection, server: &Settings) -> Option<String> {
    let (replicas, confirming) = (server.number("connected_slaves"), u64::from(link.address.replicas));
    (replicas > confirming).then(|| {
        format!(
            "the server has {replicas} replicas, and a write waits for {confirming} of them: if another one becomes the primary, \
             the last writes are lost"
        )
    })
}
