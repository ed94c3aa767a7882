//! Replays from the store, by a ledger whose cache is empty, and the round trips of one.

use std::time::Duration;

use onceward::Ledger;
use onceward_runtime::exit::Fault;
use onceward_runtime::output;

use super::super::StoreArgs;
use super::super::pairs::{self, FinishedKeys};
use super::counting_proxy::CountingProxy;

/// How many replays are counted, one after the other.
const COUNTED_REPLAYS: u64 = 200;

/// The results.
pub(super) struct Replays {
    pub(super) per_second: Option<f64>,
    /// `None` if they were not counted.
    pub(super) round_trips: Option<f64>,
}

/// Measures replays of this many new records in the store of a URL, and counts round trips if it should.
pub(super) async fn replays(
    url: &str,
    ledger: &Ledger,
    args: &StoreArgs,
    records: u64,
    counts: bool,
) -> Result<Replays, Fault> {
    output::progress("replays of another process's records");
    let (callers, time) = (usize::from(args.callers), Duration::from_secs(u64::from(args.seconds)));
    // Intents of their own: every other case finishes new ones only.
    let keys = FinishedKeys::default();
    keys.skip(1 << 40);
    let from = keys.take() + 1;
    pairs::fill(ledger, &keys, callers, COUNTED_REPLAYS + records).await?;
    let cold = pairs::open(url).await?;
    let replayed = pairs::repeat(&cold, from + COUNTED_REPLAYS..keys.all().end, callers, time, true).await?;
    cold.close().await;
    let round_trips = match counts {
        true => Some(round_trips(url, from, time).await?),
        false => None,
    };
    Ok(Replays { per_second: replayed.per_second(), round_trips })
}

/// The round trips of one replay.
async fn round_trips(url: &str, from: u64, time: Duration) -> Result<f64, Fault> {
    let proxy = CountingProxy::start(url).await?;
    let counted = pairs::open(&proxy.url).await?;
    // The connection is opened by the first one.
    pairs::repeat(&counted, from..from + 1, 1, time, true).await?;
    let before = proxy.round_trips();
    // On a busy machine the time may be over before all of them were replayed.
    let replayed = pairs::repeat(&counted, from + 1..from + COUNTED_REPLAYS, 1, time, true).await?;
    #[expect(clippy::cast_precision_loss)]
    let round_trips = (proxy.round_trips() - before) as f64 / replayed.count.max(1) as f64;
    counted.close().await;
    Ok(round_trips)
}
