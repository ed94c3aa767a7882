//! The test kit: good tools pass, and each bug is found, in the right scenario and with the right cause.

mod buggy;
mod dying;
#[allow(dead_code)]
#[path = "../../../../examples/testkit.rs"]
mod example;
mod good;

use std::fmt::Display;
use std::mem::discriminant;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use onceward::clock::{ManualClock, SystemClock};
use onceward::store::memory::Memory;
use onceward::store::sqlite::Sqlite;
use onceward::testkit::{self, Cause, Check, Report, ScenarioKind, ScenarioReport, TestBench, TestStore, Verdict};

async fn in_a_file(clock: ManualClock) -> TestStore {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&folder.path().join("ledger.db"), Arc::new(clock)).await.unwrap();
    TestStore::new(store).keeping(folder)
}

/// A store whose clock cannot be set.
async fn on_the_system_clock(_: ManualClock) -> TestStore {
    TestStore::new(Memory::new(Arc::new(SystemClock)))
}

/// A check without the pause of a second: the keys of most tools do not depend on the time.
fn check<'a, T, E: Display, W: Future<Output = Result<T, E>> + 'a>(tool: impl Fn(TestBench) -> W + 'a) -> Check<'a> {
    testkit::check("tool", tool).pause(Duration::ZERO)
}

/// The reports of a tool on each kind of store.
async fn reports<'a, T, E: Display, W: Future<Output = Result<T, E>> + 'a>(
    tool: impl Fn(TestBench) -> W + Copy + 'a,
    with: impl Fn(Check<'a>) -> Check<'a>,
) -> Vec<Report> {
    vec![
        with(check(tool)).await,
        with(check(tool)).on_store("a file", in_a_file).await,
        with(check(tool)).on_store("a store on its own time", on_the_system_clock).await,
    ]
}

fn names<'a>(lines: impl Iterator<Item = &'a ScenarioReport>) -> Vec<String> {
    lines.map(|line| line.scenario().to_string()).collect()
}

/// Asserts that exactly these scenarios are broken, all of them with this cause, and that the report contains its text.
#[track_caller]
fn assert_broken(reports: &[Report], scenarios: &[&str], verdict: Verdict, cause: &Cause) {
    for report in reports {
        assert_eq!(names(report.violations()), scenarios, "{report}");
        for line in report.violations() {
            assert_eq!(line.verdict(), verdict, "{report}");
            assert_eq!(discriminant(line.cause().unwrap()), discriminant(cause), "{report}");
        }
        let first_words = cause.to_string().split(' ').take(3).collect::<Vec<_>>().join(" ");
        assert!(report.to_string().contains(&first_words), "{report}");
        assert!(!report.is_once());
    }
}

/// The scenarios in which an attempt acted, this was not recorded, and the attempt is repeated.
const AFTER_THE_EFFECT: [&str; 4] = [
    "the provider acts and its answer is lost",
    "given up after the effect",
    "killed after the effect",
    "killed before the outcome is written",
];

/// The scenarios that end in doubt for a tool with `InDoubt::Hold`.
const IN_DOUBT: [&str; 7] = [
    "the provider acts and its answer is lost",
    "given up before the effect",
    "given up after the effect",
    "killed after the claim is written",
    "killed before the effect",
    "killed after the effect",
    "killed before the outcome is written",
];

#[tokio::test]
async fn a_guarded_tool_acts_once_and_is_held_exactly_where_the_outcome_is_unknown() {
    for report in reports(good::guarded, Check::with_pauses).await {
        let report = report.assert_once().assert_at_most(1).assert_held(IN_DOUBT.len());
        assert_eq!(names(report.lines().iter().filter(|line| line.ends_held())), IN_DOUBT, "{report}");
        let never = report.lines().iter().filter(|line| line.happened() == 0);
        let before = ["given up before the effect", "killed after the claim is written", "killed before the effect"];
        assert_eq!(names(never), before, "{report}");
        assert_eq!(report.lines().len(), 23, "{report}");
    }
}

#[tokio::test]
async fn a_tool_that_marks_sent_is_held_only_after_the_mark() {
    for report in reports(good::marking, Check::with_pauses).await {
        let report = report.assert_once();
        let killed = report.lines().iter().filter(|line| line.scenario().kind() == Some(ScenarioKind::Killed));
        let held = names(killed.filter(|line| line.ends_held()));
        let gray = [
            "killed after `sent` is marked",
            "killed before the effect",
            "killed after the effect",
            "killed before the outcome is written",
        ];
        assert_eq!(held, gray, "{report}");
    }
}

#[tokio::test]
async fn a_tool_that_passes_its_key_on_acts_once_and_is_never_held() {
    for report in reports(good::keyed, Check::with_pauses).await {
        report.assert_once().assert_held(0);
    }
}

#[tokio::test]
async fn a_tool_that_probes_acts_once_and_is_never_held() {
    for report in reports(good::probing, |check| check).await {
        report.assert_once().assert_held(0);
    }
}

#[tokio::test]
async fn a_probe_cannot_see_the_later_effect_of_a_paused_process() {
    let reports = reports(good::probing, |check| check.only([ScenarioKind::Paused])).await;
    let broken = ["paused after the claim is written", "paused before the effect"];
    assert_broken(&reports, &broken, Verdict::Again, &Cause::LateOwner);
}

#[tokio::test]
async fn a_test_double_that_only_counts_is_enough_except_for_lost_responses() {
    for report in reports(good::with_its_own_test_double, Check::with_pauses).await {
        let report = report.assert_once();
        let not_tried = names(report.lines().iter().filter(|line| line.verdict() == Verdict::NotTried));
        let needed = ["the provider acts and its answer is lost", "the provider refuses before it acts"];
        assert_eq!(not_tried, needed, "{report}");
        assert!(report.to_string().contains("not tried: the tool's own test double only counts"));
    }
}

#[tokio::test]
async fn each_effect_of_a_tool_is_counted_and_lost_separately() {
    for report in reports(good::of_two_effects, Check::with_pauses).await {
        let report = report.assert_once().assert_held(0);
        let all = names(report.lines().iter());
        for name in ["the provider acts (mail) and its answer is lost", "killed after the effect (charge)"] {
            assert!(all.iter().any(|scenario| scenario == name), "{report}");
        }
    }
}

#[tokio::test]
async fn a_second_effect_that_is_repeated_is_named() {
    for report in reports(buggy::that_repeats_its_second_effect, |check| check).await {
        assert!(!report.is_once());
        assert!(report.to_string().contains("\"mail\" happened 2 times, in calls 1 and 2"), "{report}");
    }
}

#[tokio::test]
async fn a_tool_without_a_ledger_is_found_wherever_it_is_repeated() {
    for report in reports(buggy::without_a_ledger, |check| check).await {
        assert_eq!(report.violations().count(), report.lines().len() - 1, "{report}");
        assert!(report.violations().all(|line| line.cause() == Some(&Cause::NoLedger)), "{report}");
    }
}

#[tokio::test]
async fn an_effect_before_the_claim_is_found() {
    for report in reports(buggy::that_acts_before_it_claims, |check| check).await {
        assert_eq!(report.violations().count(), report.lines().len() - 1, "{report}");
        assert!(report.violations().all(|line| line.cause() == Some(&Cause::BeforeClaim)), "{report}");
    }
}

#[tokio::test]
async fn a_lookup_before_the_effect_is_not_a_claim() {
    for report in reports(buggy::that_looks_up_and_then_acts, |check| check).await {
        let broken = names(report.violations());
        assert!(!broken.contains(&"called 3 times".to_owned()), "it does look: {report}");
        for scenario in ["called 8 times at once", "killed after the effect"] {
            assert!(broken.iter().any(|name| name == scenario), "{report}");
        }
        assert!(report.violations().all(|line| line.cause() == Some(&Cause::BeforeClaim)), "{report}");
    }
}

#[tokio::test]
async fn a_fresh_key_for_each_call_is_found_and_shown() {
    for report in reports(buggy::with_a_fresh_key_each_time, |check| check).await {
        assert_eq!(report.violations().count(), report.lines().len() - 1, "{report}");
        for line in report.violations() {
            let Some(Cause::OtherKey { first, second }) = line.cause() else { panic!("{report}") };
            assert!(first.starts_with("charge-") && second.starts_with("charge-") && first != second, "{report}");
        }
    }
}

#[tokio::test]
async fn a_key_that_contains_the_second_is_found_because_the_first_repeat_waits() {
    let report = testkit::check("tool", buggy::with_the_time_in_its_key).only([ScenarioKind::Repeats]).await;
    assert_eq!(names(report.violations()), ["called 3 times"], "{report}");
    assert!(matches!(report.violations().next().unwrap().cause(), Some(Cause::OtherKey { .. })), "{report}");
}

#[tokio::test]
async fn an_error_treated_as_harmless_is_found_by_a_lost_response() {
    let reports = reports(buggy::that_treats_every_error_as_harmless, |check| check).await;
    let broken = ["the provider acts and its answer is lost"];
    assert_broken(&reports, &broken, Verdict::Again, &Cause::ReleasedAfterEffect);
}

#[tokio::test]
async fn an_effect_after_the_run_is_found() {
    for report in reports(buggy::that_acts_after_its_run, |check| check).await {
        assert!(names(report.violations()).contains(&"called 3 times".to_owned()), "{report}");
        assert!(report.violations().all(|line| line.cause() == Some(&Cause::AfterOutcome)), "{report}");
    }
}

#[tokio::test]
async fn an_outcome_recorded_before_its_effect_is_found_when_the_effect_never_happens() {
    let broken = [
        "the provider refuses before it acts",
        "given up before the outcome is written",
        "given up after the outcome is written",
        "given up before the effect",
        "killed after the outcome is written",
        "killed before the effect",
    ];
    let reports = reports(buggy::that_records_first_and_then_acts, |check| check).await;
    assert_broken(&reports, &broken, Verdict::Never, &Cause::RecordedFirst);
}

#[tokio::test]
async fn a_tool_that_acts_although_it_was_refused_is_found() {
    let reports = reports(buggy::that_runs_in_doubt, |check| check).await;
    assert_broken(&reports, &IN_DOUBT, Verdict::Again, &Cause::ActedAnyway);
}

#[tokio::test]
async fn a_tool_that_reports_success_although_it_is_in_doubt_is_found() {
    let broken = ["given up before the effect", "killed after the claim is written", "killed before the effect"];
    let reports = reports(buggy::that_reports_success_in_doubt, |check| check).await;
    assert_broken(&reports, &broken, Verdict::Never, &Cause::ReportedAnyway);
}

#[tokio::test]
async fn a_forgotten_mark_is_found() {
    let reports = reports(buggy::that_forgets_to_mark, |check| check).await;
    assert_broken(&reports, &AFTER_THE_EFFECT, Verdict::Again, &Cause::NotMarked);
}

#[tokio::test]
async fn a_mark_that_failed_and_was_ignored_is_found_by_a_pause() {
    let reports = reports(buggy::that_continues_when_it_cannot_mark, Check::with_pauses).await;
    let broken = ["paused after the claim is written", "paused before `sent` is marked"];
    assert_broken(&reports, &broken, Verdict::Again, &Cause::LossIgnored);
}

#[tokio::test]
async fn a_retried_doubt_without_a_key_is_found() {
    let reports = reports(buggy::that_retries_a_doubt_without_a_key, |check| check).await;
    assert_broken(&reports, &AFTER_THE_EFFECT, Verdict::Again, &Cause::RetriedWithoutKey);
}

#[tokio::test]
async fn a_retried_doubt_with_another_key_is_found() {
    let reports = reports(buggy::that_makes_a_key_for_each_attempt, |check| check).await;
    assert_broken(&reports, &AFTER_THE_EFFECT, Verdict::Again, &Cause::OtherDownstreamKey);
}

#[tokio::test]
async fn a_missing_probe_is_found() {
    let reports = reports(buggy::that_does_not_probe, |check| check).await;
    assert_broken(&reports, &AFTER_THE_EFFECT, Verdict::Again, &Cause::ProbeIgnored);
}

#[tokio::test]
async fn a_tool_that_retries_internally_is_found() {
    let reports = reports(buggy::that_retries_internally, |check| check).await;
    let broken = ["the provider acts and its answer is lost"];
    assert_broken(&reports, &broken, Verdict::Again, &Cause::RetriedInside);
}

#[tokio::test]
async fn a_tool_without_a_visible_effect_does_not_pass() {
    let reports = reports(buggy::that_does_nothing, |check| check).await;
    assert_broken(&reports, &["called once"], Verdict::Never, &Cause::Unseen);
    assert!(reports[0].to_string().contains("no route"), "what the tool said is shown");
}

#[tokio::test]
async fn a_tool_that_acts_twice_in_one_call_does_not_pass() {
    let reports = reports(buggy::that_acts_twice, |check| check).await;
    assert_broken(&reports, &["called once"], Verdict::Again, &Cause::TwiceInOneCall);
}

#[tokio::test]
async fn a_call_that_does_not_return_is_found() {
    let tool = buggy::that_never_returns;
    let report = check(tool).only([ScenarioKind::LostAnswer]).timeout(Duration::from_millis(200)).await;
    assert_broken(&[report], &["the provider acts and its answer is lost"], Verdict::TimedOut, &Cause::TimedOut);
}

#[tokio::test]
async fn a_panic_is_not_treated_as_a_failure() {
    let report = check(buggy::that_panics_without_a_response).only([ScenarioKind::LostAnswer]).await;
    assert!(report.to_string().contains("no receipt"), "{report}");
    assert_broken(&[report], &["the provider acts and its answer is lost"], Verdict::Panicked, &Cause::Panicked);
}

#[tokio::test]
async fn an_unnecessary_doubt_is_not_an_error_but_noted() {
    let report = check(good::careful).only([ScenarioKind::Refused]).await.assert_once();
    assert_eq!(report.lines()[1].verdict(), Verdict::Held, "{report}");
    assert!(report.to_string().contains("held after a refusal"), "{report}");
}

#[tokio::test]
async fn a_kept_refusal_is_not_done_and_not_an_error() {
    let report = check(good::keeping_a_refusal).only([ScenarioKind::Refused]).await.assert_once();
    let line = &report.lines()[1];
    assert_eq!((line.verdict(), line.happened(), line.replayed()), (Verdict::NotDone, 0, 2), "{report}");
}

#[tokio::test]
async fn each_of_several_tools_has_a_line_and_broken_ones_a_report() {
    let tools = || testkit::tools().pause(Duration::ZERO).tool("charge", good::keyed);
    tools().await.assert_once();
    let reports = tools().tool("mail", buggy::that_treats_every_error_as_harmless).await;
    assert!(!reports.is_once());
    let text = reports.to_string();
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("tool    scenarios"), "{text}");
    assert!(lines[1].starts_with("charge  ") && lines[1].ends_with("  ok"), "{text}");
    assert!(lines[2].starts_with("mail    ") && lines[2].ends_with("  BROKEN"), "{text}");
    assert!(text.contains("mail on memory: 17 scenarios, 1 BROKEN"), "{text}");
    assert!(!text.contains("charge on memory"), "{text}");
}

