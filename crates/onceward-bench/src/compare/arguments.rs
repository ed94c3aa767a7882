//! The command line.

use std::path::PathBuf;

use clap::Parser;

use crate::plan::{Storage, System};

/// Measure Onceward, Redis, PostgreSQL and idemkit on the same load, on tmpfs and on disk
///
/// Starts its own Redis and PostgreSQL on private sockets, in temporary folders, and the gateway and nginx. Rounds of all
/// systems are interleaved. Installs missing packages with apt-get, which needs root.
#[derive(Debug, Parser)]
#[command(name = "onceward-bench")]
pub struct Arguments {
    /// How long to measure each system in each round, in seconds
    #[arg(long, default_value_t = 4.0)]
    pub seconds: f64,
    /// Number of rounds; the median is reported
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Number of concurrent callers
    #[arg(long, default_value_t = 64)]
    pub callers: usize,
    /// Only these systems (repeatable)
    #[arg(long)]
    pub only: Vec<System>,
    /// All but these systems (repeatable)
    #[arg(long)]
    pub skip: Vec<System>,
    /// Only this storage
    #[arg(long = "ground", value_name = "STORAGE")]
    pub only_storage: Option<Storage>,
    /// Finished records in the large ledger; 0 skips it
    #[arg(long, default_value_t = 5_000_000)]
    pub large: u64,
    /// Records that expire in the large ledger while claims are measured
    #[arg(long, default_value_t = 100_000)]
    pub expire: u64,
    /// Rounds of the gateway, nginx and a bare service, one second per case; 0 skips them
    #[arg(long, default_value_t = 5)]
    pub http_rounds: usize,
    /// A folder on tmpfs
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub tmpfs: PathBuf,
    /// A folder on the disk to measure [default: a folder below the target folder]
    #[arg(long, value_name = "DIR")]
    pub disk: Option<PathBuf>,
    /// The binary `onceward` [default: the one next to this program]
    #[arg(long, value_name = "FILE")]
    pub onceward: Option<PathBuf>,
    /// The page to update; also updates the plot next to it and internals/benchmark-aims.md [default: writes no page]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// The file for all single results [default: results.json below the target folder]
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Measure nothing; update the page from the results of an earlier run
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
}

impl Arguments {
    /// The selected systems.
    pub fn systems(&self) -> Vec<System> {
        let wanted =
            |system: &System| (self.only.is_empty() || self.only.contains(system)) && !self.skip.contains(system);
        System::ALL.into_iter().filter(wanted).collect()
    }

    /// Whether to measure the gateway: it belongs to Onceward, and its ledgers are on tmpfs.
    pub fn wants_http(&self) -> bool {
        let wanted = self.systems().contains(&System::Onceward) && self.storage().contains(&Storage::Tmpfs);
        self.http_rounds > 0 && wanted
    }

    /// The selected storage.
    pub fn storage(&self) -> Vec<Storage> {
        Storage::ALL.into_iter().filter(|storage| self.only_storage.is_none_or(|only| only == *storage)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Arguments {
        Arguments::parse_from(["onceward-bench"].into_iter().chain(line.split_whitespace()))
    }

    #[test]
    fn systems_can_be_selected_and_skipped() {
        assert_eq!(of("").systems(), System::ALL);
        assert_eq!(of("--only postgres --only onceward").systems(), [System::Onceward, System::Postgres]);
        let rest = of("--skip idemkit-redis --skip idemkit-postgres --skip redis-connections").systems();
        assert_eq!(rest, [System::Onceward, System::RedisAlways, System::RedisEverysec, System::Postgres]);
    }

    #[test]
    fn the_gateway_is_measured_with_onceward_on_tmpfs() {
        assert!(of("").wants_http());
        for without in ["--http-rounds 0", "--skip onceward", "--ground disk"] {
            assert!(!of(without).wants_http(), "{without}");
        }
    }

    #[test]
    fn one_storage_or_both() {
        assert_eq!(of("").storage(), [Storage::Tmpfs, Storage::Disk]);
        assert_eq!(of("--ground disk").storage(), [Storage::Disk]);
    }
}
