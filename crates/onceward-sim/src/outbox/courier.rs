//! A courier process, whose sinks are requests to the downstream.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::StatusCode;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use onceward::courier::{Courier, Health, LookUp, Parcel, Route, Sink, SinkResult, async_trait};
use onceward::retry::{backoff, budget};
use onceward::step::{Step, on_step};
use onceward::{Ledger, Outcome};

use super::ProcessOptions;
use super::downstream::KEY_HEADER;
use super::entry_kind::EntryKind;
use crate::kills;
use crate::kills::web;

/// The name of the sink of most couriers.
pub const USUAL_SINK: &str = "usual";

/// How long an attempt takes at the longest: more than the downstream needs on a busy machine. A lease is three times as long.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Entries of one operation that a courier has on their way: enough that a kill hits several.
const CONCURRENCY: usize = 4;

static DIE: OnceLock<(Step, u32)> = OnceLock::new();
static TIMES: AtomicU32 = AtomicU32::new(0);

/// Kills this process at the step that the harness has named.
pub(super) fn die_at(die: Option<(Step, u32)>) {
    if let Some(die) = die {
        let _ = DIE.set(die);
        on_step(|step| {
            let Some((at, times)) = DIE.get() else { return };
            if step == *at && TIMES.fetch_add(1, Ordering::SeqCst) + 1 == *times {
                let _ = kill(Pid::this(), Signal::SIGKILL);
                // The signal is on its way; nothing more may happen on this thread.
                loop {
                    std::thread::park();
                }
            }
        });
    }
}

/// Delivers until it is killed.
pub fn run(options: &ProcessOptions) {
    die_at(options.die);
    kills::on_runtime(async {
        let ledger = Ledger::open(options.ledger.as_str()).await.expect("the ledger can be opened");
        let address = format!("127.0.0.1:{}", options.port);
        let (sink, kinds) = match &options.name {
            Some(name) => (name.as_str(), vec![EntryKind::Moved]),
            None => (USUAL_SINK, EntryKind::COMMON.to_vec()),
        };
        let mut courier = Courier::new(ledger);
        for kind in kinds {
            let post = Arc::new(Post { address: address.clone(), kind });
            courier = courier.route(kind.operation(), quick(Route::to(sink, post))).expect("a name");
        }
        courier.run(std::future::pending()).await;
    });
}

/// A route that tries again soon and without limits, so that a run has many attempts.
fn quick(route: Route) -> Route {
    let millis = Duration::from_millis;
    let retry = backoff::Settings { base: millis(5), cap: millis(100), ..backoff::Settings::default() };
    let budget = budget::Settings { percent: 100, per_second: 10_000, burst: 10_000 };
    Route { timeout: TIMEOUT, retry, budget, concurrency: CONCURRENCY, settle: Duration::ZERO, ..route }
}

/// Posts an entry to the downstream.
struct Post {
    address: String,
    kind: EntryKind,
}

impl Post {
    async fn ask(&self, parcel: &Parcel, body: Option<String>) -> Result<(StatusCode, String), String> {
        let path = format!("/{}/{}", self.kind.operation(), parcel.identity.key.as_str());
        let headers = [(KEY_HEADER, parcel.downstream_key.as_str())];
        let asked = web::ask(&self.address, &path, &headers, body);
        match tokio::time::timeout(TIMEOUT, asked).await {
            Ok(Ok((status, _, text))) => Ok((status, text)),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no answer in time".to_owned()),
        }
    }
}

#[async_trait]
impl Sink for Post {
    async fn deliver(&self, parcel: &Parcel) -> SinkResult {
        let body = String::from_utf8_lossy(&parcel.payload).into_owned();
        // The downstream is as it is meant to be, so that the breaker stays closed.
        let health = Health::Working;
        match self.ask(parcel, Some(body)).await {
            Ok((StatusCode::OK, text)) => SinkResult::Ended(Outcome::success(text)),
            Ok((StatusCode::TOO_MANY_REQUESTS, error)) => {
                SinkResult::Refused { error, retry_after: None, again: true, health }
            }
            Ok((status, _)) => SinkResult::Unknown { error: status.to_string(), retry_after: None, health },
            Err(error) => SinkResult::Unknown { error, retry_after: None, health },
        }
    }

    async fn look_up(&self, parcel: &Parcel) -> LookUp {
        match self.ask(parcel, None).await {
            Ok((StatusCode::OK, text)) => LookUp::Happened(Outcome::success(text)),
            Ok((StatusCode::NOT_FOUND, _)) => LookUp::NotFound,
            Ok((status, _)) => LookUp::Unknown(status.to_string()),
            Err(error) => LookUp::Unknown(error),
        }
    }

    fn can_look_up(&self) -> bool {
        self.kind == EntryKind::Probed
    }
}
