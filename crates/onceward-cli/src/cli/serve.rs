//! `onceward serve`: runs the HTTP API and the other configured servers.

use std::net::SocketAddr;

use super::{Global, block_on_every_core};
use onceward_runtime::exit::Fault;

/// Run the HTTP API and the other configured servers
///
/// Prints one line per listener, with its actual address. Stops on TERM or INT, after running requests have finished.
/// Without tokens in the configuration, it only listens on loopback addresses.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  onceward serve --store onceward.db
  onceward serve --config onceward.toml --listen 127.0.0.1:0")]
pub(super) struct Serve {
    /// The address of the API, as IP:PORT; port 0 picks a free port [default: 127.0.0.1:8787]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
}

impl Serve {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        if global.tenant_flag().is_some() {
            return Err(Fault::usage(
                "--tenant is not for `serve`: a token names the tenant of API requests ([[api.token]]), and a route the source of the \
                 tenant of gateway requests (`tenant` in [[gateway.route]])",
            ));
        }
        let settings = global.settings()?;
        block_on_every_core(async {
            onceward_server::serve::serve(&settings, self.listen).await?;
            Ok(0)
        })
    }
}
