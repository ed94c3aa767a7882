"""Threads and event loops in one process."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import onceward
import pytest
import scene
from onceward import InFlight, Ledger


def test_fifty_threads_do_each_intent_once(ledger: Ledger, effects: scene.Effects) -> None:
    @ledger.once(operation="pay", key=["n"], wait="30s")
    def pay(n: int) -> str:
        effects.add(n)
        return f"paid {n}"

    with ThreadPoolExecutor(50) as pool:
        results = list(pool.map(pay, [n for n in range(40) for _ in range(10)]))
    assert results == [f"paid {n}" for n in range(40) for _ in range(10)]
    assert effects.count() == 40 and effects.repeated() == {}


def test_loops_in_several_threads_share_a_ledger(ledger: Ledger, effects: scene.Effects) -> None:
    @ledger.once(operation="pay", key=["n"], wait="30s")
    async def pay(n: int) -> int:
        effects.add(n)
        await asyncio.sleep(0.001)
        return n

    async def many() -> list[int]:
        return list(await asyncio.gather(*[pay(n) for n in range(50)]))

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda _: asyncio.run(many()), range(6))) == [list(range(50))] * 6
    assert effects.count() == 50 and effects.repeated() == {}


def test_a_hundred_loops_one_after_another(ledger: Ledger) -> None:
    @ledger.once(operation="pay", key=["n"])
    async def pay(n: int) -> int:
        return n

    for n in range(100):
        assert asyncio.run(pay(n)) == n == asyncio.run(pay(n))


def test_sync_and_async_functions_share_an_operation(memory: Ledger) -> None:
    @memory.once(operation="pay")
    def pay(n: int) -> str:
        return "sync"

    @memory.once(operation="pay")
    async def later(n: int) -> str:
        assert pay(n + 100) == "sync"
        return "async"

    assert asyncio.run(later(1)) == "async" and pay(1) == "async"
    assert pay(101) == "sync" and asyncio.run(later(101)) == "sync"


def test_a_claim_belongs_to_its_context(memory: Ledger) -> None:
    @memory.once(operation="pay")
    def pay(n: int) -> list[str]:
        found = [onceward.claim().key]
        thread = threading.Thread(target=lambda: found.append(error_of(onceward.claim)))
        thread.start()
        thread.join()
        return found

    assert pay(1)[1] == "InvalidCall"

    @memory.once(operation="later")
    async def later(n: int) -> bool:
        here = onceward.claim().key
        there = await asyncio.to_thread(lambda: onceward.claim().key)
        return here == there == await asyncio.ensure_future(in_task())

    async def in_task() -> str:
        return onceward.claim().key

    assert asyncio.run(later(1))


def error_of(use) -> str:
    try:
        use()
    except Exception as error:
        return type(error).__name__
    return ""


def test_a_signal_handler_may_call_a_guarded_function(ledger: Ledger) -> None:
    began = threading.Event()

    @ledger.once(operation="pay")
    def pay(n: int) -> int:
        began.set()
        time.sleep(0.5)
        return n

    @ledger.once(operation="log")
    def log(n: int) -> int:
        return n

    logged: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: logged.append(log(7)))
    try:
        owner = threading.Thread(target=pay, args=(1,))
        owner.start()
        assert began.wait(20)
        threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGUSR1]).start()
        assert onceward.options(pay, wait="20s")(1) == 1
        owner.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert logged == [7]


def test_many_ledgers_can_be_opened_and_closed(tmp_path) -> None:
    threads = threading.active_count()
    for n in range(20):
        with Ledger(tmp_path / f"{n % 3}.db") as ledger:
            ledger.call("pay", key=f"{n}").run(lambda: 1)
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) < 200 if os.path.exists("/proc/self/fd") else True


def test_two_handles_of_one_file_agree(store: str) -> None:
    with Ledger(store) as one, Ledger(store) as other:
        began, may_end = threading.Event(), threading.Event()

        def work() -> int:
            began.set()
            assert may_end.wait(20)
            return 1

        thread = threading.Thread(target=one.call("pay", key="a").run, args=(work,))
        thread.start()
        assert began.wait(20)
        with pytest.raises(InFlight):
            other.call("pay", key="a").run(lambda: 2)
        may_end.set()
        thread.join()
        assert other.call("pay", key="a").run(lambda: 2) == 1
