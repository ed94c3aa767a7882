//! The gateway as a process, at its edges: what a table of requests and answers cannot say.
//!
//! - `started`: the gateway in a folder of its own. `upstream`: the other side.
//! - `readers`: clients that do not read. `ready`: what it says about itself.
//! - `refused`: streams of HTTP/2 that the other side closes. `trailers`: what stands behind a request.
//! - `token`: the gateway's own token. `hosts`: names that it answers to.
//! - `separators`: encoded slashes in paths. `cut_off`: answers that end with their connection.
//! - `key_format`: what a route wants of keys. `whoami`: upstreams that say whose request it is.
//! - `named`: how tenants that are made from credentials are named.
//! - `settled`: from a doubt to an answer, by hand. `forwarded`: what proxies in front say of their clients.

mod cut_off;
mod forwarded;
mod hosts;
mod key_format;
mod named;
mod readers;
mod ready;
mod refused;
mod separators;
mod settled;
mod started;
mod token;
mod trailers;
mod upstream;
mod whoami;
