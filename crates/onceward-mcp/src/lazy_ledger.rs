//! The ledger of a gateway. It is opened when the gateway starts. If that fails, tools that only read still work, and every
//! guarded call tries to open it again.

use onceward::{Ledger, StoreUrl, store};
use onceward_runtime::stores;
use tokio::sync::Mutex;

/// A ledger that may not be open yet.
#[derive(Debug)]
pub(super) struct LazyLedger {
    store: StoreUrl,
    /// How many records a tenant may have.
    records_per_tenant: Option<u64>,
    open: Mutex<Option<Ledger>>,
}

impl LazyLedger {
    pub(super) fn at(store: impl Into<StoreUrl>, records_per_tenant: Option<u64>) -> Self {
        Self { store: store.into(), records_per_tenant, open: Mutex::default() }
    }

    /// The ledger, which is opened if it is not open yet.
    pub(super) async fn ledger(&self) -> Result<Ledger, store::Error> {
        let mut open = self.open.lock().await;
        if let Some(ledger) = &*open {
            return Ok(ledger.clone());
        }
        let ledger = Ledger::builder().records_per_tenant(self.records_per_tenant).open(&self.store).await?;
        // A warning for the operator; the ledger works without it.
        if let Err(error) = stores::report(&ledger).await {
            tracing::warn!(%error, "what the store survives is unknown");
        }
        // When the gateway is killed, the server runs for a moment longer: its calls are in progress until it has ended.
        ledger.lend_claims();
        *open = Some(ledger.clone());
        Ok(ledger)
    }

    /// Closes the ledger and ends its threads.
    pub(super) async fn close(&self) {
        if let Some(ledger) = self.open.lock().await.take() {
            ledger.close().await;
        }
    }
}
