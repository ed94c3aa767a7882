//! The pure core of Onceward.
//!
//! No code here reads a clock, draws a random number, or touches a file or a socket: time and randomness come in as
//! arguments. So every rule can be tested, modelled and replayed exactly.
//!
//! # Layout
//!
//! - [`hash`]: SHA-256 over length-prefixed fields.
//! - [`name`]: tenant, operation, session and key, checked when they are made.
//! - [`stream`]: numbered items that are done one after another, and the identities of their records.
//! - [`json`]: strict JSON and its canonical text.
//! - [`key`]: deriving a key from an intent.
//! - [`key_content`]: recognises personal data and timestamps in keys.
//! - [`fingerprint`]: the hash of the request that came with a key.
//! - [`recipe`]: which fields of an intent are its identity, and which must agree.
//! - [`identify`]: key, key digest and fingerprint of a call, from whatever the caller gave.
//! - [`duration`]: `30d`, `90s`, `100ms` as people write them.
//! - [`time`]: points in time, by a store's clock.
//! - [`outcome`]: what is kept and replayed.
//! - [`class`]: classes of failure, and what each one does to a claim.
//! - [`evidence`]: what in an error suggests that the attempt may have happened.
//! - [`outbox`]: what a record holds besides if the courier delivers it.
//! - [`retry`]: when a failed attempt is made again, and when it is not.
//! - [`breaker`]: stops calls to a downstream that fails.
//! - [`policy`]: tiers, retention, what happens in doubt; the terms that govern a record.
//! - [`record`]: the record of one intent.
//! - [`rerun`]: a deliberate new run of an entry that is done.
//! - [`claim`]: ids of earlier requests that a record remembers, so that they can be repeated.
//! - [`decide`]: the transition function.

pub mod breaker;
pub mod claim;
pub mod class;
pub mod decide;
pub mod duration;
pub mod evidence;
pub mod fingerprint;
pub mod hash;
pub mod identify;
pub mod json;
pub mod key;
pub mod key_content;
pub mod name;
pub mod outbox;
pub mod outcome;
pub mod policy;
pub mod recipe;
pub mod record;
pub mod rerun;
pub mod retry;
pub mod stream;
pub mod time;
