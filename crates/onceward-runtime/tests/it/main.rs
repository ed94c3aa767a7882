//! Tests of the runtime with real sockets.

// Clippy lets only test functions panic; what they share fails a test in the same way.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod egress;
