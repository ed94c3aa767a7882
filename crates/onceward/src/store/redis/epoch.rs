//! Epochs: a random name of the ledger in every shard, which every script compares. Only `migrate` makes them, so a server that
//! was flushed, or is empty or another one, is noticed before anything runs again.

use futures_util::future::try_join_all;
use redis::{Cmd, Value, cmd};
use serde::{Deserialize, Serialize};

use super::keys::{Keys, SHARDS};
use super::moving::seal_in;
use super::server_connection::ServerConnection;
use super::{Redis, random, reply};
use crate::store::Error;
use crate::store::transfer::{Seal, WriteKind};

/// The version of the keys and values that this build knows. It also runs on the next one, so that old and new servers can run side by
/// side during an upgrade.
const VERSION: u32 = 1;

/// The number of hex digits of an epoch. The scripts use it too.
pub(super) const EPOCH_LENGTH: usize = 32;

/// What the key of the ledger holds.
#[derive(Debug, Serialize, Deserialize)]
struct Ledger {
    version: u32,
    epoch: String,
    /// Every shard has got its epoch. From then on a missing one is a loss.
    ready: bool,
}

/// The epoch of a ledger that is complete.
pub(super) async fn find(link: &ServerConnection, keys: &Keys) -> Result<String, Error> {
    let Some(ledger) = read(link, keys, VERSION + 1).await? else {
        return Err(link.refused(format!(
            "it has no ledger. If it never had one, make it with `onceward migrate --store {}`. If it had one, the server was \
             flushed, lost its data or is another one: restore it, because work that was done would run again",
            name_with_login(link)
        )));
    };
    if !ledger.ready {
        return Err(link.refused(format!(
            "its ledger is not complete: run `onceward migrate --store {}` again",
            name_with_login(link)
        )));
    }
    check_shards(link, keys, &ledger.epoch).await?;
    Ok(ledger.epoch)
}

/// The URL for a command that the operator has to run, without the password.
fn name_with_login(link: &ServerConnection) -> String {
    let login = &link.address.login;
    match (&login.user, &login.password) {
        (None, None) => link.name.clone(),
        (user, _) => link.name.replacen("://", &format!("://{}:…@", user.as_deref().unwrap_or_default()), 1),
    }
}

/// Makes the ledger, or completes it.
pub(super) async fn migrate(link: &ServerConnection, keys: &Keys, dry_run: bool) -> Result<Vec<String>, Error> {
    if let Some(ledger) = read(link, keys, VERSION).await?
        && ledger.ready
    {
        check_shards(link, keys, &ledger.epoch).await?;
        return Ok(vec![format!("nothing to do: the ledger has version {}", ledger.version)]);
    }
    let found = epochs(link, keys).await?.into_iter().flatten().count();
    if read(link, keys, VERSION).await?.is_none() && found > 0 {
        return Err(link.refused(format!(
            "{found} of {SHARDS} shards belong to a ledger whose main key is gone: a part of the data was lost. Restore it, or \
             start a new ledger with another `prefix`"
        )));
    }
    let steps = vec![format!("create a ledger of version {VERSION}"), format!("create {SHARDS} shards")];
    if dry_run {
        return Ok(steps);
    }
    let ledger = Ledger { version: VERSION, epoch: hex(&random()?), ready: false };
    link.query(cmd("SET").arg(&keys.ledger).arg(text(&ledger)?).arg("NX")).await?;
    // Another process may have been faster. Both go on with the same epoch.
    let ledger = read(link, keys, VERSION).await?.ok_or_else(|| Error::Other("the new ledger is gone".to_owned()))?;
    let create = |key: &String| {
        let mut create = cmd("SET");
        create.arg(key).arg(&ledger.epoch).arg("NX");
        create
    };
    each(link, keys.shards.iter().map(|shard| create(&shard.epoch))).await?;
    check_shards(link, keys, &ledger.epoch).await?;
    link.query(cmd("SET").arg(&keys.ledger).arg(text(&Ledger { ready: true, ..ledger })?)).await?;
    Ok(steps)
}

/// The ledger, unless its version is later than `newest`.
async fn read(link: &ServerConnection, keys: &Keys, newest: u32) -> Result<Option<Ledger>, Error> {
    let Some(bytes) = reply::bytes(link.query(cmd("GET").arg(&keys.ledger)).await?) else { return Ok(None) };
    let ledger: Ledger = serde_json::from_slice(&bytes)
        .map_err(|_| link.refused(format!("the key {} is not one of a ledger: use another `prefix`", keys.ledger)))?;
    match ledger.version > newest {
        false => Ok(Some(ledger)),
        true => Err(link.refused(format!(
            "its ledger has version {}, and this build supports versions up to {newest}: upgrade onceward",
            ledger.version
        ))),
    }
}

/// Refuses a ledger if a shard has lost its epoch or has another one.
async fn check_shards(link: &ServerConnection, keys: &Keys, epoch: &str) -> Result<(), Error> {
    let is_ours = |found: &Option<Vec<u8>>| found.as_ref().is_some_and(|found| found.starts_with(epoch.as_bytes()));
    let wrong = epochs(link, keys).await?.iter().filter(|found| !is_ours(found)).count();
    match wrong {
        0 => Ok(()),
        wrong => Err(link.refused(format!(
            "{wrong} of {SHARDS} shards are missing or belong to another ledger: a part of the data was lost, and work that was \
             done would run again. Restore it, or start a new ledger with another `prefix`"
        ))),
    }
}

async fn epochs(link: &ServerConnection, keys: &Keys) -> Result<Vec<Option<Vec<u8>>>, Error> {
    let get = |key: &String| {
        let mut get = cmd("GET");
        get.arg(key);
        get
    };
    let found = each(link, keys.shards.iter().map(|shard| get(&shard.epoch))).await?;
    Ok(found.into_iter().map(reply::bytes).collect())
}

/// Runs commands at the same time; each may go to another node.
pub(super) async fn each(link: &ServerConnection, commands: impl Iterator<Item = Cmd>) -> Result<Vec<Value>, Error> {
    try_join_all(commands.map(|command| async move { link.query(&command).await })).await
}

fn text(ledger: &Ledger) -> Result<String, Error> {
    serde_json::to_string(ledger).map_err(|error| Error::Other(error.to_string()))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Redis {
    /// The error for a script that found this in the key of the epoch.
    pub(super) fn wrong_epoch(&self, found: Option<Vec<u8>>) -> Error {
        let name = &self.link.name;
        let lost = |reason: &str| Error::LedgerLost { store: name.clone(), reason: reason.to_owned() };
        let Some(found) = found else {
            return lost(
                "the epoch of the ledger is gone: the server was flushed or has lost its data, and work that was done would run \
                 again. Restore the data",
            );
        };
        if !found.starts_with(self.epoch.as_bytes()) {
            return lost(
                "it has another ledger than when it was opened: the server was flushed or replaced, and work that was done would \
                 run again. Restore the data",
            );
        }
        match Seal::from_text(name, std::str::from_utf8(&found).ok().and_then(seal_in)) {
            Ok(seal) => seal.not_ready(name).unwrap_or_else(|| self.link.refused("it has an unknown seal")),
            Err(error) => error,
        }
    }

    /// The kind of a write, as the scripts know it.
    pub(super) fn kind_argument(kind: WriteKind) -> &'static str {
        match kind {
            WriteKind::NewRecord | WriteKind::NewClaim => "n",
            WriteKind::Other => "o",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_has_the_length_that_the_scripts_expect() {
        assert_eq!(hex(&[0x0f; 16]).len(), EPOCH_LENGTH);
    }
}
