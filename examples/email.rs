//! A daily digest by email: one for each user and day, however often the scheduler fires. The mail server does not honour keys,
//! so an unknown outcome is held until a person settles it.
//!
//! `cargo run -p onceward --example email`

// An example talks to its reader.
#![allow(clippy::print_stdout)]

use std::sync::atomic::{AtomicU32, Ordering};

use onceward::recipe::{Definition, Recipe};
use onceward::{Error, Failure, Ledger, Outcome, Resolution, Resolved, Tier};
use serde_json::json;

static SENT: AtomicU32 = AtomicU32::new(0);

async fn send(subject: &str, answer_is_lost: bool) -> Result<String, Failure> {
    SENT.fetch_add(1, Ordering::SeqCst);
    if answer_is_lost { Err(Failure::unknown("connection lost after DATA")) } else { Ok(format!("queued: {subject}")) }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The same email: the same user, template and day in the user's zone. The subject may differ.
    let definition: Definition = serde_json::from_value(json!({
        "key": ["/user", "/template"],
        "normalise": ["trim", "case"],
        "window": { "of": "/scheduled_at", "every": "day", "zone": "Europe/Berlin" },
    }))?;
    let ledger = Ledger::builder().recipe("send_digest", Recipe::new(definition)?).open("memory:").await?;
    let digest = async |user: &str, at: &str, subject: &'static str, answer_is_lost: bool| {
        let intent = json!({ "user": user, "template": "digest", "scheduled_at": at, "subject": subject });
        let call = ledger.operation("send_digest").tier(Tier::Email).intent(&intent);
        (call.run(|_| send(subject, answer_is_lost)).await, call)
    };

    // Two schedulers overlap, an hour apart, with different subjects: one email.
    let (first, _) = digest("Ana", "2026-11-15T08:00:00+01:00", "Your day", false).await;
    let (second, _) = digest(" ana", "2026-11-15T09:00:00+01:00", "What is new today", false).await;
    assert!(!first?.replayed && second?.replayed);
    println!("two schedulers, one email: {} sent", SENT.load(Ordering::SeqCst));
    // The next day is another intent.
    let (tomorrow, _) = digest("Ana", "2026-11-16T08:00:00+01:00", "Your day", false).await;
    assert!(!tomorrow?.replayed);

    // An answer is lost, so it is unknown whether the email was sent. A repeat does not guess.
    let (lost, call) = digest("Ben", "2026-11-15T08:00:00+01:00", "Your day", true).await;
    println!("an answer is lost: {}", lost.err().ok_or("the answer should be lost")?);
    let (repeat, _) = digest("Ben", "2026-11-15T08:30:00+01:00", "Your day", false).await;
    match repeat {
        Err(error @ Error::InDoubt { .. }) => println!("a repeat is held:  {error}"),
        other => return Err(format!("expected a hold, got {other:?}").into()),
    }
    // A person looks into the mail server's log and settles it.
    let intent = call.get().await?.ok_or("the intent is in the ledger")?;
    let identity = call.call()?.identity;
    let found = Resolution::Happened(Outcome::success(r#""found in the log of the mail server""#));
    let settled = ledger.resolve(&identity, intent.seen.record.version, found, Some("ops"), None).await?;
    assert_eq!(settled, Resolved::Settled);
    let (after, _) = digest("Ben", "2026-11-15T09:00:00+01:00", "Your day", false).await;
    println!("settled:           {}", after?.value);
    assert_eq!(SENT.load(Ordering::SeqCst), 3);
    Ok(())
}
