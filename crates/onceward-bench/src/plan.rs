//! Which systems are measured, on which ground, in which order.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// Onceward, embedded.
    Onceward,
    /// Redis that syncs its log before it answers; the callers share a connection.
    RedisAlways,
    /// The same with a connection for each caller.
    RedisConnections,
    /// Redis that syncs its log every second.
    RedisEverysec,
    /// PostgreSQL, one statement a call.
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

    /// As the table and the plot say it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Onceward => "Onceward (embedded)",
            Self::RedisAlways => "Redis (always), one connection",
            Self::RedisConnections => "Redis (always), a connection each",
            Self::RedisEverysec => "Redis (everysec), one connection ¹",
            Self::Postgres => "PostgreSQL",
            Self::IdemkitRedis => "idemkit (Python) on Redis ²",
            Self::IdemkitPostgres => "idemkit (Python) on PostgreSQL ²",
        }
    }

    /// Whether an answer means that the write is on the disk.
    pub const fn is_durable(self) -> bool {
        !matches!(self, Self::RedisEverysec)
    }
}

/// Where the data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ground {
    /// In memory, where a sync costs nothing and the work shows.
    Tmpfs,
    /// On a disk, where the sync shows.
    Disk,
}

impl Ground {
    /// In the order of the page.
    pub const ALL: [Self; 2] = [Self::Tmpfs, Self::Disk];

    /// As the page says it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Tmpfs => "tmpfs",
            Self::Disk => "disk",
        }
    }
}

/// The order of one round. Every round starts elsewhere, and every other one runs backwards, so that no system always
/// follows the same neighbour or always meets the machine in the same mood.
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
    fn every_round_measures_everything_in_another_order() {
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
    fn a_round_of_nothing_is_empty() {
        assert!(order(&[], 1).is_empty());
    }
}
