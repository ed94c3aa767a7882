"""The layout of the report is that of the Rust test kit, and steps have the shortest names that are distinct."""

from __future__ import annotations

import pathlib
from collections import Counter

import shop

from onceward.testing import Kind, Once, Scenario, Verdict
from onceward.testing._log import Entry, Log, read
from onceward.testing._report import _call_list
from onceward.testing._scenario import Step, named
from onceward.testing._verdict import Tally, _verdict

RELEASED = """\
released on sqlite: 3 scenarios, 1 BROKEN

                                            calls  happened  replayed  held  refused  failed  verdict
  called once                                   1         1         0     0        0       0  once
  called 3 times                                3         1         2     0        0       0  once
  the provider acts and its answer is lost      3         2         1     0        0       1  AGAIN

  AGAIN: the provider acts and its answer is lost: happened 2 times, in calls 1 and 2
  -> the error released the claim as if nothing had happened. Raise `onceward.Unknown` when the
     provider may have acted, or put every unclassified error in doubt: declare a tier
     (`tier="payment"`), or set `on_error="doubt"`."""


def test_the_report_is_a_table_with_causes_and_advice(kit: Once) -> None:
    report = kit(shop.released, 42, effect="shop.pay").report(Kind.REPEATS, Kind.LOST_ANSWER)
    assert str(report) == RELEASED
    # Verdict by verdict, the same lines as in the guide of the Rust kit.
    guide = (pathlib.Path(__file__).resolve().parents[4] / "docs" / "guides" / "testing.md").read_text()
    for line in RELEASED.splitlines()[2:6]:
        assert line in guide


def test_no_more_than_four_scenarios_are_listed_for_a_cause(kit: Once) -> None:
    text = str(kit(shop.unguarded, 42, effect="shop.pay").report())
    assert text.count("\n  AGAIN:") == 4 and "and 2 more like these" in text
    assert max(len(line) for line in text.partition("AGAIN:")[2].splitlines()) <= 100


def test_step_names_are_only_as_long_as_needed() -> None:
    def step(kind: str, of: str) -> Step:
        return Step("before", kind, of)

    one = named([step("claim", "pay"), step("effect", "charge"), step("outcome", "pay")])
    assert [str(found) for found in one] == [
        "before the claim is written",
        "before the effect",
        "before the outcome is written",
    ]
    two = named([step("claim", "pay"), step("effect", "charge"), step("effect", "mail"), step("claim", "pay")])
    assert [str(found) for found in two] == [
        "before the claim is written",
        "before the effect (charge)",
        "before the effect (mail)",
        "before the claim is written for the 2. time",
    ]


def test_unexpected_effects_are_added_to_the_most_frequent_one() -> None:
    assert Tally.compare(Counter(a=1), Counter(a=1, b=1)) == Tally(2, 2)
    assert Tally.compare(Counter(a=1, b=1), Counter(a=1)) == Tally(0, 1, "a")
    assert Tally.compare(Counter(a=1, b=1), Counter(a=1, b=1, c=1)) == Tally(1, 2, "c")


def test_only_a_disturbed_call_may_be_held() -> None:
    results = ["failed", "held"]
    killed = Scenario(Kind.KILLED, step=Step("before", "effect", None))
    assert _verdict(killed, Tally(0, 0), results, "held") is Verdict.HELD
    assert _verdict(Scenario(Kind.REPEATS, 2), Tally(0, 0), results, "held") is Verdict.NEVER
    assert _verdict(killed, Tally(0, 0), ["failed"], "failed") is Verdict.NEVER
    assert _verdict(Scenario(Kind.REFUSED), Tally(0, 0), ["failed"], "failed") is Verdict.NOT_DONE
    assert _verdict(killed, Tally(1, 1), ["interrupted", "timed_out"], "timed_out") is Verdict.TIMED_OUT


def test_calls_are_listed_in_words() -> None:
    assert [_call_list(calls) for calls in ([1], [1, 2], [1, 2, 3])] == ["call 1", "calls 1 and 2", "calls 1, 2 and 3"]


def test_a_log_survives_a_torn_line_and_recognises_keys(tmp_path: pathlib.Path) -> None:
    log = Log(str(tmp_path))
    assert log.perform(1, "pay", "k").fields["number"] == 1
    assert log.perform(2, "pay", "k").fields["number"] == 1
    assert log.perform(3, "pay", "other").fields["number"] == 2
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('[4, "effect", {"what')
    found = read(str(tmp_path))
    assert [entry.is_new_effect() for entry in found] == [True, False, True]
    assert found[1] == Entry(2, "effect", {"what": "pay", "key": "k", "is_new": False, "number": 1})
