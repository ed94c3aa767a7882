"""What the tests and the processes that they start have in common: effects that survive a kill, and small programs."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap
import time
from collections import Counter

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[3]
PACKAGE = HERE.parents[1] / "python"

# How often a scenario runs whose failures depend on timing.
ROUNDS = int(os.environ.get("ONCEWARD_TEST_ROUNDS", "2"))

# Longer than any program here takes on a busy machine.
PROGRAM_SECONDS = 60


# Options of Python for programs that fork: from 3.12 on, it warns of every fork of a process with threads.
QUIET_FORKS = ("-W", "ignore::DeprecationWarning")


class Effects:
    """Counts effects in a file. Each effect is one write that appends to the file, so it is there or not."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def add(self, name: object) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, f"{name}\n".encode())
        finally:
            os.close(descriptor)

    def all(self) -> list[str]:
        try:
            return pathlib.Path(self.path).read_text().splitlines()
        except FileNotFoundError:
            return []

    def count(self, name: object = None) -> int:
        found = self.all()
        return len(found) if name is None else found.count(str(name))

    def repeated(self) -> dict[str, int]:
        return {name: count for name, count in Counter(self.all()).items() if count > 1}


def environment() -> dict[str, str]:
    import onceward

    package = pathlib.Path(onceward.__file__).resolve().parents[1]
    return {**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{HERE}"}


def program(code: str, *arguments: object, options: tuple[str, ...] = ()) -> list[str]:
    return [sys.executable, *options, "-c", textwrap.dedent(code), *[str(one) for one in arguments]]


def start(code: str, *arguments: object, options: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Starts a program with pipes."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(program(code, *arguments, options=options), text=True, env=environment(), **pipes)


def run(code: str, *arguments: object, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end. A program that hangs fails the test."""
    command = program(code, *arguments, options=options)
    return subprocess.run(
        command, capture_output=True, text=True, env=environment(), timeout=PROGRAM_SECONDS, check=False
    )


def check(code: str, *arguments: object, options: tuple[str, ...] = ()) -> str:
    """Runs a program that must succeed and write nothing to stderr, and returns its stdout."""
    done = run(code, *arguments, options=options)
    assert (done.returncode, done.stderr) == (0, ""), f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def wait_until(is_true, seconds: float = 10) -> None:
    """Waits for something that happens in the background."""
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)
