//! When a failed attempt is made again, and when it is not. Nothing here reads a clock, draws a random number or waits: the
//! caller passes in the time and the random bits, and does the waiting.
//!
//! - [`http_status`]: what a response says about the effect, and about the health of the downstream.
//! - [`retry_after`]: how long the downstream asks to wait. [`http_date`]: the dates in its headers.
//! - [`backoff`]: how long to wait, and when to stop.
//! - [`budget`]: how many retries a dependency gets, however many entries wait.
//!
//! Vectors: `spec/vectors/retry.json`.

pub mod backoff;
pub mod budget;
pub mod http_date;
pub mod http_status;
pub mod retry_after;
