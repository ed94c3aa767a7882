//! Moves whole ledgers in and out.

use std::time::Duration;

use async_trait::async_trait;
use tokio_postgres::types::Type;

use onceward_core::hash::Digest;
use onceward_core::time::When;

use super::Postgres;
use super::query;
use super::reader::Value;
use super::row::{ExpectedRow, Job};
use crate::store::transfer::{self, Arrival, Exported, MAX_EXPORT_BYTES, Seal, SealSet, Totals, Transfer};
use crate::store::{AuditEntry, Error, MAX_PAGE_SIZE, without_nul};

const LEDGER: &str = "SELECT id::text, seal FROM onceward.ledger";

const SET_SEAL: &str = "SELECT result, present FROM onceward.set_seal_v1($1, $2, $3, $4, $5)";

/// How long to wait for the writes that are under way, at first and at most: less than a writer waits for a lock
/// (`onceward.write_v1`), because writers wait behind it.
const FIRST_PATIENCE: Duration = Duration::from_millis(50);
const LONGEST_PATIENCE: Duration = Duration::from_millis(1800);

/// How often to wait. With the pauses, in which writers go on, a change of the seal gives up after about half a minute.
const SEAL_TRIES: usize = 12;

/// How often to import a page while another command imports pages too.
const IMPORT_TRIES: usize = 16;

/// The next ids, with the size of their contents.
const NEXT: &str = "SELECT id, coalesce(octet_length(body), 0)::bigint + coalesce(octet_length(payload), 0) \
                    FROM onceward.intent WHERE id > $1 ORDER BY id LIMIT $2";

const RECORDS: &str = "SELECT record_send(intent) FROM onceward.intent WHERE id = ANY($1) ORDER BY id";

const ENTRIES: &str = "SELECT at, what, by, token, note, id FROM onceward.audit WHERE id = ANY($1) ORDER BY id, row";

/// The jobs are the last argument.
const IMPORT: &str = "SELECT onceward.import_v1($1, $2, $3, $4, $5, $6, $7, $8, $9)";

impl Postgres {
    /// Changes the seal, unless writes that are under way do not end in time.
    async fn try_seal(&self, values: Vec<Value>) -> Result<Option<SealSet>, Error> {
        let rows = self.scans.run(SET_SEAL, values, true).await?;
        let fault = |error: tokio_postgres::Error| Error::Other(error.to_string());
        let row = rows.first().ok_or_else(|| Error::Other("the seal was not changed".to_owned()))?;
        Ok(match row.try_get(0).map_err(fault)? {
            "busy" => None,
            "written" => Some(SealSet::Written),
            "not_empty" => Some(SealSet::NotEmpty),
            _ => {
                let present: Option<&str> = row.try_get(1).map_err(fault)?;
                Some(SealSet::Changed(Seal::from_text(&self.shared.options.shown, present)?))
            }
        })
    }

    async fn ledger_row(&self) -> Result<(String, Option<String>), Error> {
        let rows = self.lookups.run(LEDGER, Vec::new(), false).await?;
        let row = rows.first().ok_or_else(|| Error::Other("the ledger has no row of its own".to_owned()))?;
        let fault = |error: tokio_postgres::Error| Error::Other(error.to_string());
        Ok((row.try_get(0).map_err(fault)?, row.try_get(1).map_err(fault)?))
    }
}

#[async_trait]
impl Transfer for Postgres {
    async fn ledger_id(&self) -> Result<String, Error> {
        Ok(self.ledger_row().await?.0)
    }

    async fn seal(&self) -> Result<Seal, Error> {
        Seal::from_text(&self.shared.options.shown, self.ledger_row().await?.1.as_deref())
    }

    async fn set_seal(&self, expected: &Seal, next: &Seal) -> Result<SealSet, Error> {
        let refuses = match next {
            Seal::Open | Seal::Received(_) => None,
            Seal::Draining(_) => Some("claims"),
            Seal::Sealed(_) | Seal::Moved(_) | Seal::Receiving(_) => Some("everything"),
        };
        let needs_empty = matches!((expected, next), (Seal::Open, Seal::Receiving(_)));
        let (expected, next) = (expected.to_text()?, next.to_text()?);
        let mut patience = FIRST_PATIENCE;
        for _ in 0..SEAL_TRIES {
            let values = vec![
                query::text_value(expected.as_deref()),
                query::text_value(next.as_deref()),
                query::text_value(refuses),
                (Box::new(needs_empty), Type::BOOL),
                (Box::new(patience.as_millis() as i64), Type::INT8),
            ];
            if let Some(set) = self.try_seal(values).await? {
                return Ok(set);
            }
            // Writers go on for as long as they were held up.
            tokio::time::sleep(patience).await;
            patience = (patience * 2).min(LONGEST_PATIENCE).min(self.shared.options.timeout / 2);
        }
        Err(Error::Unreachable(format!(
            "{}: a transaction that writes to the ledger does not end, so the seal was not changed. Such a transaction of another \
             program has called a function of `onceward` and is listed in pg_stat_activity, or in pg_prepared_xacts if it is \
             prepared; end it, and run the command again",
            self.shared.options.shown
        )))
    }

