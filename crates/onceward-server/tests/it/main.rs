//! The binary as a user meets it.

// Clippy lets only test functions panic; their helpers fail a test in the same way.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod demo;
