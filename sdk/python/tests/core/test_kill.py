"""Processes that are killed in the middle of a call: each call is done once or in doubt; no effect happens twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time

import pytest
import scene
from onceward import InDoubt, Ledger, key_of

WORKER = """
import asyncio, os, random, sys, time, onceward, scene
store, path, first, how = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
effects = scene.Effects(path)
ledger = onceward.Ledger(store)

@ledger.once(operation="pay", key=["n"])
def pay(n: int) -> str:
    effects.add(n)
    return f"paid {n}"

@ledger.once(operation="pay", key=["n"])
async def pay_async(n: int) -> str:
    effects.add(n)
    return f"paid {n}"

async def many():
    n = first
    while True:
        await asyncio.gather(*[pay_async(n + i) for i in range(5)])
        n += 5

print("began", flush=True)
if how == "async":
    asyncio.run(many())
n = first
while True:
    pay(n)
    n += 1
"""

# How many processes are killed. Two run at a time, because the machine has few cores.
KILLS = int(os.environ.get("ONCEWARD_TEST_ROUNDS", "0")) * 20 or 40
APART = 1_000_000


def test_processes_that_are_killed_repeat_nothing(ledger: Ledger, store: str, effects: scene.Effects) -> None:
    @ledger.once(operation="pay", key=["n"])
    def pay(n: int) -> str:
        effects.add(n)
        return f"paid {n}"

    chance = random.Random(11)
    running: list[subprocess.Popen[str]] = []
    for index in range(KILLS):
        how = "async" if index % 2 else "sync"
        running.append(scene.start(WORKER, store, effects.path, index * APART, how))
        if len(running) == 2:
            killed(running.pop(0), chance)
    for process in running:
        killed(process, chance)

    happened = {int(name) for name in effects.all()}
    assert effects.repeated() == {} and len(happened) > KILLS
    doubts = {one.key for one in ledger.list(state="in_doubt", limit=10_000)}
    assert not ledger.list(state="running"), "the owners are gone"
    # Each process was in one call, or in five, when it was killed.
    assert 0 < len(doubts) <= KILLS * 3
    for index in range(KILLS):
        last = max((n for n in happened if n // APART == index), default=index * APART)
        for n in range(max(index * APART, last - 8), last + 8):
            key = key_of(pay, n)
            if key in doubts:
                with pytest.raises(InDoubt):
                    pay(n)
            else:
                assert pay(n) == f"paid {n}"
    assert effects.repeated() == {}
    for key in doubts:
        ledger.resolve("pay", key, happened=True, result="settled")
    assert not ledger.list(state="in_doubt")


def killed(process: subprocess.Popen[str], chance: random.Random) -> None:
    assert process.stdout is not None and process.stdout.readline() == "began\n"
    time.sleep(chance.random() * 0.03)
    process.send_signal(signal.SIGKILL)
    _, err = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGKILL and err == "", err


def test_an_owner_that_is_killed_is_noticed_at_once(ledger: Ledger, store: str) -> None:
    code = """
    import sys, time, onceward
    ledger = onceward.Ledger(sys.argv[1])
    def work():
        print("began", flush=True)
        time.sleep(30)
    ledger.call("pay", key="a").run(work)
    """
    process = scene.start(code, store)
    assert process.stdout is not None and process.stdout.readline() == "began\n"
    process.kill()
    process.communicate()
    start = time.monotonic()
    with pytest.raises(InDoubt):
        ledger.call("pay", key="a", wait="20s").run(lambda: 1)
    assert time.monotonic() - start < 2


def test_a_waiting_caller_learns_that_the_owner_was_killed(ledger: Ledger, store: str) -> None:
    code = """
    import sys, time, onceward
    ledger = onceward.Ledger(sys.argv[1])
    def work():
        print("began", flush=True)
        time.sleep(30)
    ledger.call("pay", key="a", in_doubt="retry").run(work)
    """
    process = scene.start(code, store)
    assert process.stdout is not None and process.stdout.readline() == "began\n"
    import threading

    threading.Timer(0.2, process.kill).start()
    start = time.monotonic()
    try:
        result = ledger.call("pay", key="a", in_doubt="retry", wait="20s").run(lambda: 5)
    except Exception as error:
        assert type(error).__name__ in ("OwnerUnknown", "InDoubt")
        result = ledger.call("pay", key="a", in_doubt="retry").run(lambda: 5)
    assert result == 5 and time.monotonic() - start < 10
    process.communicate()
