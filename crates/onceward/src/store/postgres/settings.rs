//! What an acknowledged write survives, by the settings of the server.

use tokio_postgres::Row;

use crate::store::{Durability, Error};

/// The settings that decide, whether a replica confirms commits, and how many could be promoted. A client that archives or backs up
/// (pg_receivewal, pg_basebackup) never replays, and neither does a subscriber of logical replication become a primary. A role
/// without `pg_read_all_stats` sees no more of a client than that it is there: then each one counts.
pub(super) const READ: &str = "SELECT current_setting('fsync'), current_setting('full_page_writes'), \
    current_setting('synchronous_commit'), current_setting('synchronous_standby_names'), pg_is_in_recovery(), \
    (SELECT count(*) FROM pg_stat_replication AS client WHERE (client.state IS NULL OR client.replay_lsn IS NOT NULL) \
     AND NOT EXISTS (SELECT FROM pg_replication_slots AS slot \
                     WHERE slot.active_pid = client.pid AND slot.slot_type = 'logical'))";

/// Judges the settings. `lost` is the number of acknowledged batches that the database has lost.
pub(super) fn durability(row: Option<&Row>, lost: i64) -> Result<Durability, Error> {
    let row = row.ok_or_else(|| Error::Other("the settings of the server cannot be read".to_owned()))?;
    let fault = |error: tokio_postgres::Error| Error::Other(error.to_string());
    let text = |index: usize| row.try_get::<_, &str>(index).map_err(fault);
    let (fsync, full_page_writes, commit, standbys) = (text(0)?, text(1)?, text(2)?, text(3)?);
    let in_recovery: bool = row.try_get(4).map_err(fault)?;
    let replicas: i64 = row.try_get(5).map_err(fault)?;
    let mut reasons = Vec::new();
    if lost > 0 {
        reasons.push(format!("the database has lost acknowledged writes ({lost} batches of this process)"));
    }
    if fsync == "off" {
        reasons.push("fsync is off: a crash of the machine loses or damages records".to_owned());
    }
    if full_page_writes == "off" {
        reasons.push("full_page_writes is off: a crash of the machine may damage records".to_owned());
    }
    if commit == "off" {
        reasons.push("synchronous_commit is off: a crash of the server loses the last writes".to_owned());
    }
    if in_recovery {
        reasons.push("the server is a standby, which cannot be written".to_owned());
    }
    let confirmed = !standbys.trim().is_empty() && matches!(commit, "on" | "remote_write" | "remote_apply");
    if replicas > 0 && !confirmed {
        reasons.push("replicas are asynchronous: promoting one loses the last writes".to_owned());
    }
    Ok(Durability::unless(reasons))
}
