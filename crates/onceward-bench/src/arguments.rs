//! The command line.

use std::path::PathBuf;

use clap::Parser;

use crate::plan::{Ground, System};

/// Measures Onceward beside Redis, PostgreSQL and idemkit, all interleaved, on tmpfs and on disk.
///
/// Starts its own Redis and PostgreSQL on private sockets, in folders that it removes again; and the gateway beside nginx.
/// Missing packages are installed with apt-get, which needs root.
#[derive(Debug, Parser)]
#[command(name = "onceward-bench")]
pub struct Arguments {
    /// How long each system is measured in each round, in seconds
    #[arg(long, default_value_t = 4.0)]
    pub seconds: f64,
    /// How often everything is measured; the middle is reported
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// How many callers there are at once
    #[arg(long, default_value_t = 64)]
    pub callers: usize,
    /// Only these systems (may be given more than once)
    #[arg(long)]
    pub only: Vec<System>,
    /// All but these systems (may be given more than once)
    #[arg(long)]
    pub skip: Vec<System>,
    /// Only this ground
    #[arg(long)]
    pub ground: Option<Ground>,
    /// How many finished records a large ledger holds; 0 leaves it out
    #[arg(long, default_value_t = 5_000_000)]
    pub large: u64,
    /// How many records expire in the large ledger while claims are measured
    #[arg(long, default_value_t = 100_000)]
    pub expire: u64,
    /// How often the gateway is measured, beside nginx and a bare service, a second for each case; 0 leaves it out
    #[arg(long, default_value_t = 5)]
    pub http_rounds: usize,
    /// A folder in memory
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub tmpfs: PathBuf,
    /// A folder on the disk that is to be measured [default: a folder below the target folder]
    #[arg(long, value_name = "DIR")]
    pub disk: Option<PathBuf>,
    /// The binary `onceward` [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    pub onceward: Option<PathBuf>,
    /// The page whose figures are written anew; the plot goes beside it [default: nothing is written]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Where every single result goes [default: results.json below the target folder]
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Measure nothing: write the page anew from the results of an earlier run
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
}

impl Arguments {
    /// The systems that are wanted.
    pub fn systems(&self) -> Vec<System> {
        let wanted =
            |system: &System| (self.only.is_empty() || self.only.contains(system)) && !self.skip.contains(system);
        System::ALL.into_iter().filter(wanted).collect()
    }

    /// Whether the gateway is measured: it is Onceward too, and its ledgers are in memory.
    pub fn wants_http(&self) -> bool {
        let wanted = self.systems().contains(&System::Onceward) && self.grounds().contains(&Ground::Tmpfs);
        self.http_rounds > 0 && wanted
    }

    /// The grounds that are wanted.
    pub fn grounds(&self) -> Vec<Ground> {
        Ground::ALL.into_iter().filter(|ground| self.ground.is_none_or(|only| only == *ground)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Arguments {
        Arguments::parse_from(["onceward-bench"].into_iter().chain(line.split_whitespace()))
    }

    #[test]
    fn systems_can_be_picked_and_left_out() {
        assert_eq!(of("").systems(), System::ALL);
        assert_eq!(of("--only postgres --only onceward").systems(), [System::Onceward, System::Postgres]);
        let rest = of("--skip idemkit-redis --skip idemkit-postgres --skip redis-connections").systems();
        assert_eq!(rest, [System::Onceward, System::RedisAlways, System::RedisEverysec, System::Postgres]);
    }

    #[test]
    fn the_gateway_goes_with_onceward_on_tmpfs() {
        assert!(of("").wants_http());
        for without in ["--http-rounds 0", "--skip onceward", "--ground disk"] {
            assert!(!of(without).wants_http(), "{without}");
        }
    }

    #[test]
    fn one_ground_or_both() {
        assert_eq!(of("").grounds(), [Ground::Tmpfs, Ground::Disk]);
        assert_eq!(of("--ground disk").grounds(), [Ground::Disk]);
    }
}
