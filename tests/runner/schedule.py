"""Runs stages side by side: each as soon as the stages that it needs have passed and its pool has room. Services run beside
them until all have ended."""

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

# A hanging stage is ended after this time, so that its name is printed. The release build, which lets the tests go first, takes the
# longest: about half of it.
STAGE_SECONDS = 2700

# How many stages may be run a second time, alone, after they failed beside others. Tests of time-outs and leases can fail on a
# busy machine; more failures than this are not a matter of time.
MAX_SECOND_RUNS = 5

# A service runs as long as the stages do; this is longer than any run.
SERVICE_SECONDS = 6 * 3600

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
    # Of a build: what the integration tests that it makes need.
    programs_need: tuple = ()
    # Its last argument is a folder. It is ready when it has written variables, as JSON, to the file `ready` there: stages that
    # need it start then, with these variables. It ends when a file `stop` is there.
    is_service: bool = False


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

    def __init__(self, stage, folder, variables):
        self.stage, self.folder, self.started = stage, folder, time.monotonic()
        folder.mkdir()
        seconds, more = (SERVICE_SECONDS, [folder]) if stage.is_service else (STAGE_SECONDS, [])
        command = [sys.executable, SUPERVISOR, folder, seconds, *stage.command, *more]
        environment = os.environ | {name: str(value) for name, value in (variables | stage.environment).items()}
        # A session of its own: Ctrl-C reaches the runner alone, which then stops the supervisors.
        self.process = subprocess.Popen(list(map(str, command)), cwd=stage.folder, env=environment, start_new_session=True)

    def variables(self):
        """What a service that is ready tells other stages, or None."""
        try:
            return json.loads((self.folder / "ready").read_text())
        except OSError:
            return None

    def result(self):
        """The result of the stage, or None while it runs."""
        if self.process.poll() is None:
            return None
        try:
            status = json.loads((self.folder / "status").read_text())
        except (OSError, ValueError):
            status = {"code": self.process.returncode or 1, "cpu": 0.0, "left": []}
        if self.stage.is_service and not (self.folder / "stop").exists():
            # It was still needed.
            status["code"] = status["code"] or 1
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
        # Services that are ready, and what each one tells the stages that need it.
        self.services, self.variables = [], {}
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
        self.stop_services()
        return True

    def start_what_can(self):
        for stage in list(self.waiting):
            busy = sum(running.stage.pool == stage.pool for running in self.running)
            if busy < self.pools[stage.pool] and self.passed.issuperset(stage.needs):
                self.waiting.remove(stage)
                self.start(stage)
        if self.failed and not self.running:
            self.start(self.failed[0])

    def start(self, stage):
        self.started += 1
        variables = {}
        for name in stage.needs:
            variables |= self.variables.get(name, {})
        self.running.append(Running(stage, self.folder / str(self.started), variables))

    def collect(self):
        for running in list(self.running):
            result = running.result()
            if result is None:
                if running.stage.is_service:
                    self.collect_service(running)
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

    def collect_service(self, running):
        """Lets the stages that need a service start once it is ready."""
        variables = running.variables()
        if variables is not None:
            self.running.remove(running)
            self.services.append(running)
            self.variables[running.stage.name] = variables
            self.passed.add(running.stage.name)
            self.report.ready(running.stage, time.monotonic() - running.started)

    def stop_services(self):
        """Ends every service, and reports what it said."""
        for running in self.services:
            if running.process.poll() is None:
                (running.folder / "stop").touch()
        for running in self.services:
            end(running, STOP_SECONDS)
            self.report.finished(running.result())
        self.services = []

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
            end(running, STOP_SECONDS)
        self.stop_services()


def end(running, seconds):
    """Waits for the end of a stage that was told to end, and ends it if it does not."""
    for tell in (running.process.terminate, running.process.kill):
        try:
            running.process.wait(seconds)
            return
        except subprocess.TimeoutExpired:
            tell()
    running.process.wait()
