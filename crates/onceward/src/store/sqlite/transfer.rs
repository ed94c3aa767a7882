//! Moves whole ledgers into a file or out of it: the seal, pages of whole records, and imports.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};

use onceward_core::hash::Digest;

use super::query::{self, STATEMENTS};
use super::row::{Columns, halves, read};
use super::write_job::WriteJob;
use super::{Shared, Sqlite};
use crate::store::transfer::{self, Arrival, Exported, MAX_EXPORT_BYTES, Seal, SealSet, Transfer, list_position};
use crate::store::{Error, MAX_PAGE_SIZE};

#[async_trait]
impl Transfer for Sqlite {
    async fn ledger_id(&self) -> Result<String, Error> {
        let id: [u8; 16] = self
            .lookups
            .read(|connection, _| connection.query_row("SELECT id FROM ledger", [], |row| row.get(0)))
            .await?;
        Ok(id.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    async fn seal(&self) -> Result<Seal, Error> {
        let text = self.lookups.read(|connection, _| seal_text(connection)).await?;
        Seal::from_text(&self.shared.name(), text.as_deref())
    }

    async fn set_seal(&self, expected: &Seal, next: &Seal) -> Result<SealSet, Error> {
        let change = SealChange { expected: expected.clone(), next: next.clone(), text: next.to_text()? };
        self.write(|reply| WriteJob::SetSeal(Box::new(change), reply)).await
    }

    async fn export(&self, after: Option<Digest>, limit: usize) -> Result<Vec<Exported>, Error> {
        let limit = limit.clamp(1, MAX_PAGE_SIZE);
        self.scans.read(move |connection, _| export(connection, after, limit)).await
    }

    async fn import(&self, arrival: &Arrival, batch: Vec<Exported>) -> Result<(), Error> {
        let job = ImportJob { token: arrival.token.clone(), batch };
        match self.write(|reply| WriteJob::Import(Box::new(job), reply)).await? {
            Imported::Written => Ok(()),
            Imported::NotReceiving => Err(transfer::not_receiving(&self.shared.name())),
            Imported::Differs(id) => Err(transfer::differs(&self.shared.name(), id)),
        }
    }
}

/// A change of the seal.
#[derive(Debug)]
pub(super) struct SealChange {
    expected: Seal,
    pub(super) next: Seal,
    text: Option<String>,
}

/// Records to write as they are.
#[derive(Debug)]
pub(super) struct ImportJob {
    token: String,
    pub(super) batch: Vec<Exported>,
}

/// The result of an import.
#[derive(Clone, Debug)]
pub(super) enum Imported {
    Written,
    NotReceiving,
    Differs(Digest),
}

/// The seal as it is stored.
pub(super) fn seal_text(connection: &Connection) -> rusqlite::Result<Option<String>> {
    connection.prepare_cached("SELECT seal FROM ledger")?.query_row([], |row| row.get(0))
}

/// Changes the seal, inside the writer's transaction.
pub(super) fn set_seal(connection: &Connection, present: &Seal, change: &SealChange) -> rusqlite::Result<SealSet> {
    if *present != change.expected {
        return Ok(SealSet::Changed(present.clone()));
    }
    if matches!((present, &change.next), (Seal::Open, Seal::Receiving(_))) && !is_empty(connection)? {
        return Ok(SealSet::NotEmpty);
    }
    connection.execute("UPDATE ledger SET seal = ?1", [&change.text])?;
    Ok(SealSet::Written)
}

fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT NOT EXISTS (SELECT 1 FROM intent)", [], |row| row.get(0))
}

/// A page of whole records. The index holds the first half of each id, which is unique, so its order is that of the ids.
fn export(connection: &Connection, after: Option<Digest>, limit: usize) -> rusqlite::Result<Vec<Exported>> {
    let start = after.map(|after| halves(&after)[0].to_vec()).unwrap_or_default();
    let mut statement = connection.prepare_cached(&STATEMENTS.export)?;
    let mut rows = statement.query(params![start, i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let mut page: Vec<Exported> = Vec::new();
    let mut size = 0;
    while let Some(row) = rows.next()? {
        let record = read(row)?;
        let trail = query::whole_trail(connection, record.id)?;
        let exported = Exported::new(record, trail);
        size += exported.size();
        if size > MAX_EXPORT_BYTES && !page.is_empty() {
            break;
        }
        page.push(exported);
    }
    Ok(page)
}

/// Writes records as they are, inside the writer's transaction. The second value is the seal that results.
pub(super) fn import(
    connection: &Connection,
    shared: &Shared,
    present: &Seal,
    job: &ImportJob,
) -> rusqlite::Result<(Imported, Option<Seal>)> {
    let Some(arrival) = present.receiving(&job.token) else { return Ok((Imported::NotReceiving, None)) };
    let mut new = Vec::new();
    for exported in &job.batch {
        let id = exported.record.id;
        match query::get(connection, shared, id)? {
            None => new.push(exported),
            Some(there) => {
                let trail = query::whole_trail(connection, id)?;
                if Exported::new(there.record, trail) != *exported {
                    return Ok((Imported::Differs(id), None));
                }
            }
        }
    }
    for exported in new {
        insert(connection, exported)?;
    }
    let after = job.batch.last().map(|last| last.record.id).max(arrival.after);
    let seal = Seal::Receiving(Arrival { after, ..arrival.clone() });
    let text = seal.to_text().map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    connection.execute("UPDATE ledger SET seal = ?1", [text])?;
    Ok((Imported::Written, Some(seal)))
}

fn insert(connection: &Connection, exported: &Exported) -> rusqlite::Result<()> {
    let Exported { record, trail } = exported;
    let columns = Columns::of(record)?;
    let mut used = connection.prepare_cached("SELECT max(row) FROM intent WHERE row >= ?1 AND row < ?2")?;
    let row = list_position(record.created_at, |range| {
        used.query_row([range.start, range.end], |row| row.get(0)).optional().map(Option::flatten)
    })?;
    let values = columns.values().into_iter().chain([&row as &dyn rusqlite::ToSql]);
    connection.prepare_cached(&STATEMENTS.import)?.execute(params_from_iter(values))?;
    for entry in trail {
        query::append(connection, record.id, entry.at, &entry.event)?;
    }
    Ok(())
}
