//! Runs the real binary in temporary folders, as a user or a cron job would.

// Clippy lets only test functions panic; their helpers fail a test in the same way.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, clippy::print_stdout)]

mod api;
mod bench;
mod bench_http;
mod bench_mcp;
mod bench_redis;
mod config;
mod copy;
mod demo;
mod gateway;
mod http_cases;
mod key;
mod killed_while_opening;
mod ledger_mode;
mod list_get_resolve;
mod mcp_inspect;
mod mcp_inspect_all;
mod mcp_install;
mod outbox;
mod processes;
mod providers;
mod reference;
mod rerun;
mod restored;
mod run;
mod run_process;
mod run_races;
mod sql_sink;
mod stores;
mod test_folder;
