//! The pure heart of Onceward.
//!
//! Nothing in this crate reads a clock, draws a random number, or touches a file or a socket: time and
//! randomness come in as arguments. So every rule can be tested, modelled and replayed exactly.
//!
//! # Layout
//!
//! - [`hash`]: SHA-256 over length-prefixed fields.
//! - [`name`]: tenant, operation, session and key, checked once at the border.
//! - [`stream`]: numbered items that are done one after another, and where their records are.
//! - [`json`]: strict JSON and its canonical text.
//! - [`key`]: deriving a key from an intent.
//! - [`looks`]: keys that look like personal data or like the time of a call.
//! - [`fingerprint`]: the hash of the request that came with a key.
//! - [`recipe`]: which fields of an intent are its identity and which must merely agree.
//! - [`duration`]: `30d`, `90s`, `100ms` as people write them.
//! - [`time`]: points in time, as a store's clock says them.
//! - [`outcome`]: what is kept and replayed.
//! - [`class`]: classes of failure, and what each one does to a claim.
//! - [`evidence`]: what in an error suggests that the attempt may have happened.
//! - [`policy`]: tiers, retention, what happens in doubt; the terms that govern a record.
//! - [`record`]: the record of one intent.
//! - [`claim`]: what a record remembers of earlier requests, so that they can be repeated.
//! - [`decide`]: the one transition function.

pub mod claim;
pub mod class;
pub mod decide;
pub mod duration;
pub mod evidence;
pub mod fingerprint;
pub mod hash;
pub mod json;
pub mod key;
pub mod looks;
pub mod name;
pub mod outcome;
#[doc(hidden)]
pub mod plant;
pub mod policy;
pub mod recipe;
pub mod record;
pub mod stream;
pub mod time;
