//! HTTP semantics: which requests are the same, which part of a response is kept, and what a repeat gets. The gateway and the
//! Tower layer both use this module, so that they behave alike. The *upstream* is the server behind the gateway, or the
//! service inside the layer.
//!
//! - [`key`]: reads the key that a client sends. [`key_format`]: the format that a route requires of it.
//! - [`fingerprint`]: what must be equal when a key is used again.
//! - [`profile`]: the differences between idempotency protocols.
//! - [`grpc`]: gRPC statuses. [`dialect`]: whether a client speaks HTTP or gRPC.
//! - [`verdict`]: how a claim ends after a response.
//! - [`stored_response`]: responses as outcomes, and back.
//! - [`body`]: reading bodies within limits, and streaming them. [`body_memory`]: the memory budget that all requests share.
//! - [`problem`]: error responses. `problem_kind`: their names, statuses and texts.
//! - [`tenant`]: the tenant of a request. [`identity_headers`]: headers that identify callers in addition.
//! - [`paths`]: normalises paths.
//! - [`rules`]: the settings of a route.
//! - [`mod@exchange`]: one guarded request from start to end. `streaming`: streams its response while recording it.
//!   `delivery_watch`: whether the client took all of it. `spelling`: quoted and bare keys. [`truncation`]: detects truncated
//!   responses.

pub mod body;
pub mod body_memory;
mod delivery_watch;
pub mod dialect;
pub mod exchange;
pub mod fingerprint;
pub mod grpc;
pub mod identity_headers;
pub mod key;
pub mod key_format;
pub mod paths;
pub mod problem;
mod problem_kind;
pub mod profile;
pub mod rules;
mod spelling;
pub mod stored_response;
mod streaming;
pub mod tenant;
pub mod truncation;
pub mod verdict;

pub use body::Body;
pub use dialect::Dialect;
pub use exchange::{NoAnswer, Received, Unrecorded, exchange};
pub use key_format::KeyFormat;
pub use problem::{Kind, Problem};
pub use profile::Profile;
pub use rules::{KeyFrom, KeyMode, Rules};
