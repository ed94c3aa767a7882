//! Notices that the database has lost acknowledged writes: it was restored from a backup, or a replica was promoted that had not
//! received them. Each writer counts its batches in a row of its own, and remembers the last number that was acknowledged. The
//! memory lasts as long as the process.

use tokio_postgres::types::Type;

use super::OpenStore;
use super::composite::Binary;
use super::connection::PrimaryConnection;
use super::pg_error::Fault;
use crate::store::Error;

const READ: &str = "SELECT mark FROM onceward.high_water_mark WHERE process = $1";

/// The count of one writer.
#[derive(Debug)]
pub(super) struct HighWaterMark {
    pub(super) process: [u8; 16],
    last: i64,
    acknowledged: i64,
}

impl HighWaterMark {
    pub(super) fn new() -> Result<Self, Error> {
        Ok(Self { process: super::random_id()?, last: 0, acknowledged: 0 })
    }

    /// The number of the next batch.
    pub(super) fn next(&mut self) -> i64 {
        self.last += 1;
        self.last
    }

    pub(super) fn acknowledged(&mut self, number: i64) {
        self.acknowledged = number;
    }

    /// Compares the row with what was acknowledged, after every new connection.
    pub(super) async fn check(&mut self, connection: &PrimaryConnection, shared: &OpenStore) -> Result<(), Fault> {
        if self.acknowledged == 0 {
            return Ok(());
        }
        let rows = connection.query(READ, &[(&Binary(Some(self.process)), Type::UUID)]).await?;
        let found: i64 = rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or(0);
        if found < self.acknowledged {
            shared.lost_writes(self.acknowledged - found);
            // Reported once; from here on the count goes on.
            self.acknowledged = found;
        }
        Ok(())
    }
}
