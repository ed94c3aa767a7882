//! A command as a guarded effect.
//!
//! - `child`: the process: started, sent signals, waited for.
//! - `capture`: its output, passed on live and kept. `frame`: both streams as one body. `replay`: shown again.
//! - `guarded`: the claim around it. `settle`: what its end means for the claim. `late`: an outcome
//!   that could not be recorded in time.
//! - `report`: what is said about it, to people and on `--status-fd`.

mod capture;
mod child;
mod frame;
mod guarded;
mod late;
mod replay;
mod report;
mod settle;

pub(crate) use frame::{CONTENT_TYPE, Stream, decode, encode};
pub(crate) use guarded::{Job, guarded};
pub(crate) use report::StatusFd;
