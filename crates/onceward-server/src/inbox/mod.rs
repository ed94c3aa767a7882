//! The inbox: webhooks that providers send to us.
//!
//! - `signature`: whether a webhook is genuine, and which event it is.

pub mod signature;
