//! Onceward makes side effects happen once.
//!
//! Agents and API clients retry, crash, resume and repeat themselves. Onceward records the intent before the
//! work, lets exactly one caller do it, keeps the outcome, and gives every repeat that outcome.
//!
//! ```
//! use onceward::{Claim, Failure, Ledger};
//! # use serde::{Deserialize, Serialize};
//! # #[derive(Serialize, Deserialize, PartialEq, Debug)] struct Receipt { id: String }
//! # #[derive(Serialize)] struct Charge { customer: &'static str, invoice: u32, cents: u64 }
//! # struct Provider;
//! # impl Provider { async fn charge(&self, _: &Charge, _key: &str) -> Result<Receipt, std::io::Error> { Ok(Receipt { id: "ch_1".into() }) } }
//! # static PROVIDER: Provider = Provider;
//!
//! async fn charge_card(charge: &Charge, claim: Claim) -> Result<Receipt, Failure> {
//!     Ok(PROVIDER.charge(charge, claim.downstream_key()).await?)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onceward::Error> {
//! let ledger = Ledger::open("memory:").await?; // or a file, which survives a crash
//! let charge = Charge { customer: "cus_7", invoice: 42, cents: 1999 };
//! for attempt in 1..=3 {
//!     let call = ledger.operation("charge_payment").tenant("acme").intent(&charge);
//!     let done = call.run(|claim| charge_card(&charge, claim)).await?;
//!     assert_eq!(done.value.id, "ch_1");
//!     assert_eq!(done.replayed, attempt > 1); // the card was charged once
//! }
//! # Ok(()) }
//! ```
//!
//! # What is promised
//!
//! Exactly once where the effect commits in the same transaction as the record, which no store of this version can do
//! yet; effectively once where the other side honours the key that is passed on ([`Claim::downstream_key`]); otherwise
//! at most once ([`InDoubt::Hold`]) or at least once ([`InDoubt::Retry`]), as the policy says. Every doubt is shown.
//! Nobody can promise more.
//!
//! # Layout
//!
//! - [`Ledger`]: the front. `ledger/` holds one idea a file: opening, calls, claims, running, waiting, settling.
//! - [`store`]: the back-ends under it, and the trait that they implement.
//! - [`blocking`]: the same for code without async.
//! - [`clock`]: where stores in this process get their time from.
//! - [`core`]: the pure part: keys, recipes, records, policies, and the transition function that decides.
//! - `http` (feature): what makes two HTTP requests the same, what is kept of an answer, what a repeat is told.
//! - `layer` (feature `http`): a Tower layer for axum, tonic and others. With the feature `axum`, handlers take a [`Claim`].
//! - `conformance` (feature): the suite that every store passes.
//! - `testkit` (feature): tests whether the effects of your own tools happen once.

/// The page of strategies, so that its examples are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/strategies.md")]
struct Strategies;

pub mod blocking;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod evidence;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "http")]
pub mod layer;
mod ledger;
#[doc(hidden)]
pub mod step;
pub mod store;
#[cfg(feature = "testkit")]
pub mod testkit;

pub use onceward_core as core;
pub use onceward_core::outcome::Outcome;
pub use onceward_core::policy::{InDoubt, OnError, Policy, Tier};

pub use error::{Error, Failure, Invalid};
pub use ledger::{
    Begun, Builder, Call, Claim, Delivery, Done, Grant, Granted, Guard, Held, Holder, Intent, Ledger, Operation, Reach,
    Resolved, Stats, Who,
};
