//! The systems, one file each, and how one of them is measured.

mod idemkit;
mod onceward;
mod postgres;
mod redis;

use std::collections::BTreeMap;
use std::time::Duration;

pub use self::idemkit::measure as idemkit;
pub use self::onceward::{Extra, measure as onceward};
pub use self::postgres::measure as postgres;
pub use self::redis::measure as redis;
use crate::Fault;
use crate::figures::Figures;
use crate::load::{Caller, Crowd};
use crate::processor;

/// How much there is to do in one run.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// How many callers at once.
    pub callers: usize,
    /// How long pairs are measured.
    pub long: Duration,
}

impl Amount {
    /// How long everything is warmed up: connections are open by then, statements prepared, and processes awake.
    pub fn warm_up(self) -> Duration {
        self.long.mul_f64(0.1).min(Duration::from_millis(500))
    }

    /// How long repeats are measured. They are fast, so a short time yields many.
    pub fn replays(self) -> Duration {
        self.long.mul_f64(0.2)
    }
}

/// What one run of one system yields: the figures that all have, and what else it says of itself.
pub type Result = (Figures, BTreeMap<String, f64>);

/// Measures callers in this process on a server in others.
async fn crowd<C: Caller>(callers: Vec<C>, server: u32, amount: Amount) -> std::result::Result<Result, Fault> {
    let mut crowd = Crowd::new(callers);
    crowd.pairs(amount.warm_up()).await?;
    let everybody = [server, std::process::id()];
    let before = processor::used(&everybody);
    let mut seen = crowd.pairs(amount.long).await?;
    let used = processor::used(&everybody).saturating_sub(before);
    let replayed = crowd.replays(amount.replays()).await?;
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
