//! A second sink while the breaker of the first one is open: never for what may have happened at the first.

use super::*;

/// A route whose fallback is another sink. Its breaker opens after one failure.
fn with_fallback(first: Arc<dyn Sink>, second: Arc<Scripted>, recovery: Duration) -> Route {
    let mut fallback = quick(second);
    fallback.sink_name = "other".to_owned();
    let mut route = Route { concurrency: 1, sink: first, fallback: Some(Arc::new(fallback)), ..quick(nothing()) };
    (route.breaker.failures, route.breaker.recovery) = (1, recovery);
    route
}

fn nothing() -> Arc<Scripted> {
    Scripted::new(|_, _| delivered())
}

/// The connection ends after the request: it may have happened.
fn lost() -> SinkResult {
    SinkResult::Unknown { error: "connection lost".to_owned(), retry_after: None, health: Health::Failing }
}

async fn are_done(ledger: &Ledger, keys: &[&str]) -> bool {
    for key in keys {
        if status(ledger, key).await != Some(Status::Done) {
            return false;
        }
    }
    true
}

#[tokio::test]
async fn the_fallback_gets_what_the_first_sink_provably_did_not_do() {
    let ledger = ledger(Policy::default()).await;
    let (first, second) = (Scripted::new(|_, _| down()), nothing());
    for key in ["1", "2", "3"] {
        queue(&ledger, key).await;
    }
    let route = with_fallback(first.clone(), second.clone(), Duration::from_secs(3600));
    deliver_until(&ledger, route, async || are_done(&ledger, &["1", "2", "3"]).await).await;
    assert_eq!((first.calls(), second.calls()), (1, 3));
    assert!(second.downstream_keys().iter().all(|key| !first.downstream_keys().contains(key)), "a key of its own");
}

#[tokio::test]
async fn what_may_have_happened_at_the_first_sink_waits_for_it() {
    let ledger = ledger(Policy { in_doubt: InDoubt::Retry, ..Policy::default() }).await;
    let first = Scripted::new(|_, number| if number == 1 { lost() } else { delivered() });
    let second = nothing();
    queue(&ledger, "doubtful").await;
    // Long enough that the other entries are delivered before.
    let route = with_fallback(first.clone(), second.clone(), Duration::from_millis(1500));
    deliver_until(&ledger, route, async || {
        if first.calls() == 1 && status(&ledger, "new").await.is_none() {
            queue(&ledger, "new").await;
        }
        are_done(&ledger, &["doubtful", "new"]).await
    })
    .await;
    assert_eq!(second.keys(), ["new"]);
    assert_eq!(first.keys(), ["doubtful", "doubtful"]);
    let keys = first.downstream_keys();
    assert_eq!(keys[0], keys[1]);
}

#[tokio::test]
async fn what_may_have_happened_at_the_fallback_is_finished_there() {
    let ledger = ledger(Policy { in_doubt: InDoubt::Retry, ..Policy::default() }).await;
    let is_up = Arc::new(AtomicBool::new(false));
    let up = Arc::clone(&is_up);
    let first = Scripted::new(move |_, _| if up.load(Ordering::SeqCst) { delivered() } else { down() });
    let second = Scripted::new(move |_, number| match number {
        1 => {
            is_up.store(true, Ordering::SeqCst);
            SinkResult::Unknown {
                error: "no answer".to_owned(),
                // Longer than the recovery of the first sink.
                retry_after: Some(Duration::from_millis(500)),
                health: Health::Working,
            }
        }
        _ => delivered(),
    });
    queue(&ledger, "1").await;
    let route = with_fallback(first.clone(), second.clone(), Duration::from_millis(100));
    deliver_until(&ledger, route, async || are_done(&ledger, &["1"]).await).await;
    assert_eq!(second.keys(), ["1", "1"], "under the key that may have been used");
    assert_eq!(first.keys(), ["1"], "although it could be tried again");
    let keys = second.downstream_keys();
    assert_eq!(keys[0], keys[1]);
}
