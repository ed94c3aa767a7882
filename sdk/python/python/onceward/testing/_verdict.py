"""Judges a scenario: did the effect happen once?"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ._cause import Cause, Reason, of_missing_effect, of_repeated_effect
from ._log import Entry, happened
from ._scenario import Kind, Scenario


class Verdict(enum.Enum):
    """The verdict on a scenario. Those in capitals are failures."""

    ONCE = "once"
    # The effect did not happen, and the repeats were refused because the outcome is unknown.
    HELD = "held"
    # The effect did not happen, and the caller knows it.
    NOT_DONE = "not done"
    AGAIN = "AGAIN"
    # The effect did not happen, and the caller does not know it.
    NEVER = "NEVER"
    # The process of a call ended.
    CRASHED = "CRASHED"
    TIMED_OUT = "TIMED OUT"
    # The scenario does not apply to this tool.
    NOT_TRIED = "not tried"

    @property
    def is_broken(self) -> bool:
        """Whether this verdict is a failure of a tool whose effect must happen once."""
        return self.value.isupper()

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class CallResult:
    """How one call of a tool ended: `ran`, `replayed`, `replayed_failure`, `held`, `refused`, `failed`, `crashed`,
    `interrupted` by the scenario, or `timed_out`."""

    kind: str
    error: str = ""

    @classmethod
    def of(cls, call: int, error: str | None, log: Sequence[Entry]) -> CallResult:
        """The result of a call that returned, or raised an error."""
        entries = [entry for entry in log if entry.call == call]
        is_claimed = any(entry.event == "claimed" for entry in entries)
        seen = next((entry.fields["status"] for entry in reversed(entries) if entry.event == "seen"), None)
        if error is None:
            return cls("replayed" if seen == "done" and not is_claimed else "ran")
        if is_claimed or seen is None:
            return cls("failed", error)
        return cls({"in_doubt": "held", "failed": "replayed_failure"}.get(seen, "refused"), error)


@dataclass
class ScenarioRun:
    """What happened in a scenario."""

    # How each call ended, in the order in which the calls began.
    results: list[CallResult] = field(default_factory=list)
    log: list[Entry] = field(default_factory=list)
    # Whether the first call was stopped at its step.
    is_stopped: bool = False
    is_async: bool = False


@dataclass(frozen=True)
class Tally:
    """How often the effects of a tool happened: the rarest and the most frequent one."""

    least: int
    most: int
    # The most frequent effect, if the tool has several.
    of: str | None = None

    @classmethod
    def compare(cls, expected: Counter[str], found: Counter[str]) -> Tally:
        """Compares with the effects of one undisturbed call. For a tool with one effect, every effect counts, no matter
        its name; for a tool with several, effects with unexpected names are added to the most frequent one."""
        total = sum(found.values())
        if len(expected) <= 1:
            return cls(total, total)
        times = {what: found[what] for what in expected}
        of = max(times, key=lambda what: times[what])
        unexpected = next((what for what in found if what not in expected), None)
        return cls(min(times.values()), times[of] + total - sum(times.values()), unexpected or of)


def judge(scenario: Scenario, run: ScenarioRun, undisturbed: ScenarioRun) -> tuple[Tally, Verdict, Reason | None]:
    """Judges a scenario, and finds the reason if it failed."""
    tally = Tally.compare(happened(undisturbed.log), happened(run.log))
    last = run.results[-1].kind if run.results else ""
    verdict = _verdict(scenario, tally, [result.kind for result in run.results], last)
    reason = None
    if verdict in (Verdict.AGAIN, Verdict.NEVER) and scenario.kind is Kind.ONCE:
        reason = Reason(Cause.TWICE_IN_ONE_CALL if verdict is Verdict.AGAIN else Cause.UNSEEN)
    elif verdict is Verdict.AGAIN:
        reason = of_repeated_effect(undisturbed.log, run.log, tally.of)
    elif verdict is Verdict.NEVER:
        reason = of_missing_effect(undisturbed.log, run.log, last)
    elif verdict is Verdict.CRASHED:
        reason = Reason(Cause.CRASHED)
    elif verdict is Verdict.TIMED_OUT:
        reason = Reason(Cause.TIMED_OUT)
    return tally, verdict, reason


def _verdict(scenario: Scenario, tally: Tally, results: list[str], last: str) -> Verdict:
    if tally.most > 1:
        return Verdict.AGAIN
    if "crashed" in results:
        return Verdict.CRASHED
    if "timed_out" in results:
        return Verdict.TIMED_OUT
    if tally.least == 1:
        return Verdict.ONCE
    if last == "held" and not scenario.is_undisturbed:
        return Verdict.HELD
    if scenario.kind is Kind.REFUSED and last in ("refused", "failed", "replayed_failure"):
        return Verdict.NOT_DONE
    return Verdict.NEVER
