//! Makes and upgrades the schema. Only `onceward migrate` does; a server only checks the version.

use std::time::{Duration, Instant};

use super::connection::PrimaryConnection;
use super::pg_error::Fault;
use super::url::Options;
use crate::store::Error;

/// Every version of the schema, the oldest first. A released file never changes.
const VERSIONS: [&str; 1] = [concat!(include_str!("schema_v1.sql"), include_str!("functions_v1.sql"))];

/// The newest version that this build knows. It also runs on the next one, so that old and new servers can run side by side
/// during an upgrade.
const KNOWN: i64 = VERSIONS.len() as i64;

/// The oldest version of PostgreSQL that has everything that the schema and the statements use, as `server_version_num` shows it.
const OLDEST_SERVER: i64 = 140_000;

/// The types of jobs, the version of the schema, and that of the server.
pub(super) const LOOK: &str = "SELECT 'onceward.job_v1'::regtype::oid::int8, 'onceward.job_v1[]'::regtype::oid::int8, \
                               (SELECT max(version) FROM onceward.schema_version)::int8, \
                               current_setting('server_version_num')::int8";

/// The encoding of the database, and the version of the server.
const SERVER: &str = "SELECT current_setting('server_encoding'), current_setting('server_version_num')";

/// Two migrations at once would collide. The number is ours alone.
const LOCK: &str = "SELECT pg_try_advisory_xact_lock(1330529095, 0)::text";

/// How long to wait for another migration.
const LOCK_PATIENCE: Duration = Duration::from_secs(60);

/// Refuses a schema that this build does not know.
pub(super) fn check_version(found: i64, shown: &str) -> Result<(), Error> {
    if found < KNOWN {
        let reason = format!(
            "its schema has version {found}, and this build needs version {KNOWN}: run `onceward migrate --store {shown}`"
        );
        return Err(Error::Refused { store: shown.to_owned(), reason });
    }
    if found > KNOWN + 1 {
        let reason = format!(
            "its schema has version {found}, and this build supports versions up to {}: upgrade onceward",
            KNOWN + 1
        );
        return Err(Error::Refused { store: shown.to_owned(), reason });
    }
    Ok(())
}

/// Refuses a server that is too old.
pub(super) fn check_server(version: i64, shown: &str) -> Result<(), Error> {
    if version >= OLDEST_SERVER {
        return Ok(());
    }
    let (found, oldest) = (version / 10_000, OLDEST_SERVER / 10_000);
    let reason = format!("it is PostgreSQL {found}, and a ledger needs version {oldest} or later");
    Err(Error::Refused { store: shown.to_owned(), reason })
}

/// The error of a connection that is used for something else than batches.
pub(super) fn unreachable(fault: Fault) -> Error {
    match fault {
        Fault::Refused(error) | Fault::Job(error) => error,
        Fault::Held => Error::Unreachable("another migration is running".to_owned()),
        Fault::Unknown(why) | Fault::NotConnected(why) | Fault::Conflict(why) => Error::Unreachable(why),
        Fault::Behind(_) => Error::Other("a migration writes no batches".to_owned()),
    }
}

/// Makes the schema or upgrades it, in one transaction. Returns what was done, one line for each step; with `dry_run`, the SQL
/// that would run. It is safe to run it twice, also at once.
pub async fn migrate(url: &str, dry_run: bool) -> Result<Vec<String>, Error> {
    let options = Options::parse(url)?;
    let connection = PrimaryConnection::bare(&options).await.map_err(unreachable)?;
    let server = connection.simple(SERVER).await.map_err(unreachable)?;
    let server_version = server.first().and_then(|row| row.get(1)?.as_ref()?.parse().ok());
    check_server(server_version.unwrap_or_default(), &options.shown)?;
    check_encoding(&server, &options)?;
    let began = Instant::now();
    loop {
        connection.simple("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE").await.map_err(unreachable)?;
        let locked = connection.simple(LOCK).await.map_err(unreachable)?;
        if locked.first().and_then(|row| row.first()?.as_deref()) == Some("true") {
            break;
        }
        connection.simple("ROLLBACK").await.map_err(unreachable)?;
        if began.elapsed() > LOCK_PATIENCE {
            return Err(Error::Unreachable("another migration has been running for a minute".to_owned()));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let found = version(&connection).await.map_err(unreachable)?;
    if found > KNOWN {
        let reason =
            format!("its schema has version {found}, which is newer than this build ({KNOWN}): upgrade onceward");
        return Err(Error::Refused { store: options.shown, reason });
    }
    let mut steps = Vec::new();
    for (number, sql) in VERSIONS.iter().enumerate().skip(usize::try_from(found).unwrap_or_default()) {
        let number = number + 1;
        let record = format!("INSERT INTO onceward.schema_version (version) VALUES ({number});");
        match dry_run {
            true => steps.extend([(*sql).to_owned(), record]),
            false => {
                connection.simple(&format!("{sql}\n{record}")).await.map_err(|fault| explained(fault, &options))?;
                steps.push(format!("migrated to version {number}"));
            }
        }
    }
    connection.simple(if dry_run { "ROLLBACK" } else { "COMMIT" }).await.map_err(unreachable)?;
    if steps.is_empty() {
        steps.push(match dry_run {
            true => format!("-- nothing to do: the schema has version {found}"),
            false => format!("nothing to do: the schema has version {found}"),
        });
    }
    Ok(steps)
}

/// Names and outcomes are any text, and keys are digests of UTF-8.
fn check_encoding(rows: &[Vec<Option<String>>], options: &Options) -> Result<(), Error> {
    match rows.first().and_then(|row| row.first()?.as_deref()) {
        Some("UTF8") => Ok(()),
        found => Err(Error::Refused {
            store: options.shown.clone(),
            reason: format!(
                "the database has the encoding {}, and only UTF8 holds every key: create one with ENCODING 'UTF8'",
                found.unwrap_or("unknown")
            ),
        }),
    }
}

/// The version of the schema; 0 if there is none.
async fn version(connection: &PrimaryConnection) -> Result<i64, Fault> {
    let exists = connection.simple("SELECT to_regclass('onceward.schema_version')::text").await?;
    if exists.first().and_then(|row| row.first()?.as_deref()).is_none() {
        return Ok(0);
    }
    let rows = connection.simple("SELECT coalesce(max(version), 0)::text FROM onceward.schema_version").await?;
    Ok(rows.first().and_then(|row| row.first()?.as_ref()?.parse().ok()).unwrap_or_default())
}

fn explained(fault: Fault, options: &Options) -> Error {
    let refused = |reason: String| Error::Refused { store: options.shown.clone(), reason };
    match fault {
        Fault::Refused(Error::Refused { reason, .. }) => {
            refused(format!("the migration failed and was undone: {reason}"))
        }
        Fault::Refused(error) | Fault::Job(error) => refused(format!("the migration failed and was undone: {error}")),
        Fault::Held => refused("the migration failed and was undone: a table is locked".to_owned()),
        Fault::Unknown(why) | Fault::NotConnected(why) | Fault::Conflict(why) => Error::Unreachable(why),
        Fault::Behind(_) => refused("a migration writes no batches".to_owned()),
    }
}
