//! The blocking API, for code without async.

use std::time::Duration;

use onceward::blocking::Ledger;
use onceward::{Error, Failure};

use crate::{Effects, eventually, version};

fn ledger() -> (Ledger, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(folder.path().join("ledger.db").to_str().unwrap()).unwrap();
    (ledger, folder)
}

#[test]
fn racing_threads_run_the_work_once() {
    let (ledger, _folder) = ledger();
    let effects = Effects::default();
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let call = ledger.operation("charge").key("k").wait(Duration::from_secs(30));
                assert_eq!(call.run(|_| Ok(effects.happen())).unwrap().value, 1);
            });
        }
    });
    assert_eq!(effects.count(), 1);
}

#[test]
fn items_and_events_come_in_order() {
    let (ledger, _folder) = ledger();
    for number in [1, 2, 1, 3] {
        assert_eq!(ledger.operation("apply").item("s", number).run(|_| Ok(number)).unwrap().value, number);
    }
    let early = ledger.operation("apply").item("s", 5).run(|_| Ok(5));
    assert!(matches!(early, Err(Error::OutOfOrder { expected: 4, given: 5, .. })), "{early:?}");
    let event = |sequence| ledger.consume_event("billing", "order-1", sequence).starts_at(0).run(|_| Ok(sequence));
    assert_eq!((event(0).unwrap().value, event(1).unwrap().value), (0, 1));
}

#[test]
fn the_lease_is_renewed_while_the_thread_is_busy() {
    let (ledger, folder) = ledger();
    let url = folder.path().join("ledger.db").to_str().unwrap().to_owned();
    // A lease of three seconds, which is renewed every second.
    let call = ledger.operation("charge").key("k").max_runtime(Duration::from_secs(1));
    let repeat = call.clone();
    let work = |_| {
        let other = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        // As another process sees it: written, and renewed four times.
        other.block_on(async {
            let seen = onceward::Ledger::open(url).await.unwrap().operation("charge").key("k");
            eventually("the lease is renewed", async || version(&seen).await >= 5).await;
        });
        let repeated = std::thread::spawn(move || repeat.run(|_| Ok(()))).join().unwrap();
        assert!(matches!(repeated, Err(Error::InFlight { .. })), "{repeated:?}");
        Ok(())
    };
    call.run(work).unwrap();
}

#[test]
fn a_panic_puts_the_intent_in_doubt() {
    let (ledger, _folder) = ledger();
    let call = ledger.operation("charge").key("k");
    let panicking = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| call.run::<()>(|_| panic!("no ink"))));
    assert!(panicking.is_err());
    assert!(matches!(call.run(|_| Ok(())), Err(Error::InDoubt { .. })));
}

#[test]
fn sent_can_be_marked_and_failures_classified() {
    let (ledger, _folder) = ledger();
    let call = ledger.operation("charge").key("k").marks_sent();
    let failed = call.run::<u32>(|claim| {
        claim.sent()?;
        Err(Failure::permanent("declined"))
    });
    assert!(failed.is_err());
    assert!(matches!(call.run(|_| Ok(1)), Err(Error::Failed { replayed: true, .. })));
}

#[test]
fn a_doubt_can_be_probed() {
    let (ledger, _folder) = ledger();
    let call = ledger.operation("charge").key("k").in_doubt(onceward::InDoubt::Probe);
    assert!(call.run::<u32>(|_| Err(Failure::unknown("time-out"))).is_err());
    assert!(matches!(call.run(|_| Ok(1)), Err(Error::InDoubt { .. })), "who cannot ask is not let in");
    let asking = call.probes().run(|claim| {
        assert!(claim.probe_first());
        claim.not_found()?;
        Ok(2)
    });
    assert_eq!(asking.unwrap().value, 2);
}
