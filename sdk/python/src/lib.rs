//! The native module of the Python package `onceward`. Keys, policies and decisions are those of the library; what Python adds
//! (signatures, annotations, exceptions) is written in Python, in `python/onceward/`.
//!
//! In the order in which a call passes them:
//! - `ledger`: opens a store, and opens it again after a fork.
//! - `operation`: from Python's arguments to a `Call`, and its start.
//! - `value`: a Python value as JSON that has one canonical form.
//! - `process`: forks and the end of the interpreter.
//! - `runtime`: waits for a future, on a thread or in an event loop.
//! - `completions`: hands results to event loops.
//! - `claim`: the right to do the work, and how it ended.
//! - `outbox`: queues an intent for a courier.
//! - `courier`: delivers entries to Python functions.
//! - `entry`: what identifies an entry that SQL queues.
//! - `stored`: the outcome that a repeat gets.
//! - `http`: guards the requests of an ASGI app.
//! - `remote`: the same for a ledger behind HTTP.
//! - `retry`: the rules of retries, for HTTP clients.
//! - `error`: the exceptions.
//! - `log`: messages of the library for Python's `logging`.
//! - `vectors`: what the test vectors need.

mod caller;
mod claim;
mod completions;
mod courier;
mod entry;
mod error;
mod http;
mod ledger;
mod log;
mod operation;
mod outbox;
mod process;
mod remote;
mod retry;
mod runtime;
mod stored;
mod value;
mod vectors;

use pyo3::prelude::*;

/// The native part of `onceward`.
#[pymodule]
mod _native {
    use super::*;

    #[pymodule_export]
    use super::caller::{caller_digest, tenant_with_headers};
    #[pymodule_export]
    use super::claim::NativeClaim;
    #[pymodule_export]
    use super::courier::{NativeCourier, NativeDelivery};
    #[pymodule_export]
    use super::entry::sql_entry;
    #[pymodule_export]
    use super::http::{NativeHttpCall, NativeHttpClaim, NativeHttpExchange, NativeHttpGuard, NativeHttpResponse};
    #[pymodule_export]
    use super::ledger::{NativeLedger, shown_store};
    #[pymodule_export]
    use super::log::{wait_for_messages, waiting_messages};
    #[pymodule_export]
    use super::operation::NativeOperation;
    #[pymodule_export]
    use super::process::{after_fork_in_child, after_fork_in_parent, before_fork, is_first_import};
    #[pymodule_export]
    use super::retry::{NativeBackoff, NativeBudget, duration_seconds, judge_response};
    #[pymodule_export]
    use super::runtime::shut_down;
    #[pymodule_export]
    use super::stored::Stored;
    #[pymodule_export]
    use super::vectors::{
        apply_recipe, canonical, derived_key, downstream_key, evidence, evidence_in_text, identity_digest,
        is_lost_exit_code,
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        process::check_interpreter()?;
        log::begin();
        process::watch_forks();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
