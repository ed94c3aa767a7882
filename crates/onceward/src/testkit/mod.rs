//! A kit for testing your own tools: does the charge happen once, however often the tool is called and wherever the process
//! dies? One line for each tool:
//!
//! ```
//! use onceward::testkit::{self, Provider, Receipt};
//! use onceward::{Error, Failure, Ledger};
//!
//! // The tool. In production, `Provider` is your client of the payment provider.
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
//! The kit calls the tool repeatedly and concurrently, with a provider whose response is lost or that refuses, with callers
//! that give up, and with processes that die at every step: before and after each write of the ledger and each effect. After a
//! process has died and its lease has lapsed, a new process repeats the call. Each scenario has its own store: one in memory,
//! or [any other](Check::on_store). [`Report`] says how often the effect happened in each scenario, and for each failure the
//! cause and how to fix it.
//!
//! # What a tool needs
//!
//! The tool takes its ledger and its provider from the [`TestBench`], and each call is the same intent. [`Provider`] counts
//! effects; your own test double can report them with [`Provider::happened`]. The result may have any type; errors need a text.
//!
//! # What it cannot show
//!
//! - That your real provider behaves like the stand-in.
//! - Effects that do not go through the bench.
//! - Keys that change more slowly than the [pause](Check::pause) between repeats.
//! - Races between threads inside the tool: concurrent calls interleave only where they wait.
//!
//! Do not run it with tokio's paused clock: calls would time out at once.
//!
//! # Layout
//!
//! - `check`, `tools`: check one tool or several. `scenario`, `step`: the scenarios. `runner`: runs one scenario.
//! - `bench`, `provider`, `test_store`: what a tool works with.
//! - `process`: a simulated process that can be stopped. `recording_store`: the store that it sees. `scenario_log`: what it did.
//! - `call_result`, `verdict`, `cause`: how calls and scenarios ended, and why. `report`, `report_text`: the report.

mod bench;
mod call_result;
mod cause;
mod check;
mod process;
pub mod provider;
mod recording_store;
mod report;
mod report_text;
mod runner;
mod scenario;
mod scenario_log;
mod step;
mod test_store;
mod tools;
mod verdict;

pub use bench::TestBench;
pub use call_result::CallResult;
pub use cause::Cause;
pub use check::{Check, check};
pub use provider::{Provider, Receipt};
pub use report::{Report, ScenarioReport};
pub use scenario::{Scenario, ScenarioKind};
pub use step::{Side, Step, StepKind};
pub use test_store::TestStore;
pub use tools::{Reports, Tools, tools};
pub use verdict::Verdict;
