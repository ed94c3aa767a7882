//! The harness as it is run, and the tidy test over the whole workspace.

mod crash;
mod tidy;
