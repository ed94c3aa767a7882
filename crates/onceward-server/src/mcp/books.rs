//! The ledger of a gateway. It is opened when the gateway starts; if that fails, reads pass all the same, and it is tried
//! again with every guarded call.

use onceward::{Ledger, store};
use tokio::sync::Mutex;

/// A ledger that may have to be opened yet.
#[derive(Debug)]
pub(super) struct Books {
    store: String,
    /// How many records a tenant may have.
    records_per_tenant: Option<u64>,
    open: Mutex<Option<Ledger>>,
}

impl Books {
    pub(super) fn at(store: &str, records_per_tenant: Option<u64>) -> Self {
        Self { store: store.to_owned(), records_per_tenant, open: Mutex::default() }
    }

    /// The ledger.
    pub(super) async fn ledger(&self) -> Result<Ledger, store::Error> {
        let mut open = self.open.lock().await;
        if let Some(ledger) = &*open {
            return Ok(ledger.clone());
        }
        let ledger = Ledger::builder().records_per_tenant(self.records_per_tenant).open(&self.store).await?;
        // The server goes on for a moment when we are killed: until it has ended, its calls run.
        ledger.lend_claims();
        *open = Some(ledger.clone());
        Ok(ledger)
    }

    /// Ends its threads.
    pub(super) async fn close(&self) {
        if let Some(ledger) = self.open.lock().await.take() {
            ledger.close().await;
        }
    }
}
