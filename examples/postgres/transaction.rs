//! Charges an invoice once inside a `tokio_postgres` transaction: the row and the record of it commit together.
//!
//! `DATABASE_URL=postgres://… cargo run -p onceward --features postgres --example postgres_transaction -- charge invoice-42`

// An example talks to its reader.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use onceward::core::decide::Decision;
use onceward::core::outcome::{Body, Outcome};
use onceward::store::postgres::{InTransaction, begin};
use onceward::{Call, Ledger, Tier};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls, Transaction};

type Failed = Box<dyn std::error::Error>;

/// Longer than a transaction should be open, in all.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(250);

/// What became of a charge.
enum Happened {
    Charged(String),
    Answered(Decision),
    Lapsed,
}

/// Charges inside the caller's transaction.
async fn charge(transaction: &Transaction<'_>, call: &Call, invoice: &str, cents: i64) -> Result<Happened, Failed> {
    match begin(transaction, call).await? {
        InTransaction::Acquired(claim) => {
            let receipt = format!(r#"{{"receipt":"{invoice}/{cents}"}}"#);
            let insert = "INSERT INTO charge (invoice, cents) VALUES ($1, $2)";
            transaction.execute(insert, &[&invoice, &cents]).await?;
            claim.finish(transaction, &Outcome::success(receipt.clone())).await?;
            Ok(Happened::Charged(receipt))
        }
        InTransaction::Answered(decision) => Ok(Happened::Answered(decision)),
        InTransaction::Lapsed => Ok(Happened::Lapsed),
    }
}

/// Runs the transaction again where PostgreSQL aborted it to resolve a conflict, or another one has the invoice now.
async fn charge_once(client: &mut Client, call: &Call, invoice: &str, cents: i64) -> Result<Happened, Failed> {
    for _ in 0..TRIES {
        match try_charge(client, call, invoice, cents).await {
            Ok(Happened::Answered(Decision::InFlight { .. })) => {}
            Err(error) if is_conflict(error.as_ref()) => {}
            ended => return ended,
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(format!("{invoice} is still in flight").into())
}

/// One transaction. It is rolled back where it is dropped without a commit.
async fn try_charge(client: &mut Client, call: &Call, invoice: &str, cents: i64) -> Result<Happened, Failed> {
    let transaction = client.transaction().await?;
    let happened = charge(&transaction, call, invoice, cents).await?;
    transaction.commit().await?;
    Ok(happened)
}

/// Whether PostgreSQL aborted the transaction so that others could go on: it may simply run again.
fn is_conflict(error: &(dyn std::error::Error + 'static)) -> bool {
    match error.downcast_ref::<tokio_postgres::Error>() {
        Some(error) => {
            matches!(error.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED))
        }
        // An error of `begin`, `finish` or `release`.
        None => matches!(error.downcast_ref(), Some(onceward::store::Error::Conflict(_))),
    }
}

/// A transaction that rolls back leaves neither the row nor the record.
async fn roll_back(client: &mut Client, call: &Call, invoice: &str, cents: i64) -> Result<String, Failed> {
    let transaction = client.transaction().await?;
    charge(&transaction, call, invoice, cents).await?;
    transaction.rollback().await?;
    let row = client.query_one("SELECT decision FROM onceward.status('charge', $1)", &[&invoice]).await?;
    Ok(row.try_get(0)?)
}

/// A claim that is not valid any more cannot be finished, and what was written beside it cannot commit.
async fn finish_late(client: &mut Client, call: &Call, invoice: &str, cents: i64) -> Result<String, Failed> {
    // Outside of a transaction, each call commits by itself: the claim outlives its transaction, and is given back.
    let InTransaction::Acquired(claim) = begin(client, call).await? else {
        return Err("the invoice has another owner".into());
    };
    let release =
        "SELECT onceward.release(operation, key, fence) FROM onceward.intent WHERE operation = 'charge' AND key = $1";
    client.execute(release, &[&invoice]).await?;
    let transaction = client.transaction().await?;
    transaction.execute("INSERT INTO charge (invoice, cents) VALUES ($1, $2)", &[&invoice, &cents]).await?;
    match claim.finish(&transaction, &Outcome::success("{}")).await {
        Ok(()) => Ok("committed".to_owned()),
        Err(error) => Ok(error.to_string()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let Ok(url) = std::env::var("DATABASE_URL") else {
        println!("set DATABASE_URL to a database in which `onceward migrate` and examples/postgres/shop.sql have run");
        return Ok(());
    };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let action = arguments.first().map_or("charge", String::as_str);
    let invoice = arguments.get(1).map_or("invoice-42", String::as_str);
    let cents = arguments.get(2).map_or(Ok(1999), |cents| cents.parse())?;

    let ledger = Ledger::open(url.as_str()).await?;
    // The same invoice with another amount is a mismatch, and not a repeat.
    let call = ledger.operation("charge").key(invoice).tier(Tier::Payment).intent(&cents).call()?;
    let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    match action {
        "rollback" => println!("after the rollback: {}", roll_back(&mut client, &call, invoice, cents).await?),
        "stale" => println!("refused: {}", finish_late(&mut client, &call, invoice, cents).await?),
        _ => match charge_once(&mut client, &call, invoice, cents).await? {
            Happened::Charged(receipt) => println!("charged: {receipt}"),
            Happened::Answered(Decision::Replay { outcome: Outcome { body: Body::Kept(body), .. }, .. }) => {
                println!("replayed: {}", String::from_utf8_lossy(&body));
            }
            Happened::Answered(decision) => println!("not charged: {}", name(&decision)),
            Happened::Lapsed => println!("not charged: lapsed"),
        },
    }
    ledger.close().await;
    Ok(())
}

fn name(decision: &Decision) -> &'static str {
    match decision {
        Decision::Mismatch => "mismatch",
        Decision::InDoubt { .. } => "in_doubt",
        _ => "another owner or an older result",
    }
}
