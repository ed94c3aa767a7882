//! A command as a guarded effect.
//!
//! - `child`: the process: starts it, forwards signals, waits for it.
//! - `capture`: its output, forwarded live and kept. `replay`: prints a stored outcome.
//! - `guarded`: the claim around the command. `late`: waits for an outcome that could not be recorded at once.
//! - `report`: the report on stderr and on `--status-fd`.

mod capture;
mod child;
mod guarded;
mod late;
mod replay;
mod report;

pub(crate) use guarded::{Job, guarded};
pub(crate) use onceward_runtime::process::output_frame::{CONTENT_TYPE, Stream, decode, encode};
pub(crate) use report::StatusFd;
