"""Results that are ready for one event loop share one wake-up of it: in order, in every loop, and none is lost."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import Any

import onceward
import pytest
import scene
from onceward import Ledger

CALLS = 200


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts how often another thread wakes it."""

    def __init__(self) -> None:
        super().__init__()
        self.woken = 0

    def call_soon_threadsafe(self, *args: Any, **kwargs: Any) -> Any:
        self.woken += 1
        return super().call_soon_threadsafe(*args, **kwargs)


def run_in(loop: asyncio.AbstractEventLoop, coroutine: Any) -> Any:
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def test_many_results_share_one_wake_up(ledger: Ledger) -> None:
    @ledger.once(operation="pay", key=["n"])
    async def pay(n: int) -> int:
        return n

    async def main() -> list[int]:
        return await asyncio.gather(*(pay(n) for n in range(CALLS)))

    loop = CountingLoop()
    assert run_in(loop, main()) == list(range(CALLS))
    # Each call waits for its claim and for its outcome.
    assert loop.woken < CALLS, f"{loop.woken} wake-ups for {2 * CALLS} results"


def test_results_come_in_the_order_in_which_they_are_ready(ledger: Ledger) -> None:
    """Claims of one batch of writes are granted in order, so they arrive in order."""
    began: list[int] = []

    @ledger.once(operation="pay", key=["n"])
    async def pay(n: int) -> int:
        began.append(n)
        return n

    async def main() -> None:
        await asyncio.gather(*(pay(n) for n in range(CALLS)))

    asyncio.run(main())
    moved = sum(1 for one, other in zip(began, began[1:], strict=False) if one > other)
    # Two threads of the runtime may change the order of neighbours, and nothing else does.
    assert sorted(began) == list(range(CALLS)) and moved < CALLS / 4, began


def test_several_loops_get_their_own_results(ledger: Ledger, effects: scene.Effects) -> None:
    @ledger.once(operation="pay", key=["loop", "n"])
    async def pay(loop: int, n: int) -> str:
        effects.add(f"{loop}-{n}")
        return f"{loop}-{n}"

    failures: list[BaseException] = []

    def thread(loop: int) -> None:
        async def main(first: int) -> None:
            found = await asyncio.gather(*(pay(loop, n) for n in range(first, first + 20)))
            assert found == [f"{loop}-{n}" for n in range(first, first + 20)]

        try:
            # Several loops on one thread, one after the other, and then one for all.
            for first in range(0, 100, 20):
                asyncio.run(main(first))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=thread, args=(loop,)) for loop in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
        assert not one.is_alive(), "a loop waits for ever"
    assert failures == [] and effects.repeated() == {} and effects.count() == 400


def test_two_loops_that_take_turns_on_one_thread(ledger: Ledger) -> None:
    @ledger.once(operation="pay", key=["n"])
    async def pay(n: int) -> int:
        return n

    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        for n in range(20):
            loop = (first, second)[n % 2]
            # The other loop stops with a call under way, and goes on with it later.
            waiting = [loop.create_task(pay(10 * n + one)) for one in range(3)]
            loop.run_until_complete(waiting[0])
            (second, first)[n % 2].run_until_complete(pay(1000 + n))
            assert loop.run_until_complete(asyncio.gather(*waiting)) == [10 * n + one for one in range(3)]
    finally:
        first.close()
        second.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_claims_for_a_loop_that_was_closed_are_given_back(ledger: Ledger) -> None:
    ran: list[int] = []

    @ledger.once(operation="pay", key=["n"])
    async def pay(n: int) -> int:
        ran.append(n)
        return n

    for turn in range(10 * scene.ROUNDS):
        loop = asyncio.new_event_loop()
        tasks = [loop.create_task(pay(100 * turn + n)) for n in range(8)]
        # One step: every call has asked for its claim. Then the loop ends before, while or after the claims come.
        loop.run_until_complete(asyncio.sleep(0 if turn % 3 else 0.001))
        if turn % 2:
            scene.time.sleep(0.003)
        loop.close()
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        del tasks
    keys = {one.key for one in ledger.list(limit=None)}
    scene.wait_until(lambda: not ledger.list(state="running"))
    states = {one.status for one in ledger.list(limit=None)}
    assert keys and states <= {"open", "done"}, states
    for n in range(8):
        assert asyncio.run(onceward.options(pay, wait="20s")(n)) == n
    assert len(ran) == len(set(ran))


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("is_running", [False, True])
def test_a_loop_that_is_dropped_without_an_end_gives_its_claims_back(ledger: Ledger, is_running: bool) -> None:
    """Nothing of ours may keep it alive: results that it never takes, or work whose claim may be lost."""
    ran: list[int] = []

    # Claims that others may take over are watched.
    @ledger.once(operation="pay", key=["n"], in_doubt="retry" if is_running else "hold")
    async def pay(n: int) -> int:
        ran.append(n)
        if is_running:
            await asyncio.get_running_loop().create_future()
        return n

    async def begun(n: int) -> None:
        while n not in ran:
            await asyncio.sleep(0.001)

    loops = []
    for n in range(10):
        loop = CountingLoop()
        task = loop.create_task(pay(n))
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        # Until the work has begun; or one step, in which the call asks for its claim, which comes when the loop has stopped. On a
        # busy machine it may come within that step: then the work is done.
        loop.run_until_complete(begun(n) if is_running else asyncio.sleep(0))
        loops.append(weakref.ref(loop))
        scene.wait_until(lambda: loop.woken > 0 or n in ran)  # noqa: B023
        del loop, task

    def are_gone() -> bool:
        gc.collect()
        return all(loop() is None for loop in loops)

    scene.wait_until(are_gone)
    scene.wait_until(lambda: not ledger.list(state="running"))
    states = sorted(one.status for one in ledger.list())
    assert states == ["in_doubt"] * 10 if is_running else ["done"] * len(ran) + ["open"] * (10 - len(ran)), states
    assert is_running or len(ran) < 10, "every claim came while its loop ran, so this proves nothing"


