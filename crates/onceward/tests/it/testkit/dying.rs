//! How a process dies in the kit: it writes nothing more, does nothing more, and cleans nothing up.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use onceward::Error;
use onceward::core::record::{Record, State};
use onceward::testkit::{CallResult, ScenarioKind, TestBench, Verdict};

use super::{check, good};

/// The name of the state that the second call finds.
async fn found(bench: &TestBench) -> Option<&'static str> {
    let intent = bench.ledger().operation("charge_payment").intent(&42).get().await.unwrap()?;
    Some(match intent.seen.record.state {
        State::Leased(_) => "leased",
        State::InDoubt { .. } => "in doubt",
        State::Open { .. } => "open",
        State::Done { .. } => "done",
        _ => "something else",
    })
}

/// The state that the second call of each scenario finds.
async fn found_after(kind: ScenarioKind) -> Vec<(String, Option<&'static str>)> {
    let (calls, finds) = (Cell::new(0), RefCell::new(Vec::new()));
    let tool = async |bench: TestBench| {
        // The first scenario is one undisturbed call; every other one has three.
        if calls.replace(calls.get() + 1) % 3 == 2 {
            let find = found(&bench).await;
            finds.borrow_mut().push(find);
        }
        good::guarded(bench).await
    };
    let report = check(tool).only([kind]).await;
    let names = report.lines()[1..].iter().map(|line| line.scenario().to_string());
    let finds = finds.borrow().clone();
    assert_eq!(report.lines().len() - 1, finds.len());
    names.zip(finds).collect()
}

#[tokio::test]
async fn a_killed_process_leaves_its_lease_as_it_was() {
    let expected = [
        ("killed before the claim is written", None),
        ("killed after the claim is written", Some("leased")),
        ("killed before the effect", Some("leased")),
        ("killed after the effect", Some("leased")),
        ("killed before the outcome is written", Some("leased")),
        ("killed after the outcome is written", Some("done")),
    ];
    assert_eq!(found_after(ScenarioKind::Killed).await, expected.map(|(name, state)| (name.to_owned(), state)));
}

#[tokio::test]
async fn a_process_whose_caller_gave_up_records_what_it_knows() {
    let expected = [
        ("given up before the claim is written", Some("open")),
        ("given up after the claim is written", Some("open")),
        ("given up before the effect", Some("in doubt")),
        ("given up after the effect", Some("in doubt")),
        ("given up before the outcome is written", Some("done")),
        ("given up after the outcome is written", Some("done")),
    ];
    assert_eq!(found_after(ScenarioKind::GivenUp).await, expected.map(|(name, state)| (name.to_owned(), state)));
}

/// Counts how often it was dropped.
struct Drops<'a>(&'a Cell<usize>);

impl Drop for Drops<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

/// How many values of the tool were dropped before the second call of each scenario, without the undisturbed call.
async fn cleaned_up_after(kind: ScenarioKind) -> Vec<usize> {
    let (calls, drops, seen) = (Cell::new(0), Cell::new(0), RefCell::new(Vec::new()));
    let tool = async |bench: TestBench| {
        match calls.replace(calls.get() + 1) % 3 {
            1 => drops.set(0),
            2 => seen.borrow_mut().push(drops.get()),
            _ => {}
        }
        let _value = Drops(&drops);
        good::guarded(bench).await
    };
    check(tool).only([kind]).await.assert_once();
    seen.into_inner()
}

#[tokio::test]
async fn a_dead_process_cleans_nothing_up_and_a_live_one_does() {
    assert_eq!(cleaned_up_after(ScenarioKind::Killed).await, [0; 6]);
    assert_eq!(cleaned_up_after(ScenarioKind::GivenUp).await, [1; 6]);
}

