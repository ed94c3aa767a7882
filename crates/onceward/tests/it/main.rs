//! The library against real stores.

mod stores;
