//! `onceward courier`: delivers queued entries, without a server.

use onceward_runtime::exit::Fault;
use onceward_runtime::net::stop::Signals;
use onceward_runtime::output;

use super::{Global, block_on_every_core};

/// Deliver queued entries to the configured sinks, and call queued tools
///
/// `onceward serve` does this too. Any number of couriers and servers may work on one ledger: each entry is taken by one of them at
/// a time. Stops on TERM or INT, after the attempts under way have ended.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  onceward courier --config onceward.toml
  onceward courier --until-idle      # deliver what is due now, then stop: for cron")]
pub(super) struct Courier {
    /// Deliver what is due now, and stop when nothing is left that is due
    #[arg(long)]
    until_idle: bool,
}

impl Courier {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        if global.tenant_flag().is_some() {
            return Err(Fault::usage("--tenant is not for `courier`: it delivers the entries of all tenants, in turn"));
        }
        let settings = global.settings()?;
        block_on_every_core(async {
            let ledger = onceward_server::serve::open(&settings).await?;
            let Some(courier) = onceward_courier::courier(&settings, &ledger).await? else {
                ledger.close().await;
                return Err(Fault::config(
                    "no operation in the configuration names a sink, and no tool is queued; nothing was done.\n  Write \
                     `[sink.NAME]` and `sink = \"NAME\"` in [operation.…], or `deliver = \"queue\"` in \
                     [mcp.server.….tool.…]: see docs/guides/couriers.md and docs/guides/queued-tools.md",
                ));
            };
            let (mut signals, _stop) =
                Signals::catch().map_err(|error| Fault::config(format!("cannot start: {error}")))?;
            if self.until_idle {
                courier.run_until_idle().await;
            } else {
                output::out("onceward courier delivers");
                courier.run(async { signals.next().await }).await;
            }
            ledger.close().await;
            Ok(0)
        })
    }
}
