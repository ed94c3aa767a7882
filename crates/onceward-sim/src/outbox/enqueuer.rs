//! A process that queues entries, the same ones as its neighbours at about the same time. It notes what was acknowledged.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onceward::core::outbox::Priority;
use onceward::{EnqueueOptions, Ledger};

use super::entry_kind::EntryKind;
use super::{ProcessOptions, acknowledgements, courier};
use crate::kills;
use crate::kills::effects::Effects;
use crate::rng::Rng;

/// A new key comes into use this often.
const STEP: Duration = Duration::from_millis(100);

/// How many keys are in use: each is queued by all processes, about ten times in all.
const KEYS_IN_USE: u64 = 6;

/// Queues entries until it is told to stop, or one entry of each kind.
pub fn run(options: &ProcessOptions) {
    courier::die_at(options.die);
    let acknowledged = acknowledgements(&options.folder);
    kills::on_runtime(async {
        let ledger = Ledger::open(options.ledger.as_str()).await.expect("the ledger can be opened");
        if let Some(key) = &options.name {
            for kind in EntryKind::COMMON {
                queue(&ledger, kind, key, EnqueueOptions::default(), &acknowledged).await;
            }
            return;
        }
        let mut rng = Rng::of(&[options.seed, 9, options.number, now()]);
        while !acknowledged.is_calm() {
            let newest = now().saturating_sub(options.origin) / u64::try_from(STEP.as_millis()).unwrap_or(1);
            let number = newest.saturating_sub(rng.below(KEYS_IN_USE));
            for kind in EntryKind::COMMON {
                let delay = Duration::from_millis(if number.is_multiple_of(4) { 50 } else { 0 });
                let priority = Priority::ALL[usize::try_from(number % 3).unwrap_or(0)];
                let options = EnqueueOptions { delay, priority, ..EnqueueOptions::default() };
                queue(&ledger, kind, &format!("k-{number}"), options, &acknowledged).await;
            }
            tokio::time::sleep(Duration::from_millis(rng.below(100))).await;
        }
    });
}

async fn queue(ledger: &Ledger, kind: EntryKind, key: &str, options: EnqueueOptions, acknowledged: &Effects) {
    let call = ledger.operation(kind.operation()).key(key).policy(kind.policy(key));
    // An error acknowledges nothing. The same entry is queued again by another process.
    if call.enqueue(&format!("to {key}"), options).await.is_ok() {
        acknowledged.happen(&format!("{} {key}", kind.operation()), "queued");
    }
}

/// Milliseconds since the epoch, on which all processes agree.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
