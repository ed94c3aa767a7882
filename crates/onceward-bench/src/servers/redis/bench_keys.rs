//! The keys of a measurement: they share a random prefix, so that no other key is touched.

use onceward_runtime::exit::Fault;
use redis::cmd;

use super::super::failed;
use super::connection::{BenchConnection, Primary};

/// Keys that the server looks at in one step of the removal. Larger steps would delay its other clients.
const STEP: usize = 1000;

/// The keys with a new prefix.
pub(super) struct BenchKeys {
    pub(super) prefix: String,
    /// The ledger under this prefix.
    pub(super) url: String,
    pub(super) connection: BenchConnection,
}

impl BenchKeys {
    /// Chooses a prefix, and connects. Nothing is written yet.
    pub(super) async fn create(url: &str, callers: usize) -> Result<Self, Fault> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(failed)?;
        let prefix = format!("bench-{:016x}", u64::from_ne_bytes(random));
        let connection = BenchConnection::open(url, callers).await?;
        Ok(Self { url: with_prefix(url, &prefix), prefix, connection })
    }

    /// A key without a ledger. A cluster spreads them over its nodes, because all of the name is the hash tag.
    pub(super) fn simple(prefix: &str, name: &str) -> String {
        format!("{{{prefix}:simple:{name}}}")
    }

    /// Removes all keys. Callers of an interrupted measurement may still write some, so it ends when no more are found.
    pub(super) async fn remove(mut self) -> Result<(), Fault> {
        loop {
            let mut removed = 0;
            for primary in self.connection.primaries().await? {
                removed += self.remove_from(&primary).await?;
            }
            if removed == 0 {
                return Ok(());
            }
        }
    }

    async fn remove_from(&mut self, primary: &Primary) -> Result<usize, Fault> {
        let (mut cursor, mut removed) = (0_u64, 0);
        // Keys of the ledger begin with the same brace.
        let pattern = format!("{{{}:*", self.prefix);
        loop {
            let mut scan = cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(STEP);
            let (next, found): (u64, Vec<String>) = self.connection.ask_at(primary, &scan).await?;
            if !found.is_empty() {
                removed += found.len();
                self.connection.ask::<u64>(cmd("UNLINK").arg(found)).await?;
            }
            if next == 0 {
                return Ok(removed);
            }
            cursor = next;
        }
    }
}

/// The URL with another prefix.
fn with_prefix(url: &str, prefix: &str) -> String {
    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    let kept = query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("prefix="));
    let pairs: Vec<String> = kept.map(str::to_owned).chain([format!("prefix={prefix}")]).collect();
    format!("{address}?{}", pairs.join("&"))
}

#[cfg(test)]
mod tests {
    use super::with_prefix;

    #[test]
    fn only_the_prefix_of_a_url_changes() {
        assert_eq!(with_prefix("redis://h:1/2", "new"), "redis://h:1/2?prefix=new");
        assert_eq!(with_prefix("redis://h?prefix=old&timeout=3s", "new"), "redis://h?timeout=3s&prefix=new");
    }
}
