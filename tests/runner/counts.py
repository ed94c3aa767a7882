"""Reads the output of a stage: how many tests passed, failed and were skipped, and why the skipped ones were."""

import dataclasses
import re

OWN_TOTAL = re.compile(r"(\d+) passed, (\d+) failed, (\d+) skipped")
CARGO_TOTAL = re.compile(r"^test result: .*?(\d+) passed; (\d+) failed; (\d+) ignored", re.MULTILINE)
CARGO_IGNORED = re.compile(r"^test (.+) \.\.\. ignored(?:, (.+))?$", re.MULTILINE)
SKIPPED = re.compile(r"^skipped: *(.+)$", re.MULTILINE | re.IGNORECASE)


@dataclasses.dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    # One line for each skipped test, or for each reason.
    reasons: list = dataclasses.field(default_factory=list)

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"

    def __add__(self, more):
        reasons = self.reasons + more.reasons
        return Counts(self.passed + more.passed, self.failed + more.failed, self.skipped + more.skipped, reasons)


def of_check(log, code):
    """A command that passes or fails as a whole. One that exits with 0 and prints `skipped: REASON` was skipped."""
    reasons = SKIPPED.findall(log)
    if code != 0:
        return Counts(failed=1, reasons=reasons)
    return Counts(passed=0 if reasons else 1, skipped=len(reasons), reasons=reasons)


def of_program(log, code):
    """A test program whose last line is `N passed, N failed, N skipped`."""
    total = OWN_TOTAL.fullmatch(log.rstrip().rpartition("\n")[2])
    counts = Counts(*map(int, total.groups())) if total else Counts()
    counts.reasons = SKIPPED.findall(log)
    return failed_at_least_once(counts, code != 0 or total is None)


def of_cargo(log, code):
    """Rust's test runner. A test that prints `skipped: REASON` has not tested anything, though it counts as passed."""
    counts = Counts()
    for passed, failed, ignored in CARGO_TOTAL.findall(log):
        counts += Counts(int(passed), int(failed), int(ignored))
    printed = SKIPPED.findall(log)
    ignored = [f"{name}: {why or 'ignored'}" for name, why in CARGO_IGNORED.findall(log)]
    counts += Counts(passed=-len(printed), skipped=len(printed), reasons=printed + ignored)
    return failed_at_least_once(counts, code != 0)


def failed_at_least_once(counts, failed):
    """A program that failed without a failed test (it broke or timed out) is a failure too."""
    if failed and counts.failed == 0:
        counts.failed = 1
    return counts