def test_an_error_for_one_call_does_not_hold_the_others(ledger: Ledger) -> None:
    @ledger.once(operation="pay", key=["n"])
    async def pay(n: int) -> int:
        if n % 3 == 0:
            raise onceward.Permanent("never")
        return n

    async def main() -> list[Any]:
        first = await asyncio.gather(*(pay(n) for n in range(60)), return_exceptions=True)
        # The outcomes of these come from the ledger at once or later, as errors and as results.
        again = await asyncio.gather(*(pay(n) for n in range(60)), return_exceptions=True)
        assert [type(one) for one in again if isinstance(one, Exception)] == [onceward.Failed] * 20
        return first

    found = asyncio.run(asyncio.wait_for(main(), 60))
    assert [one for one in found if isinstance(one, int)] == [n for n in range(60) if n % 3]


def test_a_child_does_not_take_the_results_of_its_parent(store: str, effects: scene.Effects) -> None:
    """Forks in the middle of a loop with claims on their way. The child ends, with the loop that it has inherited."""
    code = """
        import asyncio, os, sys, time
        import onceward, scene

        ledger, effects = onceward.Ledger(sys.argv[1]), scene.Effects(sys.argv[2])

        @ledger.once(operation="pay", key=["n"])
        async def pay(n: int) -> int:
            effects.add(n)
            return n

        async def main():
            for turn in range(10):
                tasks = [asyncio.ensure_future(pay(100 * turn + n)) for n in range(20)]
                await asyncio.sleep(0)
                # Claims are ready now, or a thread is about to wake the loop.
                time.sleep(0.0005 * turn)
                child = os.fork()
                if child == 0:
                    # The child drops what it has inherited, and works with a loop of its own.
                    asyncio._set_running_loop(None)
                    assert asyncio.new_event_loop().run_until_complete(pay(10_000 + turn)) == 10_000 + turn
                    sys.stdout.flush()
                    os._exit(0)
                assert await asyncio.gather(*tasks) == [100 * turn + n for n in range(20)]
                assert os.waitpid(child, 0)[1] == 0

        asyncio.run(main())
        assert not ledger.list(state="in_doubt") and not ledger.list(state="open")
        print("whole")
    """
    done = scene.run(code, store, effects.path)
    assert done.stdout == "whole\n", f"{done.returncode} {done.stderr}"
    assert effects.repeated() == {} and effects.count() == 210


@pytest.mark.parametrize("calls", [1, 50])
def test_the_interpreter_ends_with_results_on_their_way(store: str, calls: int) -> None:
    code = """
        import asyncio, sys
        import onceward

        ledger = onceward.Ledger(sys.argv[1])

        @ledger.once(operation="pay", key=["n"])
        async def pay(n: int) -> int:
            return n

        async def main():
            for n in range(int(sys.argv[2])):
                task = asyncio.ensure_future(pay(n))
                task._log_destroy_pending = False
            await asyncio.sleep(0)
            sys.exit(0)

        asyncio.run(main())
    """
    for _ in range(3 * scene.ROUNDS):
        done = scene.run(code, store, calls)
        assert done.returncode == 0, done.stderr
    with Ledger(store) as ledger:
        assert {one.status for one in ledger.list(limit=None)} <= {"open", "done"}
