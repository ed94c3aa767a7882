//! HTTP semantics: what makes two requests the same, what is kept of an answer, and what a repeat is told. The gateway and
//! the Tower layer are both built on this, so that they answer alike.
//!
//! - [`key`]: the key that a client sends. [`key_format`]: what a route wants of it.
//! - [`fingerprint`]: what must agree when a key comes again.
//! - [`profile`]: what the protocols want that differ.
//! - [`grpc`]: what differs there, and [`dialect`]: who speaks it.
//! - [`verdict`]: what an answer says about the effect.
//! - [`kept`]: answers as outcomes, and back.
//! - [`body`]: reading with a limit, and streaming while keeping. [`room`]: the memory that all requests share.
//! - [`problem`]: everything that we say ourselves. [`kind`]: the kinds of problems.
//! - [`tenant`]: whose request it is. [`identity`]: headers that tell callers apart besides.
//! - [`rules`]: what is configured for a route.
//! - [`mod@exchange`]: one guarded request, in a straight line. `streamed`: its answer, handed over while it is kept.
//!   `handed`: whether all of it was taken. `spelling`: keys that are written in two ways. [`cut_off`]: answers that stop in the middle.

pub mod body;
pub mod cut_off;
pub mod dialect;
pub mod exchange;
pub mod fingerprint;
pub mod grpc;
mod handed;
pub mod identity;
pub mod kept;
pub mod key;
pub mod key_format;
pub mod kind;
pub mod paths;
pub mod problem;
pub mod profile;
pub mod room;
pub mod rules;
mod spelling;
mod streamed;
pub mod tenant;
pub mod verdict;

pub use body::Body;
pub use dialect::Dialect;
pub use exchange::{NoAnswer, Received, exchange};
pub use key_format::KeyFormat;
pub use problem::{Kind, Problem};
pub use profile::Profile;
pub use rules::{KeyFrom, KeyMode, Rules};