#[tokio::test]
#[should_panic(expected = "mail: its effect must happen once")]
async fn assert_once_fails_for_a_broken_tool() {
    testkit::check("mail", buggy::without_a_ledger).pause(Duration::ZERO).await.assert_once();
}

#[tokio::test]
#[should_panic(expected = "at most 2 times, and it happened 3 times")]
async fn assert_at_most_fails_above_its_limit() {
    let report = check(buggy::without_a_ledger).only([ScenarioKind::Repeats]).await;
    report.assert_at_most(3).assert_at_most(2);
}

#[tokio::test]
#[should_panic(expected = "in 0 scenarios, and it was held in 7")]
async fn assert_held_fails_for_another_number() {
    check(good::guarded).await.assert_held(7).assert_held(0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kit_works_on_a_runtime_with_several_threads() {
    for report in reports(good::guarded, Check::with_pauses).await {
        report.assert_once().assert_held(IN_DOUBT.len());
    }
}

#[tokio::test]
async fn the_guide_shows_what_the_kit_prints() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/testing.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let broken = testkit::check("charge", |bench| example::charge(bench.ledger(), bench.provider()));
    let mended = testkit::check("charge_mended", |bench| example::charge_mended(bench.ledger(), bench.provider()));
    for check in [broken, mended] {
        let report = check.pause(Duration::ZERO).await.to_string();
        assert!(guide.contains(&report), "docs/guides/testing.md is stale; it should show\n\n{report}");
    }
}
