//! A claim inside a transaction of your own: the record and the effect commit together, or neither does. This is where exactly
//! once is true. Ledger and effect must be in one database.
//!
//! It calls the SQL functions `onceward.claim`, `onceward.finish` and `onceward.release`, which any other client may call too.

use std::time::Duration;

use bytes::Bytes;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};

use onceward_core::decide::Decision;
use onceward_core::name::Identity;
use onceward_core::outcome::{Body, Outcome, Verdict};
use onceward_core::record::Fence;

use super::composite::Binary;
use super::pg_error::{is_schema, text};
use super::row::LONGEST;
use super::write_job::Micros;
use crate::Call;
use crate::courier::Parcel;
use crate::store::{Error, names, without_nul};

const BEGIN: &str = "SELECT decision, fence, attempt, downstream_key, verdict, status, content_type, body, since, \
    (extract(epoch FROM retry_after) * 1000)::bigint \
    FROM onceward.claim($1, $2, $3, $4, $5, $6 * interval '1 ms', $7 * interval '1 ms', $8 * interval '1 ms', $9, $10)";

/// Checks the fence and holds the row until the end of the transaction, so that the claim stays valid for as long.
const OWNED: &str = "SELECT state FROM onceward.owned_row($1, $2, $3, $4)";

/// What is committed after this without an end counts as sent, like the claims that the functions make.
const MARK_SENT: &str = "UPDATE onceward.intent SET state = 'sent', version = intent.version + 1, write_id = gen_random_uuid(), \
    updated_at = onceward.this_moment(), first_sent_at = coalesce(intent.first_sent_at, onceward.this_moment()), made_by = NULL \
    WHERE id = onceward.intent_id($3, $1, $2) AND fence = $4 AND state = 'claimed'";

const FINISH: &str = "SELECT onceward.finish($1, $2, $3, $4, $5, $6, $7, $8, $9)::text";

const RELEASE: &str = "SELECT onceward.release($1, $2, $3, $4, $5 * interval '1 ms', $6)::text";

/// What [`begin`] answers.
#[derive(Debug)]
pub enum InTransaction {
    /// The caller has the claim: do the work in this transaction, finish the claim in it, and commit.
    Acquired(TransactionClaim),
    /// The caller does not have the claim. Roll back or go on without the work.
    Answered(Decision),
    /// A server had a claim and ended before it sent anything. The next caller of a server gets it.
    Lapsed,
}

/// A claim inside a transaction.
#[derive(Debug)]
pub struct TransactionClaim {
    identity: Identity,
    fence: Fence,
    downstream_key: String,
    attempt: u32,
}

/// Claims an intent inside a transaction, or says what is known about it.
pub async fn begin(transaction: &impl GenericClient, call: &Call) -> Result<InTransaction, Error> {
    if call.item.is_some() {
        return Err(Error::Other("an item of a stream cannot be claimed inside a transaction of your own".to_owned()));
    }
    let terms = call.policy.terms();
    let identity = &call.identity;
    let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    // Without a retention, the record is kept for ever, which is what this tier says.
    let kept = terms.retention.filter(|retention| *retention <= LONGEST);
    let tier = if kept.is_none() { "forever" } else { "standard" };
    let retention = kept.map(millis);
    let (fingerprint, digest) = (call.fingerprint.digest(), call.key_digest);
    let values: [(&(dyn ToSql + Sync), Type); 10] = [
        (&identity.operation.as_str(), Type::TEXT),
        (&identity.key.as_str(), Type::TEXT),
        (&identity.tenant.as_str(), Type::TEXT),
        (&fingerprint.as_bytes().as_slice(), Type::BYTEA),
        (&tier, Type::TEXT),
        (&retention, Type::INT8),
        (&millis(terms.tombstone.min(LONGEST)), Type::INT8),
        (&millis(call.policy.lease()), Type::INT8),
        (&names::of_in_doubt(terms.in_doubt), Type::TEXT),
        (&digest.as_ref().map(|digest| digest.as_bytes().as_slice()), Type::BYTEA),
    ];
    let rows = transaction.query_typed(BEGIN, &values).await.map_err(|error| failed(&error))?;
    let row = rows.first().ok_or_else(|| Error::Other("onceward.claim returned nothing".to_owned()))?;
    read(row, call).map_err(|error| Error::Other(text(&error)))
}

fn read(row: &Row, call: &Call) -> Result<InTransaction, tokio_postgres::Error> {
    let decision: &str = row.try_get(0)?;
    let attempt: Option<i64> = row.try_get(2)?;
    let attempt = attempt.and_then(|attempt| u32::try_from(attempt).ok()).unwrap_or(1);
    let status: Option<i32> = row.try_get(5)?;
    Ok(InTransaction::Answered(match decision {
        "acquired" => {
            let fence: Uuid = row.try_get(1)?;
            return Ok(InTransaction::Acquired(TransactionClaim {
                identity: call.identity.clone(),
                fence: Fence::from_bytes(fence.0),
                downstream_key: row.try_get(3)?,
                attempt,
            }));
        }
        "lapsed" => return Ok(InTransaction::Lapsed),
        "replay" => {
            let verdict: &str = row.try_get(4)?;
            let verdict = if verdict == "failure" { Verdict::Failure } else { Verdict::Success };
            let body = Bytes::from(row.try_get::<_, Vec<u8>>(7)?);
            let outcome = Outcome::of(verdict, row.try_get(6)?, body).with_status(status.unwrap_or_default());
            Decision::Replay { outcome, finished_at: row.try_get::<_, Micros>(8)?.0, expires_at: None }
        }
        "mismatch" => Decision::Mismatch,
        "collision" => Decision::Collision,
        "outcome_not_kept" => Decision::OutcomeNotKept { outcome: None, status },
        "queued" => Decision::Queued { created: false },
        "dead" => Decision::Dead,
        "in_doubt" => Decision::InDoubt { since: row.try_get::<_, Micros>(8)?.0 },
        _ => {
            let millis: Option<i64> = row.try_get(9)?;
            let retry_after = Duration::from_millis(millis.unwrap_or_default().unsigned_abs());
            Decision::InFlight { retry_after, running: true, attempt }
        }
    }))
}

