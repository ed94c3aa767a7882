"""Starts the real processes of a scenario and waits for them: forked from the test, or fresh interpreters."""

from __future__ import annotations

import gc
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass, field
from typing import Any

from ._bench import ProcessPlan
from ._child import Tool, packed, serve
from ._errors import InvalidCheck

# A forked process has the test's functions, fixtures and patches, and starts in milliseconds. Outside of Linux,
# libraries of the system do not work after a fork.
DEFAULT_PROCESSES = "fork" if sys.platform == "linux" else "fresh"

# How often a process is looked after, in case that its own children keep the pipe open.
_POLL_SECONDS = 0.1


@dataclass
class ProcessEnd:
    """How a process ended."""

    # What it sent about each call, in the order in which the calls ended.
    results: list[dict[str, Any]] = field(default_factory=list)
    # Its exit code; negative for a signal.
    status: int = 0
    is_timed_out: bool = False


def run(tool: Tool, plan: ProcessPlan, processes: str, timeout: float) -> ProcessEnd:
    """Runs one process of a scenario. Each call has `timeout` seconds."""
    reader, writer = os.pipe()
    try:
        start = {"fork": _fork, "fresh": _fresh}.get(processes)
        if start is None:
            raise InvalidCheck(f'processes are "fork" or "fresh", not {processes!r}')
        pid = start(tool, plan, reader, writer)
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    try:
        return _watch(pid, reader, timeout + plan.waits)
    finally:
        os.close(reader)


def _fork(tool: Tool, plan: ProcessPlan, reader: int, writer: int) -> int:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    with warnings.catch_warnings():
        # Python warns about every fork of a process with threads. The ledger's own threads are prepared for it, and a
        # child that waits for a lock of another library is ended at the timeout.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        # Objects of the test are not collected here: that could close or delete what the test still uses.
        gc.freeze()
        os.close(reader)
        serve(lambda: tool, plan, writer)
    return pid


def _fresh(tool: Tool, plan: ProcessPlan, reader: int, writer: int) -> int:
    work = packed(tool, plan, writer)
    command = [sys.executable, "-c", f"from {__package__}._child import main; main()"]
    # The test runner may have found this package in a folder of its own.
    path = [str(pathlib.Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))}
    child = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(writer,), env=environment)
    assert child.stdin is not None
    try:
        child.stdin.write(work)
        child.stdin.close()
    except BrokenPipeError:
        pass
    # It is waited for by its id, like a forked one.
    child.returncode = 0
    return child.pid


def _watch(pid: int, reader: int, timeout: float) -> ProcessEnd:
    """Reads results until the process ends. One that takes too long is killed."""
    end, rest, deadline, is_over = ProcessEnd(), b"", time.monotonic() + timeout, False
    readable = select.poll()
    readable.register(reader, select.POLLIN)
    try:
        while not is_over:
            ready = bool(readable.poll(_POLL_SECONDS * 1000))
            chunk = os.read(reader, 65536) if ready else b""
            *lines, rest = (rest + chunk).split(b"\n")
            end.results += [json.loads(line) for line in lines]
            if lines:
                deadline = time.monotonic() + timeout
            if ready and not chunk:
                is_over = True
            elif not ready:
                # Its own children may keep the pipe open after its end.
                found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                is_over = found is not None
            if not is_over and time.monotonic() > deadline:
                end.is_timed_out = is_over = True
                os.kill(pid, signal.SIGKILL)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        end.status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    broken = next((result["broken"] for result in end.results if "broken" in result), None)
    if broken is not None:
        raise InvalidCheck(broken)
    return end
