//! The systems to measure, the storage, and the order.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A system to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// Onceward, embedded.
    Onceward,
    /// Redis that syncs its log before every response; callers share a connection.
    RedisAlways,
    /// The same with one connection per caller.
    RedisConnections,
    /// Redis that syncs its log every second.
    RedisEverysec,
    /// PostgreSQL, one statement per call.
    Postgres,
    /// The Python library idemkit on the Redis that always syncs.
    IdemkitRedis,
    /// The Python library idemkit on PostgreSQL.
    IdemkitPostgres,
}

impl System {
    /// In the order of the table.
    pub const ALL: [Self; 7] = [
        Self::Onceward,
        Self::RedisAlways,
        Self::RedisConnections,
        Self::RedisEverysec,
        Self::Postgres,
        Self::IdemkitRedis,
        Self::IdemkitPostgres,
    ];

    /// The label in the table and the plot.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Onceward => "Onceward (embedded)",
            Self::RedisAlways => "Redis (always), one connection",
            Self::RedisConnections => "Redis (always), one connection each",
            Self::RedisEverysec => "Redis (everysec), one connection ¹",
            Self::Postgres => "PostgreSQL",
            Self::IdemkitRedis => "idemkit (Python) on Redis ²",
            Self::IdemkitPostgres => "idemkit (Python) on PostgreSQL ²",
        }
    }

    /// Whether a write is on disk when it is acknowledged.
    pub const fn is_durable(self) -> bool {
        !matches!(self, Self::RedisEverysec)
    }
}

/// Where the data is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Storage {
    /// In memory, where a sync costs nothing: shows the work of the system.
    Tmpfs,
    /// On disk: shows the cost of syncs.
    Disk,
}

impl Storage {
    /// In the order of the page.
    pub const ALL: [Self; 2] = [Self::Tmpfs, Self::Disk];

    /// The label on the page.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Tmpfs => "tmpfs",
            Self::Disk => "disk",
        }
    }
}

/// The order of one round. Every round starts at another system, and every other one runs backwards, so that no system always
/// follows the same one or always runs under the same conditions.
pub fn order(systems: &[System], round: usize) -> Vec<System> {
    let mut order = systems.to_vec();
    if !order.is_empty() {
        let start = round * 2 % order.len();
        order.rotate_left(start);
    }
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_measures_all_systems_in_a_different_order() {
        let rounds: Vec<_> = (0..3).map(|round| order(&System::ALL, round)).collect();
        for round in &rounds {
            let mut sorted = round.clone();
            sorted.sort();
            assert_eq!(sorted, System::ALL);
        }
        assert_ne!(rounds[0], rounds[1]);
        assert_ne!(rounds[1], rounds[2]);
        assert_ne!(rounds[0], rounds[2]);
    }

    #[test]
    fn a_round_without_systems_is_empty() {
        assert!(order(&[], 1).is_empty());
    }
}
