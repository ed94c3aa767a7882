//! The measured systems, one file each.

mod idemkit;
mod onceward;
mod postgres;
mod redis;

use std::collections::BTreeMap;
use std::time::Duration;

pub use self::idemkit::measure as idemkit;
pub use self::onceward::{LargeLedger, measure as onceward};
pub use self::postgres::measure as postgres;
pub use self::redis::measure as redis;
use crate::BoxError;
use crate::figures::Figures;
use crate::load::{Caller, CallerGroup};
use onceward_bench::processor;

/// The size of one run.
#[derive(Clone, Copy, Debug)]
pub struct RunSize {
    /// Number of concurrent callers.
    pub callers: usize,
    /// How long to measure pairs.
    pub long: Duration,
}

impl RunSize {
    /// How long to warm up: afterwards connections are open, statements prepared, and processes awake.
    pub fn warm_up(self) -> Duration {
        self.long.mul_f64(0.1).min(Duration::from_millis(500))
    }

    /// How long to measure replays. They are fast, so a short time yields many.
    pub fn replays(self) -> Duration {
        self.long.mul_f64(0.2)
    }
}

/// The result of one run of one system: the common figures, and additional ones.
pub type SystemResult = (Figures, BTreeMap<String, f64>);

/// Measures callers in this process that use a server in other processes.
async fn measure_callers<C: Caller>(callers: Vec<C>, server: u32, size: RunSize) -> Result<SystemResult, BoxError> {
    let mut callers = CallerGroup::new(callers);
    callers.pairs(size.warm_up()).await?;
    let processes = [server, std::process::id()];
    let before = processor::used(&processes);
    let mut seen = callers.pairs(size.long).await?;
    let used = processor::used(&processes).saturating_sub(before);
    let replayed = callers.replays(size.replays()).await?;
    let figures = Figures {
        pairs_per_second: seen.per_second(),
        claim_p50_us: seen.claim(0.50),
        claim_p99_us: seen.claim(0.99),
        pair_p50_us: seen.pair(0.50),
        pair_p99_us: seen.pair(0.99),
        replays_per_second: replayed.per_second(),
        cpu_us_per_pair: used.as_secs_f64() * 1e6 / seen.count.max(1) as f64,
    };
    Ok((figures, BTreeMap::new()))
}
