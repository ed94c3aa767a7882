//! Onceward makes side effects happen once.
//!
//! Agents and API clients retry, crash, resume and repeat themselves. Onceward records the intent before the work, lets
//! exactly one caller do the work, keeps the outcome, and gives every repeat that outcome.
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
//! Exactly once where the effect commits in the same PostgreSQL transaction as the record (`store::postgres::begin`, feature
//! `postgres`); effectively once where the downstream honours the key that is passed on ([`Claim::downstream_key`]); otherwise
//! at most once ([`InDoubt::Hold`]) or at least once ([`InDoubt::Retry`]), as the policy says. Unknown outcomes are always
//! reported. No system can promise more.
//!
//! # Layout
//!
//! - [`Ledger`]: the front. A call is built ([`CallBuilder`]), started ([`Ledger::start`]), owned ([`Guard`]) and ended.
//! - [`policy`], [`recipe`], [`outcome`], [`class`]: what is configured, and what is kept.
//! - [`retry`], [`breaker`]: when a failed attempt is made again, and when a downstream is left alone.
//! - [`blocking`]: the same for code without async.
//! - [`courier`]: delivers what is queued.
//! - [`breakers`]: what couriers may not call, and what people have paused.
//! - [`remote`]: claims whose owners are in another process. [`pull`]: batches of queued entries for them.
//! - [`copy`]: moves a whole ledger to another store. [`placement`], [`every_store`]: several stores under one ledger.
//! - [`fork`]: for programs that fork.
//! - [`store`]: the back-ends under the ledger, and the trait that they implement. [`record`], [`name`], [`time`]: what they
//!   store. [`clock`]: the time of stores in this process.
//! - `http` (feature): which HTTP requests are the same, what is kept of a response, and what a repeat gets.
//! - `layer` (feature `http`): a Tower layer for axum, tonic and others. With the feature `axum`, handlers take a [`Claim`].
//! - `conformance` (feature): the suite that every store passes.
//! - `testkit` (feature): tests whether the effects of your own tools happen once.
//!
//! The transition function itself, and everything else that is pure, is the crate `onceward-core`.

/// The guide, so that its examples are run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/rust.md")]
struct Guide;

/// The page of strategies, so that its examples are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/strategies.md")]
struct Strategies;

pub mod blocking;
pub mod breaker;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod courier;
mod error;
mod evidence;
pub mod fork;
#[cfg(feature = "http")]
pub mod http;
mod kept_answer;
#[cfg(feature = "http")]
pub mod layer;
mod ledger;
#[doc(hidden)]
pub mod plant;
pub mod retry;
#[doc(hidden)]
pub mod step;
pub mod store;
mod store_url;
#[cfg(feature = "testkit")]
pub mod testkit;

/// All of `onceward-core`, for the other crates of this workspace. Users depend on `onceward-core` itself.
#[doc(hidden)]
pub use onceward_core as core;
pub use onceward_core::claim::ClaimId;
pub use onceward_core::decide::{Acquired, Again, Decision, Refusal, Resolution};
pub use onceward_core::outcome::Outcome;
pub use onceward_core::policy::{InDoubt, OnError, Policy, Tier};
pub use onceward_core::recipe::Recipe;
pub use onceward_core::{class, name, outcome, policy, recipe, record, time};

pub use error::{Error, Failure, Invalid, RESERVED};
pub use ledger::{
    AttemptFailure, Begun, Builder, Call, CallBuilder, Claim, Delivery, Done, EnqueueOptions, Enqueued, Guard, Intent,
    Ledger, OnRunning, Resolved, Resolver, StartOptions, Started, Stats, TakenEntry, Taking, WriteResult, breakers,
    copy, every_store, placement, pull, remote,
};
pub use store_url::{StoreUrl, shown as shown_store};
