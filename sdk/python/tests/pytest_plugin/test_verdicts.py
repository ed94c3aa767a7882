"""The verdict and the cause for good tools and for each kind of bad tool."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import shop

import onceward
from onceward.testing import Cause, Kind, NotOnce, Once, Report, Verdict

LOST = "the provider acts and its answer is lost"
REFUSED = "the provider refuses before it acts"


def verdicts(report: Report) -> dict[str, str]:
    return {str(line.scenario): str(line.verdict) for line in report.lines}


def causes(report: Report) -> set[Cause | None]:
    return {line.cause for line in report.violations}


def check(kit: Once, tool: Any, *only: Kind, **effect: Any) -> Report:
    kit.effect("shop.pay", **effect)
    return kit(tool, 42).report(*only)


def test_a_tool_with_a_tier_is_once_or_held_everywhere(kit: Once) -> None:
    report = check(kit, shop.held).assert_once()
    assert verdicts(report) == {
        "called once": "once",
        "called 3 times": "once",
        "called 8 times at once": "once",
        LOST: "once",
        REFUSED: "held",
        "killed before the claim is written": "once",
        "killed after the claim is written": "held",
        "killed before the effect": "held",
        "killed after the effect": "once",
        "killed before the outcome is written": "once",
        "killed after the outcome is written": "once",
    }
    counts = {
        str(line.scenario): (line.happened, line.replayed, line.held, line.refused, line.failed)
        for line in report.lines
    }
    assert counts["called 3 times"] == (1, 2, 0, 0, 0)
    assert counts["called 8 times at once"] == (1, 0, 0, 7, 0)
    assert counts[LOST] == (1, 0, 2, 0, 1)
    assert counts["killed after the effect"] == (1, 0, 2, 0, 0)
    assert counts["killed after the outcome is written"] == (1, 2, 0, 0, 0)
    assert report.held == 6 and report.most == 1


def test_an_unguarded_tool_happens_again_everywhere(kit: Once) -> None:
    report = check(kit, shop.unguarded)
    assert verdicts(report) == {
        "called once": "once",
        "called 3 times": "AGAIN",
        "called 8 times at once": "AGAIN",
        LOST: "AGAIN",
        REFUSED: "AGAIN",
        "killed before the effect": "AGAIN",
        "killed after the effect": "AGAIN",
    }
    assert causes(report) == {Cause.NO_LEDGER}
    assert report.most == 8
    with pytest.raises(NotOnce, match="(?s)unguarded: its effect must happen once.*@ledger.once"):
        report.assert_once()


def test_an_error_that_releases_the_claim_is_found(kit: Once) -> None:
    report = check(kit, shop.released)
    assert [str(line.scenario) for line in report.violations] == [LOST]
    assert causes(report) == {Cause.RELEASED_AFTER_EFFECT}
    assert "Raise `onceward.Unknown`" in str(report) and 'tier="payment"' in str(report)


def test_a_key_with_a_time_is_found_only_with_the_pause(kit: Once) -> None:
    kit.settings(pause=1.1)
    report = check(kit, shop.stamped, Kind.REPEATS)
    assert verdicts(report)["called 3 times"] == "AGAIN"
    assert causes(report) == {Cause.OTHER_KEY}
    reason = report.violations[0].reason
    assert reason is not None and reason.first != reason.second
    assert reason.first.startswith("42-") and reason.first in reason.advice


def test_a_random_key_is_found_everywhere(kit: Once) -> None:
    report = check(kit, shop.random_key, Kind.REPEATS, Kind.AT_ONCE, Kind.LOST_ANSWER)
    assert causes(report) == {Cause.OTHER_KEY}
    assert verdicts(report)["called 8 times at once"] == "AGAIN"


@pytest.mark.parametrize(
    ("tool", "key"),
    [
        (shop.retried, "key"),
        (shop.retried_with_header, lambda invoice, headers: headers["Idempotency-Key"]),
    ],
)
def test_a_provider_that_honours_keys_needs_no_operator(kit: Once, tool: Any, key: Any) -> None:
    report = check(kit, tool, honours_key=key).assert_once().assert_held(0)
    assert set(verdicts(report).values()) == {"once"}


def test_a_retry_needs_a_provider_that_honours_keys(kit: Once) -> None:
    report = check(kit, shop.retried)
    expected = {LOST, "killed after the effect", "killed before the outcome is written"}
    assert {str(line.scenario) for line in report.violations} == expected
    assert causes(report) == {Cause.RETRIED_WITHOUT_KEY}


def test_a_retry_without_a_key_is_found(kit: Once) -> None:
    report = check(kit, shop.retried_blindly, Kind.LOST_ANSWER, honours_key="key")
    assert causes(report) == {Cause.RETRIED_WITHOUT_KEY}


def test_a_retry_with_a_new_key_is_found(kit: Once) -> None:
    report = check(kit, shop.retried_with_new_keys, Kind.LOST_ANSWER, honours_key="key")
    assert causes(report) == {Cause.OTHER_DOWNSTREAM_KEY}


@pytest.mark.parametrize(
    ("tool", "kind", "cause"),
    [
        (shop.retries_inside, Kind.LOST_ANSWER, Cause.RETRIED_INSIDE),
        (shop.unmarked, Kind.KILLED, Cause.NOT_MARKED),
        (shop.before_claim, Kind.REPEATS, Cause.BEFORE_CLAIM),
        (shop.after_outcome, Kind.REPEATS, Cause.AFTER_OUTCOME),
        (shop.acts_anyway, Kind.LOST_ANSWER, Cause.ACTED_ANYWAY),
        (shop.opens_a_ledger, Kind.REPEATS, Cause.OTHER_LEDGER),
    ],
)
def test_the_cause_of_each_mistake_is_found(kit: Once, tool: Any, kind: Kind, cause: Cause) -> None:
    kit.settings(retries=3)
    report = check(kit, tool, kind)
    assert causes(report) == {cause}
    assert {line.verdict for line in report.violations} == {Verdict.AGAIN}


def test_an_outcome_that_is_recorded_before_the_effect_is_found(kit: Once) -> None:
    report = check(kit, shop.skips_after_record, Kind.KILLED)
    assert verdicts(report)["killed after the outcome is written"] == "NEVER"
    assert Cause.RECORDED_FIRST in causes(report)


def test_a_success_that_is_reported_although_nothing_happened_is_found(kit: Once) -> None:
    def tool(invoice: int) -> None:
        with contextlib.suppress(onceward.InDoubt):
            shop.held(invoice)

    report = check(kit, tool, Kind.KILLED)
    assert verdicts(report)["killed before the effect"] == "NEVER"
    assert causes(report) == {Cause.REPORTED_ANYWAY}


def test_marking_sent_leaves_no_doubt_before_the_mark(kit: Once) -> None:
    report = check(kit, shop.marked, Kind.KILLED).assert_once()
    assert verdicts(report)["killed after the claim is written"] == "once"
    assert verdicts(report)["killed before `sent` is marked"] == "once"
    assert verdicts(report)["killed after `sent` is marked"] == "held"


def test_a_refusal_with_a_class_lets_repeats_run(kit: Once) -> None:
    assert verdicts(check(kit, shop.classified, Kind.REFUSED))[REFUSED] == "once"


def test_a_failure_that_is_kept_is_not_done(kit: Once) -> None:
    report = check(kit, shop.kept, Kind.REFUSED)
    assert verdicts(report)[REFUSED] == "not done"
    assert report.lines[-1].replayed == 2


def test_repeats_wait_for_the_time_that_a_refusal_names(kit: Once) -> None:
    report = check(kit, shop.refused_for_a_while, Kind.REFUSED)
    assert verdicts(report)[REFUSED] == "once"
    assert report.lines[-1].refused == 0


def test_several_effects_are_told_apart(kit: Once) -> None:
    kit.effect("shop.pay")
    kit.effect("shop.mail", refusal=ConnectionRefusedError("no"))
    report = kit(shop.pay_and_mail, 42).report().assert_once()
    found = verdicts(report)
    assert found["killed after the effect (pay)"] == "held"
    assert found["killed after the effect (mail)"] == "once"
    assert found["the provider refuses before it acts (mail)"] == "held"
    line = next(line for line in report.lines if str(line.scenario) == "killed after the effect (pay)")
    assert (line.tally.least, line.tally.most) == (0, 1)
    assert "0 to 1" in str(report)


def test_an_effect_that_is_never_seen_ends_the_check(kit: Once) -> None:
    kit.effect("shop.mail")
    report = kit(shop.note, 42).report()
    assert verdicts(report) == {"called once": "NEVER"}
    assert causes(report) == {Cause.UNSEEN}


def test_an_effect_that_happens_twice_in_one_call_ends_the_check(kit: Once) -> None:
    kit.effect("shop.pay")
    report = kit(lambda: (shop.pay(1), shop.pay(1))).report()
    assert verdicts(report) == {"called once": "AGAIN"}
    assert causes(report) == {Cause.TWICE_IN_ONE_CALL}


@pytest.mark.parametrize("tool", [shop.calls, shop.block])
def test_calls_and_blocks_are_checked_like_decorated_functions(kit: Once, tool: Any) -> None:
    found = verdicts(check(kit, tool, Kind.REPEATS, Kind.KILLED).assert_once())
    assert found["called 3 times"] == found["killed before the outcome is written"] == "once"
    assert found["killed before the effect"] == "held"


def test_asserts_fail_with_the_report(kit: Once) -> None:
    report = check(kit, shop.held, Kind.KILLED)
    report.assert_at_most(1).assert_held(4)
    with pytest.raises(NotOnce, match="it must be held in doubt in 0 scenarios, and it was held in 4"):
        report.assert_held(0)
    with pytest.raises(NotOnce, match="(?s)at most 0 times, and it happened 1 times.*killed before the effect"):
        report.assert_at_most(0)
    with pytest.raises(KeyError):
        report.verdict("killed at noon")
