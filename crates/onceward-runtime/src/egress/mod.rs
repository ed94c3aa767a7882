//! Outgoing requests to URLs that come from a configuration or a template. Nothing but permitted addresses is dialled, and the
//! result says exactly what is known about the effect.
//!
//! - `target`: reads a URL strictly. `address`: the network of an address. `rules`: what a sink may reach.
//! - `resolve`, `dial`, `trust`: from a name to a connection; the address that is dialled is the one that was checked.
//! - `dialer`: connections for protocols other than HTTP.
//! - `client`: sends a request. `request`: what a request may contain. `sent`: what is known afterwards.
//! - `pool`: the connections of one client. `http1`, `http2`: one exchange. `driver`: what both have in common.
//!
//! Requests go nowhere else: no proxy of the environment, no redirect, and no answer is decompressed.

mod address;
mod client;
mod dial;
mod dialer;
mod driver;
mod http1;
mod http2;
mod pool;
mod request;
mod resolve;
mod rules;
mod sent;
mod target;
mod trust;

pub use address::Network;
pub use client::{Client, Limits, Settings};
pub use dialer::Dialer;
pub use request::Request;
pub use resolve::{Resolve, Resolving, SystemResolver};
pub use rules::{AddressRules, AllowedHosts, Refusal};
pub use sent::{Lost, NotSent, Response, Sent, Unknown};
pub use target::{Host, Target, UrlFault};
pub use trust::Trust;
