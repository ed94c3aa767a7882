"""The test command: formatting, lints, unit, integration, documentation and example tests, real clients, harnesses, release
build. The last line counts passed, failed and skipped tests."""

import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

from runner import cargo, stages, supervise
from runner.report import Report
from runner.schedule import Schedule


def arguments():
    parser = argparse.ArgumentParser(prog="./test", description=__doc__)
    parser.add_argument("--strict", action="store_true", help="fail if a test is skipped; CI=true does the same")
    parser.add_argument("--only", metavar="TEXT", default="", help="run only stages whose names contain TEXT, and what they need")
    parser.add_argument("--list", action="store_true", help="list the stages; test programs are known after their build")
    return parser.parse_args()


def is_strict(given):
    return given.strict or os.environ.get("CI", "").lower() in ("true", "1")


def inherited_as_ignored():
    """Signals that the program that started this run wants ignored, as nohup does with SIGHUP."""
    return {number for number in supervise.STOP if signal.getsignal(number) == signal.SIG_IGN}


def run(report, only):
    """Runs the stages. Returns False if a signal ended the run."""
    stop = supervise.STOP - inherited_as_ignored()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Blocked, so that none is lost between two stages; the schedule receives them.
    signal.pthread_sigmask(signal.SIG_BLOCK, supervise.STOP | {signal.SIGCHLD})
    supervise.adopt_orphans()
    target = cargo.target_folder()
    os.environ |= stages.environment(target)
    chosen = stages.only(stages.every_stage(target), only)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="onceward-test-"))
    if os.geteuid() == 0:
        # PostgreSQL runs as a user of its own below it.
        folder.chmod(0o711)
    try:
        return Schedule(chosen, stages.POOLS, lambda built: test_stages(built, only), folder, report, stop).run()
    finally:
        # If a supervisor was killed, its processes and files are still there.
        supervise.end_descendants()
        supervise.remove(folder)


def test_stages(built, only):
    found = cargo.test_stages(built.log, built.stage.title, built.stage.programs_need)
    return [stage for stage in found if only in stage.name]


def main():
    given = arguments()
    os.chdir(stages.ROOT)
    if given.list:
        print(*(stage.name for stage in stages.every_stage(cargo.target_folder())), sep="\n")
        return 0
    missing = [tool for tool in ("cargo", "clippy-driver", "ps") if not shutil.which(tool)]
    if missing:
        sys.exit(f"{', '.join(missing)} not found: the test command needs the Rust toolchain and procps")
    report = Report(is_strict(given))
    version = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=False).stdout.strip()
    report.line(f"started with {version}, Python {sys.version.split()[0]}, {os.cpu_count()} processors")
    return report.close(run(report, given.only))
