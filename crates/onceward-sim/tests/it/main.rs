//! The harness as it is run, and the tidy test over the whole workspace.

// A test says what it expects by failing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod crash;
mod plants;
mod schedules;
mod tidy;
