"""Runs stages side by side: each as soon as the stages that it needs have passed and its pool has room."""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from runner import counts, supervise

SUPERVISOR = pathlib.Path(supervise.__file__)

# A hanging stage is ended after this time, so that its name is printed. No stage takes half of it, builds included.
STAGE_SECONDS = 1200

# How many stages may be run a second time, alone, after they failed beside others. Tests of time-outs and leases can fail on a
# busy machine; more failures than this are not a matter of time.
MAX_SECOND_RUNS = 5

# How long a supervisor may take to end the processes of its stage; it needs this long only when the kernel blocks.
STOP_SECONDS = 20


@dataclasses.dataclass
class Stage:
    name: str
    command: list
    # Names of stages that have to pass first.
    needs: tuple = ()
    # Stages of one pool share its slots.
    pool: str = "tests"
    # Reads the counts from the output.
    read: object = counts.of_program
    environment: dict = dataclasses.field(default_factory=dict)
    folder: pathlib.Path | None = None
    # Of a build: each test program that it makes becomes a stage under this title.
    title: str = ""


@dataclasses.dataclass
class Result:
    stage: Stage
    counts: counts.Counts
    code: int
    seconds: float
    cpu: float
    # Names of processes that the stage did not end itself.
    left: list
    log: str

    @property
    def passed(self):
        return self.code == 0 and self.counts.failed == 0


class Running:
    """A stage under its supervisor."""

    def __init__(self, stage, folder):
        self.stage, self.folder, self.started = stage, folder, time.monotonic()
        folder.mkdir()
        command = [sys.executable, str(SUPERVISOR), str(folder), str(STAGE_SECONDS), *map(str, stage.command)]
        environment = os.environ | {name: str(value) for name, value in stage.environment.items()}
        # A session of its own: Ctrl-C reaches the runner alone, which then stops the supervisors.
        self.process = subprocess.Popen(command, cwd=stage.folder, env=environment, start_new_session=True)

    def result(self):
        """The result of the stage, or None while it runs."""
        if self.process.poll() is None:
            return None
        try:
            status = json.loads((self.folder / "status").read_text())
        except (OSError, ValueError):
            status = {"code": self.process.returncode or 1, "cpu": 0.0, "left": []}
        try:
            log = (self.folder / "log").read_text(errors="replace")
        except OSError:
            log = ""
        seconds = time.monotonic() - self.started
        found = self.stage.read(log, status["code"])
        supervise.remove(self.folder)
        return Result(self.stage, found, status["code"], seconds, status["cpu"], status["left"], log)


class Schedule:
    def __init__(self, stages, pools, test_stages, folder, report, stop):
        """Runs `stages`. `test_stages` makes further ones from a build's result; signals in `stop` end the run."""
        self.waiting, self.pools, self.test_stages = list(stages), pools, test_stages
        self.folder, self.report, self.stop_signals = folder, report, stop
        self.running, self.passed, self.started = [], set(), 0
        # Test stages that failed beside others and have to pass alone.
        self.failed, self.second_runs = [], 0

    def run(self):
        """Runs every stage. Returns False if a signal ended the run."""
        while self.waiting or self.running or self.failed:
            self.start_what_can()
            if not self.running:
                raise RuntimeError(f"these stages need others that do not exist: {[stage.name for stage in self.waiting]}")
            received = signal.sigtimedwait(self.stop_signals | {signal.SIGCHLD}, 1.0)
            if received and received.si_signo in self.stop_signals:
                self.stop()
                return False
            self.collect()
        return True

    def start_what_can(self):
        for stage in list(self.waiting):
            busy = sum(running.stage.pool == stage.pool for running in self.running)
            if busy < self.pools[stage.pool] and self.passed.issuperset(stage.needs):
                self.waiting.remove(stage)
                self.started += 1
                self.running.append(Running(stage, self.folder / str(self.started)))
        if self.failed and not self.running:
            self.started += 1
            self.running.append(Running(self.failed[0], self.folder / str(self.started)))

    def collect(self):
        for running in list(self.running):
            result = running.result()
            if result is None:
                continue
            self.running.remove(running)
            ran_alone = bool(self.failed) and self.failed[0] is result.stage
            if ran_alone:
                self.failed.pop(0)
            elif not result.passed and result.stage.pool == "tests" and self.second_runs < MAX_SECOND_RUNS:
                self.second_runs += 1
                self.failed.append(result.stage)
                self.report.runs_again(result)
                continue
            if result.passed and result.stage.title:
                # In front: these take longest.
                self.waiting = self.test_stages(result) + self.waiting
            self.report.finished(result, ran_alone)
            if result.passed:
                self.passed.add(result.stage.name)
            else:
                self.drop_dependents(result.stage.name)

    def drop_dependents(self, name):
        for stage in [stage for stage in self.waiting if name in stage.needs]:
            if stage in self.waiting:
                self.waiting.remove(stage)
                self.report.not_run(stage, name)
                self.drop_dependents(stage.name)

    def stop(self):
        """Ends every running stage."""
        for running in self.running:
            running.process.terminate()
        for running in self.running:
            self.report.ended(running.stage)
            try:
                running.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                running.process.kill()
                running.process.wait()
