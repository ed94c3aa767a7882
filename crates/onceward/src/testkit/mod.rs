//! A kit for testing your own tools: does the charge happen once, however often it is called, and wherever the process
//! dies? One line for each tool:
//!
//! ```
//! use onceward::testkit::{self, Provider, Receipt};
//! use onceward::{Error, Failure, Ledger};
//!
//! // The tool. In earnest, `Provider` is your client of the payment provider.
//! async fn charge(ledger: Ledger, provider: Provider, invoice: u32) -> Result<Receipt, Error> {
//!     let call = ledger.operation("charge_payment").intent(&invoice);
//!     let done = call.run(|_claim| async { provider.act("charge").await.map_err(Failure::unknown) }).await?;
//!     Ok(done.value)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! testkit::check("charge_payment", |bench| charge(bench.ledger(), bench.provider(), 42)).await.assert_once();
//! # }
//! ```
//!
//! The kit calls the tool several times in a row and at once, with a provider that acts and loses its answer or refuses,
//! with callers that give up and processes that die at every step: before and after each write of the ledger and each
//! effect. A process that died is replaced by a new one, after its lease has lapsed, and the call is repeated. Each
//! scenario has a store of its own: one in memory, or [any other](Check::on_store). [`Report`] says how often the effect
//! happened in each, and for what went wrong, why and what to do.
//!
//! # What a tool needs
//!
//! It takes its ledger and its provider from the [`Bench`], and each call means the same intent. [`Provider`] counts; a
//! double of your own can count with [`Provider::happened`]. The result may be of any type; errors need a text.
//!
//! # What it cannot show
//!
//! That your real provider behaves like the stand-in; effects that do not go through the bench; keys that change more
//! slowly than the [pause](Check::pause) between repeats; races between threads inside the tool, since calls at once
//! overlap where they wait. Do not run it under tokio's paused clock: patience would be over at once.
//!
//! # Layout
//!
//! - `check`, `tools`: from tools to reports. `scenario`, `step`: what is tried. `stage`: how it is played.
//! - `bench`, `provider`, `place`: what a tool works with.
//! - `life`, `watched`: a process that can be stopped, and the store that it sees. `log`: what it did.
//! - `answer`, `verdict`, `cause`: what came of it, and why. `report`, `text`: all of it.

mod answer;
mod bench;
mod cause;
mod check;
mod life;
mod log;
mod place;
pub mod provider;
mod report;
mod scenario;
mod stage;
mod step;
mod text;
mod tools;
mod verdict;
mod watched;

pub use answer::Answer;
pub use bench::Bench;
pub use cause::Cause;
pub use check::{Check, check};
pub use place::Place;
pub use provider::{Provider, Receipt};
pub use report::{Line, Report};
pub use scenario::{Kind, Scenario};
pub use step::{Moment, Side, Step};
pub use tools::{Reports, Tools, tools};
pub use verdict::Verdict;
