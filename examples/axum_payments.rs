//! A payments API on axum whose clients can retry freely: `cargo run -p onceward --example axum_payments -- 127.0.0.1:3000`
// An example talks to its reader.
#![allow(clippy::print_stdout)]

use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
use onceward::layer::IdempotencyLayer;
use onceward::{Claim, Ledger, Tier};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Charge {
    customer: String,
    cents: u64,
}

#[derive(Serialize)]
struct Receipt {
    id: String,
    cents: u64,
}

/// Stands in for a provider. A real one gets the key in a header, and remembers it too.
async fn charge_card(charge: &Charge, idempotency_key: &str) -> Receipt {
    println!("charging {} {} cents, under {idempotency_key}", charge.customer, charge.cents);
    Receipt { id: format!("ch_{}", &idempotency_key[idempotency_key.len() - 8..]), cents: charge.cents }
}

async fn charges(
    State(limit): State<u64>,
    claim: Claim,
    Json(charge): Json<Charge>,
) -> Result<Json<Receipt>, StatusCode> {
    if charge.cents > limit {
        return Err(StatusCode::PAYMENT_REQUIRED); // final: a retry is told the same, and nothing runs
    }
    Ok(Json(charge_card(&charge, claim.downstream_key()).await))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(address) = std::env::args().nth(1) else {
        println!("usage: axum_payments ADDRESS");
        return Ok(());
    };
    let ledger = Ledger::open(std::env::temp_dir().join("payments.db")).await?;
    let once = IdempotencyLayer::new(ledger).tier(Tier::Payment).honours_key(true);
    let app = Router::new().route("/charges", post(charges)).with_state(1_000_000).layer(once);
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}
