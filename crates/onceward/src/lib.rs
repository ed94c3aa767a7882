//! Onceward.
