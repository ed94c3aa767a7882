//! Runs the harnesses as they are run by hand, and the tidy test over the whole workspace.

// A test says what it expects by failing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod command;
mod crash;
mod disk;
mod fairness;
mod gateway;
mod kills;
mod plants;
mod power;
mod product;
mod proof;
mod schedules;
mod servers;
mod tidy;

// For the writer's queue, whose source `schedules` compiles.
use onceward::plant;