impl TransactionClaim {
    /// The claim of an entry of the outbox, for a sink that [finishes it itself](crate::courier::Sink::finishes_entries). Until the
    /// transaction ends, no other courier can take the entry. If one has taken it before, this is an error, and the transaction
    /// must be rolled back. If it is committed without [`finish`](Self::finish), the entry counts as sent.
    pub async fn of_entry(transaction: &impl GenericClient, parcel: &Parcel) -> Result<Self, Error> {
        let identity = parcel.identity.clone();
        let values: [(&(dyn ToSql + Sync), Type); 4] = [
            (&identity.operation.as_str(), Type::TEXT),
            (&identity.key.as_str(), Type::TEXT),
            (&identity.tenant.as_str(), Type::TEXT),
            (&Binary(Some(parcel.fence.to_bytes())), Type::UUID),
        ];
        transaction.query_typed(OWNED, &values).await.map_err(|error| failed(&error))?;
        // A repeat of the same attempt would find the entry done, and is let through by its fence.
        let marked = transaction.execute_typed(MARK_SENT, &values).await.map_err(|error| failed(&error))?;
        if marked != 1 {
            let why = "the entry is done, a person has settled it, or its sink does not say that it finishes entries";
            return Err(Error::ClaimLost(why.to_owned()));
        }
        let (downstream_key, attempt) = (parcel.downstream_key.clone(), parcel.attempt);
        Ok(Self { identity, fence: parcel.fence, downstream_key, attempt })
    }

    /// The key to pass on to a downstream: the same on every attempt.
    pub fn downstream_key(&self) -> &str {
        &self.downstream_key
    }

    /// The number of the attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Keeps the outcome. It counts once the transaction has committed. If the claim is not valid any more, this is an error and
    /// the transaction must be rolled back: it cannot be committed any more.
    pub async fn finish(self, transaction: &impl GenericClient, outcome: &Outcome) -> Result<(), Error> {
        let Body::Kept(body) = &outcome.body else {
            return Err(Error::Other("the outcome is too large to be kept".to_owned()));
        };
        let identity = &self.identity;
        let values: [(&(dyn ToSql + Sync), Type); 9] = [
            (&identity.operation.as_str(), Type::TEXT),
            (&identity.key.as_str(), Type::TEXT),
            (&Binary(Some(self.fence.to_bytes())), Type::UUID),
            (&body.as_ref(), Type::BYTEA),
            (&outcome.content_type.as_str(), Type::TEXT),
            (&outcome.status, Type::INT4),
            (&names::of_verdict(outcome.verdict), Type::TEXT),
            (&identity.tenant.as_str(), Type::TEXT),
            (&outcome.reference.as_deref().map(without_nul), Type::TEXT),
        ];
        transaction.query_typed(FINISH, &values).await.map(drop).map_err(|error| failed(&error))
    }

    /// Gives the claim back: nothing happened, and the next caller may try.
    pub async fn release(self, transaction: &impl GenericClient, error: &str, wait: Duration) -> Result<(), Error> {
        let identity = &self.identity;
        let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        let values: [(&(dyn ToSql + Sync), Type); 6] = [
            (&identity.operation.as_str(), Type::TEXT),
            (&identity.key.as_str(), Type::TEXT),
            (&Binary(Some(self.fence.to_bytes())), Type::UUID),
            (&without_nul(error), Type::TEXT),
            (&wait, Type::INT8),
            (&identity.tenant.as_str(), Type::TEXT),
        ];
        transaction.query_typed(RELEASE, &values).await.map(drop).map_err(|error| failed(&error))
    }
}

/// An error of a function. The transaction cannot go on after it.
fn failed(error: &tokio_postgres::Error) -> Error {
    let refused = |reason: String| Error::Refused { store: "the ledger in the database".to_owned(), reason };
    match error.code() {
        Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => {
            return refused(format!("{}: grant the role the rights that the guide to PostgreSQL names", text(error)));
        }
        Some(code) if is_schema(code) => {
            return refused(format!("its schema is missing or not complete ({}): run `onceward migrate`", text(error)));
        }
        _ => {}
    }
    match error.as_db_error().map(|db| (db.code().code(), db.message())) {
        Some(("OW001", _)) => Error::Sealed { store: "in the database".to_owned(), to: "another store".to_owned() },
        Some(("OW002" | "OW007", message)) => Error::Other(message.to_owned()),
        Some(("OW003", message)) => Error::ClaimLost(message.to_owned()),
        Some(("40001" | "40P01" | "55P03", message)) => Error::Conflict(message.to_owned()),
        _ => Error::Unreachable(text(error)),
    }
}

struct Uuid([u8; 16]);

impl<'a> tokio_postgres::types::FromSql<'a> for Uuid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(raw.try_into()?))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::UUID
    }
}
