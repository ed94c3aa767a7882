//! The harnesses as they are run, and the tidy test over the whole workspace.

// A test says what it expects by failing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod crash;
mod disk;
mod gateway;
mod kills;
mod plants;
mod power;
mod proof;
mod schedules;
mod tidy;
mod turns;
