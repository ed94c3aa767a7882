"""Checks one tool: chooses its scenarios, runs each of them, and builds the report."""

from __future__ import annotations

import dataclasses
import itertools
import os
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from .._context import current_session
from ._bench import ProcessPlan
from ._child import Tool
from ._errors import InvalidCheck
from ._log import Entry, read, steps
from ._process import DEFAULT_PROCESSES, ProcessEnd, run
from ._report import Report, ScenarioReport
from ._scenario import Kind, Scenario, named
from ._verdict import CallResult, ScenarioRun, Verdict

# How long the provider takes in calls at once: long enough for all of them to begin.
_OVERLAP_SECONDS = 0.05

# The stores of scenarios are here, if it exists: a file system in memory outlives a killed process as a disk does, and
# does not wait for a disk.
_MEMORY = next((folder for folder in ("/dev/shm",) if os.access(folder, os.W_OK)), None)


@dataclass(frozen=True)
class Options:
    """How tools are checked."""

    # The number of calls one after the other: the first call, a repeat, and the repeat of a repeat.
    repeats: int = 3
    # The number of concurrent calls.
    at_once: int = 8
    # How often a call is repeated after a disturbed one.
    retries: int = 2
    # Seconds before the first repeat: long enough for a key that contains the time in whole seconds to change.
    pause: float = 1.1
    # Seconds that a call may take. On a busy disk a write can take several seconds.
    timeout: float = 30.0
    # "fork" or "fresh".
    processes: str = DEFAULT_PROCESSES


class Check:
    """The check of one tool. `once(tool, *args)` makes it; each of its methods runs scenarios and fails unless the
    effect happens once in all of them."""

    def __init__(
        self, tool: Tool, options: Options, counts_itself: bool, on_report: Callable[[Report], None]
    ) -> None:
        self._tool, self._options, self._on_report = tool, options, on_report
        # The tool may count through `once.provider` or a counter.
        self._counts_itself = counts_itself

    def settings(self, **settings: Any) -> Check:
        """Changes settings of this check: `repeats`, `at_once`, `retries`, `pause`, `timeout`, `processes`."""
        self._options = changed(self._options, settings)
        return self

    def check(self) -> Report:
        """Runs all scenarios and prints the report."""
        __tracebackhide__ = True
        report = self.report()
        print(f"{report}\n")
        return report.assert_once()

    def three_times(self) -> Report:
        """Calls the tool three times, one call after the other."""
        __tracebackhide__ = True
        return self.times(3)

    def times(self, times: int) -> Report:
        """Calls the tool this many times, one call after the other."""
        __tracebackhide__ = True
        return self.settings(repeats=times).report(Kind.REPEATS).assert_once()

    def at_once(self, times: int = 8) -> Report:
        """Calls the tool this many times at the same time: in threads, or in tasks if it is async."""
        __tracebackhide__ = True
        return self.settings(at_once=times).report(Kind.AT_ONCE).assert_once()

    def answer_lost(self) -> Report:
        """Lets the provider act and lose its answer; then the call is repeated."""
        __tracebackhide__ = True
        return self._applied(Kind.LOST_ANSWER).assert_once()

    def refused(self) -> Report:
        """Lets the provider refuse before it acts; then the call is repeated."""
        __tracebackhide__ = True
        return self._applied(Kind.REFUSED).assert_once()

    def given_up_at_every_step(self) -> Report:
        """Cancels the call of an async tool at every step; then the call is repeated in the same process."""
        __tracebackhide__ = True
        return self._applied(Kind.GIVEN_UP).assert_once()

    def killed_at_every_step(self) -> Report:
        """Kills the process of the call at every step, with SIGKILL; then a new process repeats the call."""
        __tracebackhide__ = True
        return self.report(Kind.KILLED).assert_once()

    def report(self, *only: Kind) -> Report:
        """Runs all scenarios, or only these kinds, and returns the report without a judgement on it. A single
        undisturbed call always comes first."""
        if not self._tool.effects and not self._counts_itself:
            raise InvalidCheck(
                f"{self._tool.name}: no effect is named, so the kit could not count it, and the tool would really act. "
                'Name the function that acts, as in once.effect("shop.stripe.charge"), or use once.provider or '
                "once.counter(...)"
            )
        report = self._run(only or tuple(Kind))
        self._on_report(report)
        return report

    def _applied(self, kind: Kind) -> Report:
        report = self.report(kind)
        if report.is_once and all(line.verdict is Verdict.NOT_TRIED for line in report.lines[1:]):
            why = {
                Kind.GIVEN_UP: "only calls of async tools can be given up",
                Kind.LOST_ANSWER: "a counter only counts; name the function that acts with once.effect(...)",
                Kind.REFUSED: "a counter only counts; name the function that acts with once.effect(...)",
            }
            raise InvalidCheck(f"{self._tool.name}: {why[kind]}")
        return report

    def _run(self, kinds: Collection[Kind]) -> Report:
        undisturbed = self._scenario(Scenario(Kind.ONCE))
        lines = [ScenarioReport.of(Scenario(Kind.ONCE), undisturbed, undisturbed)]
        # If one undisturbed call does not have exactly one effect, the other scenarios have nothing to compare with.
        if not lines[0].verdict.is_broken:
            for scenario, at in self._scenarios(undisturbed):
                if scenario.kind in kinds:
                    lines.append(self._line(scenario, at, undisturbed))
        return Report(self._tool.name, "sqlite", tuple(lines))

    def _line(self, scenario: Scenario, at: int | None, undisturbed: ScenarioRun) -> ScenarioReport:
        if at is None:
            return ScenarioReport(scenario, Verdict.NOT_TRIED)
        done = self._scenario(scenario, at, undisturbed.is_async)
        if scenario.step is not None and not done.is_stopped:
            return ScenarioReport(scenario, Verdict.NOT_TRIED)
        return ScenarioReport.of(scenario, done, undisturbed)

    def _scenarios(self, undisturbed: ScenarioRun) -> list[tuple[Scenario, int | None]]:
        """Every scenario for a tool whose undisturbed call is known, with the number of the request or step that is
        disturbed; `None` if there is none."""
        passed = named(steps(undisturbed.log))
        requests = [step for step in passed if (step.side, step.kind) == ("before", "effect")]
        found: list[tuple[Scenario, int | None]] = [
            (Scenario(Kind.REPEATS, self._options.repeats), 0),
            (Scenario(Kind.AT_ONCE, self._options.at_once), 0),
        ]
        for kind in (Kind.LOST_ANSWER, Kind.REFUSED):
            found += [(Scenario(kind, of=step.of), at) for at, step in enumerate(requests)] or [(Scenario(kind), None)]
        if undisturbed.is_async:
            found += [(Scenario(Kind.GIVEN_UP, step=step), at) for at, step in enumerate(passed)]
        found += [(Scenario(Kind.KILLED, step=step), at) for at, step in enumerate(passed)]
        return found

    def _scenario(self, scenario: Scenario, at: int = 0, is_async: bool = False) -> ScenarioRun:
        """Runs one scenario on its own store, with a process for each life of the tool."""
        with tempfile.TemporaryDirectory(prefix="onceward-", dir=_MEMORY, ignore_cleanup_errors=True) as folder:
            shared = ProcessPlan(folder, session=current_session(), is_async=is_async)
            plans = _plans(scenario, at, self._options, shared)
            ends = [run(self._tool, plan, self._options.processes, self._options.timeout) for plan in plans]
            log = read(folder)
        is_stopped = any(entry.event == "stopped" for entry in log)
        results = [
            _result(call, end, is_stopped, log)
            for plan, end in zip(plans, ends, strict=True)
            for call in range(plan.first, plan.first + plan.calls)
        ]
        is_async = any(one.get("is_async") for one in itertools.chain(*(end.results for end in ends)))
        return ScenarioRun(results, log, is_stopped, is_async)


