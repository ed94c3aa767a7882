//! The inbox: webhooks that providers send to us.
//!
//! - `receive`: verifies, records and answers.
//! - `signature`: whether a webhook is genuine, and which event it is.

pub mod receive;
pub mod signature;
