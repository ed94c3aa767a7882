"""Ends couriers while they deliver: the attempts under way are waited for, and what they did is recorded."""

from __future__ import annotations

import contextlib
import signal
import subprocess

import pytest
import scene
from onceward import Ledger

# Each attempt takes a second, so that all of them are under way when the signal comes.
SLOW = """
import asyncio, sys, time, onceward, scene
store, path, how = sys.argv[1:4]
effects = scene.Effects(path)
ledger = onceward.Ledger(store)

def send(number: int) -> str:
    effects.add(f"begun {number}")
    time.sleep(1)
    effects.add(f"ended {number}")
    return "sent"

async def send_async(number: int) -> str:
    effects.add(f"begun {number}")
    await asyncio.sleep(1)
    effects.add(f"ended {number}")
    return "sent"

try:
    ledger.courier({"mail": send_async if how == "async" else send}).run()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""

CONCURRENCY = {"sync": 8, "async": 32}


def begun(effects: scene.Effects) -> int:
    return sum(name.startswith("begun") for name in effects.all())


@pytest.mark.parametrize("how", ["sync", "async"])
def test_after_ctrl_c_the_attempts_under_way_end_and_are_recorded(
    ledger: Ledger, store: str, effects: scene.Effects, how: str
) -> None:
    for number in range(40):
        ledger.enqueue("mail", number)
    process = scene.start(SLOW, store, effects.path, how)
    scene.wait_until(lambda: begun(effects) == CONCURRENCY[how], 30)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=scene.PROGRAM_SECONDS)
    assert (out, err, process.returncode) == ("interrupted\n", "", 0)
    started = begun(effects)
    assert effects.count() == 2 * started and effects.repeated() == {}
    assert (len(ledger.list(state="done")), len(ledger.list(state="in_doubt"))) == (started, 0)


@pytest.mark.parametrize("how", ["sync", "async"])
def test_after_a_second_ctrl_c_no_attempt_is_waited_for(
    ledger: Ledger, store: str, effects: scene.Effects, how: str
) -> None:
    ledger.enqueue("mail", 1)
    process = scene.start(SLOW.replace("sleep(1)", "sleep(30)"), store, effects.path, how)
    scene.wait_until(lambda: begun(effects) == 1, 30)

    def has_ended() -> bool:
        process.send_signal(signal.SIGINT)
        # Signals that come before the first one is handled count as one.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.3)
        return process.poll() is not None

    scene.wait_until(has_ended, 15)
    process.communicate()
    scene.wait_until(lambda: len(ledger.list(state="in_doubt")) == 1, 30)
    assert effects.all() == ["begun 1"]
