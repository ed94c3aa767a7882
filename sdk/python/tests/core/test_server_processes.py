"""Forks, exits, cancelled tasks and Ctrl-C with ledgers in PostgreSQL and Redis. Each program is a process of its own."""

from __future__ import annotations

import os
import sys

import pytest
import scene
import test_exit
import test_fork
import test_interrupts
from onceward import Ledger

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

FORK = (
    test_fork.SETUP
    + """
pay(0)
def work():
    for n in range(40):
        assert pay(n) == f"paid {n}"
    async def many():
        return await asyncio.gather(*(pay_async(n) for n in range(40, 60)))
    assert asyncio.run(many()) == [f"paid {n}" for n in range(40, 60)]
    # A child of the child opens the store once more.
    if sys.argv[3] == "twice":
        sys.argv[3] = "once"
        assert ended(child(work)) == 0
os.chdir("/")
pids = [child(work) for _ in range(3)]
for n in range(60):
    pay(n)
assert [ended(pid) for pid in pids] == [0] * 3
"""
)


@needs_fork
@pytest.mark.parametrize("how", ["once", "twice"])
def test_parent_and_children_use_a_server_at_once(server: str, effects: scene.Effects, how: str) -> None:
    scene.check(FORK, server, effects.path, how, options=scene.QUIET_FORKS)
    assert sorted(map(int, effects.all())) == list(range(60))


@needs_fork
def test_a_child_does_not_end_the_claims_of_its_parent(server: str, effects: scene.Effects) -> None:
    code = (
        test_fork.SETUP
        + """
def work():
    assert ended(child(lambda: pay(1))) == 0
    return "parent"
assert ledger.call("own", key="a").run(work) == "parent"
assert ledger.get("own", "a").status == "done" and pay(1) == "paid 1"
"""
    )
    scene.check(code, server, effects.path, options=scene.QUIET_FORKS)
    assert effects.all() == ["1"]


@pytest.mark.parametrize(
    "name",
    [
        "daemon threads that call",
        "daemon threads with loops",
        "a daemon thread that waits",
        "tasks that nothing waits for",
        "a loop that is left as it is",
        "sys.exit in a task",
        "a closed ledger",
    ],
)
def test_the_interpreter_ends_without_a_hang_or_a_crash(server: str, effects: scene.Effects, name: str) -> None:
    code, expected = test_exit.PROGRAMS[name]
    done = scene.run(test_exit.SETUP + code, server, effects.path)
    assert (done.returncode, done.stderr) == (expected, ""), f"{done.returncode}\n{done.stderr}"
    assert effects.repeated() == {}


CANCEL = """
import asyncio, collections, random, sys, onceward, scene
effects = scene.Effects(sys.argv[2])
ledger = onceward.Ledger(sys.argv[1])
chance = random.Random(1)
began = set()

@ledger.once(operation="pay", key=["n"], wait="20s")
async def pay(n: int) -> int:
    began.add(n)
    effects.add(n)
    return n

async def cancelled(n):
    task = asyncio.ensure_future(pay(n))
    await asyncio.sleep(chance.random() * 0.02)
    task.cancel()
    await asyncio.wait([task])

async def main():
    await asyncio.gather(*(cancelled(n) for n in range(100)))
    never_ran = set(range(100)) - began
    assert [await pay(n) for n in never_ran] == list(never_ran)

asyncio.run(main())
assert not ledger.list(state="running") and not ledger.list(state="open")
"""


def test_tasks_that_are_cancelled_before_their_work_leave_no_doubt(server: str, effects: scene.Effects) -> None:
    scene.check(CANCEL, server, effects.path)
    assert effects.repeated() == {} and effects.count() == 100


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such signals")
def test_ctrl_c_at_any_moment_loses_no_claim(server: str, effects: scene.Effects) -> None:
    with Ledger(server) as ledger:
        test_interrupts.interrupt_again_and_again(ledger, server, effects)


@pytest.mark.parametrize("how", ["sync", "async"])
def test_ctrl_c_in_the_work_is_a_doubt(server: str, how: str) -> None:
    assert test_interrupts.interrupted(test_interrupts.WORKS, server, how) < 5
