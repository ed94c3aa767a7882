//! The real binary, started in temporary folders, as a person or a cron job starts it.

#![allow(clippy::unwrap_used)] // helpers of tests, which may panic like the tests themselves

mod config;
mod key;
mod list_get_resolve;
mod place;
mod reference;
mod run;
mod run_process;
mod run_races;