    async fn export(&self, after: Option<Digest>, limit: usize) -> Result<Vec<Exported>, Error> {
        let fault = |error: tokio_postgres::Error| Error::Other(error.to_string());
        let start: Vec<u8> = after.map(|after| after.as_bytes().to_vec()).unwrap_or_default();
        let values: Vec<Value> =
            vec![(Box::new(start), Type::BYTEA), query::number_value(limit.clamp(1, MAX_PAGE_SIZE))];
        let (mut ids, mut size): (Vec<Vec<u8>>, usize) = (Vec::new(), 0);
        for row in &self.scans.run(NEXT, values, false).await? {
            let bytes: i64 = row.try_get(1).map_err(fault)?;
            size = size.saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX));
            if size > MAX_EXPORT_BYTES && !ids.is_empty() {
                break;
            }
            ids.push(row.try_get(0).map_err(fault)?);
        }
        let records = self.scans.run(RECORDS, vec![(Box::new(ids.clone()), Type::BYTEA_ARRAY)], false).await?;
        let entries = self.scans.run(ENTRIES, vec![(Box::new(ids), Type::BYTEA_ARRAY)], false).await?;
        let mut entries = entries.iter().peekable();
        let mut page = Vec::with_capacity(records.len());
        for row in &records {
            let bytes: &[u8] = row.try_get(0).map_err(fault)?;
            let record = query::read(bytes)?;
            let mut trail = Vec::new();
            while let Some(row) =
                entries.next_if(|row| row.try_get(5).is_ok_and(|id: &[u8]| id == record.id.as_bytes()))
            {
                let entry = query::entry(row)?.ok_or_else(|| {
                    Error::Other(
                        "the audit trail has an entry that this build does not know: upgrade onceward".to_owned(),
                    )
                })?;
                trail.push(entry);
            }
            page.push(Exported::new(record, trail));
        }
        Ok(page)
    }

    async fn import(&self, arrival: &Arrival, batch: Vec<Exported>) -> Result<(), Error> {
        let last = batch.last().map(|exported| exported.record.id);
        let mut jobs = Vec::with_capacity(batch.len());
        for exported in &batch {
            let draft = exported.record.clone().map(When::At);
            let (expected, write_id) = (ExpectedRow::default(), content_id(exported));
            jobs.push(Job { expected, write_id, max_records: None, event: None, draft: &draft }.encode()?);
        }
        // Another command that continues the same copy changes the seal too.
        for _ in 0..IMPORT_TRIES {
            let present = self.seal().await?;
            let Some(before) = present.receiving(&arrival.token) else {
                return Err(transfer::not_receiving(&self.shared.options.shown));
            };
            let next = Seal::Receiving(Arrival { after: before.after.max(last), ..before.clone() });
            let values = [text(&present)?, text(&next)?].into_iter().chain(trail_values(&batch)).collect();
            let rows = self.scans.run_with_jobs(IMPORT, values, jobs.clone()).await?;
            if let Some("written") = rows.first().and_then(|row| row.try_get::<_, &str>(0).ok()) {
                return Ok(());
            }
        }
        Err(Error::Unreachable(format!("{}: another command changes its seal all the time", self.shared.options.shown)))
    }
}

fn text(seal: &Seal) -> Result<Value, Error> {
    Ok(query::text_value(seal.to_text()?.as_deref()))
}

/// Names a record by its content, so that a row that was imported before is recognised.
fn content_id(exported: &Exported) -> [u8; 16] {
    let mut totals = Totals::default();
    totals.add(exported);
    let mut id = [0; 16];
    for (bytes, part) in id.chunks_exact_mut(8).zip(totals.digest) {
        bytes.copy_from_slice(&part.to_be_bytes());
    }
    id
}

/// The audit trails of a batch, as one array for each column.
fn trail_values(batch: &[Exported]) -> [Value; 6] {
    let all = || batch.iter().flat_map(|exported| exported.trail.iter().map(move |entry| (exported.record.id, entry)));
    let texts = |read: fn(&AuditEntry) -> Option<&str>| -> Value {
        let texts: Vec<Option<String>> = all().map(|(_, entry)| read(entry).map(without_nul)).collect();
        (Box::new(texts), Type::TEXT_ARRAY)
    };
    let ids: Vec<Vec<u8>> = all().map(|(id, _)| id.as_bytes().to_vec()).collect();
    let times: Vec<i64> = all().map(|(_, entry)| entry.at.as_millis()).collect();
    [
        (Box::new(ids), Type::BYTEA_ARRAY),
        (Box::new(times), Type::INT8_ARRAY),
        texts(|entry| Some(entry.event.what.as_str())),
        texts(|entry| entry.event.by.as_deref()),
        texts(|entry| entry.event.token.as_deref()),
        texts(|entry| entry.event.note.as_deref()),
    ]
}
