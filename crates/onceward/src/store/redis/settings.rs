//! The settings and the state of each server, as INFO and CONFIG GET show them.

use std::time::Duration;

use redis::{Value, cmd};

use super::reply::bytes;
use super::server_connection::ServerConnection;
use crate::store::Error;

/// The settings of one server; those that it does not show are empty.
#[derive(Debug, Default)]
pub(super) struct Settings {
    values: Vec<(String, String)>,
    pub(super) shows_configuration: bool,
}

/// The settings of every primary.
pub(super) async fn settings(link: &ServerConnection) -> Result<Vec<Settings>, Error> {
    let mut all = Vec::new();
    let mut information = cmd("INFO");
    information.arg("server").arg("memory").arg("replication").arg("stats").arg("persistence");
    for value in link.query_each(&information).await? {
        let text = bytes_of_text(value);
        let values = text.lines().filter_map(|line| line.split_once(':'));
        let values = values.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect();
        all.push(Settings { values, shows_configuration: false });
    }
    let mut configuration = cmd("CONFIG");
    configuration.arg("GET").arg("appendonly").arg("appendfsync").arg("no-appendfsync-on-rewrite");
    // Managed servers often forbid this command.
    let shown = match link.query_each(&configuration).await {
        Ok(shown) => shown,
        Err(Error::Refused { .. } | Error::Other(_)) => return Ok(all),
        Err(error) => return Err(error),
    };
    // In a cluster, the order of both answers may differ. That does no harm: no setting is in both, and what is compared with the
    // identity of a server is in the first one.
    for (server, answer) in all.iter_mut().zip(shown) {
        server.values.extend(pairs(answer));
        server.shows_configuration = true;
    }
    Ok(all)
}

impl Settings {
    pub(super) fn get(&self, name: &str) -> &str {
        self.values.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    pub(super) fn number(&self, name: &str) -> u64 {
        self.get(name).parse().unwrap_or_default()
    }

    fn is_set(&self, name: &str) -> bool {
        self.number(name) == 1
    }

    /// The policy by which it would evict keys.
    pub(super) fn evicts(&self) -> Option<String> {
        let policy = self.get("maxmemory_policy");
        let is_limited = !matches!(self.get("maxmemory"), "" | "0");
        (is_limited && policy != "noeviction").then(|| policy.to_owned())
    }

    /// Whether the server has started since then.
    pub(super) fn started_within(&self, time: Duration) -> bool {
        match self.get("uptime_in_seconds").parse() {
            Ok(uptime) => Duration::from_secs(uptime).saturating_add(Duration::from_secs(1)) <= time,
            Err(_) => false,
        }
    }

    /// Whether the log holds all data. When a server that runs turns it on, this is so only after it has been rewritten once.
    /// `before` is what was found when the same server was last looked at.
    pub(super) fn has_whole_log(&self, before: Option<bool>) -> bool {
        let is_on = self.get("aof_enabled") != "0";
        let is_rewritten = ["aof_rewrite_in_progress", "aof_rewrite_scheduled", "aof_pending_rewrite"]
            .iter()
            .any(|name| self.is_set(name));
        match (is_on, is_rewritten) {
            (false, _) => false,
            (true, false) => true,
            // A later rewrite looks the same, except that there is something to begin with.
            (true, true) => before.unwrap_or_else(|| self.number("aof_base_size") > 0),
        }
    }

    /// Why a crash of this server, or of its machine, may lose acknowledged writes.
    pub(super) fn weakness(&self, has_whole_log: bool) -> Option<String> {
        if !self.shows_configuration {
            return Some("the server does not show its settings (CONFIG GET), so its durability is unknown".to_owned());
        }
        let reason = match (self.get("appendonly"), self.get("appendfsync")) {
            ("yes", "always") if self.get("no-appendfsync-on-rewrite") == "yes" => {
                "the server does not sync its log while it rewrites it (`no-appendfsync-on-rewrite yes`): a crash of the \
                 machine may then lose many writes"
                    .to_owned()
            }
            ("yes", "always") if !has_whole_log => {
                "the server has turned its log on, and not all of its data is in the log yet: until the first rewrite of the log \
                 has ended, a restart may lose everything"
                    .to_owned()
            }
            ("yes", "always") if !matches!(self.get("aof_last_write_status"), "" | "ok") => {
                "the server could not write its log (`aof_last_write_status`): a restart may lose many writes".to_owned()
            }
            ("yes", "always") => return None,
            ("yes", sync) => {
                format!("the server syncs its log `appendfsync {sync}`: a crash of the machine may lose the last writes")
            }
            _ => "the server keeps no log (`appendonly no`): a restart may lose many writes".to_owned(),
        };
        Some(reason)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[(&str, &str)]) -> Settings {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Settings { values, shows_configuration: true }
    }

    #[test]
    fn a_log_is_whole_only_after_its_first_rewrite() {
        let [off, on] = ["0", "1"].map(|number| ("aof_enabled", number));
        assert!(!of(&[off]).has_whole_log(None));
        assert!(of(&[on]).has_whole_log(None));
        for sign in ["aof_rewrite_in_progress", "aof_rewrite_scheduled", "aof_pending_rewrite"] {
            let first = of(&[on, (sign, "1"), ("aof_base_size", "0")]);
            assert!(!first.has_whole_log(None), "{sign}");
            assert!(first.has_whole_log(Some(true)), "the first rewrite of a new server, {sign}");
            let later = of(&[on, (sign, "1"), ("aof_base_size", "88")]);
            assert!(later.has_whole_log(None), "{sign}");
            assert!(!later.has_whole_log(Some(false)), "it was turned off meanwhile, {sign}");
        }
    }

    #[test]
    fn a_log_that_cannot_be_written_is_a_weakness() {
        let base = [("appendonly", "yes"), ("appendfsync", "always"), ("aof_enabled", "1")];
        assert_eq!(of(&base).weakness(true), None);
        let failed = [&base[..], &[("aof_last_write_status", "err")]].concat();
        assert!(of(&failed).weakness(true).is_some_and(|reason| reason.contains("aof_last_write_status")));
    }
}