def changed(options: Options, settings: dict[str, Any]) -> Options:
    """The options with other settings."""
    unknown = set(settings) - {one.name for one in dataclasses.fields(Options)}
    if unknown:
        raise InvalidCheck(f"unknown settings: {', '.join(sorted(unknown))}")
    return dataclasses.replace(options, **settings)


def _plans(scenario: Scenario, at: int, options: Options, plan: ProcessPlan) -> list[ProcessPlan]:
    """The processes of a scenario, one after the other."""
    calls = 1 + options.retries
    if scenario.kind is Kind.REPEATS:
        return [dataclasses.replace(plan, calls=scenario.times, pause=options.pause)]
    if scenario.kind is Kind.AT_ONCE:
        return [dataclasses.replace(plan, calls=scenario.times, at_once=True, takes=_OVERLAP_SECONDS)]
    if scenario.kind is Kind.LOST_ANSWER:
        return [dataclasses.replace(plan, calls=calls, fault=(at, "lost"))]
    if scenario.kind is Kind.REFUSED:
        return [dataclasses.replace(plan, calls=calls, fault=(at, "refused"))]
    if scenario.kind is Kind.GIVEN_UP:
        return [dataclasses.replace(plan, calls=calls, stop=(at, "given_up"))]
    if scenario.kind is Kind.KILLED:
        repeat = dataclasses.replace(plan, first=2, calls=options.retries, is_repeat=True)
        return [dataclasses.replace(plan, stop=(at, "killed")), repeat]
    return [plan]


def _result(call: int, end: ProcessEnd, is_stopped: bool, log: Sequence[Entry]) -> CallResult:
    """How a call ended."""
    if is_stopped and call == 1:
        return CallResult("interrupted")
    sent = next((one for one in end.results if one["call"] == call), None)
    if sent is not None:
        return CallResult.of(call, sent["error"], log)
    if end.is_timed_out:
        return CallResult("timed_out")
    how = f"exit code {end.status}" if end.status >= 0 else f"signal {-end.status}"
    return CallResult("crashed", f"its process ended with {how}")
