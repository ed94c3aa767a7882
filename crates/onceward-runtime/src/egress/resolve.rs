//! Resolves names. What comes out is not trusted: every address is checked before it is dialled.

use std::future::Future;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::Semaphore;

/// Addresses, or why there are none.
pub type Resolving<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Resolves a name to addresses. It is asked for each new connection; it may answer differently each time.
pub trait Resolve: Send + Sync + 'static {
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a>;
}

/// A lookup cannot be stopped, and keeps its thread for as long as the system's resolver takes. This bounds the threads that a
/// name server that does not answer can hold.
const MAX_LOOKUPS: usize = 8;

/// The resolver of the system: hosts file, search list and name servers as every other program has them.
#[derive(Debug)]
pub struct SystemResolver {
    lookups: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self { lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)) }
    }
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a> {
        let (name, lookups) = (name.to_owned(), Arc::clone(&self.lookups));
        Box::pin(async move {
            let permit = lookups.acquire_owned().await.map_err(io::Error::other)?;
            let lookup = move || {
                let found = (name.as_str(), 0).to_socket_addrs().map(|found| found.map(|found| found.ip()).collect());
                drop(permit);
                found
            };
            tokio::task::spawn_blocking(lookup).await.map_err(io::Error::other)?
        })
    }
}
