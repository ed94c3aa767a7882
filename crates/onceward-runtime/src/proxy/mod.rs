//! Proxying to an upstream: which route a request takes, which tenant it belongs to, and the connections to upstreams.
//!
//! - `route`: which requests go where. `configured`: routes as `onceward.toml` has them.
//! - `tenant`: which tenant a request belongs to; `jwt` and `whoami` verify credentials for it.
//! - `upstream`: sends a request to an upstream. `failure`: classifies upstream failures. `trust`: CA certificates of upstreams.
//! - `headers`: hop-by-hop headers. `tunnel`: connections that switch to another protocol.

mod configured;
pub(crate) mod failure;
pub mod headers;
mod jwt;
mod route;
mod tenant;
pub(crate) mod trust;
mod tunnel;
mod upstream;
mod whoami;

pub use route::{Route, Routes, unreachable_route};
pub use tenant::{CREDENTIALS, Tenant};
pub use tunnel::{Tunnels, UpgradeRequest};
pub use upstream::{Upstreams, address, boxed, is_h2c, streamed};
