//! Tells an encrypted connection that a server refused, or that its certificate did not allow, from a server that is not there.

use std::error::Error;
use std::io;
use std::sync::Arc;

/// Whether making a connection failed because of TLS. Then something answered: a server that cannot be trusted, one that speaks
/// another protocol, or one that does not trust this client. A connection that was closed is none of these.
pub(super) fn is_tls_failure(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        // Neither shows what it holds as its source.
        let shared =
            error.downcast_ref::<Arc<dyn Error + Send + Sync>>().map(|shared| &**shared as &(dyn Error + 'static));
        let held = shared.unwrap_or(error).downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if error.is::<rustls::Error>() || held.is_some_and(|held| held.is::<rustls::Error>()) {
            return true;
        }
        next = error.source();
    }
    false
}
