"""The result of a check: one line for each scenario, and the cause of each failure with how to fix it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ._cause import Cause, Reason
from ._errors import NotOnce
from ._scenario import Kind, Scenario
from ._verdict import CallResult, ScenarioRun, Tally, Verdict, judge

_HEADINGS = ("calls", "happened", "replayed", "held", "refused", "failed")

# Advice is wrapped at this width.
_WIDTH = 100

# How many scenarios with the same cause are listed; the table has all of them.
_MAX_LISTED = 4

# The columns of the table of several tools, after the name of the tool.
_SUMMARY = ("scenarios", "once", "held", "not done", "not tried", "broken")


@dataclass(frozen=True)
class ScenarioReport:
    """The result of one scenario: one line of the report."""

    scenario: Scenario
    verdict: Verdict
    # How each call ended, in the order in which they began.
    results: tuple[CallResult, ...] = ()
    tally: Tally = Tally(0, 0)
    reason: Reason | None = None
    description: str = ""

    @classmethod
    def of(cls, scenario: Scenario, run: ScenarioRun, undisturbed: ScenarioRun) -> ScenarioReport:
        tally, verdict, reason = judge(scenario, run, undisturbed)
        return cls(scenario, verdict, tuple(run.results), tally, reason, _describe(run, verdict, tally.of))

    @property
    def happened(self) -> int:
        """How often the effect happened. For a tool with several effects: the one that happened most often."""
        return self.tally.most

    @property
    def cause(self) -> Cause | None:
        """Why the scenario failed, if it did."""
        return None if self.reason is None else self.reason.cause

    @property
    def replayed(self) -> int:
        """How often a call got the stored outcome."""
        return self._count("replayed", "replayed_failure")

    @property
    def held(self) -> int:
        """How often a call was refused because the intent is in doubt."""
        return self._count("held")

    @property
    def refused(self) -> int:
        """How often a call was refused for another reason, mostly because the intent was in flight."""
        return self._count("refused")

    @property
    def failed(self) -> int:
        """How often the tool failed."""
        return self._count("failed", "crashed", "timed_out")

    @property
    def ends_held(self) -> bool:
        """Whether the intent is in doubt at the end of the scenario: the last repeat was refused for that reason."""
        return bool(self.results) and self.results[-1].kind == "held"

    def _count(self, *kinds: str) -> int:
        return sum(result.kind in kinds for result in self.results)


def _describe(run: ScenarioRun, verdict: Verdict, of: str | None) -> str:
    """What happened in which calls."""
    failed = ("failed", "refused", "crashed", "timed_out")
    numbered = enumerate(run.results, 1)
    errors = "".join(
        f"; call {number} failed: {one.error}" for number, one in numbered if one.kind in failed and one.error
    )
    if verdict is Verdict.AGAIN:
        calls = [entry.call for entry in run.log if entry.is_new_effect(of)]
        name = f'"{of}" ' if of else ""
        return f"{name}happened {len(calls)} times, in {_call_list(sorted(set(calls)))}"
    texts = {Verdict.NEVER: "it never happened", Verdict.CRASHED: "its process ended"}
    if verdict in texts:
        return texts[verdict] + errors
    return "it did not return in time" if verdict is Verdict.TIMED_OUT else ""


def _call_list(calls: Sequence[int]) -> str:
    """`call 1`; `calls 1 and 2`; `calls 1, 2 and 3`."""
    *first, last = [str(call) for call in calls]
    return f"calls {', '.join(first)} and {last}" if first else f"call {last}"


@dataclass(frozen=True)
class Report:
    """The result of a check of one tool. Its text is a table."""

    tool: str
    store: str
    lines: tuple[ScenarioReport, ...]

    @property
    def violations(self) -> list[ScenarioReport]:
        """The scenarios in which the effect happened more than once, or never happened without the caller knowing."""
        return [line for line in self.lines if line.verdict.is_broken]

    @property
    def is_once(self) -> bool:
        """Whether the effect never happened more than once, and happened once in every scenario where that can be
        known."""
        return not self.violations

    @property
    def most(self) -> int:
        """How often the effect happened in the scenario where it happened most often."""
        return max((line.happened for line in self.lines), default=0)

    @property
    def held(self) -> int:
        """In how many scenarios the intent is in doubt at the end, so that an operator has to settle it."""
        return sum(line.ends_held for line in self.lines)

    def verdict(self, scenario: str) -> Verdict:
        """The verdict on a scenario, by its name in the report."""
        found = next((line.verdict for line in self.lines if str(line.scenario) == scenario), None)
        if found is None:
            raise KeyError(f"the report has no line `{scenario}`")
        return found

    def assert_once(self) -> Report:
        """Fails with the report unless the effect happens once: never more than once in any scenario, and exactly once
        except where the intent is held in doubt because the outcome is unknown."""
        __tracebackhide__ = True
        return self._expect(self.is_once, "its effect must happen once")

    def assert_at_most(self, times: int) -> Report:
        """Fails with the report if the effect happens more often than this in any scenario."""
        __tracebackhide__ = True
        demand = f"its effect must happen at most {times} times, and it happened {self.most} times"
        return self._expect(self.most <= times, demand)

    def assert_held(self, scenarios: int) -> Report:
        """Fails with the report unless the intent ends in doubt in exactly this many scenarios. A tool whose provider
        honours keys, or can be probed, is never held: `assert_held(0)`."""
        __tracebackhide__ = True
        demand = f"it must be held in doubt in {scenarios} scenarios, and it was held in {self.held}"
        return self._expect(self.held == scenarios, demand)

    def _expect(self, holds: bool, demand: str) -> Report:
        __tracebackhide__ = True
        if not holds:
            raise NotOnce(f"{self.tool}: {demand}\n\n{self}")
        return self

    def __str__(self) -> str:
        broken = len(self.violations)
        result = f"{broken} BROKEN" if broken else "none broken"
        parts = [f"{self.tool} on {self.store}: {len(self.lines)} scenarios, {result}", _table(self.lines)]
        parts += [_reason_text(lines) for lines in _by_cause(self.lines)]
        parts += [_paragraph("  ", note) for note in _notes(self.lines)]
        return "\n\n".join(parts)


@dataclass(frozen=True)
class Reports:
    """The result of a check of several tools: a line for each, and the full reports of those that are broken."""

    reports: tuple[Report, ...]

    @property
    def is_once(self) -> bool:
        """Whether every tool passed. See `Report.is_once`."""
        return all(report.is_once for report in self.reports)

    def assert_once(self) -> Reports:
        """Fails with the reports unless the effect of every tool happens once. See `Report.assert_once`."""
        __tracebackhide__ = True
        if not self.is_once:
            raise NotOnce(f"the effect of every tool must happen once\n\n{self}")
        return self

    def __str__(self) -> str:
        width = max([len("tool"), *(len(report.tool) for report in self.reports)])
        rows = ["  ".join([f"{'tool':{width}}", *_SUMMARY])]
        for report in self.reports:
            verdicts = [str(line.verdict) for line in report.lines]
            counts = [len(verdicts), *(verdicts.count(name) for name in _SUMMARY[1:-1]), len(report.violations)]
            cells = [f"{count:>{len(name)}}" for count, name in zip(counts, _SUMMARY, strict=True)]
            rows.append("  ".join([f"{report.tool:{width}}", *cells, "ok" if report.is_once else "BROKEN"]))
        return "\n\n".join(["\n".join(rows), *(str(report) for report in self.reports if not report.is_once)])


def _table(lines: Iterable[ScenarioReport]) -> str:
    named = [(str(line.scenario), line) for line in lines]
    width = max((len(name) for name, _ in named), default=0)
    rows = [("", _HEADINGS, "verdict"), *((name, _cells(line), str(line.verdict)) for name, line in named)]
    return "\n".join(
        "  ".join([f"  {name:{width}}", *(f"{cell:>{len(head)}}" for cell, head in zip(cells, _HEADINGS)), verdict])
        for name, cells, verdict in rows
    )


def _cells(line: ScenarioReport) -> tuple[str, ...]:
    if line.verdict is Verdict.NOT_TRIED:
        return ("-",) * len(_HEADINGS)
    least, most = line.tally.least, line.tally.most
    happened = str(most) if least == most else f"{least} to {most}"
    counts = (line.replayed, line.held, line.refused, line.failed)
    return (str(len(line.results)), happened, *map(str, counts))


def _by_cause(lines: Iterable[ScenarioReport]) -> list[list[ScenarioReport]]:
    """The failed scenarios, grouped by cause."""
    causes: dict[Cause, list[ScenarioReport]] = {}
    for line in lines:
        if line.cause is not None:
            causes.setdefault(line.cause, []).append(line)
    return list(causes.values())


def _reason_text(lines: Sequence[ScenarioReport]) -> str:
    texts = [_paragraph("  ", f"{line.verdict}: {line.scenario}: {line.description}") for line in lines[:_MAX_LISTED]]
    if len(lines) > _MAX_LISTED:
        texts.append(f"  and {len(lines) - _MAX_LISTED} more like these")
    reason = lines[0].reason
    assert reason is not None
    return "\n".join([*texts, _paragraph("  -> ", reason.advice)])


def _notes(lines: Sequence[ScenarioReport]) -> list[str]:
    """Notes about scenarios that are not broken."""

    def any_of(verdict: Verdict, is_meant: Callable[[Scenario], bool]) -> bool:
        return any(line.verdict is verdict and is_meant(line.scenario) for line in lines)

    notes = []
    if any_of(Verdict.HELD, lambda scenario: scenario.kind is not Kind.REFUSED):
        notes.append(
            "held: the outcome is unknown, so no repeat runs until an operator settles it. With a provider that "
            'honours keys (`in_doubt="retry"`) or can be probed (`probe=…`), this needs no operator.'
        )
    if any_of(Verdict.HELD, lambda scenario: scenario.kind is Kind.REFUSED):
        notes.append(
            "held after a refusal: the provider had refused before it acted, so nothing had happened. Raise "
            '`onceward.NotSent` for such an error, or name its class (`on_error={ConnectionRefusedError: "retry"}`), '
            'so that '
            "repeats can run."
        )
    if any_of(Verdict.NOT_TRIED, lambda scenario: scenario.kind is Kind.REFUSED):
        notes.append(
            "not tried: the tool's own test double only counts. Name the function that acts with `once.effect(…)`, so "
            "that answers can be lost and requests refused."
        )
    return notes


def _paragraph(lead: str, text: str) -> str:
    """Wraps a text; the lines after the first are indented by the length of `lead`."""
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=lead,
        subsequent_indent=" " * len(lead),
        break_long_words=False,
        break_on_hyphens=False,
    )