#[tokio::test]
async fn a_task_of_a_dead_process_does_nothing_more() {
    // The tool acts from a separate task, which is never dropped.
    let tool = async |bench: TestBench| -> Result<(), Error> {
        let provider = bench.provider();
        let call = bench.ledger().operation("charge_payment").intent(&42);
        let run = call.run(|_| async move {
            let task = tokio::spawn(async move {
                provider.act("charge").await?;
                provider.act("mail").await
            });
            Ok(task.await??)
        });
        run.await.map(drop)
    };
    let report = check(tool).only([ScenarioKind::Killed]).await.assert_once();
    for (step, charged) in [("before the effect (charge)", 0), ("after the effect (charge)", 1)] {
        let name = format!("killed {step}");
        let line = report.lines().iter().find(|line| line.scenario().to_string() == name).unwrap();
        assert_eq!((line.happened(), line.verdict()), (charged, Verdict::Held), "{name}: {report}");
        assert_eq!(line.results(), [CallResult::Interrupted, CallResult::Held, CallResult::Held], "{name}: {report}");
    }
}

#[tokio::test]
async fn a_test_double_that_does_not_wait_does_nothing_once_its_process_is_dead() {
    let tool = async |bench: TestBench| -> Result<(), Error> {
        let call = bench.ledger().operation("charge_payment").intent(&42);
        let run = call.run(|_| async {
            bench.provider().happened("charge");
            bench.provider().happened("mail");
            Ok(())
        });
        run.await.map(drop)
    };
    let report = check(tool).with_pauses().await.assert_once();
    let verdict = |name: &str| {
        let line = report.lines().iter().find(|line| line.scenario().to_string() == name);
        line.unwrap_or_else(|| panic!("no {name}: {report}")).verdict()
    };
    assert_eq!(verdict("killed after the effect (charge)"), Verdict::Held, "the mail was not sent: {report}");
    assert_eq!(verdict("killed after the effect (mail)"), Verdict::Once, "{report}");
    assert_eq!(verdict("paused after the effect (charge)"), Verdict::Once, "{report}");
    assert_eq!(verdict("given up after the effect (charge)"), Verdict::Once, "{report}");
}

/// A third of the lease: how often a live process renews it.
const MAX_RUNTIME: Duration = Duration::from_millis(100);

/// The record, as it is.
async fn record(bench: &TestBench) -> Option<Record> {
    let intent = bench.ledger().operation("charge_payment").intent(&42).get().await.unwrap();
    intent.map(|intent| intent.seen.record)
}

/// Acts, and works on until its lease was renewed twice. The lease is counted on a clock that the kit sets: on a slow machine it
/// does not lapse meanwhile.
async fn renewing(bench: TestBench) -> Result<(), Error> {
    let call = bench.ledger().operation("charge_payment").max_runtime(MAX_RUNTIME).intent(&42);
    let run = call.run(|_| async {
        let receipt = bench.provider().act("charge").await.map_err(good::classified);
        while record(&bench).await.is_some_and(|record| record.version < 3) {
            tokio::time::sleep(MAX_RUNTIME / 10).await;
        }
        receipt
    });
    run.await.map(drop)
}

#[tokio::test]
async fn a_dead_process_renews_no_lease() {
    let (calls, finds) = (Cell::new(0), RefCell::new(Vec::new()));
    let tool = async |bench: TestBench| {
        if calls.replace(calls.get() + 1) % 3 == 2 {
            let before = record(&bench).await;
            tokio::time::sleep(MAX_RUNTIME * 5 / 2).await;
            let after = record(&bench).await;
            finds.borrow_mut().push((before, after));
        }
        renewing(bench).await
    };
    let report = check(tool).only([ScenarioKind::Killed]).await.assert_once();
    let finds = finds.into_inner();
    assert_eq!(finds.len(), 6, "{report}");
    assert!(finds.iter().all(|(before, after)| before == after), "{finds:?}");
    let died_late = finds.iter().flat_map(|(before, _)| before).filter(|record| record.version >= 3);
    assert!(died_late.count() >= 1, "no process renewed its lease before it died: {finds:?}");
}

#[tokio::test]
async fn a_tool_whose_leases_are_renewed_is_held_exactly_where_the_outcome_is_unknown() {
    let report = check(renewing).await.assert_once();
    assert_eq!(report.held(), super::IN_DOUBT.len(), "{report}");
}
