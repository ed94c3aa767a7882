//! Charges an invoice once inside a transaction of sqlx: the row and the record of it commit together.
//!
//! `DATABASE_URL=postgres://… cargo run -- charge|rollback|stale INVOICE [CENTS]`

use std::time::Duration;

use sha2::{Digest, Sha256};
use sqlx::postgres::PgConnection;
use sqlx::types::Uuid;
use sqlx::{Connection, Error};

/// Longer than a transaction should be open, in all.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(250);

/// The part of an answer that is needed here: decision, fence and body.
type BeginRow = (String, Option<Uuid>, Option<Vec<u8>>);

/// Charges inside the caller's transaction. Returns what happened, and the receipt.
async fn charge(transaction: &mut PgConnection, invoice: &str, cents: i64) -> Result<(String, Vec<u8>), Error> {
    // The same invoice with another amount is a mismatch, and not a repeat.
    let fingerprint = Sha256::digest(cents.to_string()).to_vec();
    let begin = "SELECT decision, fence, body FROM onceward.claim('charge', $1, tier => 'payment', fingerprint => $2)";
    let row: BeginRow = sqlx::query_as(begin).bind(invoice).bind(fingerprint).fetch_one(&mut *transaction).await?;
    let (decision, fence, body) = row;
    if decision != "acquired" {
        return Ok((decision, body.unwrap_or_default()));
    }
    let receipt = format!(r#"{{"receipt":"{invoice}/{cents}"}}"#).into_bytes();
    let insert = sqlx::query("INSERT INTO charge (invoice, cents) VALUES ($1, $2)").bind(invoice).bind(cents);
    insert.execute(&mut *transaction).await?;
    let finish = sqlx::query("SELECT onceward.finish('charge', $1, $2, $3)").bind(invoice).bind(fence);
    finish.bind(&receipt).execute(transaction).await?;
    Ok(("charged".to_owned(), receipt))
}

/// Runs the transaction again where PostgreSQL aborted it to resolve a conflict, or another one has the invoice now.
async fn charge_once(client: &mut PgConnection, invoice: &str, cents: i64) -> Result<(String, Vec<u8>), Error> {
    for _ in 0..TRIES {
        match try_charge(client, invoice, cents).await {
            Ok((happened, _)) if happened == "in_flight" => {}
            Err(error) if matches!(sqlstate(&error).as_deref(), Some("40001" | "40P01" | "55P03")) => {}
            ended => return ended,
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(Error::PoolTimedOut)
}

/// One transaction. It is rolled back where it is dropped without a commit.
async fn try_charge(client: &mut PgConnection, invoice: &str, cents: i64) -> Result<(String, Vec<u8>), Error> {
    let mut transaction = client.begin().await?;
    let happened = charge(&mut transaction, invoice, cents).await?;
    transaction.commit().await?;
    Ok(happened)
}

fn sqlstate(error: &Error) -> Option<String> {
    error.as_database_error().and_then(|error| Some(error.code()?.into_owned()))
}

/// A transaction that rolls back leaves neither the row nor the record.
async fn roll_back(client: &mut PgConnection, invoice: &str, cents: i64) -> Result<String, Error> {
    let mut transaction = client.begin().await?;
    charge(&mut transaction, invoice, cents).await?;
    transaction.rollback().await?;
    let status = sqlx::query_scalar("SELECT decision FROM onceward.status('charge', $1)").bind(invoice);
    status.fetch_one(client).await
}

/// A claim that is not valid any more cannot be finished, and what was written beside it cannot commit.
async fn finish_late(client: &mut PgConnection, invoice: &str, cents: i64) -> Result<String, Error> {
    // Outside of a transaction, each statement commits by itself: the claim outlives its transaction, and is given back.
    let begin = sqlx::query_scalar("SELECT fence FROM onceward.claim('charge', $1)").bind(invoice);
    let fence: Uuid = begin.fetch_one(&mut *client).await?;
    let release = sqlx::query("SELECT onceward.release('charge', $1, $2)").bind(invoice).bind(fence);
    release.execute(&mut *client).await?;
    let mut transaction = client.begin().await?;
    let insert = sqlx::query("INSERT INTO charge (invoice, cents) VALUES ($1, $2)").bind(invoice).bind(cents);
    insert.execute(&mut *transaction).await?;
    let finish = sqlx::query("SELECT onceward.finish('charge', $1, $2)").bind(invoice).bind(fence);
    match finish.execute(&mut *transaction).await {
        Ok(_) => transaction.commit().await.map(|()| "committed".to_owned()),
        Err(error) => Ok(sqlstate(&error).unwrap_or_else(|| error.to_string())),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [action, invoice, rest @ ..] = arguments.as_slice() else {
        return Err("usage: charge|rollback|stale INVOICE [CENTS]".into());
    };
    let cents = rest.first().map_or(Ok(1999), |cents| cents.parse())?;
    let mut client = PgConnection::connect(&std::env::var("DATABASE_URL")?).await?;
    match action.as_str() {
        "rollback" => println!("after the rollback: {}", roll_back(&mut client, invoice, cents).await?),
        "stale" => println!("refused: {}", finish_late(&mut client, invoice, cents).await?),
        _ => match charge_once(&mut client, invoice, cents).await? {
            (happened, receipt) if happened == "charged" => println!("charged: {}", String::from_utf8_lossy(&receipt)),
            (happened, receipt) if happened == "replay" => println!("replayed: {}", String::from_utf8_lossy(&receipt)),
            (happened, _) => println!("not charged: {happened}"),
        },
    }
    client.close().await?;
    Ok(())
}
