"""Ctrl-C while a call waits, while it works, and at any other moment. Each program is a process of its own."""

from __future__ import annotations

import random
import signal
import sys
import time
from types import FrameType
from typing import Any

import onceward
import pytest
import scene
from onceward import Ledger

WAITS = """
import sys, threading, onceward
ledger = onceward.Ledger(sys.argv[1])
may_end, has_begun = threading.Event(), threading.Event()

@ledger.once(operation="pay")
def pay(n: int) -> int:
    has_begun.set()
    print("began", flush=True)
    assert may_end.wait(20)
    return n

owner = threading.Thread(target=pay, args=(1,))
owner.start()
has_begun.wait(20)
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
began = {}

def interrupt(*_):
    # At most once in each call: a second one would come while the first is handled.
    if state["armed"]:
        state["armed"] = False
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, interrupt)
signal.signal(signal.SIGUSR1, lambda *_: state.update(stop=True))

@ledger.once(operation="pay", key=["n"])
def pay(n: int) -> int:
    # No signal is noticed before this is done.
    began[n] = True
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
began = {onceward.key_of(pay, one) for one in began}
print(len([one for one in ledger.list(state="in_doubt", limit=None) if one.key not in began]))
"""


def interrupt_again_and_again(ledger: Ledger, store: str, effects: scene.Effects) -> None:
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
    assert ledger.list(state="done", limit=1)
    out, err = process.communicate("\n", timeout=20)
    assert (process.returncode, err) == (0, "")
    assert out == "0\n", "doubts of work that never began"


def test_ctrl_c_at_any_moment_loses_no_claim_and_leaves_no_doubt_of_work_that_never_began(
    ledger: Ledger, store: str, effects: scene.Effects
) -> None:
    interrupt_again_and_again(ledger, store, effects)


def test_a_claim_that_is_dropped_before_its_work_begins_is_given_back(ledger: Ledger) -> None:
    """As when Ctrl-C comes between the claim and the work."""
    for turn, end in enumerate((lambda claim: None, lambda claim: claim.abandon(), lambda claim: claim.give_back())):
        call = ledger.call("pay", key=str(turn))
        claim = call._operation.native.start(None, *call._parts)
        end(claim)
        del claim
        scene.wait_until(lambda: not ledger.list(state="running"))
        intent = ledger.get("pay", str(turn))
        assert intent is not None and intent.status == "open"
        assert call.run(lambda: 1) == 1


def test_a_claim_that_is_dropped_after_its_work_began_is_in_doubt(ledger: Ledger) -> None:
    call = ledger.call("pay", key="a")
    claim = call._operation.native.start(None, *call._parts)
    claim.begin()
    del claim
    scene.wait_until(lambda: len(ledger.list(state="in_doubt")) == 1)


@pytest.mark.skipif(sys.gettrace() is not None, reason="another tool traces the tests")
@pytest.mark.parametrize("how", ["sync", "async"])
def test_ctrl_c_just_before_the_first_step_of_the_work_gives_the_claim_back(ledger: Ledger, how: str) -> None:
    import asyncio

    ran = []

    @ledger.once(operation="pay", key=["n"])
    def pay(n: int) -> None:
        ran.append(n)

    @ledger.once(operation="pay", key=["n"])
    async def pay_async(n: int) -> None:
        ran.append(n)

    code = (pay if how == "sync" else pay_async).__wrapped__.__code__  # type: ignore[attr-defined]

    def trace(frame: FrameType, event: str, _: Any) -> None:
        # Here Python looks for signals too.
        if frame.f_code is code and event == "call":
            sys.settrace(None)
            raise KeyboardInterrupt

    sys.settrace(trace)
    try:
        with pytest.raises(KeyboardInterrupt):
            pay(1) if how == "sync" else asyncio.run(pay_async(1))
    finally:
        sys.settrace(None)
    scene.wait_until(lambda: [one.status for one in ledger.list()] == ["open"])
    assert ran == [] and onceward.options(pay, wait="20s")(1) is None and ran == [1]
