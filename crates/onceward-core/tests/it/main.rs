//! Runs the shared vectors in `spec/vectors` against this implementation.

// Clippy lets only test functions panic; their helpers fail a test in the same way.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod archive_rules;
mod breaker_rules;
mod decide_rules;
mod decide_vectors;
mod error_vectors;
mod properties;
mod recipe_properties;
mod retry_properties;
mod retry_simulation;
mod retry_vectors;
mod tree;
mod vectors;
mod window_properties;
mod wire;
