//! The gateway as a process: edge cases that the table of requests and responses cannot express.
//!
//! - `test_gateway`: a gateway in its own folder. `upstream`: its upstream.
//! - `slow_readers`: clients that do not read. `ready`: readiness.
//! - `refused_streams`: HTTP/2 streams that the upstream closes. `trailers`: trailers of requests.
//! - `token`: the gateway's own token. `hosts`: the host check.
//! - `separators`: encoded slashes in paths. `cut_off`: responses that end with their connection.
//! - `key_format`: the key format of a route. `whoami`: upstreams that name the tenant.
//! - `tenant_names`: how tenants that are derived from credentials are named.
//! - `settle_doubt`: settling a doubt by hand. `forwarded`: forwarding headers of proxies in front of the gateway.

mod cut_off;
mod forwarded;
mod hosts;
mod key_format;
mod ready;
mod refused_streams;
mod separators;
mod settle_doubt;
mod slow_readers;
mod tenant_names;
mod test_gateway;
mod token;
mod trailers;
mod upstream;
mod whoami;
