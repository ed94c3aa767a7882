//! Listeners and their parts: TLS, worker threads, time-outs, host checks, tokens and shutdown.

pub mod host_check;
pub mod listener;
pub mod protocol_timeout;
pub mod stop;
pub mod thread_per_core;
pub mod tls;
pub mod tokens;
