//! `onceward serve`: the HTTP API, and whatever else is configured.

use std::net::SocketAddr;

use super::{Global, block_on_every_core};
use crate::exit::Fault;

/// Serve the HTTP API, and whatever else is configured
///
/// Prints one line for each listener, with the address that it really got. TERM or INT ends it: running requests may
/// finish first. Without tokens in the configuration, only loopback addresses are listened on.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  onceward serve --store onceward.db
  onceward serve --config onceward.toml --listen 127.0.0.1:0")]
pub(super) struct Serve {
    /// Where the API listens, as IP:PORT; port 0 takes a free one [default: 127.0.0.1:8787]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
}

impl Serve {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        if global.tenant_flag().is_some() {
            return Err(Fault::usage(
                "--tenant is not for `serve`: a token says whose requests they are ([[api.token]]), and a route of the gateway \
                 where that stands (`tenant` in [[gateway.route]])",
            ));
        }
        let settings = global.settings()?;
        block_on_every_core(async {
            crate::serve::serve(&settings, self.listen).await?;
            Ok(0)
        })
    }
}
