"""Prints what happened in a test run: a line for each stage when it ends, the skipped tests, and the totals."""

import collections
import shutil
import time

from runner import counts

# Enough of a failed stage's output to see why; panics and assertions come last.
LOG_LINES = 200

# Lines that say nothing about a failure.
NOISE = ('{"reason"', "   Compiling ", "  Downloaded ", "    Checking ", " Downloading ")


class Report:
    def __init__(self, strict):
        self.strict, self.started = strict, time.monotonic()
        self.counts, self.failures = counts.Counts(), []
        # Stages that failed beside others and passed alone.
        self.unstable = []

    def line(self, text):
        seconds = int(time.monotonic() - self.started)
        print(f"{seconds // 60:3d}:{seconds % 60:02d}  {text}", flush=True)

    def finished(self, result, ran_alone=False):
        name, found = result.stage.name, result.counts
        reasons = [f"{name}: {reason}" for reason in found.reasons]
        self.counts += counts.Counts(found.passed, found.failed, found.skipped, reasons)
        verdict = "FAILED " if not result.passed else "skipped" if found.skipped and not found.passed else "ok     "
        self.line(f"{verdict} {result.seconds:6.1f} s (cpu {result.cpu:6.1f} s)  {name}: {found}")
        if result.left:
            self.line(f"        ended {len(result.left)} processes that it left running: {', '.join(result.left[:10])}")
        if result.passed and ran_alone:
            self.unstable.append(name)
        if not result.passed:
            self.failures.append(name)
            self.show(result)

    def ready(self, stage, seconds):
        """The service serves other stages from now on."""
        self.line(f"ready   {seconds:6.1f} s  {stage.name}")

    def runs_again(self, result):
        """The stage failed beside others, and runs once more when nothing else does."""
        self.line(f"failed   {result.stage.name}: {result.counts}; runs again alone, at the end")
        self.show(result)

    def show(self, result):
        lines = [line for line in result.log.splitlines() if not line.startswith(NOISE) and not line.endswith(" ... ok")]
        print(*lines[-LOG_LINES:], sep="\n")
        why = f"{result.stage.name} ended with code {result.code}"
        print(f"failed: {why}{', out of time' if result.code == 124 else ''}", flush=True)

    def not_run(self, stage, needed):
        self.counts += counts.Counts(skipped=1, reasons=[f"{stage.name}: {needed} failed"])
        self.line(f"not run  {stage.name}: {needed} failed")

    def ended(self, stage):
        self.counts += counts.Counts(failed=1)
        self.line(f"ended   {stage.name}")

    def close(self, completed):
        """Prints the totals. Returns the exit code."""
        self.show_skipped()
        if self.unstable:
            print("passed only when run alone, which a test should not need: " + "; ".join(self.unstable))
        if self.failures:
            print("failed stages: " + "; ".join(self.failures))
        refused = self.strict and self.counts.skipped > 0
        if refused:
            print("FAILED: tests were skipped, which --strict and CI=true do not allow")
        if not completed:
            print("FAILED: ended by a signal")
        print(f"\n{self.counts}", flush=True)
        return 1 if self.counts.failed or refused or not completed else 0

    def show_skipped(self):
        if not self.counts.skipped:
            return
        print(f"\n{self.counts.skipped} skipped:")
        width = max(80, shutil.get_terminal_size((160, 24)).columns)
        for reason, times in collections.Counter(self.counts.reasons).items():
            print(f"  {reason[:width]}{f' (×{times})' if times > 1 else ''}")

