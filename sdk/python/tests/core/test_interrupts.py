"""Ctrl-C while a call waits, while it works, and at any other moment. Each program is a process of its own."""

from __future__ import annotations

import random
import signal
import time

import pytest
import scene
from onceward import Ledger

WAITS = """
import sys, threading, onceward
ledger = onceward.Ledger(sys.argv[1])
may_end = threading.Event()

@ledger.once(operation="pay")
def pay(n: int) -> int:
    print("began", flush=True)
    assert may_end.wait(20)
    return n

owner = threading.Thread(target=pay, args=(1,))
owner.start()
try:
    onceward.options(pay, wait="30s")(1)
except KeyboardInterrupt:
    print("interrupted", flush=True)
may_end.set()
owner.join()
assert pay(1) == 1
"""

WORKS = """
import asyncio, sys, time, onceward
ledger = onceward.Ledger(sys.argv[1])

@ledger.once(operation="sync")
def work(n: int) -> None:
    print("began", flush=True)
    time.sleep(30)

@ledger.once(operation="async")
async def later(n: int) -> None:
    print("began", flush=True)
    await asyncio.sleep(30)

try:
    work(1) if sys.argv[2] == "sync" else asyncio.run(later(1))
except KeyboardInterrupt:
    print("interrupted", flush=True)
    assert [one.status for one in ledger.list()] == ["in_doubt"]
"""


def interrupted(code: str, *arguments: object) -> float:
    """Sends Ctrl-C once the program has begun, and returns how long it took to notice."""
    process = scene.start(code, *arguments)
    assert process.stdout is not None
    assert process.stdout.readline() == "began\n"
    time.sleep(0.1)
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    taken = time.monotonic() - start
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "", "")
    return taken


def test_ctrl_c_ends_a_wait_and_the_owner_goes_on(store: str) -> None:
    assert interrupted(WAITS, store) < 5


@pytest.mark.parametrize("how", ["sync", "async"])
def test_ctrl_c_in_the_work_is_a_doubt(store: str, how: str) -> None:
    assert interrupted(WORKS, store, how) < 5


ALWAYS = """
import signal, sys, onceward, scene
effects = scene.Effects(sys.argv[2])
ledger = onceward.Ledger(sys.argv[1])
state = {"armed": False, "stop": False, "interrupted": 0}

def interrupt(*_):
    # At most once in each call: a second one would come while the first is handled.
    if state["armed"]:
        state["armed"] = False
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, interrupt)
signal.signal(signal.SIGUSR1, lambda *_: state.update(stop=True))

@ledger.once(operation="pay", key=["n"])
def pay(n: int) -> int:
    effects.add(n)
    return n

print("began", flush=True)
n = 0
while not state["stop"]:
    n += 1
    try:
        state["armed"] = True
        assert pay(n) == n
        state["armed"] = False
    except KeyboardInterrupt:
        state["interrupted"] += 1
print(n, state["interrupted"], flush=True)
sys.stdin.readline()
"""


def test_ctrl_c_at_any_moment_loses_no_claim(ledger: Ledger, store: str, effects: scene.Effects) -> None:
    process = scene.start(ALWAYS, store, effects.path)
    assert process.stdout is not None and process.stdout.readline() == "began\n"
    chance = random.Random(3)
    for _ in range(60 * scene.ROUNDS):
        time.sleep(chance.random() * 0.01)
        process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGUSR1)
    calls, times = map(int, process.stdout.readline().split())
    assert times > 10 and calls > times
    # The process lives, so that only its own code can have ended its claims.
    scene.wait_until(lambda: not ledger.list(state="running"))
    assert effects.repeated() == {}
    is_done = {one.key for one in ledger.list(state="done", limit=200)}
    assert is_done
    out, err = process.communicate("\n", timeout=20)
    assert (process.returncode, out, err) == (0, "", "")
