//! What an acknowledged write survives, by the settings of the server.

use tokio_postgres::Row;

use crate::store::{Durability, Error};

/// The settings that decide, whether a replica confirms commits, and how many could be promoted: all, those that confirm nothing,
/// and those of which no more is shown than that they are there. A client that archives or backs up (pg_receivewal, pg_basebackup)
/// never replays, and neither does a subscriber of logical replication become a primary. A role without `pg_read_all_stats` is
/// shown no more: then each client counts.
pub(super) const READ: &str = "SELECT current_setting('fsync'), current_setting('full_page_writes'), \
    current_setting('synchronous_commit'), current_setting('synchronous_standby_names'), pg_is_in_recovery(), \
    replicas.all, replicas.asynchronous, replicas.hidden \
    FROM (SELECT count(*) AS all, count(*) FILTER (WHERE client.sync_state = 'async') AS asynchronous, \
                 count(*) FILTER (WHERE client.state IS NULL) AS hidden \
          FROM pg_stat_replication AS client WHERE (client.state IS NULL OR client.replay_lsn IS NOT NULL) \
          AND NOT EXISTS (SELECT FROM pg_replication_slots AS slot \
                          WHERE slot.active_pid = client.pid AND slot.slot_type = 'logical')) AS replicas";

/// Judges the settings. `lost` is the number of acknowledged batches that the database has lost.
pub(super) fn durability(row: Option<&Row>, lost: i64) -> Result<Durability, Error> {
    let row = row.ok_or_else(|| Error::Other("the settings of the server cannot be read".to_owned()))?;
    let fault = |error: tokio_postgres::Error| Error::Other(error.to_string());
    let text = |index: usize| row.try_get::<_, &str>(index).map_err(fault);
    let (fsync, full_page_writes, commit, standbys) = (text(0)?, text(1)?, text(2)?, text(3)?);
    let in_recovery: bool = row.try_get(4).map_err(fault)?;
    let number = |index: usize| row.try_get::<_, i64>(index).map_err(fault);
    let (replicas, asynchronous, hidden) = (number(5)?, number(6)?, number(7)?);
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
    if confirmed {
        reasons.extend(unconfirmed(replicas, asynchronous, hidden, confirming(standbys)));
    }
    Ok(Durability::unless(reasons))
}

/// Replicas beside those that confirm a commit: a tool or a person may promote one of them. A name in `synchronous_standby_names` that
/// does not confirm at the moment does not count: it is there to be chosen by what it has.
fn unconfirmed(replicas: i64, asynchronous: i64, hidden: i64, confirming: i64) -> Option<String> {
    if asynchronous > 0 {
        return Some(format!(
            "{asynchronous} of the {replicas} replicas are asynchronous: promoting such a one loses the last writes"
        ));
    }
    let unknown = hidden - confirming;
    (unknown > 0).then(|| {
        format!(
            "{unknown} of the {replicas} replicas may be asynchronous, and promoting such a one loses the last writes: which \
             ones are is shown only to a role with `pg_read_all_stats`"
        )
    })
}

/// How many standbys a commit waits for.
fn confirming(names: &str) -> i64 {
    let names = names.trim();
    let word = names.split([' ', '(']).next().unwrap_or_default();
    let rest = match word.eq_ignore_ascii_case("first") || word.eq_ignore_ascii_case("any") {
        true => names[word.len()..].trim_start(),
        false => names,
    };
    let (number, _) = rest.split_once('(').unwrap_or_default();
    number.trim().parse().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_standbys_that_a_commit_waits_for_is_read_in_every_form() {
        for (names, number) in [
            ("*", 1),
            ("a, b", 1),
            ("\"first\", b", 1),
            ("2 (a, b, c)", 2),
            ("FIRST 3 (a,b,c)", 3),
            ("any 2(*)", 2),
            (" ANY  10  (a, b)", 10),
            ("any", 1),
        ] {
            assert_eq!(confirming(names), number, "{names}");
        }
    }

    #[test]
    fn replicas_that_confirm_nothing_are_counted_as_far_as_they_are_shown() {
        assert_eq!(unconfirmed(2, 0, 0, 1), None, "one waits in reserve");
        assert_eq!(unconfirmed(1, 0, 1, 1), None);
        assert!(
            unconfirmed(2, 1, 0, 1).is_some_and(|reason| reason.starts_with("1 of the 2 replicas are asynchronous"))
        );
        assert!(unconfirmed(3, 0, 3, 1).is_some_and(|reason| reason.starts_with("2 of the 3 replicas may be")));
    }
}
