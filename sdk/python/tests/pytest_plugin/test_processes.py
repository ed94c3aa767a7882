"""The processes of scenarios: real ones, really killed, forked or fresh."""

from __future__ import annotations

import functools
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import warnings
from typing import Any

import pytest
import shop

import onceward
from onceward.testing import Cause, InvalidCheck, Kind, Once, Verdict, _process


def pids(file: pathlib.Path) -> list[int]:
    return [int(line) for line in file.read_text().split()]


def test_processes_are_real_and_really_killed(
    kit: Once, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, ends = tmp_path / "pids", []
    watch = _process._watch

    def watched(pid: int, reader: int, timeout: float) -> Any:
        end = watch(pid, reader, timeout)
        ends.append((pid, end.status))
        return end

    def tool(invoice: int) -> str:
        with file.open("a") as out:
            out.write(f"{os.getpid()}\n")
        return shop.held(invoice)

    monkeypatch.setattr(_process, "_watch", watched)
    report = kit(tool, 42, effect="shop.pay").killed_at_every_step()
    killed = [pid for pid, status in ends if status == -signal.SIGKILL]
    assert len(killed) == len(report.lines) - 1 == 6
    # The first call, and for each step one call that is killed and two that repeat it in another process.
    seen = pids(file)
    assert os.getpid() not in seen and len(seen) == 1 + 6 * 3
    assert [seen[1 + 3 * step] for step in range(6)] == killed
    assert all(seen[2 + 3 * step] == seen[3 + 3 * step] != killed[step] for step in range(6))
    # None of them is left.
    for pid, _ in ends:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize("processes", ["fork", "fresh"])
def test_both_kinds_of_processes_give_the_same_report(kit: Once, processes: str) -> None:
    kit.settings(processes=processes, at_once=3)
    kit.effect("shop.pay")
    report = kit(shop.held, 42).report(Kind.AT_ONCE, Kind.LOST_ANSWER, Kind.REFUSED)
    assert [str(line.verdict) for line in report.lines] == ["once", "once", "once", "held"]
    report = kit(shop.unguarded, 42).report(Kind.KILLED)
    assert [str(line.verdict) for line in report.lines] == ["once", "AGAIN", "AGAIN"]


def test_a_fresh_interpreter_gets_methods_partials_keys_and_the_session(kit: Once) -> None:
    kit.settings(processes="fresh", repeats=2)
    kit(shop.Till(shop.client).charge, 42, effect="shop.Client.create").times(2)
    kit(functools.partial(shop.held, invoice=42), effect="shop.pay").times(2)
    with onceward.session("run-7"):
        kit(shop.in_session, 42, effect="shop.pay").times(2)
    report = kit(shop.in_session, 42, effect="shop.pay").report(Kind.ONCE)
    assert "SessionRequired" in report.lines[0].results[0].error


@pytest.mark.parametrize("where", ["tool", "argument", "answer"])
def test_what_a_fresh_interpreter_cannot_import_is_refused(kit: Once, where: str) -> None:
    kit.settings(processes="fresh")
    kit.effect("shop.pay", answer=(lambda invoice: "paid") if where == "answer" else "paid")
    tool: Any = (lambda invoice: shop.held(invoice)) if where == "tool" else shop.held
    argument: Any = threading.Lock() if where == "argument" else 42
    with pytest.raises(InvalidCheck, match='(?s)cannot be sent to a fresh interpreter.*processes="fork"'):
        kit(tool, argument).check()


def test_forked_processes_take_lambdas_and_locals(kit: Once) -> None:
    secret = object()

    def tool(invoice: int, something: object) -> str:
        assert something is secret
        return shop.held(invoice)

    kit(tool, 42, secret, effect="shop.pay").three_times()
    kit(lambda: shop.held(42), effect="shop.pay").three_times()


def test_unknown_settings_and_processes_are_refused(kit: Once) -> None:
    with pytest.raises(InvalidCheck, match="unknown settings: repeat$"):
        kit.settings(repeat=3)
    with pytest.raises(InvalidCheck, match='"fork" or "fresh"'):
        kit(shop.held, 42, effect="shop.pay").settings(processes="thread").check()


@pytest.mark.parametrize("how", ["exit", "signal"])
def test_a_tool_that_ends_its_process_has_crashed(kit: Once, how: str) -> None:
    def tool(invoice: int) -> None:
        shop.held(invoice)
        if how == "exit":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGTERM)

    report = kit(tool, 42, effect="shop.pay").report()
    assert [(line.verdict, line.cause) for line in report.lines] == [(Verdict.CRASHED, Cause.CRASHED)]
    assert ("exit code 3" if how == "exit" else "signal 15") in str(report)


def test_a_tool_that_does_not_return_is_ended(kit: Once) -> None:
    def tool(invoice: int) -> None:
        shop.held(invoice)
        time.sleep(60)

    began = time.monotonic()
    report = kit(tool, 42, effect="shop.pay").settings(timeout=0.5).report()
    assert time.monotonic() - began < 20
    assert [(line.verdict, line.cause) for line in report.lines] == [(Verdict.TIMED_OUT, Cause.TIMED_OUT)]


def test_a_process_that_leaves_children_behind_is_not_waited_for(kit: Once) -> None:
    def tool(invoice: int) -> int:
        shop.held(invoice)
        if os.fork() == 0:
            # Inherits the pipe of its parent.
            time.sleep(20)
            os._exit(0)
        return 1

    began = time.monotonic()
    assert kit(tool, 42, effect="shop.pay").report(Kind.ONCE).is_once
    assert time.monotonic() - began < 10


def test_a_fork_of_a_process_with_threads_gives_no_warning(kit: Once) -> None:
    idle = threading.Event()
    threads = [threading.Thread(target=idle.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            kit(shop.held, 42, effect="shop.pay").three_times()
    finally:
        idle.set()
    assert [str(one.message) for one in found] == []


def test_output_of_the_tool_is_shown_once(tmp_path: pathlib.Path) -> None:
    script = """
import shop, sys
from onceward.testing import Once
def tool(invoice):
    print("the tool prints")
    return shop.held(invoice)
sys.stdout.write("the test prints\\n")
Once(pause=0)(tool, 42, effect="shop.pay").times(2)
"""
    path = os.pathsep.join([str(pathlib.Path(shop.__file__).parent), str(pathlib.Path(onceward.__file__).parents[1])])
    # Text that the test has not written out yet must not be written by its children.
    environment = os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": ""}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.count("the test prints") == 1
    assert done.stdout.count("the tool prints") == 3, "one call in the first scenario, two in the other"


def test_threads_of_the_tool_count_as_part_of_its_call(kit: Once) -> None:
    def tool(invoice: int) -> Any:
        errors: list[Exception] = []

        def work() -> None:
            try:
                shop.held(invoice)
            except onceward.Error as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]

    report = kit(tool, 42, effect="shop.pay").report(Kind.REPEATS, Kind.KILLED).assert_once()
    assert report.lines[1].replayed == 2
    assert report.verdict("killed before the effect") is Verdict.HELD
