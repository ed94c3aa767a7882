//! The entries of the outbox that are due, in one round trip. `onceward.due_v1` walks through their index as `store::due` says.

use std::time::Instant;

use tokio_postgres::types::Type;

use onceward_core::name::Tenant;

use super::reader::Value;
use super::write_job::{Micros, seen};
use super::{Postgres, query};
use crate::plant::{Plant, planted};
use crate::store::{DueEntries, DueQuery, Error};

const DUE: &str = "SELECT at, reached, found FROM onceward.due_v1($1, $2, $3, $4, $5)";

/// The same, where the second argument is the only tenant.
const DUE_OF_TENANT: &str = "SELECT at, reached, found FROM onceward.due_of_tenant_v1($1, $2, $3, $4, $5)";

/// How often a look is repeated without the entries that cannot be read. The schema admits none, so that more are a damaged
/// table; and none of them may hold up its neighbours.
const MAX_LOOKS: usize = 4;

impl Postgres {
    pub(super) async fn due_entries(&self, queue: &DueQuery) -> Result<DueEntries, Error> {
        let mut unreadable: Vec<Vec<u8>> = Vec::new();
        let mut found = DueEntries::default();
        if queue.limit == 0 {
            return Ok(found);
        }
        for _ in 0..MAX_LOOKS {
            let known = unreadable.len();
            found = self.look(queue, &mut unreadable).await?;
            if unreadable.len() == known {
                break;
            }
        }
        Ok(found)
    }

    /// One look. Adds the ids of entries that cannot be read.
    async fn look(&self, queue: &DueQuery, unreadable: &mut Vec<Vec<u8>>) -> Result<DueEntries, Error> {
        let given = self.shared.given_time();
        let after = queue.after.as_ref().filter(|_| !planted(Plant::TurnsNotTaken));
        let (statement, tenant) = match &queue.tenant {
            Some(only) => (DUE_OF_TENANT, Some(only)),
            None => (DUE, after),
        };
        let values: Vec<Value> = vec![
            query::text_value(Some(queue.operation.as_str())),
            query::text_value(tenant.map(Tenant::as_str)),
            query::number_value(queue.limit),
            query::time_value(given),
            (Box::new(unreadable.clone()), Type::BYTEA_ARRAY),
        ];
        let asked = Instant::now();
        let rows = self.lookups.run(statement, values, false).await?;
        let fault = |error: tokio_postgres::Error| Error::Other(error.to_string());
        let mut found = DueEntries::default();
        for row in &rows {
            let now: Micros = row.try_get(0).map_err(fault)?;
            self.shared.time.saw(now.0, asked);
            let reached: Option<&str> = row.try_get(1).map_err(fault)?;
            found.reached = reached.and_then(|name| Tenant::new(name).ok());
            let Some(bytes) = row.try_get::<_, Option<&[u8]>>(2).map_err(fault)? else { continue };
            match query::read(bytes) {
                Ok(record) => found.entries.push(seen(record, given.unwrap_or(now.0))),
                Err(error) => unreadable.extend(query::unreadable(bytes, &error)),
            }
        }
        Ok(found)
    }
}
